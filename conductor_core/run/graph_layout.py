"""Where each step is in the graph: layers by longest path, lanes around the cards for edges that skip a layer.

This module is pure: it turns who reads whom into coordinates. The horizontal unit is the layer, which a picture turns
into pixels by its own widths; the vertical unit is the pixel. Pictures are drawn so. The page takes the layers and the
order in them, and lays cards out for its window by the same rules (``arrange.js``).

An edge from one layer to the next is straight. An edge that skips layers would run behind the cards and make an access
list look like a chain, so it takes a *lane* above or below the columns it passes. All such edges of one source share
its lane.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from conductor_core.run.values import Path
from conductor_core.workflow.topology import layers

CARD_HEIGHT_PX = 88
ROW_PITCH_PX = 106
LANE_GAP_PX = 16
LANE_CLEARANCE_PX = 20
PORT_GAP_PX = 13
BAND_TITLE_PX = 34
BAND_GAP_PX = 30


@dataclass(frozen=True)
class RoundShape:
    """The shape of one plan: the earlier steps that each step reads. None is not written yet, and drawn in a row."""

    path: Path
    reads: tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True)
class Node:
    path: Path
    layer: int
    y: float


@dataclass(frozen=True)
class Lane:
    """A horizontal run at ``y`` from the left side of column ``first`` to the right side of column ``last``."""

    first: int
    last: int
    y: float


@dataclass(frozen=True)
class Edge:
    """``source_dy`` and ``target_dy`` are where it leaves and arrives, in pixels from the middle of the card's side."""

    source: Path
    target: Path
    source_dy: float
    target_dy: float
    lane: Lane | None


@dataclass(frozen=True)
class Band:
    """The strip of the graph that belongs to an inner round."""

    path: Path
    top: float
    bottom: float
    first: int
    last: int


@dataclass(frozen=True)
class GraphLayout:
    """``layers`` counts columns. ``top`` and ``bottom`` bound everything drawn, in pixels around the first round."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    bands: tuple[Band, ...]
    layers: int
    top: float
    bottom: float


def lay_out(rounds: Sequence[RoundShape]) -> GraphLayout:
    """Places all rounds. The first is the outermost; inner rounds hang below it, each in its band."""
    blocks = [_lay_out_round(each) for each in rounds]
    layers = max((block.layers for block in blocks), default=0)
    nodes: list[Node] = []
    edges: list[Edge] = []
    bands: list[Band] = []
    top = bottom = 0.0
    layer_of: dict[Path, int] = {}
    for each, block in zip(rounds, blocks, strict=True):
        if not bands and each.path == ():
            shift_x, shift_y = 0, 0.0
            top, bottom = block.top, block.bottom
        else:
            opener = layer_of.get(each.path, 0)
            shift_x = min(max(opener - (block.layers - 1) // 2, 0), layers - block.layers)
            shift_y = bottom + BAND_GAP_PX + BAND_TITLE_PX - block.top
            band_top = bottom + BAND_GAP_PX
            bottom = shift_y + block.bottom + LANE_GAP_PX
            bands.append(Band(each.path, band_top, bottom, shift_x, shift_x + max(block.layers - 1, 0)))
        nodes += [Node(node.path, node.layer + shift_x, node.y + shift_y) for node in block.nodes]
        edges += [_moved(edge, shift_x, shift_y) for edge in block.edges]
        layer_of |= {node.path: node.layer + shift_x for node in block.nodes}
    return GraphLayout(tuple(nodes), tuple(edges), tuple(bands), layers, top, bottom)


def _moved(edge: Edge, shift_x: int, shift_y: float) -> Edge:
    lane = edge.lane and Lane(edge.lane.first + shift_x, edge.lane.last + shift_x, edge.lane.y + shift_y)
    return replace(edge, lane=lane)


def _lay_out_round(each: RoundShape) -> GraphLayout:
    if not each.reads:
        return GraphLayout((), (), (), 0, -CARD_HEIGHT_PX / 2, CARD_HEIGHT_PX / 2)
    # A step whose access list is not written yet comes after the one before it, without an edge.
    columns = _columns(
        [((index - 1,) if index else ()) if reads is None else reads for index, reads in enumerate(each.reads)]
    )
    known = tuple(reads or () for reads in each.reads)
    layer = {index: number for number, column in enumerate(columns) for index in column}
    y = {index: place * ROW_PITCH_PX for column in columns for index, place in _centred(column).items()}
    lanes = _lanes(known, layer, columns, y)
    edges = _edges(each.path, known, layer, y, lanes)
    card_top, card_bottom = min(y.values()) - CARD_HEIGHT_PX / 2, max(y.values()) + CARD_HEIGHT_PX / 2
    lane_ys = [lane.y for lane in lanes.values()]
    nodes = tuple(Node((*each.path, index), layer[index], y[index]) for index in range(len(each.reads)))
    return GraphLayout(nodes, edges, (), len(columns), min([card_top, *lane_ys]), max([card_bottom, *lane_ys]))


def _columns(reads: Sequence[Sequence[int]]) -> list[list[int]]:
    """Sorts steps by layer (longest path from a step that reads nothing), within a layer near to what they read."""
    columns: list[list[int]] = []
    place: dict[int, float] = {}
    for layer in layers(reads):
        means = {index: fmean(place[source] for source in reads[index]) if reads[index] else 0.0 for index in layer}
        column = sorted(layer, key=lambda index: (means[index], index))
        columns.append(column)
        place |= _centred(column)
    return columns


def _centred(column: Sequence[int]) -> dict[int, float]:
    """Returns the row of each step of a column, counted from the column's middle."""
    return {index: place - (len(column) - 1) / 2 for place, index in enumerate(column)}


def _lanes(
    reads: Sequence[Sequence[int]], layer: Mapping[int, int], columns: Sequence[Sequence[int]], y: Mapping[int, float]
) -> dict[int, Lane]:
    """Gives a lane to each source that is read across a layer. Sides alternate, and overlapping lanes lie apart."""
    furthest: dict[int, int] = {}
    for target, sources in enumerate(reads):
        for source in sources:
            if layer[target] > layer[source] + 1:
                furthest[source] = max(furthest.get(source, 0), layer[target])
    lanes: dict[int, Lane] = {}
    above = True
    # The longest lane comes last, hence outermost, so that lanes of one side do not cross.
    for source in sorted(furthest, key=lambda index: (furthest[index] - layer[index], index)):
        if y[source]:
            above = y[source] < 0
        first, last = layer[source] + 1, furthest[source] - 1
        lanes[source] = Lane(first, last, _free_y(first, last, above, columns, y, lanes.values()))
        above = not above
    return lanes


def _free_y(
    first: int, last: int, above: bool, columns: Sequence[Sequence[int]], y: Mapping[int, float], lanes: Iterable[Lane]
) -> float:
    """Returns the nearest height beyond the cards of the passed columns and the lanes already there."""
    sign = -1 if above else 1
    reach = max(sign * y[index] for column in columns[first : last + 1] for index in column)
    distance = reach + CARD_HEIGHT_PX / 2 + LANE_CLEARANCE_PX
    for lane in lanes:
        overlaps = lane.first <= last and first <= lane.last
        if overlaps and sign * lane.y > 0:
            distance = max(distance, sign * lane.y + LANE_GAP_PX)
    return sign * distance


def _edges(
    path: Path,
    reads: Sequence[Sequence[int]],
    layer: Mapping[int, int],
    y: Mapping[int, float],
    lanes: Mapping[int, Lane],
) -> tuple[Edge, ...]:
    pairs = [(source, target) for target, sources in enumerate(reads) for source in sources]
    lane_of = {
        (source, target): replace(lanes[source], last=layer[target] - 1)
        for source, target in pairs
        if layer[target] > layer[source] + 1
    }
    leaving = {pair: lane_of[pair].y if pair in lane_of else y[pair[1]] for pair in pairs}
    arriving = {pair: lane_of[pair].y if pair in lane_of else y[pair[0]] for pair in pairs}
    source_dy: dict[tuple[int, int], float] = {}
    target_dy: dict[tuple[int, int], float] = {}
    for index in range(len(reads)):
        # All edges of one lane leave as one line.
        heights = sorted({leaving[pair] for pair in pairs if pair[0] == index})
        ports = dict(zip(heights, _ports(len(heights)), strict=True))
        source_dy |= {pair: ports[leaving[pair]] for pair in pairs if pair[0] == index}
        incoming = sorted((pair for pair in pairs if pair[1] == index), key=arriving.__getitem__)
        target_dy |= dict(zip(incoming, _ports(len(incoming)), strict=True))
    return tuple(
        Edge((*path, pair[0]), (*path, pair[1]), source_dy[pair], target_dy[pair], lane_of.get(pair)) for pair in pairs
    )


def _ports(count: int) -> list[float]:
    """Returns heights on a card's side for ``count`` edges, spread around its middle."""
    gap = min(PORT_GAP_PX, (CARD_HEIGHT_PX - 24) / max(count - 1, 1))
    return [(place - (count - 1) / 2) * gap for place in range(count)]
