"""Finds keys, payment cards, mail addresses, phone numbers and names of people in a text.

find        where they are
OpenText    the same for text that arrives in pieces; holds back only what may be the beginning of one

A text is searched as it is written, and as its escapes read: the text of a plan is JSON or Python.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

from conductor_core.keys import KNOWN_FORM
from conductor_core.unescaped import unescaped

Sensitive = Literal["keys", "cards", "mail", "phones", "names"]
SENSITIVE: tuple[Sensitive, ...] = get_args(Sensitive)
NAMES: dict[str, str] = {
    "secrets": "configured secret",
    "keys": "key",
    "cards": "card number",
    "mail": "mail address",
    "phones": "phone number",
    "names": "name",
}
"""What one of each kind is called. ``secrets`` are the keys of this process, which are found in every encoding."""


def in_words(counts: Mapping[str, int]) -> str:
    """Returns words for how many there are of each kind: ``2 mail addresses, 1 key``."""
    return ", ".join(
        f"{count} {NAMES[kind]}{'' if count == 1 else 'es' if NAMES[kind].endswith('s') else 's'}"
        for kind, count in sorted(counts.items())
    )


_KEY = re.compile(
    KNOWN_FORM.pattern + r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|\b[srp]k_(?:live|test)_[A-Za-z0-9]{16,}"
    # The first part ends before another beginning: else a text of beginnings alone takes the square of its length.
    r"|\beyJ(?:(?!-eyJ)[A-Za-z0-9_-]){8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}"
    r"|\b(?:glpat-|npm_|pplx-|ya29\.)[A-Za-z0-9_-]{20,}|\bSG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}"
    # An encrypted key has lines as `DEK-Info: AES-256-CBC` before its body. One that is cut off is hidden to the next
    # fence, but no further than a stream holds a text back (_LONGEST_PEM).
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----)[\s\S]){0,16000}+"
    r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_CARD = re.compile(r"(?<![0-9.])[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
_MAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}"
)
_LEAST_DIGITS = 7
"""A phone number has at least as many. A text with fewer is not searched, because the search is slow."""
_BEGINS_A_KEY = re.compile(r"(?i:bearer|basic)$")
_MOST_GROUPS, _MOST_SPACES = 12, 32
_PEM, _PEM_ENDS = "-----BEGIN", re.compile(r"-----END [A-Z ]*-----")
_LONGEST_PEM = 16_384


class Found(NamedTuple):
    """A passage of a text, from ``low`` to before ``high``. ``text``: what it reads, without escapes."""

    kind: Sensitive
    low: int
    high: int
    text: str


NameSpans = Callable[[str], Iterable[tuple[int, int]]]
"""Returns where names of people are in a text. They may overlap."""


def find(
    text: str, kinds: Collection[Sensitive], region: str | None = None, names: NameSpans | None = None
) -> list[Found]:
    """Returns the passages of these kinds, in order. Where two overlap, the first, or the longer, stands.

    ``region``: whose national phone numbers are found (``DE``); None: only numbers that begin with ``+``.
    ``names``: finds names of people (``person_names``); None: nobody looks for them.
    """
    plain, begins = unescaped(text)
    asked = [kind for kind in SENSITIVE if kind in kinds and kind != "names"]
    found = [Found(kind, low, high, text[low:high]) for kind in asked for low, high in _spans(kind, text, region)]
    if begins is not None:
        found += [
            Found(kind, begins[low], begins[high], plain[low:high])
            for kind in asked
            for low, high in _spans(kind, plain, region)
        ]
    if names is not None:  # only in what is read: an escape before a name would become a part of it
        found += [
            Found("names", *((low, high) if begins is None else (begins[low], begins[high])), plain[low:high])
            for low, high in names(plain)
        ]
    apart: list[Found] = []
    for each in sorted(found, key=lambda one: (one.low, -one.high)):
        if not apart or each.low >= apart[-1].high:
            apart.append(each)
        elif each.high > apart[-1].high:
            apart[-1] = apart[-1]._replace(high=each.high)
    return apart


def _spans(kind: Sensitive, text: str, region: str | None) -> Iterator[tuple[int, int]]:
    if kind == "phones":
        yield from _phones(text, region)
        return
    pattern = {"keys": _KEY, "cards": _CARD, "mail": _MAIL}[kind]
    for match in pattern.finditer(text):
        if kind != "cards" or _passes_luhn(match[0]):
            yield match.span()


def _phones(text: str, region: str | None) -> Iterator[tuple[int, int]]:
    if (region is None and "+" not in text) or sum(map(str.isdigit, text)) < _LEAST_DIGITS:
        return
    from phonenumbers import PhoneNumberMatcher  # its tables take time to load, and few texts need them

    for match in PhoneNumberMatcher(text, region, max_tries=len(text)):
        yield match.start, match.end


def _passes_luhn(number: str) -> bool:
    digits = [int(char) for char in reversed(number) if char.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


class OpenText:
    """A text that arrives in pieces. ``hide`` gets parts that no sensitive passage crosses, and returns what to show.

    It holds back the last word, and before it numbers and what announces a key. So a passage cannot hide between two
    pieces, and text without sensitive passages comes a word late. With ``whole_lines`` it holds back the last line.
    """

    def __init__(self, hide: Callable[[str], str], *, whole_lines: bool = False) -> None:
        self._hide = hide
        self._whole_lines = whole_lines
        self._held: list[str] = []

    def feed(self, piece: str) -> str:
        """Takes a piece, and returns what can now be shown, perhaps nothing."""
        self._held.append(piece)
        if "\n" not in piece if self._whole_lines else not any(map(_ends_a_word, piece)):
            return ""
        text = "".join(self._held)
        cut = _decided(text)
        if self._whole_lines:
            cut = text.rfind("\n", 0, cut) + 1
        self._held = [text[cut:]]
        return self._hide(text[:cut]) if cut else ""

    def end(self) -> str:
        """Ends the text, and returns its rest."""
        text, self._held = "".join(self._held), []
        return self._hide(text) if text else ""


def _ends_a_word(char: str) -> bool:
    return not "!" <= char <= "~"


def _decided(text: str) -> int:
    """Returns up to where no passage can reach beyond the end of ``text``."""
    cut = _word_before(text, len(text))
    for _ in range(_MOST_GROUPS):
        end = len(text[:cut].rstrip())
        if not end or cut - end > _MOST_SPACES:
            break
        begin = _word_before(text, end)
        word = text[begin:end]
        if not word or not (word[-1] in "0123456789()+./-" or _BEGINS_A_KEY.search(word)):
            break
        cut = begin
    opened = text.rfind(_PEM, max(0, cut - _LONGEST_PEM), cut)
    return cut if opened < 0 or _PEM_ENDS.search(text, opened, cut) else opened


def _word_before(text: str, end: int) -> int:
    while end and not _ends_a_word(text[end - 1]):
        end -= 1
    return end
