"""Hides keys in text that came from a provider, before it is stored, logged or printed.

Mask          finds its keys in a text: as they are, in other case, encoded, cut, with other characters between theirs
MaskedText    the same for text that arrives in pieces; holds back only what may be the beginning of a key
remember      a key that this process sends somewhere; ``known`` is the mask of all of them
mask_logs     the last net: no log and no traceback holds a known key, nor what ``hide_in_logs`` hides
one_line      makes a text of others fit to be quoted in our messages; so does ``plain``
"""

import logging
import os
import re
import sys
import threading
import traceback
import unicodedata
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from conductor_core.errors import BadInput
from conductor_core.privacy.keys import can_be_hidden, environment_keys, folded, normalize, pieces

if TYPE_CHECKING:
    from types import TracebackType


MARK = "***"
SHOWN = 2
"""So many characters of a found key stay visible. They reveal nothing, and hiding them would delay each piece's end."""
MOST_BETWEEN = 32
"""More characters than this between two of a key's end the key. This bounds what is held back."""
_BLOCK = 2048
"""A long text is searched in parts of this size, so that one key does not slow down the whole search."""
_BREAK = 0x20
_SAMPLE = 6


class Mask:
    """Finds ``keys`` in texts. It is false if it has no key that can be found.

    Attributes:
        keys: what it looks for. longest: the number of letters and digits of the longest piece.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys = frozenset(keys)
        self._by_size: dict[int, dict[bytes, str]] = {}
        every: list[bytes] = []
        self._all = b""
        for key in sorted(self.keys):
            for piece, verbatim in pieces(key):
                self._by_size.setdefault(len(piece), {})[piece] = verbatim
                # Pieces come in the order of the key: each adds one character of it to the one before.
                goes_on = every and every[-1][1:] == piece[:-1]
                self._all += piece[-1:] if goes_on else b" " + piece
                every.append(piece)
        self._threes = frozenset(piece[at : at + 3] for piece in every for at in range(len(piece) - 2))
        self.longest = max(self._by_size, default=0)
        shortest = min(self._by_size, default=0)
        self._sample = min(_SAMPLE, shortest)
        self._stride = shortest - self._sample + 1
        self._samples = frozenset(
            piece[at : at + self._sample] for piece in every for at in range(len(piece) - self._sample + 1)
        )

    def __bool__(self) -> bool:
        return bool(self._by_size)

    def text(self, text: str) -> str:
        """Returns ``text`` with each key hidden, except its first two characters."""
        if not self._by_size:
            return text
        masked = MaskedText(self)
        return masked.feed(text) + masked.end()

    def may_begin_at_end(self, letters: bytes) -> bool:
        """Whether the end of ``letters`` may begin a piece. One or two characters never count."""
        return letters[-3:] in self._threes

    def may_be_in(self, letters: bytes) -> bool:
        """Whether ``letters`` may hold a piece; False is certain."""
        # A piece has at least ``stride + sample - 1`` characters, so one of the samples lies within it.
        size, samples = self._sample, self._samples
        for at in range(0, len(letters) - size + 1, self._stride):  # noqa: SIM110 - half the time of any(...)
            if letters[at : at + size] in samples:
                return True
        return False

    def holds(self, letters: bytes) -> bool:
        """Whether ``letters`` are part of a piece."""
        return letters in self._all

    def covered(self, letters: bytes, text: str, at: list[int]) -> bytearray:
        """Returns 1 for each of ``letters`` that belongs to a key, else 0. ``at``: their places in ``text``."""
        found = bytearray(len(letters))
        if not self.may_be_in(letters):
            return found
        for size, looked_for in self._by_size.items():
            for start in range(len(letters) - size + 1):
                verbatim = looked_for.get(letters[start : start + size])
                if verbatim is None:
                    continue
                end = start + size
                if not verbatim or normalize(text[at[start] : at[end - 1] + 1]) in verbatim:
                    found[start:end] = b"\1" * size
        return found


class MaskedText:
    """Masks a text that arrives in pieces. The joined result does not depend on how the text was cut.

    It holds back at most ``longest - 1`` letters and digits, with the characters between them. Ordinary text passes at
    once, because only three letters or digits in a row that are also in a key are held back.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._recent = ""  # Already returned; a key may have begun in it.
        self._tail = b""  # The last two letters or digits of ``_recent``.
        self._held = ""
        self._near = False  # Whether ``_recent`` holds a key.

    def feed(self, text: str) -> str:
        """Takes a piece, and returns what can now be shown, perhaps nothing."""
        mask = self._mask
        if not mask:
            return text
        if len(text) > _BLOCK:
            return "".join(self.feed(text[at : at + _BLOCK]) for at in range(0, len(text), _BLOCK))
        if self._held or self._near:
            return self._settle(text)
        letters = self._tail + folded(text)
        if mask.may_begin_at_end(letters) or mask.may_be_in(letters):
            return self._settle(text)
        self._tail = letters[-2:]
        self._recent = (self._recent + text)[-2 * (MOST_BETWEEN + 1) :]
        return text

    def end(self) -> str:
        return self._settle("", final=True) if self._held else ""

    def _settle(self, new: str, *, final: bool = False) -> str:
        """Masks all characters of which the rest of the text can change nothing, and returns the new ones."""
        text, given = self._recent + self._held + new, len(self._recent)
        letters, at = _placed(text)
        covered = self._mask.covered(letters, text, at)
        hidden = [(match.start() + SHOWN, match.end()) for match in re.finditer(b"\1+", covered)]
        until = len(text) if final else max(given, self._undecided(text, letters, at, covered))
        shown, place = [], given
        for start, end in hidden:
            low, high = at[start], at[end - 1] + 1
            if high > given and low < until:
                if low >= place:
                    shown += [text[place:low], MARK]
                place = max(place, high)
        shown.append(text[place:until])
        past = sum(index < until for index in at)
        kept = max(0, past - self._mask.longest - SHOWN)
        self._near = any(covered[kept:past])
        self._recent = text[at[kept] if past else max(0, until - MOST_BETWEEN - 1) : until]
        self._tail = letters[:past].rpartition(b" ")[2][-2:]
        self._held = text[until:]
        return "".join(shown)

    def _undecided(self, text: str, letters: bytes, at: list[int], covered: bytearray) -> int:
        """Returns the place in ``text`` from which on the characters to come may complete a key."""
        until, length = len(text), len(letters)
        for size in range(1, min(self._mask.longest, length + 1)):
            start = length - size
            if letters[start] == _BREAK or not self._mask.holds(letters[start:]):
                break
            begin = start
            while begin and covered[begin - 1]:
                begin -= 1
            # If a key begins here, all from its third character on is hidden, also what is between two of its own.
            hides_from = begin + SHOWN
            visible = next((i for i in range(max(hides_from, start), length) if not _is_hidden(covered, i)), length)
            if visible > hides_from:
                until = min(until, at[visible - 1] + 1)
            elif visible < length:
                until = min(until, at[visible])
        return until


def _is_hidden(covered: bytearray, index: int) -> bool:
    return index >= SHOWN and all(covered[index - SHOWN : index + 1])


def _placed(text: str) -> tuple[bytes, list[int]]:
    """Returns the ``folded`` text and the place of each letter, with a break after ``MOST_BETWEEN`` others."""
    letters, at = bytearray(), [0]
    for place, char in enumerate(text):
        for letter in folded(char):
            if letters and place - at[-1] > MOST_BETWEEN + 1:
                letters.append(_BREAK)
                at.append(place)
            letters.append(letter)
            at.append(place)
    if letters and len(text) - at[-1] > MOST_BETWEEN + 1:
        letters.append(_BREAK)
        at.append(len(text) - 1)
    return bytes(letters), at[1:]


class _Known:
    """The keys of this process. Their mask is made when it is first needed after a new key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: frozenset[str] = frozenset()
        self._mask: Mask | None = Mask()

    def add(self, keys: Iterable[str]) -> None:
        new = frozenset(filter(None, keys))
        if not new <= self._keys:
            with self._lock:
                self._keys |= new
                self._mask = None

    def mask(self) -> Mask:
        mask = self._mask
        if mask is None:
            with self._lock:
                mask = self._mask = Mask(self._keys)
        return mask


_known = _Known()


def remember(*keys: str) -> None:
    """Makes ``known`` hide these keys, too. Ignores empty ones."""
    _known.add(keys)


def remember_variable(variable: str | None) -> None:
    """Makes ``known`` hide the key in a variable of the environment, too, if there is one.

    Raises: BadInput, which names the variable, for a key that could not be hidden. No message holds it.
    """
    key = "" if variable is None else os.environ.get(variable, "").strip()
    if key and not can_be_hidden(key):
        raise BadInput(
            f"the key in {variable} is too short, or too much like a word, to be hidden where a server repeats it: "
            "set another one; for a server that needs none, unset it, or name no variable in api_key_env"
        )
    remember(key)


def known() -> Mask:
    """Returns the mask of every key that this process sends, or was asked to send, to a provider."""
    return _known.mask()


_hidden_in_logs: list[Callable[[str], str]] = []


def known_and_set() -> Mask:
    """Returns a mask of the keys that this process has used and of those that its environment holds."""
    return Mask({*known().keys, *environment_keys()})


def hide_in_logs(hide: Callable[[str], str]) -> Callable[[], None]:
    """Makes ``mask_logs`` also use ``hide``, which returns a text as a log may hold it. Returns what ends that."""
    _hidden_in_logs.append(hide)
    return lambda: _hidden_in_logs.remove(hide)


def mask_logs() -> None:
    """Keeps known keys out of all loggers' messages and tracebacks, and out of what Python says of an unforeseen error,
    from now on."""
    if logging.getLogRecordFactory() is logging.LogRecord:
        logging.setLogRecordFactory(_masked_record)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_masked
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = lambda caught: _print_masked(caught.exc_type, caught.exc_value, caught.exc_traceback)


def _print_masked(kind: type[BaseException], error: BaseException | None, trace: "TracebackType | None") -> None:
    """Prints an error that nobody caught as Python does, masked. A thread that exits says nothing, as there."""
    exits = kind is SystemExit and threading.current_thread() is not threading.main_thread()
    if sys.stderr is not None and not exits:
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(_hidden(text, known(), tuple(_hidden_in_logs)))


def _masked_record(*arguments: object, **named: object) -> logging.LogRecord:
    record = logging.LogRecord(*arguments, **named)  # type: ignore[arg-type]  # as logging calls its factory
    mask, others = known(), tuple(_hidden_in_logs)
    if mask or others:
        _hide_in(record, _hidden(record.getMessage(), mask, others), mask, others)
        if record.exc_info:
            # Formatters take this where it is set.
            record.exc_text = _hidden(logging.Formatter().formatException(record.exc_info), mask, others)
    return record


def _hide_in(record: logging.LogRecord, hidden: str, mask: Mask, others: Iterable[Callable[[str], str]]) -> None:
    """Has the record say ``hidden``. It keeps its arguments, which some formatters read, where they are safe."""
    if hidden == record.getMessage():
        return
    if isinstance(record.args, tuple):
        record.args = tuple(_hidden(each, mask, others) if isinstance(each, str) else each for each in record.args)
    if hidden != record.getMessage():
        record.msg, record.args = hidden, ()


def _hidden(text: str, mask: Mask, others: Iterable[Callable[[str], str]]) -> str:
    text = mask.text(text)
    for hide in others:
        text = hide(text)
    return text


_QUOTED_CHARACTERS = 300
_KEY_LIKE = re.compile(
    r"\b(?:(?:sk|pk|rk|xai)-|(?:sk|gsk|hf|r8)_|AIza)[A-Za-z0-9_*.-]{12,}|(?i:\bbearer\s+[A-Za-z0-9_*.-]{12,})"
)


def one_line(text: str, *, limit: int = _QUOTED_CHARACTERS) -> str:
    """Returns ``text`` on one line, without keys, control and formatting characters, cut at ``limit``."""
    text = known().text(text[: limit * 64])
    text = plain(_KEY_LIKE.sub("***", text)[: limit * 8])
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def plain(text: str) -> str:
    """Returns ``text`` on one line, with one space for each run of spaces, control and formatting characters."""
    return " ".join("".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in text).split())
