"""What all figures share: colours of agents, marks of difficulties, a plain frame, and names beside the curves.

Names stand there instead of a legend. A test compares the colours with the live component's CSS variables
(``--agent-0`` to ``-7``). A mark goes by the difficulty's name, so a suite with only some of them has the same marks.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar

import streamlit as st
from markupsafe import Markup

from conductor_core.export import picture
from conductor_core.export.picture import LIGHT, NO_AGENT_LIGHT
from pages.components.style.formats import html

T = TypeVar("T")

DARK = ("#9b82ff", "#3fb77f", "#f0713a", "#5b9bff", "#38b5cf", "#e06fbd", "#d3ad2e", "#94a3b8")
NO_AGENT_DARK = "#9ca3af"


def agent_colour(agent: str, agents: Sequence[str], *, dark: bool) -> str:
    """Returns the colour of ``agent`` in a pool of ``agents``; grey for one outside it, such as the Conductor."""
    shades, none = (DARK, NO_AGENT_DARK) if dark else (LIGHT, NO_AGENT_LIGHT)
    return picture.agent_colour(agent, agents, shades, none)


def colour_name(agent: str, agents: Sequence[str]) -> str:
    return f"agent-{agents.index(agent) % 8}" if agent in agents else "agent-none"


def agent_dot(agent: str, agents: Sequence[str]) -> Markup:
    return html("style/parts", "agent_dot", colour=both_colours(agent, agents))


def both_colours(agent: str, agents: Sequence[str]) -> str:
    light, dark = (agent_colour(agent, agents, dark=dark) for dark in (False, True))
    return f"light-dark({light}, {dark})"


Figure = Mapping[str, Any]

# Colours by name, for the light and the dark theme. A colour stands for an agent or a status; all else is ink.
PALETTE: Mapping[str, tuple[str, str]] = {
    "ink": ("#1a1f2b", "#e8ebf0"),
    "muted": ("#59616f", "#a3acba"),
    "soft": ("#8b93a1", "#77808f"),
    "faint": ("#c9ced6", "#3d4554"),
    "line": ("#e3e6eb", "#2a3140"),
    "surface": ("#ffffff", "#0d1117"),
    # Kinds of failures, in the colours of the statuses that they are like.
    "kind-failed": ("#b42318", "#ff8a80"),
    "kind-limited": ("#8a5300", "#f0b557"),
    "kind-empty": ("#59616f", "#a3acba"),
    "kind-refused": ("#7a3fb0", "#c39bf0"),
    "kind-looping": ("#2450c8", "#8aa8ff"),
    "kind-corrected": ("#0f7a55", "#4cc38a"),
    "tone-0": ("#4b5362", "#b9c1cd"),
    "tone-1": ("#8d96a5", "#7d8797"),
    "tone-2": ("#c8ced7", "#49525f"),
    **{f"agent-{number}": pair for number, pair in enumerate(zip(LIGHT, DARK, strict=True))},
    "agent-none": (NO_AGENT_LIGHT, NO_AGENT_DARK),
    # The same, translucent, for bands that cross.
    **{
        f"soft-agent-{number}": (f"{pair[0]}59", f"{pair[1]}66")
        for number, pair in enumerate(zip(LIGHT, DARK, strict=True))
    },
    "soft-agent-none": (f"{NO_AGENT_LIGHT}59", f"{NO_AGENT_DARK}66"),
}
LINE_HEIGHT_PX = 15.0
TOP_PX, BOTTOM_PX = 22, 30


def layout(height: int, *, right: int = 96, x: str = "", y: str = "", **more: Any) -> dict[str, Any]:
    """Returns Plotly's layout for a figure without decoration.

    ``right`` is the room for names beside the curves; ``height`` and ``right`` are in pixels. ``x``, ``y``: what the
    axes say.
    """
    titles = {name: {"title": {"text": text, "standoff": px}} for name, text, px in (("x", x, 6), ("y", y, 4)) if text}
    axis = {"zeroline": False, "linecolor": "@line", "tickcolor": "@line", "automargin": False}
    return {
        "height": height,
        "margin": {"l": 44, "r": right, "t": TOP_PX, "b": BOTTOM_PX},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "@font", "size": 12, "color": "@muted"},
        "showlegend": False,
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": "@surface", "bordercolor": "@line", "font": {"color": "@ink", "size": 12}},
        "dragmode": "zoom",
        # This value is the same at each update, so that zoom and selection stay as they are.
        "uirevision": "same",
        **more,
        "xaxis": {**axis, "showgrid": False, "showline": True, **titles.get("x", {}), **more.get("xaxis", {})},
        "yaxis": {**axis, "gridcolor": "@line", "fixedrange": True, **titles.get("y", {}), **more.get("yaxis", {})},
    }


def log_axis(least: float, most: float, form: str) -> dict[str, Any]:
    """Returns a logarithmic axis with ticks at 1, 2 and 5 times the powers of ten, written by ``form``."""
    ticks = [factor * 10.0**power for power in range(-3, 7) for factor in (1, 2, 5)]
    texts = [form.format(tick) for tick in ticks]
    return {"type": "log", "range": [math.log10(least), math.log10(most)], "tickvals": ticks, "ticktext": texts}


def bars(
    named: Iterable[tuple[str, str, Sequence[float]]], xs: Sequence[str], height: int, *, form: str = "", **more: Any
) -> Figure:
    """Returns stacked bars at ``xs``.

    Args:
        named: each part's name, colour and values.
        form: how a hover writes a value; empty: as Plotly does. more: of the layout.
    """
    data = []
    for name, colour, ys in named:
        said = {"hovertemplate": f"{plain(name)}: {form}<extra></extra>"} if form else {}
        data.append({"type": "bar", "name": plain(name), "x": xs, "y": ys, "marker": {"color": colour}, **said})
    xaxis = {"type": "category", "nticks": 12, **more.pop("xaxis", {})}
    yaxis = {"rangemode": "tozero", **more.pop("yaxis", {})}
    return {"data": data, "layout": layout(height, right=12, barmode="stack", xaxis=xaxis, yaxis=yaxis, **more)}


def whiskers(low: Sequence[float], values: Sequence[float], high: Sequence[float], **look: Any) -> dict[str, Any]:
    """Returns Plotly's error bars from ``low`` to ``high`` around ``values``."""
    above = [end - value for end, value in zip(high, values, strict=True)]
    below = [value - end for end, value in zip(low, values, strict=True)]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def thinned(points: Sequence[T], most: int) -> list[T]:
    """Returns at most ``most`` points, spread evenly, with both ends."""
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def scatter(mode: str, xs: Iterable[Any], ys: Iterable[Any], **more: Any) -> dict[str, Any]:
    """Returns one of Plotly's traces. ``mode`` is ``lines`` or ``markers``."""
    return {"type": "scatter", "mode": mode, "x": list(xs), "y": list(ys), **more}


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Returns positions as near to ``wanted`` as possible, at least ``gap`` apart, in the same order.

    Neighbours that would touch become a block around the mean of their wanted positions.
    """
    blocks: list[list[int]] = []
    for index in sorted(range(len(wanted)), key=lambda index: wanted[index]):
        block = [index]
        while blocks and _begin(block, wanted, gap) < _begin(blocks[-1], wanted, gap) + gap * len(blocks[-1]):
            block = blocks.pop() + block
        blocks.append(block)
    placed = [0.0] * len(wanted)
    for block in blocks:
        for rank, index in enumerate(block):
            placed[index] = _begin(block, wanted, gap) + gap * rank
    return placed


def _begin(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return sum(wanted[index] for index in block) / len(block) - gap * (len(block) - 1) / 2


def names_beside(
    ends: Sequence[tuple[str, float]], y_range: tuple[float, float], height: int, colours: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Returns annotations that name each curve at the height of its end, to the right of the figure.

    No name lies over another. ``height`` is in pixels. A name that ``colours`` does not have is in ink.
    """
    low, high = y_range
    plot_px = height - TOP_PX - BOTTOM_PX
    wanted = [(min(max(value, low), high) - low) / (high - low) * plot_px for _, value in ends]
    x_place = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 8}
    place = {**x_place, "y": 0, "yref": "paper", "yanchor": "middle", "showarrow": False, "align": "left"}
    return [
        {"text": plain(name), "yshift": at_px, "font": {"color": colours.get(name, "@ink"), "size": 12}, **place}
        for (name, _), at_px in zip(ends, apart(wanted, LINE_HEIGHT_PX), strict=True)
    ]


def plain(text: str) -> str:
    """Returns ``text`` without what Plotly would read as HTML, a template or one of our colours."""
    return text.replace("<", "‹").replace(">", "›").replace("%{", "% {").replace("@", "＠")


# Marks of difficulties.


class Mark(NamedTuple):
    symbol: str
    sign: str


_CIRCLE = Mark("circle-open", "○")
_USUAL = {"": _CIRCLE, "easy": _CIRCLE, "medium": Mark("diamond-open", "◇"), "hard": Mark("square", "■")}
_TRIANGLES = {"up": "△", "down": "▽", "right": "▷", "left": "◁"}
_OTHERS = (*(Mark(f"triangle-{way}-open", sign) for way, sign in _TRIANGLES.items()), Mark("star-open", "☆"))


def marks(names: Sequence[str]) -> Mapping[str, Mark]:
    """Returns a mark for each name. The usual three have their own; from the sixth other on, marks repeat."""
    others = [name for name in names if name not in _USUAL]
    return {name: _USUAL.get(name) or _OTHERS[others.index(name) % len(_OTHERS)] for name in names}


def legend(names: Sequence[str]) -> str:
    """Returns ``○ easy, ◇ medium, ■ hard``, not escaped."""
    return ", ".join(f"{mark.sign} {name}" for name, mark in marks(names).items() if name)


# The component, which takes names of the palette for colours.

_BY_THEME = [{name: pair[theme] for name, pair in PALETTE.items()} for theme in (0, 1)]
_COMING = '<div class="figure-coming" aria-hidden="true">Drawing the figure…</div>'
_component = cache(st.components.v2.component)  # made when it is first drawn: only a running app can make it


def figure(content: Figure, *, key: str, alt: str, group: str | None = None) -> None:
    """Draws ``content``, whose layout names its ``height``. Call it with the same ``key`` at every rerun.

    Args:
        alt: what it shows, in words.
        group: figures of one group share the zoom of their x axis.
    """
    _component("conductor-inspector.figure", html=_COMING, js="index.js", isolate_styles=False)(
        key=key,
        data={"figure": content, "palette": _BY_THEME, "alt": alt, "group": group},
        width="stretch",
        height=int(content["layout"]["height"]),
    )


def title(name: str, note: str = "") -> None:
    st.html(html("style/parts", "title", name=name, note=note))


@contextmanager
def panel(key: str, name: str, note: str = "") -> Iterator[None]:
    with st.container(border=True, key=key, gap="xsmall"):
        title(name, note)
        yield
