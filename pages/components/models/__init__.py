"""Models of one's own: workers, Conductors, servers found on this machine."""
