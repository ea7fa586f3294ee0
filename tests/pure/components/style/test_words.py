from datetime import UTC, datetime, timedelta

import pytest

from pages.components.style.formats import ago, inert, listed, numbers, plural, right_to_left, seconds

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=5), "5 min ago"),
        (timedelta(hours=3, minutes=59), "3 h ago"),
        (timedelta(days=2), "2 d ago"),
    ],
)
def test_ago_takes_the_largest_whole_unit(passed: timedelta, words: str) -> None:
    assert ago(NOW - passed, NOW) == words


def test_a_duration_that_is_not_there_yet_has_its_place() -> None:
    assert seconds(None) == "–"


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (1250, "1.3 s"),
        (59_949, "59.9 s"),
        (59_950, "1 min 00 s"),
        (3_599_499, "59 min 59 s"),
        (7_800_000, "2 h 10 min"),
    ],
)
def test_a_duration_is_written_as_in_the_live_view(duration_ms: float, words: str) -> None:
    assert seconds(duration_ms) == words


def test_one_of_a_thing_has_no_plural() -> None:
    assert (plural(1, "step"), plural(2, "step")) == ("1 step", "2 steps")


@pytest.mark.parametrize(
    "hostile", ["**bold**", "![x](http://example.com/x.png)", "<script>", ":red[x]", "$x$", "`code`"]
)
def test_hostile_text_keeps_its_letters_and_loses_its_power(hostile: str) -> None:
    shown = inert(hostile)
    assert shown.replace("\\", "").replace("\u2060", "") == hostile
    marks = set("*![]()<>:$`")
    assert all(shown[at - 1] == "\\" for at, character in enumerate(shown) if character in marks)


def test_many_numbers_are_written_as_ranges() -> None:
    assert numbers([0, 1, 2]) == "0, 1, 2"
    assert numbers(range(40)) == "0–39"
    assert numbers([0, 1, 3, 5, 6, 7, 9, 20]) == "0, 1, 3, 5–7, 9, 20"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (list("abcde"), "a, b and 3 more"),
    ],
)
def test_names_are_listed_until_they_are_many(names: list[str], words: str) -> None:
    assert listed(names) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("12 + 5?", False),
        ("Where does عاصمة come from?", False),
        ("ما هي عاصمة أستراليا؟", True),
        ("3 קוביות: what is the chance?", True),
        ("\u202eevil", False),
    ],
)
def test_the_first_letter_with_a_direction_gives_the_text_s(text: str, expected: bool) -> None:
    assert right_to_left(text) is expected
