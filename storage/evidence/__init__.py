"""Evidence that the log is as it was written: a chain per run, a Merkle tree, checkpoints signed and kept elsewhere.

``formats``, ``history``, ``database_audit``, ``bundle_audit`` and ``verifier`` import nothing of this program but each
other: ``storage.bundles`` joins them into the one file that an auditor runs.
"""
