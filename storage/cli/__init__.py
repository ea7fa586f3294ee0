"""The commands of ``python -m storage``, a file for each group."""
