import pytest

from conductor_core.answers.plain_text import plain, sentences


@pytest.mark.parametrize(
    ("marked", "read"),
    [
        ("**13:43**", "13:43"),
        ("## `merge(a)` and *more*", "merge(a) and more"),
        (r"\(\frac{\sqrt{3}}{2} \times 10^\circ\)", "√3/2 × 10°"),
        (r"$\text{Paris}$ costs \$5 and $6", "Paris costs $5 and $6"),
        ("[a page](https://example.org/x)", "a page"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("snake_case_name", "snake_case_name"),
        ("- one\n  two", "one two"),
    ],
)
def test_markup_is_read_and_words_are_kept(marked: str, read: str) -> None:
    assert plain(marked) == read


@pytest.mark.parametrize(
    ("paragraph", "parts"),
    [
        ("It costs 20. The rest is 3.5 km away.", ["It costs 20.", "The rest is 3.5 km away."]),
        ("1. Add them. 2. Halve it.", ["1. Add them.", "2. Halve it."]),
        ("Ask Dr. Li, e.g. by mail! Why? Because.", ["Ask Dr. Li, e.g. by mail!", "Why?", "Because."]),
        ("一。二！三", ["一。", "二！", "三"]),
        ("", []),
    ],
)
def test_a_sentence_ends_where_it_ends(paragraph: str, parts: list[str]) -> None:
    assert list(sentences(paragraph)) == parts
