"""The parts of the Blame page."""
