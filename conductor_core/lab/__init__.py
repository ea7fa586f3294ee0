"""Research: evaluation, training, and the records that both write. Only their commands and pages import it."""
