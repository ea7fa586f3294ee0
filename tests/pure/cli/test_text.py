from hypothesis import given
from hypothesis import strategies as st

from conductor_core.cli.output import indented, labels, one_line
from conductor_core.run.values import label
from conductor_core.text import isolated, plain


def test_terminal_escapes_are_written_out() -> None:
    assert plain("\x1b[31mred\x07 \x9b2J \x7f") == "\\x1b[31mred\\x07 \\x9b2J \\x7f"
    assert plain("a\rb") == "a\\x0db", "a lone carriage return would overwrite the line"
    assert plain("one\r\ntwo\tthree\n") == "one\ntwo\tthree\n"
    assert plain("\u202eevil\u2066 \ud800") == "\\u202eevil\\u2066 \\ud800"
    assert plain("naïve 日本語 😀") == "naïve 日本語 😀"


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert all(character in "\n\t" or character.isprintable() or ord(character) > 0x9F for character in shown)
    assert not set(shown) & set(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
    assert plain(shown) == shown


@given(st.text(st.characters(exclude_categories=())), st.integers(10, 50))
def test_one_line_is_one_line_of_that_length(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_one_line_says_that_it_was_cut() -> None:
    assert one_line("a b\n c", 20) == "a b c"
    assert one_line("x" * 30, 20) == "x" * 17 + "..."
    assert one_line(" " * 1000 + "x", 20) == "..."


def test_each_line_is_indented() -> None:
    assert indented("a\n\nb\x1b", "> ") == "> a\n>\n> b\\x1b"


def test_paths_are_named() -> None:
    assert (label((2, 0)), labels(((0,), (2, 1))), labels(())) == ("2.0", "0, 2.1", "none")


def test_a_name_written_from_the_right_stands_apart_in_a_line() -> None:
    assert isolated("בודק") == "\u2068בודק\u2069"
    assert isolated("solver") == "solver"
    assert isolated("so\u202elver") == "so\\u202elver"
