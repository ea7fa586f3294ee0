"""Finds names of people in a text, by Presidio with a spaCy model (the extra ``names``).

PersonNames    the model, for all runs
NamesOfRun     what it found in one run is found wherever it stands later in the run

Each line is searched by itself. So a text that arrives line by line hides the same passages as the whole text.
"""

import re
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from conductor_core.errors import BadInput

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
            raise BadInput(f"the spaCy model {self._model} finds no names: it has no part that does (ner)")
        self._language = model.lang
        engine = SpacyNlpEngine(models=[{"lang_code": model.lang, "model_name": self._model}])
        engine.nlp = {model.lang: model}
        # Presidio's other recognizers are left out: one of them asks the network for a list of domains.
        recognizer = SpacyRecognizer(supported_language=model.lang, supported_entities=["PERSON"])
        registry = RecognizerRegistry([recognizer], supported_languages=[model.lang])
        self._analyzer = AnalyzerEngine(registry, engine, supported_languages=[model.lang])


class NamesOfRun:
    """Finds names in the texts of one run. A name that was found once is found wherever it, or a part, stands later."""

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
        self._pattern = None  # compiled anew when a text needs it, and not for each of its names


def _words(name: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(name)}
