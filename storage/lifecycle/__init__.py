"""Whole databases and whole runs: backup and restore, deletion, erasure, holds."""
