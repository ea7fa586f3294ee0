"""How a server of models is reached, and what its answers and errors mean."""
