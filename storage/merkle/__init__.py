"""The chain of each run and the Merkle tree: their formats, and what writes them with the events."""
