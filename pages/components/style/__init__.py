"""How things look: colours, figures, formats of numbers and texts, names and glyphs of statuses, style sheets."""
