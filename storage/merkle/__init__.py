"""The formats and the chain that both the writer and the verifier of evidence need."""
