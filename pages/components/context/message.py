"""The exact message that a step got from a source, as text that nothing acts on."""

import re
from html import escape

import streamlit as st

from conductor_core.chat.messages import Message
from conductor_core.run.context_flow import Cell, sent_messages, source_name
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import label
from conductor_core.text import isolated
from conductor_core.workflow.model import CONDUCTOR_AGENT
from pages.components.style.formats import plural

MOST_SHOWN = 20_000
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Characters that reorder or hide text; as in the live component's ``text.js``."""


def message_view(trace: RunTrace, cell: Cell | None, *, by_server: bool) -> None:
    """Draws what a cell stands for; without one, what to choose.

    Args:
        by_server: whether the page shows servers, which have no cells to choose.
    """
    if cell is None:
        first = "Choose “By step”, then a cell." if by_server else "Choose a cell."
        st.html(
            f'<p class="muted context-said">{first} The exact message that the step got from that source '
            "appears here, or what was withheld from it.</p>"
        )
        return
    head, texts = said_and_texts(trace, cell)
    st.html(f'<div role="status" class="context-said">{escape(head)}</div>')
    for number, (title, text) in enumerate(texts):
        st.html(text_html(title, text))
        if len(text) > MOST_SHOWN:
            st.download_button(
                f"All {len(text):,} characters",
                text,
                file_name=f"{source_name(cell.source).replace(' ', '-')}.txt",
                mime="text/plain",
                key=f"whole-{number}",
                icon=":material/download:",
                on_click="ignore",
            )


def said_and_texts(trace: RunTrace, cell: Cell) -> tuple[str, list[tuple[str, str]]]:
    """Returns a sentence about a cell, and the texts that belong to it, each with a title."""
    step = trace.step_at(cell.reader)
    reader, source, content = f"Step {label(cell.reader)} ({isolated(step.agent)})", "the task", trace.task
    if cell.source is not None:
        earlier = trace.step_at(cell.source)
        source, content = f"the output of step {label(cell.source)} ({isolated(earlier.agent)})", earlier.output
    match cell.state:
        case "granted" | "passed_on":
            sent = sent_messages(step)
            if cell.message is None or cell.message >= len(sent):
                return f"{reader} was given {source}; its record does not hold the message.", [("", content)]
            how = "got" if cell.state == "granted" else "read, in the instruction of an earlier step,"
            if step.agent == CONDUCTOR_AGENT:
                how = "asked the Conductor; its prompt holds"
            texts = [_titled(sent, cell.message)]
            if cell.source is not None and step.agent != CONDUCTOR_AGENT and cell.message:
                texts.append(_titled(sent, cell.message - 1))
            return f"{reader} {how} {source}.", texts
        case "withheld":
            titled = [("what was withheld", content)] if cell.source is not None else []
            return f"{reader} was not shown {source}.", titled
        case "absent":
            return f"{reader} started before {source} was there, and its access list does not grant it.", []
        case "planned":
            now = [("as it is now", content)] if content else []
            return f"{reader} has not begun. Its access list grants {source}.", now
        case _:
            return f"{reader} has not begun. Its access list does not grant {source}.", []


def _titled(sent: tuple[Message, ...], place: int) -> tuple[str, str]:
    return f"message {place + 1} of {len(sent)}, {sent[place].role}", sent[place].text


def text_html(title: str, text: str) -> str:
    """Returns a text, at most its beginning, with hidden characters written out."""
    shown = _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text[:MOST_SHOWN].replace("\r\n", "\n"))
    cut = f", the first {MOST_SHOWN:,} of them" if len(text) > MOST_SHOWN else ""
    head = ", ".join(filter(None, (title, plural(len(text), "character"))))
    return (
        f'<div class="context-message"><div class="muted">{escape(head)}{cut}</div>'
        f'<pre class="written" dir="auto" tabindex="0">{escape(shown)}</pre></div>'
    )
