"""Readings of finished runs: what they concluded, how they differ, the decision record."""
