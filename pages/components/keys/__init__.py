"""The service keys of the endpoint."""
