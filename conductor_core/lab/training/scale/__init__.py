"""Training of real size: real problems, real workers, perhaps many processes."""
