"""Tool servers that workers of a pool may call: those of the Model Context Protocol, and the Python sandbox."""
