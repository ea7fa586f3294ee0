"""Recognises keys: environment variables that hold one, texts in the known forms of keys, and the pieces of a key.

``pieces`` makes the pieces by which a key is found, plain and in the encodings in which keys occur. Texts are compared
by their ASCII letters and digits in lower case (``folded``), so that other case, separators, line breaks and zero-width
characters hide nothing. Decision 0045 says which pieces are used, and why not all.
"""

import base64
import os
import re
import unicodedata
from collections.abc import Collection, Iterator
from urllib.parse import quote

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
