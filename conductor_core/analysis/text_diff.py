"""What is different in two texts, word by word.

The alignment is rapidfuzz's (the longest common subsequence, on units of text that stand for one character each). Long
texts are aligned by line first; the words inside are then compared where the changed lines are short enough.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from rapidfuzz.distance import Indel

Kind = Literal["same", "removed", "added"]
By = Literal["word", "line", "whole"]

MOST_PAIRS = 100_000_000
"""Units of one text times those of the other: what is aligned at once, in some 25 ms and 12 MB."""
SHORT_ISLAND = 2
"""Words: so few in common, between greater changes, are chance and belong to the change."""

_UNITS = re.compile(r"\w+|\s+|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS = re.compile(r"\S+")
_FEWEST_LEFT_OUT = 10
"""Words: fewer are not worth a mark."""


class Piece(NamedTuple):
    """A part of both texts (``same``), of the first alone (``removed``) or of the second alone (``added``)."""

    kind: Kind
    text: str


class Hunk(NamedTuple):
    """What one text has where the other has something else, and what follows in both."""

    removed: str
    added: str
    same: str


class TextDifference(NamedTuple):
    """The first and the second text in one, as pieces.

    Attributes:
        by: the unit of the comparison: ``word``; ``line`` if some lines were too long to be compared by word;
            ``whole`` if some part had too many lines as well, and is shown as replaced.
    """

    pieces: tuple[Piece, ...]
    by: By = "word"

    @property
    def same(self) -> bool:
        return all(piece.kind == "same" for piece in self.pieces)


def compare_texts(before: str, after: str) -> TextDifference:
    """Returns what is different in ``after``. All ``same`` and ``removed`` pieces make ``before``, in order."""
    if before == after:
        return TextDifference((Piece("same", after),) if after else ())
    then, now = _UNITS.findall(before), _UNITS.findall(after)
    pieces = _aligned(then, now)
    if pieces is not None:
        return TextDifference(_tidy(pieces))
    lines = _aligned(_LINES.findall(before), _LINES.findall(after))
    if lines is None:
        return TextDifference(_merged((Piece("removed", before), Piece("added", after))), "whole")
    found, by = _within_lines(lines)
    return TextDifference(_merged(found), by)


def _within_lines(lines: Sequence[Piece]) -> tuple[list[Piece], By]:
    """Compares changed lines by word where they are short enough."""
    found: list[Piece] = []
    by: By = "word"
    for removed, added, same in _hunks(lines):
        inner = _aligned(_UNITS.findall(removed), _UNITS.findall(added)) if removed and added else None
        if inner is None:
            by = "line" if removed and added else by
            found += [Piece("removed", removed), Piece("added", added)]
        else:
            found += _tidy(inner)
        found.append(Piece("same", same))
    return found, by


def _aligned(before: Sequence[str], after: Sequence[str]) -> list[Piece] | None:
    """Returns the pieces of two texts that are given as units; None: there are too many to align."""
    start = 0
    most = min(len(before), len(after))
    while start < most and before[start] == after[start]:
        start += 1
    end = 0
    while end < most - start and before[-1 - end] == after[-1 - end]:
        end += 1
    then, now = before[start : len(before) - end], after[start : len(after) - end]
    if len(then) * len(now) > MOST_PAIRS:
        return None
    codes: dict[str, str] = {}
    coded = ["".join(codes.setdefault(unit, chr(len(codes))) for unit in units) for units in (then, now)]
    pieces = [Piece("same", "".join(before[:start]))]
    for step in Indel.opcodes(*coded):
        if step.tag == "equal":
            pieces.append(Piece("same", "".join(now[step.dest_start : step.dest_end])))
        else:
            pieces.append(Piece("removed", "".join(then[step.src_start : step.src_end])))
            pieces.append(Piece("added", "".join(now[step.dest_start : step.dest_end])))
    return [*pieces, Piece("same", "".join(after[len(after) - end :]))]


def _hunks(pieces: Iterable[Piece]) -> list[Hunk]:
    """Groups pieces as removed, added and the same text that follows."""
    hunks: list[list[list[str]]] = [[[], [], []]]
    for kind, text in pieces:
        if not text:
            continue
        if kind == "same":
            hunks[-1][2].append(text)
            continue
        if hunks[-1][2]:
            hunks.append([[], [], []])
        hunks[-1][kind == "added"].append(text)
    return [Hunk("".join(removed), "".join(added), "".join(same)) for removed, added, same in hunks]


def _tidy(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Lets changes swallow the little in common that lies between them: two texts read better than a mosaic."""
    hunks = _joined(_hunks(pieces), lambda _before, same, _after: "\n\n" not in same and not re.search(r"\w", same))
    hunks = _joined(
        hunks, lambda before, same, after: len(same.split()) <= SHORT_ISLAND and 2 * len(same.split()) < before + after
    )
    return _merged(
        piece
        for removed, added, same in hunks
        for piece in (Piece("removed", removed), Piece("added", added), Piece("same", same))
    )


def _joined(hunks: Sequence[Hunk], joins: Callable[[int, str, int], bool]) -> list[Hunk]:
    """Makes one of neighbours that ``joins`` says are one change, with the text between them in it.

    ``joins`` is given the words of the change before, the text between, and the words of the change after.
    """
    groups: list[list[Hunk]] = []
    words = 0
    for hunk in hunks:
        own = max(len(hunk.removed.split()), len(hunk.added.split()))
        between = groups[-1][-1].same if groups else ""
        if groups and any(groups[-1][-1][:2]) and joins(words, between, own):
            groups[-1].append(hunk)
            words += own + len(between.split())
        else:
            groups.append([hunk])
            words = own
    return [_one(group) for group in groups]


def _one(group: Sequence[Hunk]) -> Hunk:
    between = [hunk.same for hunk in group[:-1]] + [""]
    removed = "".join(hunk.removed + text for hunk, text in zip(group, between, strict=True))
    added = "".join(hunk.added + text for hunk, text in zip(group, between, strict=True))
    return Hunk(removed, added, group[-1].same)


def _merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Leaves empty pieces out and joins neighbours of one kind."""
    found: list[Piece] = []
    for piece in pieces:
        if piece.text and found and found[-1].kind == piece.kind:
            found[-1] = Piece(piece.kind, found[-1].text + piece.text)
        elif piece.text:
            found.append(piece)
    return tuple(found)


class Shown(NamedTuple):
    """A piece as it is shown, or, of kind ``skipped``, how many words of what kind are left out there."""

    kind: Literal["same", "removed", "added", "skipped"]
    text: str
    words: int = 0
    of: Kind = "same"


def shortened(difference: TextDifference, context: int = 30, longest: int = 1500) -> list[Shown]:
    """Leaves out the middle of long pieces: what is the same far from any change, and what is too much to read.

    Args:
        context: words of what is the same that stay beside a change.
        longest: words of one change that stay, half of them at each end.
    """
    shown: list[Shown] = []
    last = len(difference.pieces) - 1
    for place, (kind, text) in enumerate(difference.pieces):
        if kind == "same":
            keep = (context if place else 0, context if place < last else 0)
        else:
            keep = (longest // 2, longest // 2)
        shown += _without_middle(kind, text, *keep)
    return shown


def beginning(text: str, words: int) -> list[Shown]:
    """Returns the first ``words`` of a text, and how many follow."""
    return _without_middle("same", text, words, 0)


def _without_middle(kind: Kind, text: str, first: int, last: int) -> list[Shown]:
    words = [(found.start(), found.end()) for found in _WORDS.finditer(text)]
    left_out = len(words) - first - last
    if left_out <= _FEWEST_LEFT_OUT:
        return [Shown(kind, text)]
    head = text[: words[first - 1][1]] if first else ""
    tail = text[words[-last][0] :] if last else ""
    parts = [Shown(kind, head), Shown("skipped", "", left_out, kind), Shown(kind, tail)]
    return [part for part in parts if part.text or part.words]
