"""The Run page: the task, its settings, and the plan that a person edits."""
