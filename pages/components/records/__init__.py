"""Records of trainings and evaluations on disk: which there are, and which a page shows."""
