"""A run as a decision record: who asked, what was decided, who saw what, what left and what it cost."""
