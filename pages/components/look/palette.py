"""Agent colours outside the live component. A test compares them with its CSS variables (``--agent-0`` to ``-7``)."""

from collections.abc import Sequence

LIGHT = ("#7c5cff", "#12855c", "#c2410c", "#1d63d8", "#0e7490", "#b0308a", "#8a6d00", "#475569")
DARK = ("#9b82ff", "#3fb77f", "#f0713a", "#5b9bff", "#38b5cf", "#e06fbd", "#d3ad2e", "#94a3b8")
NO_AGENT_LIGHT, NO_AGENT_DARK = "#6b7280", "#9ca3af"


def agent_colour(agent: str, agents: Sequence[str], *, dark: bool) -> str:
    """Returns the colour of ``agent`` in a pool of ``agents``; grey for one outside it, such as the Conductor."""
    colours = DARK if dark else LIGHT
    if agent not in agents:
        return NO_AGENT_DARK if dark else NO_AGENT_LIGHT
    return colours[agents.index(agent) % len(colours)]


def agent_dot(agent: str, agents: Sequence[str]) -> str:
    """Returns HTML of a dot in the agent's colour, in either theme."""
    light, dark = (agent_colour(agent, agents, dark=dark) for dark in (False, True))
    return f'<i class="agent-dot" style="background: light-dark({light}, {dark})"></i>'
