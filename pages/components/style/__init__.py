"""How things look: colours, drawing, words."""
