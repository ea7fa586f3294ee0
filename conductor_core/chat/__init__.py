"""What goes to a model and what comes back: messages with their parts, images, responses, progress, usage."""
