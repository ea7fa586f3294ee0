"""The commands of `python -m storage`."""
