"""Reads by rule what a model's text says its answer is, for graders and for people who look at a run."""
