"""An MCP server over the traces, so that a coding agent can debug its own runs. No tool of it writes."""
