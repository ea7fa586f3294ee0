"""The Training page: curves, charts and samples of a training."""
