"""Plans as scripts, pictures and lists for other programs; runs as OpenTelemetry traces."""
