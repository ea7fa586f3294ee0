"""Full-text search over the texts of runs, and what auditors ask: who received which text, what failed, what it cost.

All of it is read from the events (``reading``) into tables of its own (``index``), which can always be built again.
"""
