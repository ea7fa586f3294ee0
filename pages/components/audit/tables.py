"""A table of the Audit page, and its lists. What they are given is HTML already."""

from collections.abc import Iterable, Sequence
from html import escape


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
