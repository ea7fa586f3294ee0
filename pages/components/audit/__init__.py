"""The parts of the Audit page: search, decision record, egress ledger, access log, integrity, export."""
