"""Plans for other programs, and runs as OpenTelemetry traces. Reads traces only."""
