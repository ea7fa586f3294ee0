"""One run as data: its request, events, trace and commands, and what follows from them. Calls no model."""
