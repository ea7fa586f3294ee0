"""The pages of the inspector, one script each: read the store, show, send a command."""
