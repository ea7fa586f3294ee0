from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.run.graph_layout import CARD_HEIGHT_PX, Edge, GraphLayout, RoundShape, lay_out
from pages.components.live_workflow.messages import network_data


@st.composite
def dags(draw: st.DrawFn) -> tuple[tuple[int, ...], ...]:
    size = draw(st.integers(1, 9))
    return tuple(
        tuple(sorted(draw(st.sets(st.integers(0, index - 1), max_size=index)))) if index else ()
        for index in range(size)
    )


def of(*reads: tuple[int, ...]) -> GraphLayout:
    return lay_out([RoundShape((), reads)])


def columns(layout: GraphLayout) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for node in layout.nodes:
        found.setdefault(node.layer, []).append(node.y)
    return found


def edge(layout: GraphLayout, source: int, target: int) -> Edge:
    return next(each for each in layout.edges if (each.source, each.target) == ((source,), (target,)))


def test_plan_of_two_solvers_and_a_check_stands_in_four_columns() -> None:
    layout = of((), (0,), (0,), (0, 1, 2), (3,))
    assert [node.layer for node in layout.nodes] == [0, 1, 1, 2, 3]
    assert [node.y for node in layout.nodes] == [0, -53, 53, 0, 0]
    assert layout.layers == 4


def test_an_edge_that_skips_a_column_goes_around_its_cards() -> None:
    layout = of((), (0,), (0,), (0, 1, 2))
    lane = edge(layout, 0, 3).lane
    assert lane is not None
    assert (lane.first, lane.last) == (1, 1)
    assert lane.y < -53 - CARD_HEIGHT_PX / 2
    assert edge(layout, 1, 3).lane is None


def test_all_edges_of_one_source_share_its_lane_and_leave_at_one_place() -> None:
    layout = of((), (0,), (0, 1), (0, 1, 2))
    near, far = edge(layout, 0, 2), edge(layout, 0, 3)
    assert near.lane is not None
    assert far.lane is not None
    assert near.lane.y == far.lane.y
    assert (near.lane.last, far.lane.last) == (1, 2)
    assert near.source_dy == far.source_dy


@given(dags())
def test_every_edge_goes_right_and_every_card_has_its_place(reads: tuple[tuple[int, ...], ...]) -> None:
    layout = of(*reads)
    layer = {node.path: node.layer for node in layout.nodes}
    assert {(each.source[0], each.target[0]) for each in layout.edges} == {
        (source, target) for target, sources in enumerate(reads) for source in sources
    }
    for each in layout.edges:
        assert layer[each.source] < layer[each.target]
        assert (each.lane is None) == (layer[each.target] == layer[each.source] + 1)
    for ys in columns(layout).values():
        ordered = sorted(ys)
        assert all(below - above >= CARD_HEIGHT_PX for above, below in pairwise(ordered))


@given(dags())
def test_no_lane_runs_through_a_card_or_along_another_source(reads: tuple[tuple[int, ...], ...]) -> None:
    layout = of(*reads)
    at = columns(layout)
    lanes = [(each.source, each.lane) for each in layout.edges if each.lane is not None]
    for source, lane in lanes:
        for layer in range(lane.first, lane.last + 1):
            assert all(abs(lane.y - y) > CARD_HEIGHT_PX / 2 for y in at[layer])
        for other, along in lanes:
            if other != source and along.first <= lane.last and lane.first <= along.last:
                assert along.y != lane.y
        assert layout.top <= lane.y <= layout.bottom


@given(dags())
def test_ports_stay_on_the_card(reads: tuple[tuple[int, ...], ...]) -> None:
    for each in of(*reads).edges:
        assert abs(each.source_dy) <= CARD_HEIGHT_PX / 2
        assert abs(each.target_dy) <= CARD_HEIGHT_PX / 2


@given(dags(), dags())
def test_an_inner_round_hangs_below_the_first(
    outer: tuple[tuple[int, ...], ...], inner: tuple[tuple[int, ...], ...]
) -> None:
    opener = (len(outer) - 1,)
    layout = lay_out([RoundShape((), outer), RoundShape(opener, inner)])
    (band,) = layout.bands
    inside = [node for node in layout.nodes if len(node.path) == 2]
    outside = [node for node in layout.nodes if len(node.path) == 1]
    assert max(node.y for node in outside) + CARD_HEIGHT_PX / 2 < band.top
    assert all(band.top < node.y - CARD_HEIGHT_PX / 2 for node in inside)
    assert all(node.y + CARD_HEIGHT_PX / 2 <= band.bottom for node in inside)
    assert all(0 <= node.layer < layout.layers for node in layout.nodes)
    assert layout.bottom == band.bottom


def test_drafts_stand_in_a_row_until_their_access_lists_are_written() -> None:
    layout = lay_out([RoundShape((), ((), None, None))])
    assert [node.layer for node in layout.nodes] == [0, 1, 2]
    assert layout.edges == ()


def test_no_steps_is_an_empty_drawing() -> None:
    layout = lay_out([RoundShape((), ())])
    assert (layout.nodes, layout.edges, layout.layers) == ((), (), 0)


def test_the_page_gets_the_layers_and_the_order_in_them() -> None:
    data = network_data(lay_out([RoundShape((), ((), (0,), (0, 1), (0,))), RoundShape((1,), ((),))]))
    assert [(node["id"], node["layer"]) for node in data["nodes"][:4]] == [("0", 0), ("1", 1), ("2", 2), ("3", 1)]
    heights = {node["id"]: node["y"] for node in data["nodes"]}
    assert heights["1"] < heights["3"]
    assert [(edge["from"], edge["to"]) for edge in data["edges"]] == [("0", "1"), ("0", "2"), ("1", "2"), ("0", "3")]
    assert data["bands"] == [{"path": [1]}]


@pytest.mark.parametrize("count", [5, 8])
def test_many_inputs_still_fit_the_card(count: int) -> None:
    layout = of(*[()] * count, tuple(range(count)))
    arriving = [each.target_dy for each in layout.edges]
    assert len(set(arriving)) == count
    assert max(arriving) <= CARD_HEIGHT_PX / 2
