"""Who writes the workflow: local models (``local``), servers (``remote``), the prompts and the grammar of a plan."""

from conductor_core.conductors.catalogue import ConductorOption, list_conductors, open_conductor

__all__ = ["ConductorOption", "list_conductors", "open_conductor"]
