"""The graph of a plan as a picture, in the layout and the light colours of the page: SVG, or PNG drawn by resvg.

The page's palette takes the light colours of agents from here.
"""

import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.errors import BadInput
from conductor_core.export.plan import Plan, round_title, shortened
from conductor_core.run.graph_layout import CARD_HEIGHT_PX, Edge, GraphLayout, Node, RoundShape, lay_out
from conductor_core.run.values import label

if TYPE_CHECKING:
    from jinja2 import Template

LIGHT = ("#7c5cff", "#12855c", "#c2410c", "#1d63d8", "#0e7490", "#b0308a", "#8a6d00", "#475569")
NO_AGENT_LIGHT = "#6b7280"


def agent_colour(agent: str, agents: Sequence[str], colours: Sequence[str] = LIGHT, none: str = NO_AGENT_LIGHT) -> str:
    """Returns the colour of ``agent`` in a pool of ``agents``; ``none`` for one outside it, such as the Conductor."""
    return colours[agents.index(agent) % len(colours)] if agent in agents else none


PITCH_PX, CARD_WIDTH_PX, MARGIN_PX, CAPTION_PX = 280, 216, 24, 30
LINE_COLUMNS, MOST_LINES = 29, 3
INK, MUTED, LINE, EDGE, SURFACE, BAND = "#1a1f2b", "#59616f", "#e3e6eb", "#8b93a1", "#ffffff", "#f6f7f9"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def svg(plan: Plan) -> str:
    """Returns an SVG document that loads nothing. Each card has its whole instruction as a tooltip."""
    return drawn(plan, FONT)


def size_of(plan: Plan) -> tuple[float, float]:
    return _size(_layout(plan))


def _layout(plan: Plan) -> GraphLayout:
    return lay_out([RoundShape(path, tuple(workflow.all_reads)) for path, workflow in plan.rounds])


def _size(layout: GraphLayout) -> tuple[float, float]:
    width = max(layout.layers - 1, 0) * PITCH_PX + CARD_WIDTH_PX + 2 * MARGIN_PX
    return width, layout.bottom - layout.top + 2 * MARGIN_PX + CAPTION_PX


def drawn(plan: Plan, font: str, *, tooltips: bool = True) -> str:
    """Returns the picture with texts in ``font``, families as in CSS. ``tooltips``: with each card's instruction."""
    layout = _layout(plan)
    steps = {(*path, index): step for path, workflow in plan.rounds for index, step in enumerate(workflow.steps)}
    at = {node.path: node for node in layout.nodes}
    width, height = _size(layout)
    simulated = any(step.agent in plan.simulated for step in plan.workflow.steps)
    columns = max(int((width - 2 * MARGIN_PX) / 6), 20)
    return _template().render(
        plan=plan,
        font=font,
        tooltips=tooltips,
        layout=layout,
        left=-MARGIN_PX,
        top=layout.top - MARGIN_PX,
        width=width,
        height=height,
        curves=[_curve(edge, at) for edge in layout.edges],
        cards=[(node, steps[node.path], agent_colour(steps[node.path].agent, plan.agents)) for node in layout.nodes],
        caption=shortened(f"{'simulated workers · ' if simulated else ''}{plan.source}", columns),
    )


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # when used: few commands draw

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {
        "INK": INK, "MUTED": MUTED, "LINE": LINE, "EDGE": EDGE, "SURFACE": SURFACE, "BAND": BAND,
        "PITCH_PX": PITCH_PX, "CARD_WIDTH_PX": CARD_WIDTH_PX, "CARD_HEIGHT_PX": CARD_HEIGHT_PX, "MARGIN_PX": MARGIN_PX,
        "round_title": round_title, "label": label,
    }  # fmt: skip
    environment.filters |= {"number": _number, "legal": _legal, "shortened": shortened, "broken": _lines}
    return environment.get_template("picture.svg.j2")


def _lines(text: str) -> list[str]:
    """Breaks a text by the columns that it takes, wide characters counting as two."""
    line = shortened(text, 400)
    if any(unicodedata.east_asian_width(character) in "WF" for character in line):
        wrapped, room = [""], LINE_COLUMNS
        for character in line:
            columns = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if room < columns:
                wrapped.append("")
                room = LINE_COLUMNS
            wrapped[-1] += character
            room -= columns
    else:
        wrapped = textwrap.wrap(line, LINE_COLUMNS)
    if len(wrapped) > MOST_LINES:
        wrapped = [*wrapped[: MOST_LINES - 1], f"{wrapped[MOST_LINES - 1][: LINE_COLUMNS - 1]}…"]
    return wrapped


def _curve(edge: Edge, at: dict[tuple[int, ...], Node]) -> str:
    source, target = at[edge.source], at[edge.target]
    x0, y0 = source.layer * PITCH_PX + CARD_WIDTH_PX, source.y + edge.source_dy
    x1, y1 = target.layer * PITCH_PX, target.y + edge.target_dy
    if edge.lane is None:
        return f"M{_number(x0)},{_number(y0)}{_bend(x0, y0, x1, y1)}"
    left, right, y = edge.lane.first * PITCH_PX, edge.lane.last * PITCH_PX + CARD_WIDTH_PX, edge.lane.y
    return (
        f"M{_number(x0)},{_number(y0)}{_bend(x0, y0, left, y)} L{_number(right)},{_number(y)}{_bend(right, y, x1, y1)}"
    )


def _bend(x0: float, y0: float, x1: float, y1: float) -> str:
    middle = _number((x0 + x1) / 2)
    return f" C{middle},{_number(y0)} {middle},{_number(y1)} {_number(x1)},{_number(y1)}"


def _legal(text: str) -> str:
    forbidden = {ord(each): None for each in set(text) if not (each in "\t\n\r " or shortened(each, 1))}
    return text.translate(forbidden) if forbidden else text


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# PNG.

FONTS = Path(__file__).parent / "fonts"
FAMILY = "Plan Sans"
OURS = re.compile("[\n -~\u00a0-\u017f\u0391-\u03a1\u03a3-\u03a9\u03b1-\u03c9\u0410-\u044f‐–—‘’“”„…·→←↑↓≤≥≠±×÷€✓]*")
"""Characters of our font: those that most plans have."""
SCALE, LEAST_SCALE = 2.0, 0.75
"""Pixels of the picture for one of the page; below the least, no instruction can be read."""
LONGEST_PX = 30_000
MOST_PX = 60_000_000
"""Limits of a picture: most programs open no longer side than 32,767, and drawing takes 4 bytes for each pixel."""


def png(plan: Plan) -> bytes:
    """Returns the picture, with two pixels for one of the page where it is not too large.

    Its font comes with the program, so that it looks the same everywhere. Characters that the font lacks are drawn in
    fonts of this machine, if it has any.

    Raises: BadInput for a plan so large that nothing could be read in the picture.
    """
    import resvg_py  # when used: few commands draw

    width, height = size_of(plan)
    scale = _scale(width, height)
    if scale < LEAST_SCALE:
        raise BadInput(
            f"the graph of this plan has {width:.0f} by {height:.0f} points, too large for a PNG: use the form svg"
        )
    document = drawn(plan, f"'{FAMILY}', sans-serif", tooltips=False)
    return resvg_py.svg_to_bytes(
        svg_string=document,
        zoom=scale,
        font_files=[str(file) for file in sorted(FONTS.glob("*.ttf"))],
        font_family=FAMILY,
        sans_serif_family=FAMILY,
        skip_system_fonts=OURS.fullmatch(document) is not None,  # looking for them takes time
    )


def too_large(plan: Plan) -> bool:
    return _scale(*size_of(plan)) < LEAST_SCALE


def _scale(width: float, height: float) -> float:
    return min(SCALE, LONGEST_PX / max(width, height), math.sqrt(MOST_PX / (width * height)))
