"""Differences of texts, word by word: exact, readable, and bounded for long texts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.analysis.text_diff import MOST_PAIRS, Piece, compare_texts, shortened

WORDS = st.lists(st.sampled_from(["a", "the", "b b", " ", "\n", "c.", "14:13", "𝔘", "\ud800"]), max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.one_of(WORDS.map(" ".join), st.text(max_size=60)), st.one_of(WORDS.map(" ".join), st.text(max_size=60)))
def test_the_pieces_are_exactly_the_two_texts(before: str, after: str) -> None:
    difference = compare_texts(before, after)
    assert "".join(text for kind, text in difference.pieces if kind != "added") == before
    assert "".join(text for kind, text in difference.pieces if kind != "removed") == after
    assert difference.same == (before == after)
    assert all(piece.text for piece in difference.pieces)


def test_words_that_were_replaced_stand_together() -> None:
    before = "The control reached 14:13. It agrees with the figures in view. Answer: 14:13"
    after = "The control reached 14:13. This differs from the solution in view; I correct it. Answer: 13:43"
    assert compare_texts(before, after).pieces == (
        Piece("same", "The control reached 14:13. "),
        Piece("removed", "It agrees with the figures in view. Answer: 14:13"),
        Piece("added", "This differs from the solution in view; I correct it. Answer: 13:43"),
    )


def test_one_word_is_one_piece() -> None:
    assert compare_texts("one two three", "one 2 three").pieces == (
        Piece("same", "one "),
        Piece("removed", "two"),
        Piece("added", "2"),
        Piece("same", " three"),
    )


@pytest.mark.parametrize("empty", ["before", "after"])
def test_a_text_against_none_is_one_piece(empty: str) -> None:
    before, after = ("", "some words") if empty == "before" else ("some words", "")
    kind = "added" if empty == "before" else "removed"
    assert compare_texts(before, after).pieces == (Piece(kind, "some words"),)  # type: ignore[arg-type]


def test_a_long_text_is_compared_by_words_in_the_lines_that_changed() -> None:
    lines = [f"line {number} of a long text with some words" for number in range(12_000)]
    changed = [line if number % 3000 else line.replace("some", "other") for number, line in enumerate(lines)]
    difference = compare_texts("\n".join(lines), "\n".join(changed))
    assert difference.by == "word"
    assert [piece for piece in difference.pieces if piece.kind != "same"] == [
        Piece("removed", "some"),
        Piece("added", "other"),
    ] * 4


def test_lines_too_long_for_words_stand_as_replaced_and_that_is_said() -> None:
    before, after = (" ".join(f"{mark}{number}" for number in range(20_000)) for mark in "ab")
    difference = compare_texts(f"{before}\nsame\nlast", f"{after}\nsame\nend")
    assert difference.by == "line"
    assert Piece("same", "\nsame\n") in difference.pieces or Piece("same", "same\n") in difference.pieces


def test_texts_with_too_many_lines_stand_as_replaced_and_that_is_said() -> None:
    many = int(MOST_PAIRS**0.5) + 10
    difference = compare_texts("\n".join(f"a{n}" for n in range(many)), "\n".join(f"b{n}" for n in range(many)))
    assert difference.by == "whole"
    assert [piece.kind for piece in difference.pieces] == ["removed", "added"]


def test_what_is_the_same_far_from_a_change_is_left_out_with_its_number_of_words() -> None:
    words = [f"w{number}" for number in range(300)]
    changed = [*words[:150], "new", *words[151:]]
    shown = shortened(compare_texts(" ".join(words), " ".join(changed)), context=10)
    assert [(part.kind, part.words) for part in shown] == [
        ("skipped", 140), ("same", 0), ("removed", 0), ("added", 0), ("same", 0), ("skipped", 139),
    ]  # fmt: skip
    assert shown[1].text.split() == words[140:150]
    assert shown[4].text.split() == words[151:161]


def test_a_long_change_keeps_both_ends() -> None:
    before, after = (" ".join(f"{mark}{number}" for number in range(100)) for mark in "ab")
    shown = shortened(compare_texts(before, after), longest=20)
    assert [(part.kind, part.words, part.of) for part in shown] == [
        ("removed", 0, "same"), ("skipped", 80, "removed"), ("removed", 0, "same"),
        ("added", 0, "same"), ("skipped", 80, "added"), ("added", 0, "same"),
    ]  # fmt: skip
    assert shown[2].text.split()[-1] == "a99"
