"""Runs as rows: chosen, exported, deleted; what cannot be read of them."""
