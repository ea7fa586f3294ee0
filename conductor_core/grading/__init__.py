"""Graders decide whether an answer is right: one for each kind of task. Each gives its reason in one sentence."""
