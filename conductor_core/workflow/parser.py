"""Reads the workflow in a Conductor's completion, or in a workflow file.

``parse_completion`` reads what models really write around and inside the paper's three lists (arXiv 2512.04388,
section 3). ``parse_workflow_file`` reads JSON or a text with the three lists. Neither evaluates anything, neither
raises, both take time linear in the length of the text and never more than a fraction of a second: see
``MAX_CHARACTERS``, ``MAX_COMPLETION_CHARACTERS`` and ``MAX_PIECES``. What is wrong is in ``Parsed.faults`` with its
place, what was read otherwise than written in ``Parsed.repairs``.

An *assignment* is one list under its name (``model_id = [...]``, ``"subtasks": [...]``). An *attempt* is one of each,
in any order, or a single ``"steps": [{...}, ...]``. An attempt is *whole* if all its lists are closed and hold more
than dots. The last whole one counts.

The JSON form is ``{"task", "steps": [{"instruction", "agent", "access_list"}]}``. Of the first open proof of concept's
step keys, ``assigned_agent`` is read as ``agent``; ``step`` and ``result`` are accepted and left unread.
"""

import difflib
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from conductor_core.text import BARE_FINAL, HARMONY_FINAL, REASONING_TAGS
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Place, Workflow
from conductor_core.workflow.source import (
    MAX_CHARACTERS,
    MAX_COMPLETION_CHARACTERS,
    MAX_STEPS_READ,
    TOO_MANY_PIECES,
    Allowance,
    Node,
    Notes,
    NotLiteral,
    Parsed,
    PartialStep,
    Position,
    RawStep,
    Reader,
    Reading,
    SourceText,
    quote,
    shorten,
)

# Entries of the three lists: which agent, which instruction, which earlier steps.

_LARGEST = 10**9
_ORDINAL = re.compile(r"(?:(?:model|agent|worker)[\s_#-]*)?(?P<number>-?[0-9]{1,9})", re.IGNORECASE)
_INDEX = re.compile(
    r"(?:(?:step|subtask|task|output|result)s?[\s_#-]*)?(?P<number>-?[0-9]{1,9})(?:\.0)?", re.IGNORECASE
)
_MOST_CHARACTERS = 400


def read_agent(node: Node, notes: Notes, step: int, *, by_name_only: bool = False) -> int | str | None:
    """Reads an ordinal or a name; returns None, with a fault, if it is neither.

    ``by_name_only``: a string is always a name (workflow files), else "2" and "Model 2" are ordinals.
    """
    if node.kind == "list" and len(node.items) == 1 and node.closed:
        notes.repair(node.start, f"took the agent of step {step} out of its brackets")
        return read_agent(node.items[0], notes, step, by_name_only=by_name_only)
    if node.kind == "number":
        ordinal = _whole_number(node)
        if ordinal is not None:
            if not node.text.lstrip("+-").isdigit():
                notes.repair(node.start, f"read {shorten(node.text)} as {ordinal}")
            return ordinal
    text = node.text.strip()
    if node.kind == "string" and by_name_only and text:
        return node.text
    if node.kind in ("string", "word") and text and text.lower() not in ("none", "null", "true", "false"):
        match = _ORDINAL.fullmatch(text)
        if match:
            notes.repair(node.start, f"read {shorten(repr(text))} as the agent number {match['number']}")
            return int(match["number"])
        if node.kind == "word":
            notes.repair(node.start, f"read {shorten(text)} as an agent's name without its quotes")
        return text
    if node.closed:
        message = f"Step {step}: the agent must be a number or a name, not {_describe(node, notes)}."
        notes.fault("not_an_agent", message, node.start, step=step, field="agent")
    return None


def read_instruction(node: Node, notes: Notes, step: int) -> str | None:
    if node.kind == "string":
        return node.text
    if node.kind == "list" and len(node.items) == 1 and node.items[0].kind == "string" and node.closed:
        notes.repair(node.start, f"took the instruction of step {step} out of its brackets")
        return node.items[0].text
    if node.closed:
        message = f"Step {step}: the instruction must be a string in quotes, not {_describe(node, notes)}."
        notes.fault("not_text", message, node.start, step=step, field="instruction")
    return None


def read_access(node: Node, notes: Notes, step: int) -> AccessList | None:
    whole = _access_word(node, notes, step)
    if whole is not None:
        return whole
    if node.kind == "list":
        return _access_items(node, notes, step)
    if node.kind == "number":
        index = _whole_number(node)
        if index is not None:
            notes.repair(node.start, f"read {shorten(node.text)} as the list [{index}]")
            return (index,)
    if node.kind in ("string", "word"):
        indices = _indices_in(node.text)
        if indices is not None:
            notes.repair(node.start, f"read {shorten(repr(node.text))} as the list {list(indices)}")
            return indices
    if node.closed:
        _bad_access(node, notes, step)
    return None


def _access_word(node: Node, notes: Notes, step: int) -> AccessList | None:
    """``"all"`` or nothing, however they are written."""
    if node.kind not in ("string", "word") or len(node.text) > _MOST_CHARACTERS:
        return None
    word = node.text.strip().lower().strip("[]()'\" ")
    if word == "all":
        if node.kind != "string" or node.text != "all":
            notes.repair(node.start, f'read {shorten(node.text)} as "all" (step {step})')
        return "all"
    if word in ("none", "null", ""):
        shown = shorten(node.text) or "an empty string"
        notes.repair(node.start, f"read {shown} as an empty access list (step {step})")
        return ()
    return None


def _access_items(node: Node, notes: Notes, step: int) -> AccessList | None:
    if len(node.items) > MAX_STEPS_READ:
        _bad_access(node, notes, step)
        return None
    indices: list[int] = []
    sees_all, readable = False, True
    for item in node.items:
        if item.kind == "number" and _whole_number(item) is not None and item.text.lstrip("+-").isdigit():
            indices.append(_whole_number(item) or 0)
            continue
        inner = _inner_access(item, notes, step)
        if inner is None:
            readable = readable and not item.closed
        elif inner == "all":
            sees_all = True
        else:
            indices += inner
    if not readable:
        return None
    if sees_all:
        notes.repair(node.start, f'read a list that holds "all" as "all" (step {step})')
        return "all"
    return tuple(indices)


def _inner_access(item: Node, notes: Notes, step: int) -> AccessList | None:
    """An entry of an access list that is no plain number."""
    if item.kind == "list":
        notes.repair(item.start, f"took out brackets inside the access list of step {step}")
    noted = notes.repair_count()
    found = read_access(item, notes, step)
    if item.kind == "list":
        return found
    notes.forget_repairs(noted)
    if found is not None and found != "all":
        shown = ", ".join(map(str, found)) or "nothing"
        notes.repair(item.start, f"read {shorten(repr(item.text))} as {shown} in the access list of step {step}")
    return found


def _indices_in(text: str) -> tuple[int, ...] | None:
    if len(text) > _MOST_CHARACTERS:
        return None
    matches = [_INDEX.fullmatch(part.strip()) for part in text.strip().strip("[]()").split(",")]
    return tuple(int(match["number"]) for match in matches if match) if all(matches) else None


def _whole_number(node: Node) -> int | None:
    """The number if it is whole; one too large for any index is cut to a large one, which is out of range too."""
    whole, _, fraction = node.text.partition(".")
    if fraction.strip("0") or "e" in node.text.lower():
        return None
    sign = -1 if whole.startswith("-") else 1
    digits = whole.lstrip("+-")
    return sign * (int(digits) if len(digits) <= 9 else _LARGEST)


def _bad_access(node: Node, notes: Notes, step: int) -> None:
    needed = 'the access list must be [], "all" or a list of earlier step indices'
    message = f"Step {step}: {needed}, not {_describe(node, notes)}."
    notes.fault("bad_access", message, node.start, step=step, field="access_list")


def _describe(node: Node, notes: Notes) -> str:
    if notes.full:
        return ""
    return shorten(notes.source.text[node.start : min(node.end, node.start + 200)]) or "nothing"


# Lists in a completion, and which of several attempts counts.

Field = Literal["agent", "instruction", "access_list", "steps"]

CANONICAL: dict[Field, str] = {
    "agent": "model_id",
    "instruction": "subtasks",
    "access_list": "access_list",
    "steps": "steps",
}

_HEAD = re.compile(
    # The first letter comes before the lookbehind: so the search skips to it, five times faster.
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
_REASONING_END = re.compile(
    "|".join((*map(re.escape, {*REASONING_TAGS.values()}), HARMONY_FINAL, BARE_FINAL)), re.IGNORECASE
)
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
        latest: the last attempt, whole or not.
        in_reasoning: ``chosen`` is inside the reasoning, and nothing was written after it.
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
    """Splits where words are between two lists, comments and code fences apart."""
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


# The JSON form.

_STEP_KEYS: tuple[Literal["instruction", "agent", "access_list"], ...] = ("instruction", "agent", "access_list")
_ALIAS_OF = {"agent": "assigned_agent"}
_ALIASES = {alias: name for name, alias in _ALIAS_OF.items()}
_IGNORED_STEP_KEYS = ("step", "result")
_TOP_KEYS = ("task", "steps")
_NAMES_STEPS = re.compile(r'"(?:steps|task)"\s*:')


def read_json(text: str) -> Parsed | None:
    """The workflow in JSON ``text``; None if the text is not JSON, or JSON of the three lists instead of steps.

    Broken JSON that names steps is read as JSON: the break is a fault, and what can be read is there for display.
    """
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] not in ("{", "["):
        return None
    source = SourceText(text)
    notes = Notes(source)
    reader = Reader(source, json=True)
    try:
        reading = reader.strict(start)
        rest = source.text[reading.node.end :]
        if rest.strip():
            raise NotLiteral(len(source.text) - len(rest.lstrip()), "something follows the end of the JSON")
    except NotLiteral as error:
        if not (text[start] == "{" and _NAMES_STEPS.search(text)):
            return None
        wrong = "This is not valid JSON" if error.code == "bad_json" else "Too much"
        notes.fault(error.code, f"{wrong}: {error.reason}.", error.offset)
        if error.code == "too_large":
            return notes.parsed(None, at=start)
        reading = reader.lenient(start)
    else:
        keys = {key.text for key in reading.node.items[::2]} if reading.node.kind == "object" else set()
        if "steps" not in keys and keys & set(CANONICAL.values()):
            return None
    return _read_root(reading, notes)


def _read_root(reading: Reading, notes: Notes) -> Parsed:
    root = reading.node
    steps_node, task = None, None
    if root.kind != "object":
        notes.fault("not_a_workflow", 'A workflow file is an object {"task", "steps"}, not a list.', root.start)
        return notes.parsed(None, at=root.start)
    for key, value in _pairs(root, notes, None):
        if key.text == "steps":
            steps_node = value
        elif key.text == "task":
            task = value.text if value.kind == "string" else None
            if task is None and value.text not in ("null", "None"):
                notes.fault("bad_task", "The task must be a string.", value.start)
        else:
            _unknown(key, _TOP_KEYS, notes, None)
    if steps_node is None or steps_node.kind != "list":
        notes.fault("not_a_workflow", 'The file has no "steps" list.', steps_node.start if steps_node else root.start)
        return notes.parsed(None, task=task, at=root.start)
    steps = read_steps(steps_node, notes, in_file=True)
    return notes.parsed(steps, task=task, more_steps=len(steps_node.items) - len(steps), at=root.start)


def read_steps(node: Node, notes: Notes, *, in_file: bool, most: int = MAX_STEPS_READ) -> tuple[RawStep, ...]:
    """The first ``most`` steps in a list of objects.

    In a file an agent's string is always a name; elsewhere "2" is an ordinal.
    """
    steps: list[RawStep] = []
    for index, item in enumerate(node.items[:most]):
        if item.kind == "object":
            steps.append(_read_step(item, notes, index, in_file=in_file))
        else:
            notes.fault("not_a_workflow", f"Step {index} must be an object.", item.start, step=index)
            steps.append(RawStep())
    return tuple(steps)


def _read_step(node: Node, notes: Notes, index: int, *, in_file: bool) -> RawStep:
    values: dict[str, Node] = {}
    for key, value in _pairs(node, notes, index):
        name = _ALIASES.get(key.text, key.text)
        if name in values:
            message = f"Step {index} gives both {name} and {_ALIAS_OF[name]}."
            notes.fault("duplicate_key", message, key.start, step=index)
        elif name in _STEP_KEYS:
            values[name] = value
        elif key.text not in _IGNORED_STEP_KEYS and in_file:
            _unknown(key, _STEP_KEYS, notes, index)
        elif key.text not in _IGNORED_STEP_KEYS:
            notes.repair(key.start, f"left out the unknown key {shorten(key.text)} of step {index}")
    for field in _STEP_KEYS:
        if field not in values and node.closed:
            notes.fault("missing_key", f"Step {index} has no {field}.", node.start, step=index, field=field)
    return _raw_step(values, notes, index, by_name_only=in_file, else_at=notes.source.position(node.start))


def _raw_step(
    nodes: Mapping[str, Node | None],
    notes: Notes,
    index: int,
    *,
    by_name_only: bool = False,
    else_at: Position | None = None,
) -> RawStep:
    """``else_at``: the place of a part that is missing."""
    instruction, agent, access = map(nodes.get, _STEP_KEYS)
    position = notes.source.position
    return RawStep(
        instruction=read_instruction(instruction, notes, index) if instruction else None,
        agent=read_agent(agent, notes, index, by_name_only=by_name_only) if agent else None,
        access_list=read_access(access, notes, index) if access else None,
        instruction_at=position(instruction.start) if instruction else else_at,
        agent_at=position(agent.start) if agent else else_at,
        access_list_at=position(access.start) if access else else_at,
    )


def _pairs(node: Node, notes: Notes, step: int | None) -> Iterator[tuple[Node, Node]]:
    """Keys and values; a key given twice is a fault and its first value counts."""
    seen: set[str] = set()
    for key, value in zip(node.items[::2], node.items[1::2], strict=True):
        if key.text in seen:
            message = f"The key {shorten(repr(key.text[:60]))} is given twice."
            notes.fault("duplicate_key", message, key.start, step=step)
            continue
        seen.add(key.text)
        yield key, value


def _unknown(key: Node, known: Sequence[str], notes: Notes, step: int | None) -> None:
    if notes.full:
        notes.more_faults += 1
        return
    close = difflib.get_close_matches(key.text[:80], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
    where = "the workflow" if step is None else f"step {step}"
    notes.fault("unknown_key", f"Unknown key {key.text[:80]!r} in {where}; {hint}", key.start, step=step)


_LISTS: tuple[Field, ...] = ("agent", "instruction", "access_list")


def parse_completion(text: str) -> Parsed:
    """The workflow that the Conductor's ``text`` ends in: of several attempts, the last whole one."""
    if len(text) > MAX_COMPLETION_CHARACTERS:
        return _too_large(text, MAX_COMPLETION_CHARACTERS)
    source = SourceText(text)
    notes = Notes(source)
    found = scan(source)
    steps: tuple[RawStep, ...] | None = None
    if found.chosen:
        if found.in_reasoning:
            notes.repair(found.chosen[0].start, "took the workflow from the reasoning: none follows it")
        if found.whole and found.latest != found.chosen:
            notes.repair(found.latest[0].start, "left out a later attempt that is not whole")
        _note_reading(found.chosen, notes)
        steps = _steps(found.chosen, notes, MAX_STEPS_READ)
        if found.chosen[0].field != "steps":
            _note_lengths(found.chosen, notes)
    elif found.spent_at is None:
        notes.fault(
            "no_workflow", "The text holds no workflow: model_id, subtasks and access_list lists were not found.", 0
        )
    if found.spent_at is not None and not any(fault.code == "too_large" for fault in notes.faults):
        notes.fault("too_large", f"Too much: {TOO_MANY_PIECES}.", found.spent_at)
    return notes.parsed(
        steps,
        more_steps=max((len(each.node.items) for each in found.chosen), default=0) - len(steps or ()),
        at=found.chosen[0].start if found.chosen else None,
    )


def parse_workflow_file(text: str) -> Parsed:
    if len(text) > MAX_CHARACTERS:
        return _too_large(text, MAX_CHARACTERS)
    text = text.removeprefix("\ufeff")
    return read_json(text) or parse_completion(text)


def partial_steps(text: str, most: int = MAX_STEPS_READ) -> tuple[PartialStep, ...]:
    """The steps of a plan that is still being written, as far as they are there, ``most`` at most; for display only.

    Cheap enough for every piece of a stream: one linear pass.
    """
    source = SourceText(text[-MAX_COMPLETION_CHARACTERS:])
    notes = Notes(source)
    latest = scan(source).latest
    steps = _steps(latest, notes, most) if latest else ()
    writing = _growing(latest, len(source.text))
    return tuple(
        PartialStep(
            index=index,
            instruction=step.instruction,
            agent=step.agent,
            access_list=step.access_list,
            writing=writing[1] if writing and writing[0] == index else None,
        )
        for index, step in enumerate(steps)
    )


def _growing(attempt: ParseAttempt, end: int) -> tuple[int, Place] | None:
    """Step and field of the entry that the text ends in, if it ends in one."""
    if not attempt or attempt[-1].node.closed or attempt[-1].node.end < end or not attempt[-1].node.items:
        return None
    field: Place = "workflow" if attempt[-1].field == "steps" else attempt[-1].field
    return len(attempt[-1].node.items) - 1, field


def _too_large(text: str, most: int) -> Parsed:
    notes = Notes(SourceText(""))
    notes.fault("too_large", f"The text has {len(text):,} characters; at most {most:,} are read.", 0)
    return notes.parsed(None)


def _steps(attempt: ParseAttempt, notes: Notes, most: int) -> tuple[RawStep, ...]:
    if attempt[0].field == "steps":
        return read_steps(attempt[0].node, notes, in_file=False, most=most)
    return _zip(attempt, notes, most)


def _note_reading(attempt: ParseAttempt, notes: Notes) -> None:
    """The repairs of the chosen lists, and what keeps one from being read to its end."""
    for found in attempt:
        name = CANONICAL[found.field]
        if found.name.lower() != name:
            notes.repair(found.start, f"read {found.name} as {name}")
        for offset, sentence in found.reading.repairs:
            notes.repair(offset, f"{sentence} ({name})")
        _note_end(found, attempt, notes)


def _note_end(found: Assignment, attempt: ParseAttempt, notes: Notes) -> None:
    name, node = CANONICAL[found.field], found.node
    place: Place = "workflow" if found.field == "steps" else found.field
    step = max(0, len(node.items) - 1)
    begun = notes.source.position(node.start).line
    if found.reading.problem is not None:
        code, offset, sentence = found.reading.problem
        if code == "cut_off":
            missing = [CANONICAL[field] for field in _LISTS if field not in {other.field for other in attempt}]
            lost = f"; {' and '.join(missing)} never came" if missing and found.field != "steps" else ""
            sentence = f"The text is cut off inside {name}, begun on line {begun}{lost}."
        else:
            sentence = f"{name}: {sentence}."
        notes.fault(code, sentence, offset, step=step, field=place)
    elif not node.closed:
        notes.fault(
            "unclosed_list", f"{name}, begun on line {begun}, has no closing bracket.", node.end, step=step, field=place
        )


def _note_lengths(attempt: ParseAttempt, notes: Notes) -> None:
    lengths = {found.field: len(found.node.items) for found in attempt}
    cut = any(fault.code in ("cut_off", "too_large") for fault in notes.faults)
    missing = [field for field in _LISTS if field not in lengths]
    if missing and not cut:
        names = " and ".join(CANONICAL[field] for field in missing)
        are = "The lists {} are" if len(missing) > 1 else "The list {} is"
        notes.fault("missing_list", f"{are.format(names)} not there.", attempt[-1].node.end)
    ended = all(found.node.closed for found in attempt)
    if ended and not missing and len(set(lengths.values())) > 1:
        counts = ", ".join(f"{CANONICAL[found.field]} has {len(found.node.items)}" for found in attempt)
        notes.fault("unequal_lengths", f"The three lists must be equally long: {counts}.", attempt[0].start)


def _zip(attempt: ParseAttempt, notes: Notes, most: int) -> tuple[RawStep, ...]:
    """The first ``most`` steps as far as the lists go; what a shorter list lacks is None."""
    columns = {found.field: found.node.items[:most] for found in attempt}
    rows = range(max(map(len, columns.values()), default=0))
    return tuple(
        _raw_step({field: nodes[index] for field, nodes in columns.items() if index < len(nodes)}, notes, index)
        for index in rows
    )


# Writing.


def to_lists(workflow: Workflow, agents: Sequence[str | None]) -> str:
    """The three lists, one a line, in the order of the paper; valid Python and read back by ``parse_completion``.

    Args:
        agents: names by ordinal, None for an ordinal that nobody has. The Conductor itself is ``len(agents)``; an
            agent that is not in the pool is written by name.
    """
    ordinals = {CONDUCTOR_AGENT: len(agents)}
    ordinals |= {name: ordinal for ordinal, name in enumerate(agents) if name is not None}
    models = ", ".join(
        str(ordinals[step.agent]) if step.agent in ordinals else quote(step.agent) for step in workflow.steps
    )
    instructions = ", ".join(quote(step.instruction) for step in workflow.steps)
    access = ", ".join('"all"' if step.access_list == "all" else str(list(step.access_list)) for step in workflow.steps)
    return f"model_id = [{models}]\nsubtasks = [{instructions}]\naccess_list = [{access}]\n"


def to_json(workflow: Workflow, task: str | None = None) -> str:
    """A workflow file: ``{"task", "steps": [{"instruction", "agent", "access_list"}]}``, agents by name."""
    content = ({} if task is None else {"task": task}) | workflow.model_dump(mode="json")
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
