"""A text with its places, the notes made while reading it, and what was read, before any rule is applied.

It is the vocabulary between parser and validation.
"""

import re
from heapq import nsmallest

from pydantic import NonNegativeInt, PositiveInt

from conductor_core.workflow.model import AccessList, Fault, Frozen, Place


class Position(Frozen):
    """A place in a text: line and column (in characters), both from 1."""

    line: PositiveInt
    column: PositiveInt


class RawStep(Frozen):
    """One step as written. A part that is missing or could not be read is None, and a fault says so.

    Attributes:
        agent: an ordinal into the pool, or a name; unresolved.
        access_list: as written; may hold indices that are out of range.
    """

    instruction: str | None = None
    agent: int | str | None = None
    access_list: AccessList | None = None
    instruction_at: Position | None = None
    agent_at: Position | None = None
    access_list_at: Position | None = None

    def position(self, field: Place) -> Position | None:
        """Where ``field`` of this step is; for the step as a whole, where its first known part is."""
        places = {"instruction": self.instruction_at, "agent": self.agent_at, "access_list": self.access_list_at}
        return places[field] if field in places else next(filter(None, places.values()), None)


class Parsed(Frozen):
    """What a text says.

    Attributes:
        steps: None when nothing could be read. With faults it holds what could be read, for display.
        task: only from a workflow file in JSON.
        more_steps: steps after ``steps`` that were counted but not read.
        more_faults: faults after ``faults`` that were counted but not kept.
        repairs: what was read otherwise than written, one sentence each, naming what and where.
        at: where the workflow begins, for faults about the whole.
    """

    steps: tuple[RawStep, ...] | None
    task: str | None = None
    more_steps: NonNegativeInt = 0
    faults: tuple[Fault, ...] = ()
    more_faults: NonNegativeInt = 0
    repairs: tuple[str, ...] = ()
    at: Position | None = None

    @property
    def is_stop(self) -> bool:
        """Whether this is the Conductor's way to end a recursion: three empty lists."""
        return self.steps == () and not self.faults


class PartialStep(Frozen):
    """Is a step of a plan that is still being written. None: not written yet.

    ``writing``: the field whose text is growing right now, if it belongs to this step.
    """

    index: NonNegativeInt
    instruction: str | None = None
    agent: int | str | None = None
    access_list: AccessList | None = None
    writing: Place | None = None


MAX_CHARACTERS = 2_000_000
"""Longest workflow file that is read: JSON that may carry its steps' results."""
MAX_COMPLETION_CHARACTERS = 500_000
"""Longest text of lists that is read; a plan is a hundred times shorter."""
MAX_STEPS_READ = 200
"""Most steps that are read; no limit allows more than 32. Those beyond are counted."""
MOST_NOTES = 100
"""Faults and repairs that are told one by one; those beyond are counted."""

_BLOCK = 4096
_SURROGATE = re.compile("[\ud800-\udfff]")


class SourceText:
    """A text and where its lines begin. Half characters (lone surrogates) are replaced: they cannot be stored.

    Attributes:
        replaced_at: offset of the first half character that was replaced, None if there was none.
    """

    def __init__(self, text: str) -> None:
        half = _SURROGATE.search(text)
        self.replaced_at = half.start() if half else None
        self.text = without_halves(text) if half else text
        self._blocks = [(0, 0)]
        """For the beginning of each block: lines ended before it, and where its line begins."""

    def position(self, offset: int) -> Position:
        """Line and column, from 1, of the character at ``offset``; the end of the text is a place too."""
        block = offset // _BLOCK
        while len(self._blocks) <= block:
            end = len(self._blocks) * _BLOCK
            self._blocks.append(self._line_at(end, end - _BLOCK))
        lines, start = self._line_at(offset, block * _BLOCK)
        return Position(line=lines + 1, column=offset - start + 1)

    def _line_at(self, offset: int, begin: int) -> tuple[int, int]:
        """Lines ended before ``offset`` and where its line begins; ``begin``: of the block that ``offset`` is in."""
        text, (lines, start) = self.text, self._blocks[begin // _BLOCK]
        lines += text.count("\n", begin, offset) + text.count("\r", begin, offset)
        lines -= text.count("\r\n", begin, offset + 1)
        carriage = text.rfind("\r", begin, offset)
        if carriage == offset - 1 and text.startswith("\n", offset):
            carriage = text.rfind("\r", begin, max(begin, carriage))
        return lines, max(text.rfind("\n", begin, offset) + 1, carriage + 1, start)


class Notes:
    """Collects the faults and repairs of one reading: the first ``MOST_NOTES`` of each, and how many more there are.

    Attributes:
        more_faults: faults that were counted but not kept.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.faults: list[Fault] = []
        self.more_faults = 0
        self._repairs: list[tuple[int, str]] = []
        if source.replaced_at is not None:
            self.repair(source.replaced_at, "replaced half a character (a lone surrogate), which no text can hold")

    @property
    def full(self) -> bool:
        """Whether a further fault is only counted: its message need not be made."""
        return len(self.faults) >= MOST_NOTES

    def fault(
        self, code: str, message: str, offset: int, *, step: int | None = None, field: Place = "workflow"
    ) -> None:
        """Notes what is wrong at ``offset``, in one whole sentence."""
        if self.full:
            self.more_faults += 1
            return
        at = self.source.position(offset)
        self.faults.append(Fault(code=code, message=message, step=step, field=field, line=at.line, column=at.column))

    def repair(self, offset: int, sentence: str) -> None:
        """Notes what was read otherwise than written; ``sentence`` has no capital and no full stop."""
        self._repairs.append((offset, sentence))

    def repair_count(self) -> int:
        return len(self._repairs)

    def forget_repairs(self, count: int) -> None:
        del self._repairs[count:]

    def repairs(self) -> tuple[str, ...]:
        """One sentence each, beginning with line and column, in the order of the text; then how many more there are."""
        different = set(self._repairs)
        placed = ((self.source.position(offset), sentence) for offset, sentence in nsmallest(MOST_NOTES, different))
        sentences = [f"Line {at.line}, column {at.column}: {sentence}." for at, sentence in placed]
        if len(different) > MOST_NOTES:
            sentences.append(f"And {len(different) - MOST_NOTES:,} more.")
        return tuple(sentences)

    def parsed(
        self, steps: tuple[RawStep, ...] | None, *, task: str | None = None, more_steps: int = 0, at: int | None = None
    ) -> Parsed:
        """The outcome of the reading, with all that was noted; ``at``: the offset at which the workflow begins."""
        return Parsed(
            steps=steps,
            task=task,
            more_steps=more_steps,
            faults=tuple(self.faults),
            more_faults=self.more_faults,
            repairs=self.repairs(),
            at=None if at is None else self.source.position(at),
        )


def without_halves(text: str) -> str:
    """``text`` with U+FFFD in the place of each half character."""
    return _SURROGATE.sub("\ufffd", text)


def shorten(text: str, limit: int = 40) -> str:
    """``text`` on one line and no longer than ``limit`` characters, for a message."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())
    return flat if len(flat) <= limit and len(text) <= 4 * limit else flat[: limit - 1] + "…"
