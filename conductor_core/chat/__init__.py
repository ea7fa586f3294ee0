"""What goes to a model and what comes back."""
