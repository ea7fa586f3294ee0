"""The Run page around its graph: the task, its settings, pre-flight, and the plan that a person edits."""
