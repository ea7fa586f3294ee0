"""The parts of the Context page: who saw what in a run, and of what each prompt consisted."""
