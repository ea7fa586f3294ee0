"""Evaluates the Conductor and its baselines by tasks with known answers and graders."""
