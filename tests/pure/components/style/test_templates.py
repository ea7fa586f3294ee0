"""A text in a template is text, whatever it holds: in an element, in an attribute, in an address."""

from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from pages.components.style.formats import html

MARKED = st.text(st.sampled_from("<>\"'&=/ \n{}%#!-;aZ\u202e"), min_size=1) | st.text(min_size=1)
DRAWN: list[Callable[[str], str]] = [
    lambda text: html("audit/audit", "table", heads=(text,), rows=[(text, text)], kind="wide"),
    lambda text: html("audit/audit", "run_link", run_id=text, words=text),
    lambda text: html("context/context", "message", head=text, text=text),
    lambda text: html("run_list/run_list", "mark", kind="mark failed", said=text),
    lambda text: html("blame/blame", "link", run_id=text, words=text, title=text),
    lambda text: html("run/run", "bad", words=text),
    lambda text: html("style/parts", "title", name=text, note=text),
    lambda text: html("app/frame", "unknown", style="", rail="", up="../", name="Inspector", address=text),
]


class Markup(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.values.append(data)

    def handle_comment(self, data: str) -> None:
        self.tags.append(("!--", (data,)))


@given(MARKED)
@example("</title><script>alert(1)</script>")
@example("\"' onmouseover=alert(1) x='")
@example("{{ 7 * 7 }}{% raw %}<!--")
def test_a_text_adds_no_markup_and_comes_back_as_it_was(text: str) -> None:
    text = text.replace("\0", "").replace("\r", "\n")  # which no page can hold
    for draw in DRAWN:
        made, plain = Markup(draw(text)), Markup(draw("x"))
        assert made.tags == plain.tags
        assert not text or any(text in value for value in [*made.values, "".join(made.values)])


def test_a_template_never_takes_a_missing_value_for_an_empty_one() -> None:
    with pytest.raises(UndefinedError):
        html("run_list/run_list", "muted")
