"""The database: connections, schema, migrations."""
