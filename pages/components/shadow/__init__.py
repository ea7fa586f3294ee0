"""The Shadow page: forwarded requests beside the Conductor's runs of them."""
