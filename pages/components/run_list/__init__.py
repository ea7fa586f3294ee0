"""The rows by which every page shows runs to choose from: by task, each re-run below the run that it came from."""
