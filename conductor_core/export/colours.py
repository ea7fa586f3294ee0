"""The colours of agents in the light theme. The page's palette takes them from here."""

from collections.abc import Sequence

LIGHT = ("#7c5cff", "#12855c", "#c2410c", "#1d63d8", "#0e7490", "#b0308a", "#8a6d00", "#475569")
NO_AGENT_LIGHT = "#6b7280"


def agent_colour(agent: str, agents: Sequence[str], colours: Sequence[str] = LIGHT, none: str = NO_AGENT_LIGHT) -> str:
    """Returns the colour of ``agent`` in a pool of ``agents``; ``none`` for one outside it, such as the Conductor."""
    return colours[agents.index(agent) % len(colours)] if agent in agents else none
