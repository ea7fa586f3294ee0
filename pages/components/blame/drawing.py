"""The effects on the graph of the plan, as a picture: the wider a line, the more often the answer flips by it.

A plan of many steps has smaller cards, and of the withheld accesses only those that changed something.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from conductor_core.blame.experiments import Change, Effect
from conductor_core.blame.report import FINDINGS, change_words, signed
from conductor_core.export.plan import shortened
from conductor_core.run.graph_layout import Edge, GraphLayout, Node, RoundShape, lay_out
from conductor_core.text import isolated
from conductor_core.workflow.model import Workflow
from pages.components.style.figures import PALETTE, agent_colour
from pages.components.style.templates import html

TEMPLATE = "blame/blame"
MARGIN = 26
MOST_FULL = 12
"""Steps whose cards have all their lines."""
STRONG = ("decides", "steadies")
_ARC, _GAP, _THIN, _WIDE = 34, 60, 1.2, 9.0
_REM_PX = 14
"""Pixels of a rem in a window of 1280: the picture grows with the text of the page."""
Effects = Mapping[Change, Effect]


@dataclass(frozen=True)
class Cards:
    """Pixels: from column to column, of a card, and how near rows are to each other (1: as they are laid out)."""

    pitch: int
    width: int
    height: int
    rows: float
    full: bool

    def left(self, layer: int) -> int:
        return layer * self.pitch

    def right(self, layer: int) -> int:
        return layer * self.pitch + self.width


_FULL, _COMPACT = Cards(240, 156, 64, 1.0, full=True), Cards(198, 144, 44, 0.58, full=False)


@dataclass(frozen=True)
class _Drawing:
    """What all parts of one drawing have in common. ``chosen`` stands out."""

    plan: Workflow
    effects: Effects
    agents: Sequence[str]
    chosen: Change | None
    dark: bool
    cards: Cards

    def colours(self, *names: str) -> dict[str, str]:
        return {name: PALETTE[name][self.dark] for name in names}


def graph_html(
    plan: Workflow, ranking: Sequence[Effect], agents: Sequence[str], chosen: Change | None, *, dark: bool
) -> tuple[Markup, int]:
    """Returns the drawing as an image in a data address, with its words, and how high it is, in units of 2 rem."""
    cards = _FULL if len(plan.steps) <= MOST_FULL else _COMPACT
    layout = _nearer(lay_out([RoundShape((), plan.all_reads)]), cards.rows)
    at = {node.path[0]: node for node in layout.nodes}
    drawing = _Drawing(plan, {effect.change: effect for effect in ranking}, agents, chosen, dark, cards)
    withheld = [
        effect
        for effect in sorted(ranking, key=lambda effect: effect.effect)  # no faint line crosses a strong one
        if effect.change.kind == "granted" and (cards.full or effect.change == chosen or effect.finding in STRONG)
    ]
    parts = [_withheld(drawing, effect, at, layout) for effect in withheld]
    parts += [_granted(drawing, edge, at) for edge in layout.edges]
    parts += [_card(drawing, node) for node in layout.nodes]
    deepest = max((_depth(effect, at) for effect in withheld), default=0)
    width = max(layout.layers - 1, 0) * cards.pitch + cards.width + 2 * MARGIN
    top, bottom = layout.top - MARGIN, layout.bottom + deepest + MARGIN
    svg = html(TEMPLATE, "svg", width=width, height=bottom - top, left=-MARGIN, top=top, parts=parts)
    words = "; ".join(
        f"{change_words(effect.change, plan)}: {FINDINGS[effect.finding][1]}"
        f"{'' if effect.with_it is None else f', {signed(effect.effect)} points'}"
        for effect in ranking
    )
    data = base64.b64encode(svg.encode()).decode()
    drawn = html(TEMPLATE, "graph", width_rem=width / _REM_PX, words=words, data=data)
    return drawn, round((bottom - top) / _REM_PX / 2)


def _nearer(layout: GraphLayout, rows: float) -> GraphLayout:
    edges = []
    for edge in layout.edges:
        lane = edge.lane and replace(edge.lane, y=edge.lane.y * rows)
        edges.append(replace(edge, source_dy=edge.source_dy * rows, target_dy=edge.target_dy * rows, lane=lane))
    nodes = tuple(replace(node, y=node.y * rows) for node in layout.nodes)
    return replace(layout, nodes=nodes, edges=tuple(edges), top=layout.top * rows, bottom=layout.bottom * rows)


def _width(effect: Effect | None) -> float:
    share = 0.0 if effect is None else max(0.0, effect.effect)
    return _THIN + (_WIDE - _THIN) * share


def _granted(drawing: _Drawing, edge: Edge, at: Mapping[int, Node]) -> Markup:
    source, target = edge.source[0], edge.target[0]
    effect = drawing.effects.get(Change(kind="cut", step=target, source=source))
    x0, y0 = drawing.cards.right(at[source].layer), at[source].y + edge.source_dy
    x1, y1 = drawing.cards.left(at[target].layer), at[target].y + edge.target_dy
    if edge.lane is None:
        d, middle = f"M{x0},{y0:.1f}{_bend(x0, y0, x1, y1)}", ((x0 + x1) / 2, (y0 + y1) / 2)
    else:
        left, right, y = drawing.cards.left(edge.lane.first), drawing.cards.right(edge.lane.last), edge.lane.y
        d = f"M{x0},{y0:.1f}{_bend(x0, y0, left, y)} L{right},{y:.1f}{_bend(right, y, x1, y1)}"
        middle = ((left + right) / 2, y)
    return _line(drawing, d, middle, effect, dashed=False)


def _depth(effect: Effect, at: Mapping[int, Node]) -> float:
    """Returns how far below the cards the arc of a withheld access hangs: the further it reaches, the deeper."""
    apart = abs(at[effect.change.step].layer - at[effect.change.source or 0].layer)
    return _ARC * (0.6 + 0.7 * apart) if apart > 1 else 0.0


def _withheld(drawing: _Drawing, effect: Effect, at: Mapping[int, Node], layout: GraphLayout) -> Markup:
    """Draws an access that was withheld as an arc below all cards, so that it crosses none."""
    source, target = at[effect.change.source or 0], at[effect.change.step]
    x0, y0 = drawing.cards.right(source.layer), source.y + 16
    x1, y1 = drawing.cards.left(target.layer), target.y + 16
    if source.layer == target.layer:
        d, middle = f"M{x0},{y0:.0f} C{x0 + _GAP},{y0:.0f} {x0 + _GAP},{y1:.0f} {x0},{y1:.0f}", x0 + 0.75 * _GAP
        return _line(drawing, d, (middle, (y0 + y1) / 2), effect, dashed=True)
    if target.layer - source.layer in (1, -1):
        if source.layer > target.layer:
            x0, x1 = drawing.cards.left(source.layer), x1 + drawing.cards.width
        d, at_middle = f"M{x0},{y0:.0f}{_bend(x0, y0, x1, y1)}", ((x0 + x1) / 2, (y0 + y1) / 2)
        return _line(drawing, d, at_middle, effect, dashed=True)
    deep = layout.bottom + _depth(effect, at) * 4 / 3
    d = f"M{x0},{y0:.0f} C{x0 + _GAP},{deep:.0f} {x1 - _GAP},{deep:.0f} {x1},{y1:.0f}"
    return _line(drawing, d, ((x0 + x1) / 2, (y0 + y1) / 8 + 0.75 * deep), effect, dashed=True)


def _line(drawing: _Drawing, d: str, middle: tuple[float, float], effect: Effect | None, *, dashed: bool) -> Markup:
    chosen = effect is not None and effect.change == drawing.chosen
    strong = chosen or (effect is not None and effect.finding in STRONG)
    stroke = PALETTE["ink" if strong else "soft"][drawing.dark]
    path = html(TEMPLATE, "path", d=d, stroke=stroke, wide=_width(effect), dashed=dashed)
    if not strong or effect is None:
        return path
    said, colours = f"{FINDINGS[effect.finding][0]} {signed(effect.effect)}", drawing.colours("ink", "surface")
    return path + html(TEMPLATE, "sign", x=middle[0], y=middle[1], width=8 * len(said) + 14, said=said, **colours)


def _card(drawing: _Drawing, node: Node) -> Markup:
    index = node.path[0]
    agent = drawing.plan.steps[index].agent
    change = Change(kind="fresh", step=index)
    effect = drawing.effects.get(change)
    cards = drawing.cards
    lines = ["not measured"]
    if effect is not None and effect.with_it is not None:
        points = f"{FINDINGS[effect.finding][0]} {signed(effect.effect)}"
        lines = [f"flips {effect.with_it.counted}", f"{points} points"]
        lines = lines if cards.full else [f"{points} · {effect.with_it.flipped}/{effect.with_it.replays}"]
    y = node.y - cards.height / 2
    return html(
        TEMPLATE,
        "card",
        x=cards.left(node.layer),
        y=y,
        top=y + (23.5 if cards.full else 18),
        cards=cards,
        wide=_width(effect),
        chosen=change == drawing.chosen,
        colour=agent_colour(agent, drawing.agents, dark=drawing.dark),
        name=f"{index} · {isolated(shortened(agent, 16 if cards.full else 11))}",
        lines=lines,
        **drawing.colours("ink", "muted", "surface"),
    )


def _bend(x0: float, y0: float, x1: float, y1: float) -> str:
    middle = (x0 + x1) / 2
    return f" C{middle:.0f},{y0:.1f} {middle:.0f},{y1:.1f} {x1:.0f},{y1:.1f}"
