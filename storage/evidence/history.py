"""What a log's entries must be, from what was published outside of the database, and the findings of a check.

An anchor is a text file of JSON lines, one per published checkpoint:

    {"at_utc": ..., "checkpoint": a signed note, "from": position of the first leaf, "leaves": Base64 of 32 bytes each,
     "of": for each leaf the place of its run in "runs", -1 for a record, "runs": [run ids]}

A file that begins with a signed note instead is one checkpoint, without leaves.
"""

import hashlib
import json
from array import array
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from storage.merkle.formats import WRONG_SIGNATURE, Checkpoint, Invalid, PublicKey, Tree, open_note, unpacked

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
    "begun_again": 22,
    "anchor": 23,
    "schema": 24,
}
"""The classes of findings, each with the exit code of the verifier."""

MOST_FINDINGS = 1000
_TORN = "the line is torn or malformed"
_UNFIT = "the leaves of the line are not those of its checkpoint"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Returns ``1 run`` or ``1,234 runs``. ``many``: the words for all numbers but 1."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


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
        anchored_size: how many entries a checkpoint from outside of the database covers.
        deleted_runs: deleted or erased by the program, on record. erased_runs: those of them that were erased.
    """

    verified_events: int = 0
    unanchored_events: int = 0
    verified_size: int = 0
    anchored_size: int = 0
    deleted_runs: int = 0
    erased_runs: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, kind: str, what: str, run_id: str | None = None, sequence: int | None = None) -> None:
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
        proven: by size, the digest of each note from outside whose signature and root are right.
    """

    leaves: bytearray = field(default_factory=bytearray)
    of: "array[int]" = field(default_factory=lambda: array("i"))
    runs: list[str] = field(default_factory=list)
    anchored: int = 0
    checkpoints: list[Checkpoint] = field(default_factory=list)
    proven: dict[int, bytes] = field(default_factory=dict)
    branch: Tree = field(default_factory=Tree)
    """The tree of another history that was signed, too, as far as it was read."""
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
        tree = Tree()
        tree.extend(map(self.leaf, range(size)))
        return tree.root()


@dataclass
class Events:
    """The events of a history, counted from 0 without its records.

    Attributes:
        names: the ids of the history's runs as bytes.
        positions: of each event's leaf. places: in its run. previous: the event before it in its run, or -1.
    """

    history: History
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    places: "array[int]" = field(default_factory=lambda: array("q"))
    previous: "array[int]" = field(default_factory=lambda: array("q"))
    names: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = [run.encode() for run in self.history.runs]
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
        return 1 + index

    def leaf(self, index: int) -> bytes:
        at = 32 * self.positions[index]
        return bytes(self.history.leaves[at : at + 32])

    def run(self, index: int) -> str:
        return self.history.runs[self.history.of[self.positions[index]]]

    def name(self, index: int) -> bytes:
        return self.names[self.history.of[self.positions[index]]]


@dataclass(frozen=True)
class AnchorLine:
    checkpoint: Checkpoint
    note: str
    start: int
    leaves: bytes
    of: Sequence[int]
    runs: Sequence[str]


def read_anchor_line(line: str, keys: Iterable[PublicKey]) -> AnchorLine:
    """Raises: Invalid, if the line is torn, malformed, or not signed by one of ``keys``."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise Invalid(_TORN) from None
    found = found if isinstance(found, dict) else {}
    start, of, runs, note = (found.get(name) for name in ("from", "of", "runs", "checkpoint"))
    if type(start) is not int or not isinstance(of, list) or not isinstance(runs, list) or not isinstance(note, str):
        raise Invalid("the line is malformed")
    if not set(map(type, of)) <= {int} or not _are_unicode((note, *runs)):
        raise Invalid("the line is malformed")
    checkpoint, leaves = open_note(note, keys), unpacked(found.get("leaves"))
    fits = len(leaves) == 32 * len(of) and start >= 0 and start + len(of) == checkpoint.size
    if not fits or (of and not -1 <= min(of) <= max(of) < len(runs)):
        raise Invalid(_UNFIT)
    return AnchorLine(checkpoint, note, start, leaves, of, runs)


def _are_unicode(texts: Iterable[object]) -> bool:
    """Whether these are texts that have bytes: JSON can spell half a character."""
    return all(
        isinstance(each, str) and (each.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in each))
        for each in texts
    )


def note_digest(note: str) -> bytes:
    return hashlib.sha256(note.encode(errors="replace")).digest()


def other_log(note: str, keys: Iterable[PublicKey]) -> str | None:
    """Returns the log of a note that one of ``keys`` signed under another name than its own; None: none did."""
    name = note.partition("\n")[0]
    for key in keys:
        if name and name != key.name:
            try:
                return open_note(note, [PublicKey(name, key.key)]).origin
            except Invalid:
                continue
    return None


def other_log_of_line(line: str, keys: Sequence[PublicKey]) -> str | None:
    """Returns the log of an anchor's line that one of ``keys`` signed under another name; None: none did."""
    try:
        note = json.loads(line)["checkpoint"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return other_log(note, keys) if _are_unicode([note]) else None


def began_again(log: str, keys: Sequence[PublicKey], where: str) -> Finding:
    what = f"{where}: the key of the log {keys[0].name} has also signed the log {log}: a log never begins again"
    return Finding("begun_again", None, None, what)


def began_late(covered_from: int) -> Finding:
    what = f"the evidence of the log begins after event {covered_from - 1:,}, and it always begins before all"
    return Finding("begun_again", None, None, what)


def has_root(note: str, size: object, peaks: object) -> bool:
    """Whether the subtrees ``peaks`` that a database keeps with a checkpoint are those of its root."""
    try:
        root = Tree(size if isinstance(size, int) else -1, peaks if isinstance(peaks, bytes) else b"").root()
    except Invalid:
        return False
    return note.split("\n")[2:3] == [b64encode(root).decode()]


def read_anchors(anchors: Iterable[tuple[str, Iterable[str]]], keys: Sequence[PublicKey], report: Report) -> History:
    """Returns what the anchors (each a name and its lines) say, as far as it is signed and proves itself."""
    history, tree = History(), Tree()
    for name, lines in anchors:
        passed: dict[str, list[int]] = {}
        others: set[str] = set()
        good: list[tuple[int, AnchorLine]] = []
        changed: list[int] = []
        for number, line in enumerate(_whole_lines(lines, keys, history, report, name), 1):
            if not line.strip():
                continue
            try:
                read = read_anchor_line(line, keys)
            except Invalid as error:
                other = other_log_of_line(line, keys)
                if other is not None and other not in others:
                    others.add(other)
                    found = began_again(other, keys, f"{name}, line {number}")
                    report.add(found.kind, found.what)
                passed.setdefault(str(error), []).append(number)
                if str(error) in (WRONG_SIGNATURE, _UNFIT):
                    changed.append(number)
                continue
            good.append((number, read))
            tree = _extend(history, tree, read, report, f"{name}, line {number}")
        # One torn line alone can be the first, which a lost machine has cut.
        if passed and not good and list(passed.items()) != [(_TORN, [1])]:
            report.add("unsigned", f"{name}: no line can be trusted: it is of another log, or was changed")
        _check_order(name, good, changed, report)
        for why, numbers in passed.items():
            first, last = numbers[0], numbers[-1]
            which = f"line {first} is" if first == last else f"{len(numbers)} of lines {first} to {last} are"
            report.notes.append(f"{name}, {which} passed over: {why}")
    history.anchored = len(history)
    return history


def _check_order(name: str, read: Sequence[tuple[int, AnchorLine]], changed: Sequence[int], report: Report) -> None:
    """Finds lines of one anchor that do not begin where the one before them ended, as the program publishes them.

    ``read``: the lines that can be trusted, by number. ``changed``: others, written by a key that is trusted.
    """
    end, missing, again = 0, [], []
    for number, line in read:
        if line.start > end:
            missing.append((number, end))
        elif line.start < end or not line.leaves:
            again.append(number)
        end = max(end, line.checkpoint.size)
    if missing:
        what = f"before line {missing[0][0]} the entries from {missing[0][1]} on are missing; lines are missing at"
        report.add("anchor", f"{name}: {what} {counted(len(missing), 'place')}")
    for numbers, how in ((changed, "not as published"), (again, "doubled or out of order")):
        if numbers:
            what = f"{counted(len(numbers), 'line')} {how}, the first is line {numbers[0]}"
            report.add("anchor", f"{name}: {what}")


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
        report.add("unsigned", f"the checkpoint of {name} cannot be trusted: {error}")


def _extend(history: History, tree: Tree, line: AnchorLine, report: Report, name: str) -> Tree:
    """Adds the leaves of a line if its signed root covers them, and returns the tree of all. Finds forks."""
    known = len(history)
    own = history.leaves[32 * line.start : 32 * min(known, line.checkpoint.size)]
    at = first_difference(own, line.leaves) if line.start <= known else None
    if at is None and line.checkpoint.size <= known:
        history.checkpoints.append(line.checkpoint)
        return tree
    if at is None and line.start <= known:
        grown = _grown(tree, line.leaves[len(own) :])
        if grown.root() == line.checkpoint.root:
            for index in range(known - line.start, len(line.of)):
                label = None if line.of[index] < 0 else line.runs[line.of[index]]
                history.append(line.leaves[32 * index : 32 * index + 32], label)
            history.proven[grown.size] = note_digest(line.note)
            return grown
    if history.branch.size and _goes_on(history.branch, line, history):
        return tree  # the other history of a fork that was reported
    if line.start > known:
        history.checkpoints.append(line.checkpoint)
    elif at is not None and _goes_on(_grown(Tree(), history.leaves[: 32 * line.start]), line, history):
        position = line.start + at // 32
        what = f"{name}: two different histories are signed, from entry {position} on"
        report.add("fork", what, history.run(position))
    else:
        report.add("evidence", f"{name}: its leaves are not those that its checkpoint was signed for")
        history.checkpoints.append(line.checkpoint)
    return tree


def first_difference(own: bytes | bytearray, leaves: bytes | bytearray) -> int | None:
    """Returns where the first leaf begins that differs; None: there is none."""
    if own == leaves[: len(own)]:
        return None
    return next(i for i in range(0, len(own), 32) if own[i : i + 32] != leaves[i : i + 32])


def _grown(tree: Tree, leaves: bytes | bytearray) -> Tree:
    grown = tree.copy()
    grown.extend(bytes(leaves[at : at + 32]) for at in range(0, len(leaves), 32))
    return grown


def _goes_on(before: Tree, line: AnchorLine, history: History) -> bool:
    """Whether the line goes on from the tree ``before``, which then is another history than this one."""
    if before.size != line.start or not line.leaves:
        return False
    branch = _grown(before, line.leaves)
    if branch.root() != line.checkpoint.root:
        return False
    history.branch = branch
    return True
