"""The first screen: what this is, three steps, the tour, and a story in three beats from two recorded runs."""
