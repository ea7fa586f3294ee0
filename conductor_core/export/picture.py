"""The graph of a plan as a picture, in the layout and the light colours of the page: SVG, or PNG drawn by resvg.

The page's palette takes the light colours of agents from here.
"""

import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from conductor_core.errors import BadInput
from conductor_core.export.plan import Plan, round_title, shortened
from conductor_core.run.graph_layout import CARD_HEIGHT_PX, Edge, GraphLayout, Node, RoundShape, lay_out
from conductor_core.run.values import label
from conductor_core.workflow.model import Step

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
    """Returns width and height of the picture in pixels."""
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
    width, height = _size(layout)
    box = f"{-MARGIN_PX} {_number(layout.top - MARGIN_PX)} {_number(width)} {_number(height)}"
    root = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=box, width=_number(width), height=_number(height))
    root.set("font-family", font)
    root.set("role", "img")
    SubElement(root, "title").text = f"The workflow of {plan.source}"
    _definitions(root)
    back = {
        "x": str(-MARGIN_PX),
        "y": _number(layout.top - MARGIN_PX),
        "width": _number(width),
        "height": _number(height),
    }
    SubElement(root, "rect", back, fill=SURFACE)
    _bands(root, layout)
    at = {node.path: node for node in layout.nodes}
    for edge in layout.edges:
        SubElement(
            root,
            "path",
            {"d": _curve(edge, at), "fill": "none", "stroke": EDGE, "stroke-width": "1.6", "marker-end": "url(#arrow)"},
        )
    for node in layout.nodes:
        _card(root, node, steps[node.path], plan, tooltips=tooltips)
    _caption(root, plan, layout, width)
    indent(root)
    return tostring(root, encoding="unicode") + "\n"


def _definitions(root: Element) -> None:
    definitions = SubElement(root, "defs")
    marker = SubElement(
        definitions,
        "marker",
        id="arrow",
        viewBox="0 0 8 8",
        refX="7",
        refY="4",
        markerWidth="8",
        markerHeight="8",
        orient="auto",
        markerUnits="userSpaceOnUse",
    )
    SubElement(marker, "path", d="M0,0.8 L8,4 L0,7.2 z", fill=EDGE)
    clip = SubElement(definitions, "clipPath", id="card")
    SubElement(clip, "rect", width=str(CARD_WIDTH_PX - 12), height=str(CARD_HEIGHT_PX))


def _bands(root: Element, layout: GraphLayout) -> None:
    for band in layout.bands:
        left, top = band.first * PITCH_PX - 14, band.top
        width = (band.last - band.first) * PITCH_PX + CARD_WIDTH_PX + 28
        size = {"x": _number(left), "y": _number(top), "width": _number(width), "height": _number(band.bottom - top)}
        SubElement(root, "rect", size, rx="10", fill=BAND, stroke=LINE)
        _text(root, left + 14, top + 20, round_title(band.path), 12, MUTED)


def _card(root: Element, node: Node, step: Step, plan: Plan, *, tooltips: bool) -> None:
    x, y = node.layer * PITCH_PX, node.y - CARD_HEIGHT_PX / 2
    colour = agent_colour(step.agent, plan.agents)
    card = SubElement(root, "g", transform=f"translate({_number(x)} {_number(y)})")
    if tooltips:
        SubElement(card, "title").text = _legal(step.instruction)
    size = {"width": str(CARD_WIDTH_PX), "height": str(CARD_HEIGHT_PX)}
    SubElement(card, "rect", size | {"stroke-width": "1.5"}, rx="10", fill=SURFACE, stroke=colour)
    SubElement(card, "circle", cx="17", cy="20", r="4.5", fill=colour)
    inside = SubElement(card, "g", {"clip-path": "url(#card)"})
    name = f"{label(node.path)} · {shortened(step.agent, 24)}"
    _text(inside, 28, 24.5, name, 13, INK, weight="600")
    for place, line in enumerate(_lines(step.instruction)):
        _text(inside, 13, 43 + 16 * place, line, 12, INK)


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


def _caption(root: Element, plan: Plan, layout: GraphLayout, width: float) -> None:
    simulated = any(step.agent in plan.simulated for step in plan.workflow.steps)
    words = f"{'simulated workers · ' if simulated else ''}{plan.source}"
    columns = max(int((width - 2 * MARGIN_PX) / 6), 20)
    _text(root, 0, layout.bottom + MARGIN_PX + 12, shortened(words, columns), 11, MUTED)


def _text(parent: Element, x: float, y: float, text: str, size: int, fill: str, *, weight: str | None = None) -> None:
    element = SubElement(parent, "text", {"x": _number(x), "y": _number(y), "font-size": str(size), "fill": fill})
    if weight:
        element.set("font-weight", weight)
    element.text = text


def _legal(text: str) -> str:
    """Returns ``text`` without the characters that XML forbids."""
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
    """Tells whether ``png`` refuses the plan."""
    return _scale(*size_of(plan)) < LEAST_SCALE


def _scale(width: float, height: float) -> float:
    return min(SCALE, LONGEST_PX / max(width, height), math.sqrt(MOST_PX / (width * height)))
