"""A text with its places, the notes made while reading it, and what was read, before any rule is applied; and literals.

The first is the vocabulary between parser and validation. ``Reader`` reads list, object, string and number literals. It
evaluates nothing; work is linear, depth and length are bounded. There are two ways of reading. *Strict* follows Python
(and accepts JSON's ``true``, ``false``, ``null``): what is a valid literal means exactly what Python says it means.
*Lenient* takes over where strict fails and reads what models really write: unescaped apostrophes, raw line breaks,
typographic quotes, bare words, missing commas and brackets. It notes each repair, and never reads past ``limit``, where
the next list begins.
"""

import json as json_module
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Literal, NamedTuple

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


class Faults:
    """Collects the first ``MOST_NOTES`` faults. ``more_faults``: those that were counted but not kept."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.more_faults = 0

    @property
    def full(self) -> bool:
        """Whether a further fault is only counted: its message need not be made."""
        return len(self.faults) >= MOST_NOTES

    def fault_at(self, at: Position | None, code: str, message: str, step: int | None, field: Place) -> None:
        if self.full:
            self.more_faults += 1
        else:
            self.faults.append(fault_of(at, code, message, step, field))


def fault_of(at: Position | None, code: str, message: str, step: int | None, field: Place) -> Fault:
    line, column = (at.line, at.column) if at else (None, None)
    return Fault(code=code, message=message, step=step, field=field, line=line, column=column)


class Notes(Faults):
    """Collects the faults and repairs of one reading: the first ``MOST_NOTES`` of each, and how many more there are."""

    def __init__(self, source: SourceText) -> None:
        super().__init__()
        self.source = source
        self._repairs: list[tuple[int, str]] = []
        if source.replaced_at is not None:
            self.repair(source.replaced_at, "replaced half a character (a lone surrogate), which no text can hold")

    def fault(
        self, code: str, message: str, offset: int, *, step: int | None = None, field: Place = "workflow"
    ) -> None:
        """Notes what is wrong at ``offset``, in one whole sentence."""
        self.fault_at(None if self.full else self.source.position(offset), code, message, step, field)

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
    return _SURROGATE.sub("\ufffd", text)


def shorten(text: str, limit: int = 40) -> str:
    """``text`` on one line and no longer than ``limit`` characters, for a message."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())
    return flat if len(flat) <= limit and len(text) <= 4 * limit else flat[: limit - 1] + "…"


# Literals.

# Escapes.

LATEX = re.compile(
    r"\\(?:[abfv](?=[A-Za-z])|t(?=imes|heta|ext|frac|riangle|an\b|au\b|o\b)|r(?=ight|ho\b|angle)|n(?=eq\b|abla\b))"
)
"""A backslash and letter that Python reads as a control character, but which begin a LaTeX command (``\\frac``)."""

_ESCAPE = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<hex>x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-7]{1,3})"
    r"|(?P<line>\r\n|\r|\n)"
    r"|(?P<char>.))",
    re.DOTALL,
)
_SIMPLE = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\\": "\\", "'": "'", '"': '"',
}  # fmt: skip
_COMMAND = re.compile(r"\\[A-Za-z]{1,30}")
_LINE_END = re.compile(r"\r\n?")
_DANGLING = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?|U[0-9a-fA-F]{0,7})?)\Z")
_MUST_ESCAPE = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')


def decode(body: str, *, raw: bool = False, json: bool = False, latex: bool = False) -> tuple[str, tuple[str, ...]]:
    """The text that the inside of a string literal stands for, and the LaTeX commands kept as written.

    Unknown escapes keep their backslash, as in Python. Line ends become ``\\n``. A half character becomes U+FFFD.

    Args:
        raw: escapes mean nothing (``r"..."``).
        json: ``\\/`` is a slash, and a backslash before a line end is kept.
        latex: a control character that would begin a LaTeX command is kept as written.
    """
    kept: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if latex and LATEX.match(body, match.start()):
            command = _COMMAND.match(body, match.start())
            kept.append(command.group() if command else match.group())
            return match.group()
        return _character(match, json=json)

    if "\r" in body:
        body = _LINE_END.sub("\n", body)
    if raw or "\\" not in body:
        return body, ()
    return _ESCAPE.sub(replace, body), tuple(kept)


def _character(match: re.Match[str], *, json: bool) -> str:
    if match["high"]:
        return chr(0x10000 + ((int(match["high"], 16) - 0xD800) << 10) + int(match["low"], 16) - 0xDC00)
    if match["hex"] or match["octal"]:
        code = int(match["hex"][1:], 16) if match["hex"] else int(match["octal"], 8)
        if code > 0x10FFFF:
            return match.group()
        return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
    if match["line"]:
        return match.group() if json else ""
    char = match["char"]
    return "/" if json and char == "/" else _SIMPLE.get(char, "\\" + char)


def without_dangling_escape(body: str) -> str:
    """The inside of a string that is still being written, without an escape of which only the beginning is there."""
    match = _DANGLING.search(body, max(0, len(body) - 64))
    return body[: match.start(1)] if match else body


def quote(text: str) -> str:
    """A double-quoted literal of one line that Python, JSON and this package's reader all read as ``text``.

    Control characters are written as ``\\uXXXX``, so that none is mistaken for LaTeX; only line ends are ``\\n``.
    """

    def escape(match: re.Match[str]) -> str:
        char = match.group()
        if char in '"\\':
            return "\\" + char
        if char == "\n" and not LATEX.match("\\n" + text[match.end() : match.end() + 8]):
            return "\\n"
        return f"\\u{ord(char):04x}"

    return f'"{_MUST_ESCAPE.sub(escape, text)}"'


MAX_DEPTH = 32
MAX_ITEMS = 10_000
MAX_PIECES = 65_000
"""Values, brackets, commas and escapes that are read of one text, all readings of it together. It bounds the time: a
plan has some hundreds, and what a workflow file's JSON holds in strings counts once a string."""

_LENIENT_PIECES = 6
"""What a piece counts for where it is read leniently, which looks ahead."""
_JOINED_PIECES = 4
TOO_MANY_PIECES = f"there are more than {MAX_PIECES:,} values, brackets, commas and escapes"

_SPACE = re.compile(r"(?:[\s\ufeff]+|#[^\r\n]*|\\(?=[\r\n]))*")
_LENIENT_SPACE = re.compile(r"(?:[\s\ufeff]+|#[^\r\n]*|//[^\r\n]*|\\(?=[\r\n]))*")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])")
_KEYWORD = re.compile(r"(?:None|True|False|null|true|false)(?!\w)")
_WORD = re.compile(r"[^,\[\](){}'\"#\r\n:=]*")
_OPEN_QUOTE = re.compile(r"(?P<prefix>[rRbBuUfF]{0,2})(?P<quote>'''|\"\"\"|['\"])")
_LENIENT_OPEN_QUOTE = re.compile(r"(?P<prefix>[rRbBuUfF]{0,2})(?P<quote>'''|\"\"\"|['\"]|(?!```)[`“”„‟«‘’‚‛])")
_CLOSERS = {"“": '”"“', "”": '”"', "„": '“”"', "‟": '”"', "«": "»", "‘": "’'", "’": "’'", "‚": "‘’'", "‛": "’'"}
_AFTER_STRING = re.compile(r"\s*(?P<brackets>(?:[\])}]\s*)*)")
_VALUE_AHEAD = re.compile(
    r"\s*(?:\Z|[\[({\])}#'\"`“”„‘]|[rRbBuUfF]{1,2}['\"]|(?:-?[0-9]{1,9}|all|none|null|true|false)\s*[,\])}])",
    re.IGNORECASE,
)
_LIST_AHEAD = re.compile(r"\s*\Z")
_STRING_AHEAD = re.compile(r"\s*[rRbBuUfF]{0,2}['\"]")
_NO_SPACE = frozenset("[](){},'\"0123456789-")
_AFTER_LAST_STRING = frozenset(",])}:")
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_SPECIAL = {
    quote: re.compile(f"[\\\\\r\n{re.escape(_CLOSERS.get(quote, quote))}]") for quote in ("'", '"', "`", *_CLOSERS)
}
"""By the quote that opens a string: what needs a look inside it."""
_JSON_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"')


class Node(NamedTuple):
    """A literal and its place: ``text[start:end]``.

    Attributes:
        text: the value of a string; a word or a number as written.
        items: the entries of a list; keys and values of an object by turns.
        closed: False if it has no end of its own.
    """

    kind: Literal["list", "object", "string", "number", "word"]
    start: int
    end: int
    text: str = ""
    items: tuple["Node", ...] = ()
    closed: bool = True


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading one literal. ``problem``: code, offset and sentence of what stopped it, if anything."""

    node: Node
    repairs: tuple[tuple[int, str], ...] = ()
    problem: tuple[str, int, str] | None = None


class NotLiteral(Exception):
    """Says that strict reading failed at ``offset``."""

    def __init__(self, offset: int, reason: str, code: str = "bad_json") -> None:
        super().__init__(reason)
        self.code = code
        self.offset = offset
        self.reason = reason


class Allowance:
    """Limits how much of one text may still be read, in pieces. All its readers share it.

    Attributes:
        spent_at: the offset at which nothing was left; None: there is some.
    """

    def __init__(self) -> None:
        self._left = MAX_PIECES
        self.spent_at: int | None = None

    def spend(self, pieces: int, offset: int) -> bool:
        """Whether ``pieces`` more may be read at ``offset``."""
        self._left -= pieces
        if self._left < 0 and self.spent_at is None:
            self.spent_at = offset
        return self._left >= 0


class Reader:
    """Reads literals of one text.

    Args:
        stops: ascending offsets at which a list assignment begins; lenient reading ends there, outside strings.
        json: strings are JSON strings (see ``decode``), else Python strings with LaTeX repaired.
        allowance: shared with other readers of the text; by default a whole one.

    Attributes:
        work: characters passed over so far, looking ahead included: the measure of the time bound.
    """

    def __init__(
        self, source: SourceText, *, stops: Sequence[int] = (), json: bool = False, allowance: Allowance | None = None
    ) -> None:
        self.source = source
        self.text = source.text
        self.work = 0
        self._allowance = allowance or Allowance()
        self._stops = stops
        self._json = json
        self._strict = True
        self._short_strings = False
        self._limit = len(self.text)
        self._at = 0
        self._stop_ahead = -1
        self._repairs: list[tuple[int, str]] = []
        self._problem: tuple[str, int, str] | None = None

    def strict(self, start: int) -> Reading:
        """Reads the literal at ``start``. Raises: NotLiteral."""
        return self._read(start, len(self.text), strict=True)

    def lenient(self, start: int, limit: int | None = None, *, short_strings: bool = False) -> Reading:
        """Reads what it can of the literal at ``start``, no further than ``limit``. Never raises.

        Args:
            short_strings: strings are names and indices, not prose: a quote before a comma always closes.
        """
        self._short_strings = short_strings
        return self._read(start, len(self.text) if limit is None else limit, strict=False)

    def _read(self, start: int, limit: int, *, strict: bool) -> Reading:
        self._strict, self._limit, self._at = strict, limit, start
        self._repairs, self._problem = [], None
        self._stop_ahead = -1
        try:
            node = self._value(0)
        finally:
            self.work += self._at - start
        return Reading(node, tuple(self._repairs), self._problem)

    # -- places --

    def _skip(self) -> None:
        if self._at < self._limit and self.text[self._at] in _NO_SPACE:
            return
        space = _SPACE if self._strict or self._json else _LENIENT_SPACE
        match = space.match(self.text, self._at, self._limit)
        if match:
            self._at = match.end()

    def _ended(self) -> bool:
        """Whether nothing more can be read here: the limit, the next list, the end of a code block, or a problem."""
        if self._problem is not None or self._at >= self._limit:
            return True
        if self._strict:
            return False
        if self._at > self._stop_ahead:
            self._stop_ahead = self._next_stop(self._at)
        return self._at == self._stop_ahead or self.text.startswith("```", self._at)

    def _next_stop(self, offset: int) -> int:
        found = bisect_left(self._stops, offset)
        return self._stops[found] if found < len(self._stops) else len(self.text)

    def _refuse(self, offset: int, reason: str) -> None:
        """Notes a deviation. It ends strict reading, and is a repair in lenient reading."""
        if self._strict:
            raise NotLiteral(offset, reason)
        self._repairs.append((offset, reason))

    def _stop(self, code: str, offset: int, sentence: str) -> None:
        if self._strict:
            raise NotLiteral(offset, sentence, code if code in ("too_deep", "too_large") else "bad_json")
        if self._problem is None:
            self._problem = (code, offset, sentence)

    def _spend(self, pieces: int = 1) -> None:
        if not self._allowance.spend(pieces if self._strict else _LENIENT_PIECES, self._at):
            self._stop("too_large", self._at, TOO_MANY_PIECES)

    # -- values --

    def _value(self, depth: int) -> Node:
        start = self._at
        char = self.text[start] if start < self._limit else ""
        if char and char in "[({":
            if depth >= MAX_DEPTH:
                self._stop("too_deep", start, f"brackets are nested more than {MAX_DEPTH} deep")
                return Node("list", start, start, closed=False)
            return self._bracketed("object" if char == "{" else "list", depth)
        if char in "+-0123456789":
            number = _NUMBER.match(self.text, start, self._limit)
            if number:
                self._at = number.end()
                return Node("number", start, self._at, text=number.group())
        quote = (_OPEN_QUOTE if self._strict else _LENIENT_OPEN_QUOTE).match(self.text, start, self._limit)
        if quote:
            return self._strings(quote)
        keyword = _KEYWORD.match(self.text, start, self._limit)
        if keyword:
            self._at = keyword.end()
            return Node("word", start, self._at, text=keyword.group())
        if self._strict:
            found = shorten(self.text[start : start + 30], 20)
            raise NotLiteral(
                start, f"expected a value, found {found}" if found else "the text ends where a value is due"
            )
        word = _WORD.match(self.text, start, min(self._limit, self._next_stop(start + 1)))
        self._at = max(word.end() if word else start, start + 1)
        return Node("word", start, self._at, text=self.text[start : self._at].strip())

    def _bracketed(self, kind: Literal["list", "object"], depth: int) -> Node:
        """Reads a list or tuple, or an object, whose items are its keys and values by turns."""
        start, closing = self._at, _CLOSING[self.text[self._at]]
        most, too_many = MAX_ITEMS, f"a list has more than {MAX_ITEMS} entries"
        if kind == "object":
            most, too_many = 2 * MAX_ITEMS, f"an object has more than {MAX_ITEMS} keys"
        self._at += 1
        items: list[Node] = []
        comma = True
        while True:
            self._spend()
            self._skip()
            if self._ended():
                return self._unclosed(kind, start, items, depth)
            char = self.text[self._at]
            if char in "])}":
                if char != closing:
                    self._refuse(self._at, f"read {char} as the {closing} that closes the {kind}")
                self._at += 1
                if closing == ")" and len(items) == 1 and not comma:
                    return items[0]
                return Node(kind, start, self._at, items=tuple(items))
            if char == ",":
                if comma:
                    self._refuse(self._at, "left out a comma with nothing before it")
                comma = True
                self._at += 1
                continue
            if not comma:
                self._refuse(self._at, "put in a missing comma")
            if len(items) >= most:
                self._stop("too_large", self._at, too_many)
                continue
            if kind == "object" and not self._key(items, depth):
                return self._unclosed(kind, start, items, depth)
            items.append(self._value(depth + 1))
            comma = False

    def _key(self, items: list[Node], depth: int) -> bool:
        """Reads a key and its colon. Returns False if the text ends before its value; the key is then left out."""
        key = self._value(depth + 1)
        self._skip()
        if self._ended():
            return False
        if self.text[self._at] == ":":
            self._at += 1
            self._skip()
        else:
            self._refuse(self._at, "put in a missing colon")
        if self._ended():
            return False
        if key.kind not in ("string", "word"):
            self._refuse(key.start, "read a key that is not a string")
        items.append(key)
        return True

    def _unclosed(self, kind: Literal["list", "object"], start: int, items: list[Node], depth: int) -> Node:
        """Returns what there is of a list or object without an end. Only a whole list's bracket is safe to add."""
        if self._strict:
            raise NotLiteral(self._at, "a bracket is not closed")
        closed = False
        if self._problem is None:
            if self._at >= len(self.text):
                self._problem = ("cut_off", self._at, "the text ends here, inside a list")
            elif self._at != self._limit or self._at == self._next_stop(self._at):
                closed = depth == 0 and bool(items) and all(item.closed for item in items)
                if closed:
                    self._repairs.append((self._at, "put in the missing bracket that closes the list begun before"))
        return Node(kind, start, self._at, items=tuple(items), closed=closed)

    # -- strings --

    def _strings(self, quote: re.Match[str]) -> Node:
        """Reads one string literal, and joins those that follow it directly or after a plus."""
        start = self._at
        parts: list[str] = []
        closed = True
        following: re.Match[str] | None = quote
        while following:
            if parts:
                self._spend(_JOINED_PIECES)
                if self._strict and self._json:
                    raise NotLiteral(self._at, "two strings follow each other without a comma")
                self._repairs.append((self._at, "joined two string literals with no comma between them"))
            text, closed = self._string(following)
            parts.append(text)
            end = self._at
            following = None
            if closed and self._problem is None and self.text[self._at : self._at + 1] not in _AFTER_LAST_STRING:
                self._skip()
                if not self._strict and not self._ended() and self.text[self._at] == "+":
                    self._at += 1
                    self._skip()
                if not self._ended():
                    following = _OPEN_QUOTE.match(self.text, self._at, self._limit)
                if following is None:
                    self._at = end
        return Node("string", start, self._at, text="".join(parts), closed=closed)

    def _string(self, opening: re.Match[str]) -> tuple[str, bool]:
        """Returns the value of one string literal, and whether it is closed."""
        prefix, quote, start = opening["prefix"].lower(), opening["quote"], self._at
        if self._strict and self._json and quote == '"' and (text := self._valid_json_string(start)) is not None:
            return text, True
        self._at = opening.end()
        if self._strict and (set(prefix) & set("bf") or (self._json and (prefix or quote != '"'))):
            raise NotLiteral(start, "expected a plain string")
        if "f" in prefix or "b" in prefix:
            self._repairs.append((start, f"read {prefix}{quote}…{quote} as a plain string"))
        body_end = self._find_close(quote, start)
        body = self.text[opening.end() : body_end]
        closed = self._at > body_end
        if not closed:
            body = without_dangling_escape(body)
        text, latex = decode(body, raw="r" in prefix, json=self._json, latex=not self._json)
        for command in latex:
            self._repairs.append((start, f"kept {command} as written: it is LaTeX, no control character"))
        if closed and quote[0] not in "'\"":
            self._repairs.append((start, f"read {'backticks' if quote == '`' else 'typographic quotes'} as quotes"))
        return text, closed

    def _valid_json_string(self, start: int) -> str | None:
        """Reads a valid JSON string by the standard library: the results in a file may be long."""
        match = _JSON_STRING.match(self.text, start, self._limit)
        if match is None:
            return None
        self._at = match.end()
        return without_halves(json_module.loads(match.group())) if "\\" in match.group() else match.group()[1:-1]

    def _find_close(self, quote: str, opened: int) -> int:
        """Returns the offset where the string's inside ends; ``_at`` then follows the quote, or is the limit."""
        triple = len(quote) == 3
        special = _SPECIAL[quote[0]]
        noted: set[str] = set()
        searched = False
        while True:
            match = special.search(self.text, self._at, self._limit)
            if match is None:
                self._at = self._limit
                self._unclosed_string(opened)
                return self._limit
            here, char = match.start(), match.group()
            if searched:
                self._spend()
            if self._problem is not None:
                self._at = here
                return here
            searched = True
            if char == "\\":
                width = 3 if self.text.startswith("\r\n", here + 1) else 2
                self._at = min(here + width, self._limit)
            elif char in "\r\n":
                if not triple:
                    self._note_once(noted, here, "kept a line break inside a string that is not triple-quoted")
                self._at = here + 1
            elif triple and not self.text.startswith(quote, here):
                self._at = here + 1
            elif triple or self._strict or self._closes(here + 1):
                self._at = here + len(quote)
                return here
            else:
                self._note_once(noted, here, f"kept an unescaped {char} inside a string")
                self._at = here + 1

    def _note_once(self, noted: set[str], offset: int, sentence: str) -> None:
        if sentence not in noted:
            noted.add(sentence)
            self._refuse(offset, sentence)

    def _unclosed_string(self, opened: int) -> None:
        if self._limit < len(self.text):
            self._stop("unclosed_string", opened, "a string begins here and is not closed before the next list")
        else:
            self._stop("cut_off", self._limit, "the text ends here, inside a string")

    def _closes(self, after: int) -> bool:
        """Whether a quote before ``after`` ends its string: what follows must be able to follow a string in a list."""
        match = _AFTER_STRING.match(self.text, after, self._limit)
        if match is None or match.end() >= self._limit:
            return True
        self.work += match.end() - after
        here, char = match.end(), self.text[match.end()]
        ended_line = any(end in match.group() for end in "\r\n")
        if char == "," and self._short_strings:
            return True
        if char == ",":
            ahead = _VALUE_AHEAD.match(self.text, here + 1, self._limit)
            self.work += ahead.end() - here if ahead else 1
            return ahead is not None or _LIST_AHEAD.match(self.text, here + 1, self._next_stop(here)) is not None
        if char == "#" or (char == ":" and self._json):
            return True
        if match["brackets"]:
            return ended_line or char in ";`<" or here == self._next_stop(here)
        if char == "+":
            return _STRING_AHEAD.match(self.text, here + 1, self._limit) is not None
        return ended_line and (_STRING_AHEAD.match(self.text, here, self._limit) is not None)
