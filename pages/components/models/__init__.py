"""The user's own models: workers, Conductors, servers found on this machine."""
