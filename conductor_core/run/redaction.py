"""Hides passages in a copy of a run's events, before the copy leaves. The record itself is not changed.

Keys are always hidden: those of the environment and those that this process knows. Further passages are named by
patterns. A text that arrived in pieces is searched as a whole, so that a passage cannot hide between two pieces. It is
searched as it is written, and as its escapes read: the text of a plan is JSON or Python.

Digests of texts with hidden passages are replaced, because a short word can be guessed from one. The digest of an
output becomes that of the output as it is then. What else was digested cannot be told from the record (a step's
identity, a Conductor's own prompt): those become others, that nobody can compute and that are equal where the first
ones were.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import ValidationError

from conductor_core.errors import BadInput
from conductor_core.privacy.masking import Mask, MaskedText, environment_keys, known
from conductor_core.run.events import (
    EVENT,
    FREE_FIELDS,
    Event,
    PlanDelta,
    PlanProgress,
    RunCreated,
    StepDelta,
    StepProgress,
    is_call_id,
    is_structure,
    place_of,
)
from conductor_core.text import unescaped

# Digests.

_OUTPUTS = frozenset({"granted", "withheld"})
_OF_MORE = frozenset({"identity", "prompt_sha256"})


class Digests:
    """What becomes of each digest of ``events`` in ``hidden``, the same events with passages hidden."""

    def __init__(self, events: Sequence[Event], hidden: Sequence[Event], salt: bytes) -> None:
        """``salt``: secret. Files that are to be compared have the same."""
        self._salt = salt
        self._of_outputs: dict[str, str] = {}
        for before, after in zip(events, hidden, strict=True):
            if isinstance(output := getattr(before, "output", None), str):
                now = _digest(getattr(after, "output", ""))
                self._of_outputs[_digest(output)] = now
                self._of_outputs[getattr(before, "output_sha256", now)] = now

    def renewed(self, event: Event) -> Event:
        found = event.model_dump(mode="json")
        renewed = self._value(found)
        return event if renewed == found else EVENT.validate_python(renewed)

    def _value(self, value: Any) -> Any:
        match value:
            case Mapping():
                return {name: self._field(name, item) for name, item in value.items()}
            case list():
                return [self._value(item) for item in value]
        return value

    def _field(self, name: str, value: Any) -> Any:
        if name in _OF_MORE and isinstance(value, str) and not is_call_id(value):
            return self._other(value)
        if name == "output_sha256" and isinstance(value, str):
            return self._of_output(value)
        if name in _OUTPUTS and isinstance(value, list):
            return [{**shared, "sha256": self._of_output(shared["sha256"])} for shared in value]
        return value if name in FREE_FIELDS else self._value(value)

    def _of_output(self, digest: str) -> str:
        """Returns the digest of the output as it is now. None of this record has the others: nobody can check them."""
        return self._of_outputs.get(digest) or self._other(digest)

    def _other(self, digest: str) -> str:
        return hmac.new(self._salt, digest.encode(), "sha256").hexdigest() if digest else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


MARK = "[redacted]"
"""Stands in a text where a passage was hidden."""


class Redactor:
    """Hides keys and what matches ``patterns``.

    Attributes:
        count: how many passages matched a pattern so far.
    """

    def __init__(self, patterns: Iterable[re.Pattern[str]] = ()) -> None:
        self._patterns = tuple(patterns)
        self._mask = Mask(environment_keys())
        self._salt = secrets.token_bytes(32)
        self.count = 0

    def events(self, events: Sequence[Event]) -> list[Event]:
        """Returns the events with such passages hidden. Raises: BadInput if one is not an event without them."""
        pieces = self._streams(events)
        hidden = [self._event(event, pieces.get(number)) for number, event in enumerate(events)]
        if hidden == list(events):
            return hidden
        digests = Digests(events, hidden, self._salt)
        return [digests.renewed(event) for event in hidden]

    def text(self, text: str) -> str:
        return "".join(self._pieces([text]))

    def _event(self, event: Event, piece: str | None) -> Event:
        if piece is not None:
            return event.model_copy(update={"text": piece})
        found = event.model_dump(mode="json")
        hidden = self._value(found)
        if isinstance(event, RunCreated) and event.request.batch and hidden["request"]["task"] != event.request.task:
            hidden["request"]["batch"]["name"] = MARK  # it may begin like the task, and end inside of what is hidden
        if hidden == found:
            return event
        try:
            return EVENT.validate_python(hidden)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"][1:])
            raise BadInput(
                f"a pattern hides what the record cannot do without ({event.kind}, {where}): make it narrower"
            ) from error

    def _value(self, value: Any, *, free: bool = False) -> Any:
        match value:
            case str():
                return self.text(value)
            case Mapping() if free:
                return {self.text(name): self._value(item, free=True) for name, item in value.items()}
            case Mapping():
                return {
                    name: item if is_structure(name, item) else self._value(item, free=name in FREE_FIELDS)
                    for name, item in value.items()
                }
            case list():
                return [self._value(item, free=free) for item in value]
        return value

    def _streams(self, events: Sequence[Event]) -> dict[int, str]:
        """Returns the new text of each piece of streamed text, by the number of its event."""
        open_streams: dict[tuple[object, ...], list[tuple[int, str]]] = {}
        found: dict[int, str] = {}

        def close(of: tuple[object, ...]) -> None:
            for stream in [each for each in open_streams if each[: len(of)] == of]:
                numbers, texts = zip(*open_streams.pop(stream), strict=True)
                found.update(zip(numbers, self._pieces(list(texts)), strict=True))

        for number, event in enumerate(events):
            place = place_of(event)
            if isinstance(event, StepDelta | PlanDelta):
                open_streams.setdefault((*place, event.reasoning), []).append((number, event.text))
            elif place and not isinstance(event, StepProgress | PlanProgress):  # these come between pieces
                close(place)
        close(())
        return found

    def _pieces(self, pieces: list[str]) -> list[str]:
        for mask in (self._mask, known()):
            if mask:
                masked = MaskedText(mask)
                pieces = [masked.feed(piece) for piece in pieces]
                pieces[-1] += masked.end()
        for pattern in self._patterns:
            pieces = self._hidden(pieces, pattern)
        return pieces

    def _hidden(self, pieces: list[str], pattern: re.Pattern[str]) -> list[str]:
        spans = _spans("".join(pieces), pattern)
        if not spans:
            return pieces
        self.count += len(spans)
        result, at, first = [], 0, 0
        for piece in pieces:
            parts, shown, end = [], at, at + len(piece)
            while first < len(spans) and spans[first][1] <= at:
                first += 1
            for low, high in islice(spans, first, None):
                if low >= end:
                    break
                parts.append(piece[shown - at : max(low, at) - at])
                parts.append(MARK if low >= at else "")
                shown = min(high, end)
            parts.append(piece[shown - at :])
            result.append("".join(parts))
            at = end
        return result


def _spans(text: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Returns where the pattern matches the text as it is written, or what its escapes stand for; in order, apart."""
    spans = [match.span() for match in pattern.finditer(text) if match[0]]
    plain, begins = unescaped(text)
    if begins is not None:
        spans += [
            (begins[low], begins[high]) for low, high in (m.span() for m in pattern.finditer(plain)) if low < high
        ]
    apart: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if apart and low < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(high, apart[-1][1]))
        else:
            apart.append((low, high))
    return apart


def read_patterns(texts: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Reads regular expressions. Raises: BadInput, which names the one that is none."""
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise BadInput(f"--redact {text!r} is not a regular expression: {error}") from error
    return tuple(patterns)


def words(texts: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Returns patterns that match these words as they are, in any case."""
    return tuple(re.compile(re.escape(text.strip()), re.IGNORECASE) for text in texts if text.strip())
