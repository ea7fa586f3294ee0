from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pages.components.style.figures import apart, names_beside, plain

POSITIONS = st.lists(st.floats(0, 500), max_size=12)


@given(POSITIONS, st.floats(1, 40))
def test_no_two_marks_are_nearer_than_the_gap_and_their_order_stays(wanted: list[float], gap: float) -> None:
    placed = apart(wanted, gap)
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], placed[index]))
    assert all(placed[b] - placed[a] >= gap - 1e-6 for a, b in pairwise(order))


def test_marks_with_room_stay_where_they_are() -> None:
    assert apart([100.0, 20.0, 60.0], 15) == [100.0, 20.0, 60.0]


def test_marks_that_want_one_place_share_it_around_its_middle() -> None:
    assert apart([50.0, 50.0, 50.0], 10) == [40.0, 50.0, 60.0]


def test_a_name_is_no_markup_no_template_and_no_colour() -> None:
    assert plain("<b>%{y}@ink") == "‹b›% {y}＠ink"


def test_names_stand_at_the_height_where_their_curves_end() -> None:
    low, high = names_beside([("low", 0.0), ("high", 1.0)], (0.0, 1.0), 252, {})
    assert low["yshift"] == 0
    assert high["yshift"] == 200
