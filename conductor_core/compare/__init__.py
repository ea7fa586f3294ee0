"""Compares runs: their plans, the outputs of their steps and why those differ. Pure readings of traces."""
