"""Blame: which step, and which access granted or withheld, decided a run's answer. Measured by replays."""
