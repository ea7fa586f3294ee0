"""Encryption of what is stored, with a key for each run, and the settings of what is hidden."""
