"""Keys: how they are recognised, and hidden in text that came from a provider before it is stored, logged or printed.

names_a_key   variables of the environment that hold a key; ``holds_a_key``: texts in the known forms of keys
pieces        the pieces by which a key is found, plain and in the encodings in which keys occur
Mask          finds its keys in a text: as they are, in other case, encoded, cut, with other characters between theirs
MaskedText    the same for text that arrives in pieces; holds back only what may be the beginning of a key
remember      a key that this process sends somewhere; ``known`` is the mask of all of them
mask_logs     the last net: no log and no traceback holds a known key, nor what ``hide_in_logs`` hides
one_line      makes a text of others fit to be quoted in our messages; so does ``plain``
TypedKeys     keys that a person typed into a page: in memory, for one browser session, and written nowhere

Texts are compared by their ASCII letters and digits in lower case (``folded``), so that other case, separators, line
breaks and zero-width characters hide nothing. Decision 0045 says which pieces are used, and why not all.
"""

import base64
import logging
import os
import re
import sys
import threading
import traceback
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Never
from urllib.parse import quote

from conductor_core.errors import BadInput

if TYPE_CHECKING:
    from types import TracebackType

_OF_A_KEY = re.compile(r"(?:^|_)(?:API)?(?:KEY|TOKEN|SECRET)S?\d*(?:_|$)", re.IGNORECASE)
KNOWN_FORM = re.compile(
    # How far a digit is looked for is bounded: else a text of beginnings alone takes the square of its length.
    r"\b(?:r8_|(?:(?:sk|pk|rk|xai)-|(?:sk|gsk|hf)_|AIza)(?=[^\s\d]{0,256}+\d))[A-Za-z0-9_-]{12,}"
    r"|(?i:\bbearer\s+)(?=\S*[0-9=])[A-Za-z0-9_.+/=-]{12,}"
    # Base64 alone: "a basic Qwen2.5-0.5B-Instruct" is prose.
    r"|(?i:\bbasic\s+)(?=\S*[0-9=])[A-Za-z0-9+/]{12,}"
)
_FILES = frozenset({"CONDUCTOR_MASTER_KEY", "CONDUCTOR_SIGNING_KEY"})
"""Settings that hold the place of a key's file, which is not secret and appears in messages."""
_QUOTES = "\"'`“”„‘’«»"
_SHORTEST = 8
"""A shorter value of a variable may occur in an address by chance."""


def names_a_key(variable: str) -> bool:
    """Whether KEY, TOKEN or SECRET is a part of a variable's name: ``OPENAI_API_KEY``, not ``MONKEY``."""
    return bool(_OF_A_KEY.search(variable))


def is_set(variable: str) -> bool:
    return bool(os.environ.get(variable, "").strip())


def is_quoted(variable: str) -> bool:
    """Whether the value of a variable begins and ends with a quotation mark, as by a mistake in a file of settings."""
    value = os.environ.get(variable, "").strip()
    return len(value) > 1 and value[0] in _QUOTES and value[-1] in _QUOTES


def environment_keys() -> tuple[str, ...]:
    values = (value.strip() for name, value in os.environ.items() if names_a_key(name) and name not in _FILES)
    return tuple(value for value in values if len(value) >= _SHORTEST)


def holds_a_key(text: str, known: Collection[str]) -> bool:
    """Whether ``text`` holds one of the ``known`` keys or a text in a key's form."""
    return any(key in text for key in known) or bool(KNOWN_FORM.search(text))


# Pieces of a key.

_PIECE = 12
"""Letters and digits by which a cut key is found. For a short key it is half of them, at least ``_SHORTEST``."""
_ENCODED_PIECE = 16
_SHORTEST_PHRASE = 12

_ALNUM = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DROPPED = bytes(set(range(256)) - set(_ALNUM))
_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")
_WORD = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Z]?[a-z]{1,19}(?:[A-Z][a-z]{2,14}){0,3}|[A-Z]{2,19}|[A-Za-z]{1,3})\d{0,4}(?![A-Za-z0-9])"
)
"""A text between separators that may be a word, or words joined by capitals, perhaps with a number: gpt4."""


def folded(text: str) -> bytes:
    """Returns the ASCII letters and digits of ``text`` in lower case."""
    return text.encode("ascii", "ignore").translate(_LOWER, _DROPPED)


def normalize(text: str) -> str:
    """Returns ``text`` in lower case without characters of no width. Spaces stay."""
    seen = (char for char in text if unicodedata.category(char)[0] not in "CM")
    return "".join(seen).casefold()


def pieces(key: str) -> Iterator[tuple[bytes, str]]:
    """Yields the ``folded`` pieces that show that a text holds ``key``.

    Each comes with the text, as ``normalize`` returns it, that the place must contain exactly; empty if the piece alone
    is proof. A key that looks like ordinary text, because it is short or a word, has no pieces.
    """
    non_word = _non_word_chars(key)
    if len(non_word) < _SHORTEST or (sum(non_word) < _SHORTEST and len(key) < _SHORTEST_PHRASE):
        return
    yield from _verbatim(key)
    if (quoted := quote(key, safe="")) != key:
        yield from _verbatim(quoted)
    for form in _encoded(key):
        size = min(_ENCODED_PIECE, len(form))
        for start in range(len(form) - size + 1):
            yield form[start : start + size], ""


def can_be_hidden(key: str) -> bool:
    """Whether a text can be searched for this key: not for one that looks like ordinary text."""
    return next(pieces(key), None) is not None


def _verbatim(key: str) -> Iterator[tuple[bytes, str]]:
    plain, covered = "".join(re.findall("[0-9A-Za-z]", key)), set[int]()
    whole = plain.lower().encode()
    non_word = _non_word_chars(key)
    if sum(non_word) >= _SHORTEST:
        size = max(_SHORTEST, min(_PIECE, len(plain) // 2))
        for start in range(len(plain) - size + 1):
            if 2 * sum(non_word[start : start + size]) >= size and _is_distinctive(plain[start : start + size]):
                covered.update(range(start, start + size))
                yield whole[start : start + size], ""
    if 3 * len(covered) < 2 * len(plain):
        yield whole, normalize(key)


def _is_distinctive(piece: str) -> bool:
    """Whether a short piece is neither a number nor a word."""
    return len(piece) >= _PIECE or not (
        piece.isdigit() or (piece.isalpha() and piece in (piece.lower(), piece.upper()))
    )


def _non_word_chars(key: str) -> list[bool]:
    """Returns for each letter and digit of ``key`` whether it is outside all words, which are ordinary text."""
    in_words = {index for word in _WORD.finditer(key) for index in range(*word.span())}
    return [index not in in_words for index, char in enumerate(key) if char.isascii() and char.isalnum()]


def _encoded(key: str) -> Iterator[bytes]:
    """Yields the key as a server may really repeat it, besides as it is and as a part of an address.

    UTF-16 that is read as another encoding is the key itself with zeros between, which are no letters.
    """
    raw = key.encode()
    yield raw.hex().encode()  # also %73
    yield "".join(f"u{byte:04x}" for byte in raw).encode()  # \u0073 in JSON
    # In base32 and base64 a byte's characters depend on the number of bytes before it. Those shared with a neighbour
    # are cut.
    for before, shared in ((0, 0), (1, 2), (2, 4), (3, 5), (4, 7)):
        inside = base64.b32encode(b"\0" * before + raw).rstrip(b"=")
        end = (before + len(raw)) * 8 // 5
        yield inside[shared:end].lower()
    for before, shared in ((0, 0), (1, 2), (2, 3)):
        inside = base64.b64encode(b"\0" * before + raw).rstrip(b"=")
        end = len(inside) - ((before + len(raw)) % 3 != 0)
        yield inside[shared:end].translate(_LOWER, _DROPPED)


# Hiding them in texts.


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


# Keys that a person typed.

TYPED_KEY = "TYPED_API_KEY"
"""Stands where a model names the variable of its key, if the key was typed. The environment is not asked for it."""
GONE = (
    "its key was typed into a page and is not here: such a key serves only the browser session in which it was typed; "
    "type it again on the Run page, or name a variable of the environment in api_key_env"
)
_LONGEST = 1_000


class TypedKeys:
    """The keys of one browser session, each for one server and no other.

    Clients of models hold this object and no key, so that nobody has a key once it is forgotten. What is known of keys
    for hiding them in texts (``known``) stays, because a server may echo one later.
    """

    def __init__(self) -> None:
        self._by_server: dict[str, str] = {}

    def put(self, base_url: str, key: str) -> None:
        """Takes a key for that server alone, and has it hidden everywhere from now on.

        Raises: BadInput for what no key looks like. No message holds it.
        """
        key = key.strip()
        if not (key.isascii() and key.isprintable()) or " " in key or len(key) > _LONGEST:
            raise BadInput("this has characters that no key has, or is too long for one")
        if not can_be_hidden(key):
            raise BadInput("this is too short, or too much like a word, to be hidden where a server repeats it")
        remember(key)
        self._by_server[base_url] = key

    def of(self, base_url: str | None) -> str | None:
        return None if base_url is None else self._by_server.get(base_url)

    def forget(self, base_url: str | None = None) -> None:
        """Forgets the key for that server; None: all of them."""
        if base_url is None:
            self._by_server.clear()
        else:
            self._by_server.pop(base_url, None)

    def __len__(self) -> int:
        return len(self._by_server)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{len(self)} typed keys>"

    def __reduce__(self) -> Never:
        raise TypeError("typed keys stay in memory")


def has_key(variable: str, base_url: str | None, keys: TypedKeys | None) -> bool:
    """Whether the key that a model names is there: in the environment, or typed for its server."""
    if variable == TYPED_KEY:
        return keys is not None and keys.of(base_url) is not None
    return is_set(variable)
