"""What the log keeps of the words of a search: digests that nobody without the master key can try guesses against."""

import hashlib
import hmac
import re
import unicodedata

MOST_WORDS = 64
"""So many words of one search are kept."""
_DIGITS = 16
_WORD = re.compile(r"\w+")


def digests(key: bytes, typed: str) -> tuple[str, ...]:
    """Returns the keyed digest of each word, in the order of the digests: that of the words is not kept.

    Case and accents make no difference, as in the search itself.
    """
    signs = unicodedata.normalize("NFKD", typed.encode(errors="replace").decode().casefold())
    words = dict.fromkeys(_WORD.findall("".join(sign for sign in signs if not unicodedata.combining(sign))))
    return tuple(sorted(_digest(key, word) for word in list(words)[:MOST_WORDS]))


def _digest(key: bytes, word: str) -> str:
    return hmac.new(key, word.encode(), hashlib.sha256).hexdigest()[:_DIGITS]
