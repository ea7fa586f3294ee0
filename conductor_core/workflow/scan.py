"""Finds the list literals in a completion and decides which of several attempts counts.

An *assignment* is one list under its name (``model_id = [...]``, ``"subtasks": [...]``). An *attempt* is one of each,
in any order, or a single ``"steps": [{...}, ...]``. An attempt is *whole* if all its lists are closed and hold more
than dots. The last whole one counts.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from conductor_core.workflow.literals import Allowance, Node, NotLiteral, Reader, Reading
from conductor_core.workflow.source import SourceText

Field = Literal["agent", "instruction", "access_list", "steps"]

CANONICAL: dict[Field, str] = {
    "agent": "model_id",
    "instruction": "subtasks",
    "access_list": "access_list",
    "steps": "steps",
}

_HEAD = re.compile(
    # The first letter stands before the lookbehind: so the search skips to it, five times faster.
    r"[mMaAwWsSiI](?<!\w.)"
    r"(?i:(?P<agent>(?<=m)odel[_ -]?ids?|(?<=m)odels|(?<=a)gent[_ -]?ids?|(?<=a)gents|(?<=w)orker[_ -]?ids?)"
    r"|(?P<instruction>(?<=s)ub[_ -]?tasks?|(?<=i)nstructions)"
    r"|(?P<access_list>(?<=a)ccess[_ -]?lists?|(?<=a)ccess)"
    r"|(?P<steps>(?<=s)teps))"
    r"[\"'`*”’]{0,3}"
    r"(?:\s*:\s*[A-Za-z][\w.]{0,20}(?:\[[\w\[\], .|]{0,60}\])?\s*=|\s*[=:])[*]{0,2}"
    r"\s*(?:```\w{0,12}\s*|`)?(?(steps)(?=\[\s*[{\]])|(?=[\[(]))"
)
_DECORATION = "\"'`*“‘"
_REASONING_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_COMMENT_AFTER = re.compile(r"[ \t;,]*#[^\r\n]*")
_NOT_PROSE = re.compile(r"#[^\r\n]*|//[^\r\n]*|```\w{0,12}")
_PROSE = re.compile(r"[^\W_]{2}")
_STRICT_WORK_PER_CHARACTER = 4
_PIECES_OF_A_HEAD = 10
_WORD_CHARACTER = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One list under its name. ``start``: of the name and the quotes before it; ``name``: as written."""

    field: Field
    name: str
    start: int
    reading: Reading

    @property
    def node(self) -> Node:
        return self.reading.node

    @property
    def whole(self) -> bool:
        """Whether it is closed and no template: an entry of only dots is a gap that was never filled in."""
        if self.node.kind != "list" or not self.node.closed or self.reading.problem is not None:
            return False
        if self.field == "steps":
            return all(item.kind == "object" for item in self.node.items)
        return not any(item.kind == "word" and not item.text.strip(".… ") for item in self.node.items)


ParseAttempt = tuple[Assignment, ...]
"""The assignments of one attempt, in the order in which they are written."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a completion holds.

    Attributes:
        chosen: the attempt that counts: the last whole one, else the last with the most lists; empty if none.
        whole: whether ``chosen`` is whole.
        latest: the attempt that stands last, whole or not.
        in_reasoning: ``chosen`` stands inside the reasoning, and nothing was written after it.
        work: characters passed over, the measure of the time bound.
        spent_at: where reading stopped because there is too much to read, None if it did not.
    """

    chosen: ParseAttempt
    whole: bool
    latest: ParseAttempt
    in_reasoning: bool
    work: int
    spent_at: int | None


def scan(source: SourceText) -> Scan:
    """Finds all attempts in ``source``, in time linear in its length."""
    allowance = Allowance()
    assignments, work = _assignments(source, allowance)
    ends = [match.start() for match in _REASONING_END.finditer(source.text)]
    spans = [(found.start, found.node.end) for found in assignments]
    ends = _outside(ends, spans)
    after = [found for found in assignments if ends and found.start > ends[-1]]
    in_reasoning = bool(ends) and not after and bool(assignments)
    considered = after or assignments
    attempts = _whole_attempts(source, considered)
    best = _best_unfinished(considered)
    chosen = attempts[-1] if attempts else best
    return Scan(chosen, bool(attempts), _latest(considered, chosen), in_reasoning, work, allowance.spent_at)


@dataclass(frozen=True, slots=True)
class _Head:
    """A list's name and what leads to its bracket: ``text[start:end]``."""

    field: Field
    name: str
    start: int
    end: int


def _heads(text: str, allowance: Allowance) -> list[_Head]:
    """Yields all heads in order, as far as the allowance reaches."""
    heads: list[_Head] = []
    for match in _HEAD.finditer(text):
        if not allowance.spend(_PIECES_OF_A_HEAD, match.start()):
            break
        field: Field = next(name for name in CANONICAL if match[name])
        start = match.start()
        while match.start() - start < 3 and text[start - 1 : start] in _DECORATION and start:
            start -= 1
        if start < match.start() and _WORD_CHARACTER.match(text[start - 1 : start]):
            start += 1
        heads.append(_Head(field, text[match.start() : match.end(field)], start, match.end()))
    return heads


def _assignments(source: SourceText, allowance: Allowance) -> tuple[list[Assignment], int]:
    """Returns all assignments in order, none inside another, as far as the allowance reaches."""
    text = source.text
    heads = _heads(text, allowance)
    reasoning_ends = [match.start() for match in _REASONING_END.finditer(text)]
    line_starts = [head.start for head in heads if _begins_line(text, head.start)]
    barriers = sorted([*reasoning_ends, *line_starts])
    reader = Reader(source, stops=[head.start for head in heads], allowance=allowance)
    json_reader = Reader(source, json=True, allowance=allowance)
    found: list[Assignment] = []
    position = 0
    for head in heads:
        if head.start < position:
            continue
        if head.field == "steps":
            reading = _read(json_reader, head.end, _next(reasoning_ends, head.end, len(text)))
        else:
            short = head.field != "instruction"
            reading = _read(reader, head.end, _next(barriers, head.end, len(text)), short=short)
        found.append(Assignment(head.field, head.name, head.start, reading))
        if allowance.spent_at is not None:
            break
        position = max(reading.node.end, head.end)
        comment = _COMMENT_AFTER.match(text, position)
        position = comment.end() if comment else position
    return found, reader.work + json_reader.work


def _next(offsets: Sequence[int], offset: int, end: int) -> int:
    """Returns the first of the ascending ``offsets`` that is not before ``offset``, else ``end``."""
    at = bisect_left(offsets, offset)
    return offsets[at] if at < len(offsets) else end


def _read(reader: Reader, start: int, limit: int, *, short: bool = False) -> Reading:
    """Reads strictly if that succeeds, else leniently. Strict reading may run far before it fails: it is rationed."""
    if reader.work <= _STRICT_WORK_PER_CHARACTER * len(reader.text):
        try:
            return reader.strict(start)
        except NotLiteral:
            pass
    return reader.lenient(start, limit, short_strings=short)


def _begins_line(text: str, offset: int) -> bool:
    before = text[max(0, offset - 16) : offset].rstrip(" \t{,")
    return not before or before[-1] in "\r\n"


def _outside(offsets: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the ``offsets`` (ascending) outside all ``spans`` (ascending, disjoint)."""
    kept: list[int] = []
    at = 0
    for offset in offsets:
        while at < len(spans) and spans[at][1] <= offset:
            at += 1
        if at == len(spans) or offset < spans[at][0]:
            kept.append(offset)
    return kept


def _whole_attempts(source: SourceText, assignments: Sequence[Assignment]) -> list[ParseAttempt]:
    """Returns the whole attempts, ascending by their end.

    Lists with only punctuation and comments between them belong together, in any order. The remaining lists may have
    explanations in between; then they need the order of the paper, so that a list mentioned in prose does not join two
    attempts. Any order counts only if these rules find nothing whole.
    """
    usable = [found for found in assignments if found.whole]
    attempts: list[ParseAttempt] = [(found,) for found in usable if found.field == "steps" and found.node.items]
    lists = [found for found in assignments if found.field != "steps"]
    grouped: list[ParseAttempt] = []
    rest: list[list[Assignment]] = [[]]
    for run in _runs(source, lists):
        for attempt in _partition(run):
            if _is_whole(attempt):
                grouped.append(attempt)
                rest.append([])
            else:
                rest[-1] += attempt
    windows: list[ParseAttempt] = [tuple(part[at : at + 3]) for part in rest for at in range(len(part) - 2)]
    order = ("agent", "instruction", "access_list")
    explained = [window for window in windows if _is_whole(window) and tuple(item.field for item in window) == order]
    attempts = sorted([*attempts, *grouped, *explained], key=lambda attempt: attempt[-1].node.end)
    if attempts:
        return attempts
    empty_steps: list[ParseAttempt] = [(found,) for found in usable if found.field == "steps"]
    return [window for window in windows if _is_whole(window)] or empty_steps


def _runs(source: SourceText, assignments: Sequence[Assignment]) -> list[list[Assignment]]:
    """Splits where words stand between two lists, comments and code fences apart."""
    runs: list[list[Assignment]] = []
    for found in assignments:
        gap = source.text[runs[-1][-1].node.end : found.start] if runs else ""
        if runs and not _PROSE.search(_NOT_PROSE.sub("", gap)):
            runs[-1].append(found)
        else:
            runs.append([found])
    return runs


def _partition(run: Sequence[Assignment]) -> list[ParseAttempt]:
    """Splits a run into attempts. A list written again replaces the first as long as the attempt is not whole."""
    attempts: list[dict[Field, Assignment]] = [{}]
    for found in run:
        if found.field in attempts[-1] and _is_whole(tuple(attempts[-1].values())):
            attempts.append({})
        attempts[-1].pop(found.field, None)
        attempts[-1][found.field] = found
    return [tuple(attempt.values()) for attempt in attempts if attempt]


def _is_whole(attempt: ParseAttempt) -> bool:
    return len(attempt) == 3 and len({found.field for found in attempt}) == 3 and all(found.whole for found in attempt)


def _best_unfinished(assignments: Sequence[Assignment]) -> ParseAttempt:
    """Returns the attempt with the most lists, the last of several. A lone ``steps`` in prose is none."""
    lists = [
        found
        for found in assignments
        if found.field != "steps" or (found.node.items and found.node.items[0].kind == "object")
    ]
    steps = [found for found in lists if found.field == "steps"]
    if steps:
        return (steps[-1],)
    return max(reversed(_partition(lists)), key=len, default=())


def _latest(assignments: Sequence[Assignment], chosen: ParseAttempt) -> ParseAttempt:
    """Returns what is written last: what follows ``chosen`` if that names agents or instructions, else ``chosen``."""
    end = chosen[-1].node.end if chosen else -1
    following = [found for found in assignments if found.start >= end]
    last = _best_unfinished(following)
    return last if any(found.field != "access_list" and found.node.items for found in last) else chosen
