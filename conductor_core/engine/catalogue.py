"""What there is to choose from, for the pages: they know the engine and none of the packages below it."""

from conductor_core.conductors import ConductorOption, list_conductors
from conductor_core.rehearsal import EXAMPLES, Example
from conductor_core.workers.pool import check_health, discover_local_servers

__all__ = [
    "EXAMPLES",
    "ConductorOption",
    "Example",
    "check_health",
    "discover_local_servers",
    "list_conductors",
]
