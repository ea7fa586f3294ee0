"""The event log: who writes it, who follows it, and what is read from it."""
