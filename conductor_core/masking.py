"""Hides keys in text that came from a provider, before it is stored, logged or printed.

Mask          finds its keys in a text: as they are, in other case, encoded, cut, with other characters between theirs
MaskedText    the same for text that arrives in pieces; holds back only what may be the beginning of a key
remember      a key that this process sends somewhere; ``known`` is the mask of all of them
mask_logs     the last net: no record of a logger holds a known key
"""

import logging
import re
import threading
from collections.abc import Iterable

from conductor_core.key_forms import bare, folded, pieces

MARK = "***"
SHOWN = 2
"""So many characters of a found key stay: they tell nothing, and to hold them back would delay each piece's end."""
MOST_BETWEEN = 32
"""More characters than these between two of a key's are taken for the end of it; bounds what is held back."""
_BLOCK = 2048
"""A long text is looked through in parts, so that one key in it does not make all of it be read slowly."""
_BREAK = 0x20
_SAMPLE = 6


class Mask:
    """Finds ``keys`` in texts. Made once, used often; false if there is none that could be found.

    Attributes:
        longest: letters and digits of the longest piece that is looked for.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._by_size: dict[int, dict[bytes, str]] = {}
        every: list[bytes] = []
        self._all = b""
        for key in sorted(set(keys)):
            for piece, verbatim in pieces(key):
                self._by_size.setdefault(len(piece), {})[piece] = verbatim
                # Pieces come in the order of the key: each has one more character of it than the one before.
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
        """``text`` with each key in it hidden, but for its first two characters."""
        if not self._by_size:
            return text
        masked = MaskedText(self)
        return masked.feed(text) + masked.end()

    def may_begin_at_end(self, letters: bytes) -> bool:
        """Whether the end of ``letters`` may be the beginning of what is looked for; of one or two characters: no."""
        return letters[-3:] in self._threes

    def may_be_in(self, letters: bytes) -> bool:
        """False only if nothing that is looked for is in ``letters``."""
        # A piece has at least ``stride + sample - 1`` characters, so one of the samples lies within it.
        size, samples = self._sample, self._samples
        for at in range(0, len(letters) - size + 1, self._stride):  # noqa: SIM110 - half the time of any(...)
            if letters[at : at + size] in samples:
                return True
        return False

    def holds(self, letters: bytes) -> bool:
        """Whether ``letters`` are part of what is looked for."""
        return letters in self._all

    def covered(self, letters: bytes, text: str, at: list[int]) -> bytearray:
        """Which of ``letters`` belong to what is looked for: 1, else 0. ``at``: their places in ``text``."""
        found = bytearray(len(letters))
        if not self.may_be_in(letters):
            return found
        for size, looked_for in self._by_size.items():
            for start in range(len(letters) - size + 1):
                verbatim = looked_for.get(letters[start : start + size])
                if verbatim is None:
                    continue
                end = start + size
                if not verbatim or bare(text[at[start] : at[end - 1] + 1]) in verbatim:
                    found[start:end] = b"\1" * size
        return found


class MaskedText:
    """One text that arrives in pieces. What comes out, joined, does not depend on how the text was cut.

    At most ``longest - 1`` letters and digits, with what stands between them, are held back; of ordinary text next to
    nothing, because it takes three letters or digits in a row that are also in a key.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._recent = ""  # Given out already; a key that goes on may have begun in it.
        self._tail = b""  # The last two letters or digits of it.
        self._held = ""
        self._near = False  # Whether there is a key in ``_recent``.

    def feed(self, text: str) -> str:
        """What can be shown of the text so far and was not given out before; perhaps nothing."""
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
        """The rest: nothing follows any more."""
        return self._settle("", final=True) if self._held else ""

    def _settle(self, new: str, *, final: bool = False) -> str:
        """Decides, character by character, on all that can be decided on."""
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
        """The place in ``text`` from which on what follows may show that it belongs to a key."""
        until, length = len(text), len(letters)
        for size in range(1, min(self._mask.longest, length + 1)):
            start = length - size
            if letters[start] == _BREAK or not self._mask.holds(letters[start:]):
                break
            begin = start
            while begin and covered[begin - 1]:
                begin -= 1
            # If a key begins here, all is hidden from its third character on, also what stands between two of them.
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
    """``folded`` text with the place of each character, and a break where more than may be is between two."""
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
    """The keys of this process; their mask is made when it is first asked for after a new one."""

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
    """From now on ``known`` hides these keys, too; an empty one is none."""
    _known.add(keys)


def known() -> Mask:
    """Hides every key that this process sends, or was asked to send, to a provider."""
    return _known.mask()


def mask_logs() -> None:
    """From now on no record of any logger holds a known key, neither in its message nor in its traceback."""
    if logging.getLogRecordFactory() is logging.LogRecord:
        logging.setLogRecordFactory(_masked_record)


def _masked_record(*arguments: object, **named: object) -> logging.LogRecord:
    record = logging.LogRecord(*arguments, **named)  # type: ignore[arg-type]  # as logging calls its factory
    if mask := known():
        record.msg, record.args = mask.text(record.getMessage()), ()
        if record.exc_info:
            # Formatters take this where it is set.
            record.exc_text = mask.text(logging.Formatter().formatException(record.exc_info))
    return record
