"""Finds keys, payment cards, mail addresses, phone numbers and names of people in a text.

find           where they are
OpenText       the same for text that arrives in pieces; holds back only what may be the beginning of one
PersonNames    names of people, by Presidio with a spaCy model (the extra ``names``): the model, for all runs
NamesOfRun     what it found in one run is found wherever it occurs later in the run

A text is searched as it is written, and as its escapes read: the text of a plan is JSON or Python. For names each line
is searched by itself. So a text that arrives line by line hides the same passages as the whole text.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from conductor_core.errors import BadInput
from conductor_core.privacy.masking import KNOWN_FORM
from conductor_core.text import unescaped

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
    """Returns the passages of these kinds, in order. Where two overlap, the first, or the longer, counts.

    ``region``: whose national phone numbers are found (``DE``); None: only numbers that begin with ``+``.
    ``names``: finds names of people (``PersonNames``); None: nobody looks for them.
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


# Names of people.

_LONGEST_PART = 5_000
"""A longer line is searched in parts of as many characters: the memory that a model takes grows with the text."""
_KEPT_LINES = 4_096
_MOST_KNOWN = 1_000
"""Names and parts of names that a run remembers: each new text is searched for all of them."""
_LEAST_LETTERS = 3
"""A part of a name is hidden by itself if it has at least as many."""
_PART = re.compile(rf"[^\n]{{1,{_LONGEST_PART}}}(?=\s|$)|[^\n]{{1,{_LONGEST_PART}}}")
_WORD = re.compile(r"\w+")


class PersonNames:
    """A model that knows names of people. It is loaded when the first text is searched. Any thread may use it."""

    def __init__(self, model: str) -> None:
        """``model``: a folder of a spaCy model, or the name of an installed one. Raises: BadInput, what to install."""
        if find_spec("presidio_analyzer") is None or find_spec("spacy") is None:
            raise BadInput(
                'CONDUCTOR_REDACT=names needs the extra "names": in the folder of the source, run: '
                "pip install '.[names]'"
            )
        if not Path(model).is_dir() and not (model.isidentifier() and find_spec(model) is not None):
            raise BadInput(
                f"CONDUCTOR_REDACT=names needs a spaCy model, and there is none at {model}: install one, for instance "
                "by `python -m spacy download en_core_web_sm`, or set CONDUCTOR_REDACT_NAMES_MODEL to the folder of one"
            )
        self._model = model
        self._analyzer: Any = None
        self._language = ""
        self._lock = threading.Lock()
        self._in_part = lru_cache(_KEPT_LINES)(self._searched)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields where names are, in order. Raises: BadInput if the model cannot be loaded."""
        for part in _PART.finditer(text):
            if _WORD.search(part[0]):
                yield from ((part.start() + low, part.start() + high) for low, high in self._in_part(part[0]))

    def _searched(self, part: str) -> tuple[tuple[int, int], ...]:
        with self._lock:
            if self._analyzer is None:
                self._load()
            found = self._analyzer.analyze(part, language=self._language, entities=["PERSON"])
        return tuple(sorted((each.start, each.end) for each in found if part[each.start : each.end].strip()))

    def _load(self) -> None:
        import spacy
        from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
        from presidio_analyzer.nlp_engine import SpacyNlpEngine
        from presidio_analyzer.predefined_recognizers import SpacyRecognizer

        try:
            model = spacy.load(self._model)
        except Exception as error:
            raise BadInput(f"the spaCy model {self._model} cannot be loaded: {error}") from error
        if not {"ner", "entity_ruler"} & set(model.pipe_names):
            raise BadInput(f"the spaCy model {self._model} finds no names: it lacks the component ner")
        self._language = model.lang
        engine = SpacyNlpEngine(models=[{"lang_code": model.lang, "model_name": self._model}])
        engine.nlp = {model.lang: model}
        # Presidio's other recognizers are left out: one of them asks the network for a list of domains.
        recognizer = SpacyRecognizer(supported_language=model.lang, supported_entities=["PERSON"])
        registry = RecognizerRegistry([recognizer], supported_languages=[model.lang])
        self._analyzer = AnalyzerEngine(registry, engine, supported_languages=[model.lang])


class NamesOfRun:
    """Finds names in the texts of one run. A name that was found once is found wherever it, or a part, occurs later."""

    def __init__(self, people: PersonNames, others: Iterable[str] = ()) -> None:
        """``others``: names of workers and models, which a model may take for people."""
        self._people = people
        self._others = {word for name in others for word in _words(name)}
        self._known: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns where names are. They may overlap. Raises: BadInput if the model cannot be loaded."""
        found = [(low, high) for low, high in self._people.spans(text) if not self._is_other(text[low:high])]
        for low, high in found:
            self._keep(text[low:high])
        return found + self.met(text)

    def met(self, text: str) -> list[tuple[int, int]]:
        """Returns where names are that were found before, without asking the model."""
        if not self._known:
            return []
        if self._pattern is None:
            self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(self._known)})(?!\w)")
        return [match.span() for match in self._pattern.finditer(text)]

    def _is_other(self, name: str) -> bool:
        return _words(name) <= self._others

    def _keep(self, name: str) -> None:
        words = [word for word in name.split() if any(map(str.isalnum, word))]
        parts = [part for word in words for part in _WORD.findall(word) if len(part) >= _LEAST_LETTERS]
        whole = r"\s+".join(map(re.escape, words))
        # One word is found as it is written only: a name such as Will is a common word in small letters.
        new = [f"(?i:{whole})"] if len(words) > 1 else [whole] if words else []
        new += [re.escape(part) for part in parts if part[0].isupper() and not self._is_other(part)]
        if all(each in self._known for each in new) or len(self._known) >= _MOST_KNOWN:
            return
        self._known |= dict.fromkeys(new)
        self._pattern = None  # compiled again when a text needs it, and not for each of its names


def _words(name: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(name)}
