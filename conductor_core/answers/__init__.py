"""What a model's text says its answer is: read by rule, for graders and for those who look at a run."""
