"""Research: evaluation, training, and the records that both write."""
