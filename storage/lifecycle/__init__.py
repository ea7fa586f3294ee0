"""Whole databases and whole runs: backup, restore, deletion."""
