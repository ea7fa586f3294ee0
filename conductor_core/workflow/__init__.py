"""The plan language: model, parser, printer, validation, lint, edits, topology, templates. Evaluates nothing."""
