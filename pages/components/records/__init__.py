"""Records on disk that a page shows: which there are, and which is chosen."""
