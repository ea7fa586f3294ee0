"""How things look: colours, drawing, words, dialogs."""
