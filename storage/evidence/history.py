"""What a log's entries must be, from what was published outside of the database, and the findings of a check.

An anchor is a text file of JSON lines, one per published checkpoint:

    {"at_utc": ..., "checkpoint": a signed note, "from": position of the first leaf, "leaves": Base64 of 32 bytes each,
     "of": for each leaf the place of its run in "runs", -1 for a record, "runs": [run ids]}

A file that begins with a signed note instead is one checkpoint, without leaves.
"""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from storage.evidence.formats import NO_LEAF, Checkpoint, Invalid, PublicKey, Tree, open_note, unpacked

CLASSES = {
    "edited": 10,
    "deleted": 11,
    "inserted": 12,
    "reordered": 13,
    "truncated": 14,
    "run_removed": 15,
    "swapped": 16,
    "rolled_back": 17,
    "fork": 18,
    "unsigned": 19,
    "evidence": 20,
    "derived": 21,
}
"""The classes of findings, each with the exit code of the verifier."""

MOST_FINDINGS = 1000


@dataclass(frozen=True)
class Finding:
    """What was done to the log, and where. ``sequence`` and ``run_id`` are None if it is no single event."""

    kind: str
    run_id: str | None
    sequence: int | None
    what: str


@dataclass
class Report:
    """What a check found.

    Attributes:
        verified_events: those that are as a signed checkpoint says. unanchored_events: those that no checkpoint from
            outside of the database covers; nothing protects them from who can write the database.
        deleted_runs: deleted by the program, on record. uncovered_events: older than the log's evidence.
    """

    verified_events: int = 0
    unanchored_events: int = 0
    verified_size: int = 0
    deleted_runs: int = 0
    uncovered_events: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, kind: str, run_id: str | None, sequence: int | None, what: str) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(kind, run_id, sequence, what))
        else:
            self.more += 1

    @property
    def ok(self) -> bool:
        return not self.findings


@dataclass
class History:
    """The entries of a log, in order.

    Attributes:
        leaves: 32 bytes each. of: for each the place of its run in ``runs``, -1 for a record.
        anchored: how many of them a checkpoint from outside of the database covers.
        checkpoints: those from outside that are older or newer than the leaves that came with them, or came without.
    """

    leaves: bytearray = field(default_factory=bytearray)
    of: "array[int]" = field(default_factory=lambda: array("i"))
    runs: list[str] = field(default_factory=list)
    anchored: int = 0
    checkpoints: list[Checkpoint] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.of)

    def leaf(self, position: int) -> bytes:
        return bytes(self.leaves[32 * position : 32 * position + 32])

    def run(self, position: int) -> str | None:
        """Returns the run of the event at ``position``; None: it is a record."""
        return None if self.of[position] < 0 else self.runs[self.of[position]]

    def append(self, leaf: bytes, run_id: str | None) -> None:
        number = -1
        if run_id is not None:
            number = self._numbers.setdefault(run_id, len(self.runs))
            if number == len(self.runs):
                self.runs.append(run_id)
        self.leaves += leaf
        self.of.append(number)

    def root(self, size: int) -> bytes:
        """Returns the root of the first ``size`` entries."""
        tree = Tree()
        for position in range(size):
            tree.append(self.leaf(position))
        return tree.root()


@dataclass
class Events:
    """The events of a history, counted from 0 without its records.

    Attributes:
        positions: of each event's leaf. places: in its run. previous: the event before it in its run, or -1.
        first: the sequence of event 0; each event has the next one.
    """

    history: History
    first: int
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    places: "array[int]" = field(default_factory=lambda: array("q"))
    previous: "array[int]" = field(default_factory=lambda: array("q"))

    def __post_init__(self) -> None:
        last: dict[int, int] = {}
        for position, number in enumerate(self.history.of):
            if number < 0:
                continue
            before = last.get(number, -1)
            last[number] = len(self.positions)
            self.places.append(self.places[before] + 1 if before >= 0 else 0)
            self.previous.append(before)
            self.positions.append(position)

    def __len__(self) -> int:
        return len(self.positions)

    def sequence(self, index: int) -> int:
        return self.first + index

    def leaf(self, index: int) -> bytes:
        return self.history.leaf(self.positions[index])

    def previous_leaf(self, index: int) -> bytes:
        before = self.previous[index]
        return self.leaf(before) if before >= 0 else NO_LEAF

    def run(self, index: int) -> str:
        return self.history.runs[self.history.of[self.positions[index]]]


@dataclass(frozen=True)
class AnchorLine:
    checkpoint: Checkpoint
    start: int
    leaves: bytes
    of: Sequence[int]
    runs: Sequence[str]


def read_anchor_line(line: str, keys: Iterable[PublicKey]) -> AnchorLine:
    """Raises: Invalid, if the line is torn, malformed, or not signed by one of ``keys``."""
    try:
        found = json.loads(line)
        start, of, runs = found["from"], found["of"], found["runs"]
        checkpoint = open_note(found["checkpoint"], keys)
        leaves = unpacked(found["leaves"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Invalid("the line is torn or malformed") from None
    numbers = isinstance(of, list) and isinstance(runs, list) and all(type(each) is int for each in of)
    if not numbers or type(start) is not int or not all(isinstance(each, str) for each in runs):
        raise Invalid("the line is malformed")
    fits = len(leaves) == 32 * len(of) and start >= 0 and start + len(of) == checkpoint.size
    if not fits or not all(-1 <= each < len(runs) for each in of):
        raise Invalid("the leaves of the line are not those of its checkpoint")
    return AnchorLine(checkpoint, start, leaves, of, runs)


def read_anchors(anchors: Iterable[tuple[str, Iterable[str]]], keys: Sequence[PublicKey], report: Report) -> History:
    """Returns what the anchors (each a name and its lines) say, as far as it is signed and proves itself."""
    history, tree = History(), Tree()
    for name, lines in anchors:
        passed: dict[str, list[int]] = {}
        for number, line in enumerate(_whole_lines(lines, keys, history, report, name), 1):
            if not line.strip():
                continue
            try:
                read = read_anchor_line(line, keys)
            except Invalid as error:
                passed.setdefault(str(error), []).append(number)
                continue
            tree = _extend(history, tree, read, report, f"{name}, line {number}")
        for why, numbers in passed.items():
            first, last = numbers[0], numbers[-1]
            which = f"line {first} is" if first == last else f"{len(numbers)} of lines {first} to {last} are"
            report.notes.append(f"{name}, {which} passed over: {why}")
    history.anchored = len(history)
    return history


def _whole_lines(
    lines: Iterable[str], keys: Sequence[PublicKey], history: History, report: Report, name: str
) -> Iterator[str]:
    """Yields the lines of an anchor. Keeps a file that is one signed note as a checkpoint instead."""
    lines = iter(lines)
    first = next(lines, "")
    if not first.strip() or first.lstrip().startswith("{"):
        yield first
        yield from lines
        return
    try:
        history.checkpoints.append(open_note(first + "".join(lines), keys))
    except Invalid as error:
        report.add("unsigned", None, None, f"the checkpoint of {name} cannot be trusted: {error}")


def _extend(history: History, tree: Tree, line: AnchorLine, report: Report, name: str) -> Tree:
    """Adds the leaves of a line if its signed root covers them, and returns the tree of all. Finds forks."""
    known = len(history)
    if line.start > known:
        history.checkpoints.append(line.checkpoint)
        report.notes.append(f"{name} begins at entry {line.start}, and entries from {known} on are missing before it")
        return tree
    own = history.leaves[32 * line.start : 32 * min(known, line.checkpoint.size)]
    at = next((i for i in range(0, len(own), 32) if own[i : i + 32] != line.leaves[i : i + 32]), None)
    if at is None and line.checkpoint.size <= known:
        history.checkpoints.append(line.checkpoint)
        return tree
    begin = known if at is None else line.start
    grown = tree.copy() if at is None else Tree()
    for position in range(grown.size, begin):
        grown.append(history.leaf(position))
    for place in range(32 * (begin - line.start), len(line.leaves), 32):
        grown.append(line.leaves[place : place + 32])
    if grown.root() != line.checkpoint.root:
        report.add("evidence", None, None, f"{name}: its leaves are not those that its checkpoint was signed for")
        history.checkpoints.append(line.checkpoint)
        return tree
    if at is not None:
        position = line.start + at // 32
        what = f"{name}: two different histories are signed, from entry {position} on"
        report.add("fork", history.run(position), None, what)
        return tree
    for index in range(known - line.start, len(line.of)):
        label = None if line.of[index] < 0 else line.runs[line.of[index]]
        history.append(line.leaves[32 * index : 32 * index + 32], label)
    return grown
