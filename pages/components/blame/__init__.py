"""The parts of the Blame page: replays that this app carries out, the graph with effects, the ranking."""
