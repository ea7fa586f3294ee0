"""A migration for each version of the schema."""
