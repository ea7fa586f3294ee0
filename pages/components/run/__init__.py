"""The Run page: the task, its settings, the plan under a person's hands."""
