"""The parts of the Compare page: two runs, more as a table, rounds of one run, the tree, the file to share."""
