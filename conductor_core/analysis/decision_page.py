"""Writes a decision record as one HTML file, or as plain text.

The file has no script, fetches nothing, and its policy forbids both. The template escapes every value. What would steer
a page though it is escaped, such as a mark that reorders text, is written out. In the text, what people and models
wrote is set off by a bar, line by line, and inert.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from conductor_core import __version__
from conductor_core.analysis import decision_record
from conductor_core.analysis.decision_record import DecisionRecord, Part
from conductor_core.analysis.text_diff import compare_texts, shortened
from conductor_core.chat.messages import data_url_of
from conductor_core.formats import plural, seconds
from conductor_core.text import plain

if TYPE_CHECKING:
    from jinja2 import Template


MADE_BY = f"conductor-inspector {__version__}"
_MOST_READERS = 12
"""A grid with more steps does not fit on a sheet. What each step saw is also shown with the step."""
_CELLS = {
    "granted": "saw it",
    "passed_on": "in a past turn",
    "withheld": "withheld",
    "absent": "not there yet",
    "planned": "was not asked",
    "unplanned": "was not asked",
    "unasked": "was not asked",
    "own": "",
}
_REASONS = {"edited": "a person changed it", "inputs": "it was given other text", "chance": "by chance", "none": ""}
_TONES = {"completed": ("good", "✓"), "planned": ("good", "✓"), "failed": ("bad", "✕"), "denied": ("bad", "✕")}
_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)


class _Grid(NamedTuple):
    """Who saw what in a round. ``rows``: a text and what became of it, reader by reader."""

    round: str
    readers: tuple[Part, ...]
    rows: list[tuple[str, list[str]]]


def record_page(
    record: DecisionRecord,
    images: Mapping[str, tuple[str, bytes]],
    *,
    hidden: int = 0,
    now_utc: datetime | None = None,
) -> str:
    """Returns the page.

    Args:
        images: media type and bytes of the images that the task came with, by digest; the page holds them.
        hidden: how many passages were hidden in the texts.
        now_utc: when the page is made; default: now.
    """
    style = _COMMENT.sub("", Path(__file__).with_name("record.css").read_text(encoding="utf-8"))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    tone, glyph = _TONES.get(record.status, ("warn", "•"))
    return _template("record.html").render(
        r=record,
        policy=policy,
        style=style,
        tone=tone,
        glyph=glyph,
        grids=tuple(_grids(record.steps)),
        cells=_CELLS,
        reasons=_REASONS,
        settings=dict(record.settings),
        images={sha256: data_url_of(kind, data) for sha256, (kind, data) in images.items()},
        changed_by=_names([*(edit.by for edit in record.edits), *(part.by for part in record.given)]),
        approved_by=_names([each.by for each in record.approvals if each.by and "approved" in each.decision]),
        went_to=_went_to(record),
        difference=lambda before, after: shortened(compare_texts(before, after)),
        hidden=hidden,
        made_by=MADE_BY,
        now_utc=now_utc or datetime.now(UTC),
    )


def _names(said: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(said)) or "nobody"


def _went_to(record: DecisionRecord) -> str:
    hosts = [f"{each.provider} at {each.host}" for each in record.egress if each.host and not each.simulated]
    told = "; ".join(dict.fromkeys(hosts)) or "no other host: every call stayed in this process"
    return f"the imported file says: {told}" if any(each.of_file for each in record.egress) else told


def _grids(steps: Sequence[Part]) -> Iterator[_Grid]:
    """Yields who saw what, for each round whose steps fit on a sheet."""
    by_round = sorted(steps, key=_round_of)
    for round_, group in groupby(by_round, key=_round_of):
        readers = tuple(group)
        if len(readers) > _MOST_READERS:
            continue
        rows = [("the task", [step.question for step in readers])]
        for place, source in enumerate(readers[:-1]):
            cells = ["own" if at <= place else _cell(source, reader) for at, reader in enumerate(readers)]
            rows.append((f"output of step {source.label}", cells))
        yield _Grid(round_, readers, rows)


def _round_of(step: Part) -> str:
    return str(step.label).rpartition(".")[0]


def _cell(source: Part, reader: Part) -> str:
    """Returns what ``reader`` got of the output of ``source``, a step before it."""
    if any(piece.source == source.label for piece in reader.granted):
        return "granted"
    if any(piece.source == source.label and piece.sha256 for piece in reader.withheld):
        return "withheld"
    return "absent" if reader.identity is not None else "unasked"


@cache
def _template(name: str) -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape  # when used: few commands do

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "plain": plain,
        "at": lambda moment: f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "took": lambda duration_ms: "not ended" if duration_ms is None else seconds(duration_ms),
        "shown": lambda text, most: text if len(text) <= most else f"{text[: most - 1]}…",
        "capital": lambda text: text[:1].upper() + text[1:],
        "access": decision_record.access,
        "seconds": seconds,
        "plural": plural,
        "grouped": "{:,}".format,
        "one": _one,
        "barred": lambda text: "\n".join(f"    | {line}" for line in _inert(text).split("\n")),
    }
    return environment.get_template(name)


_SEPARATORS = {0x2028: "\\u2028", 0x2029: "\\u2029"}
"""They end a line, too, in the eyes of some programs, and what follows would lack its bar."""
_QUESTION = {
    "granted": "it was told the task",
    "passed_on": "it was not told the task, but an earlier instruction that it was shown holds it",
    "withheld": "it was not told the task",
    "absent": "",
    "planned": "",
    "unplanned": "",
}


def record_text(record: DecisionRecord, hidden: int = 0) -> str:
    """Returns the record. ``hidden``: how many passages were hidden in the texts."""
    settings = dict(record.settings)
    text = _template("record.txt").render(r=record, hidden=hidden, settings=settings, questions=_QUESTION).rstrip("\n")
    return "".join(f"{line}\n" for before, line in pairwise(["", *text.split("\n")]) if line or before)


def _one(text: str) -> str:
    """Returns the text as a part of a line of ours."""
    return _inert(text).replace("\n", " ⏎ ")


def _inert(text: str) -> str:
    return plain(text).translate(_SEPARATORS)
