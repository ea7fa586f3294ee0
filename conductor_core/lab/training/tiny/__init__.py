"""Training against the rehearsal world: cold start, GRPO, recursion."""
