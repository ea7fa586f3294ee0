"""Training of Conductors: their settings, folders and records; the stages lie in the rooms below."""
