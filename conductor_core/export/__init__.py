"""Writes plans for other programs: lists, JSON, Mermaid, SVG, and scripts for four frameworks. Reads traces only."""
