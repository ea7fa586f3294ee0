"""A table of the Audit page, its lists and links, and the way through its pages."""

from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

import streamlit as st

from pages.components.app import places
from pages.components.audit.query import AuditQuery, go


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Returns a table. ``kind``: ``numbers`` has all columns but the first to the right, ``wide`` keeps line breaks."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="audit-scroll" tabindex="0"><table class="audit-table {kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def items(said: Iterable[str]) -> str:
    """Returns texts, which it escapes, as a list; empty for none."""
    listed = "".join(f"<li>{escape(each)}</li>" for each in said)
    return f'<ul class="audit-list">{listed}</ul>' if listed else ""


def run_link(run_id: str, words: str) -> str:
    """Returns ``words`` as the way to the record of a run."""
    return f'<a href="{places.AUDIT.stem}?run={quote(run_id, safe="")}" target="_self">{escape(words)}</a>'


def paging(asked: AuditQuery, before: int | None, key: str) -> None:
    """Draws the ways to the newest page and to the next older one, which begins at ``before``; None: there is none."""
    if asked.before is None and before is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        newest, older = ":material/first_page:", ":material/chevron_right:"
        st.button("Newest", key=f"{key}-newest", icon=newest, disabled=asked.before is None, on_click=go)
        turned = {"before": str(before)}
        st.button("Older", key=f"{key}-older", icon=older, disabled=before is None, on_click=go, kwargs=turned)
