"""The rows of the History page: choosing, exporting and deleting runs, and runs that cannot be read."""
