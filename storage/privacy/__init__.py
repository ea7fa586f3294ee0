"""What is sealed before it is stored, and the settings of that."""
