"""Runs as OpenTelemetry traces, in the words of its GenAI conventions."""
