"""The access log: each view is a record in the log, chained and signed like the rest (docs/audit.md)."""
