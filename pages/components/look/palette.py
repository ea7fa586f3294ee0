"""Agent colours outside the live component. A test compares them with its CSS variables (``--agent-0`` to ``-7``)."""

from collections.abc import Sequence

from conductor_core.export import colours
from conductor_core.export.colours import LIGHT, NO_AGENT_LIGHT

DARK = ("#9b82ff", "#3fb77f", "#f0713a", "#5b9bff", "#38b5cf", "#e06fbd", "#d3ad2e", "#94a3b8")
NO_AGENT_DARK = "#9ca3af"


def agent_colour(agent: str, agents: Sequence[str], *, dark: bool) -> str:
    """Returns the colour of ``agent`` in a pool of ``agents``; grey for one outside it, such as the Conductor."""
    shades, none = (DARK, NO_AGENT_DARK) if dark else (LIGHT, NO_AGENT_LIGHT)
    return colours.agent_colour(agent, agents, shades, none)


def agent_dot(agent: str, agents: Sequence[str]) -> str:
    """Returns HTML of a dot in the agent's colour, in either theme."""
    light, dark = (agent_colour(agent, agents, dark=dark) for dark in (False, True))
    return f'<i class="agent-dot" style="background: light-dark({light}, {dark})"></i>'
