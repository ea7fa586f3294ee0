"""Tiers: a classifier, fitted on recorded outcomes, that sends easy requests to one cheap worker.

``features`` reads a request by numpy alone; ``classifier`` is the fitted file; ``outcomes`` finds what both ways
brought; ``curve`` weighs cost against quality. Only ``fitting`` imports scikit-learn.
"""
