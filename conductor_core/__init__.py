"""Conductor Inspector's core: the workflow language, who writes workflows, who answers steps, and the engine."""

__version__ = "0.1.0"
