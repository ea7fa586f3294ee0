"""What must not leave: keys, hidden words, and how they are found."""
