"""The Evaluate page: standings, details and charts of an evaluation."""
