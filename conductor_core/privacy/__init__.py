"""What must not leave: keys and personal data, how they are found, and how they are hidden."""
