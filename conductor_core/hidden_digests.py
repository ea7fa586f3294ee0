"""Digests in a record of which passages were hidden. A short hidden word can be guessed from the digest of its text.

The digest of an output becomes that of the output as it is then. What else was digested cannot be told from the record
(a step's identity, a Conductor's own prompt): those become others, that nobody can compute and that are equal where the
first ones were.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from conductor_core.events import EVENT, Event

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
        if name in _OF_MORE and isinstance(value, str):
            return self._other(value)
        if name == "output_sha256" and isinstance(value, str):
            return self._of_output(value)
        if name in _OUTPUTS and isinstance(value, list):
            return [{**shared, "sha256": self._of_output(shared["sha256"])} for shared in value]
        return value if name == "params" else self._value(value)

    def _of_output(self, digest: str) -> str:
        """Returns the digest of the output as it is now. None of this record has the others: nobody can check them."""
        return self._of_outputs.get(digest) or self._other(digest)

    def _other(self, digest: str) -> str:
        return hmac.new(self._salt, digest.encode(), hashlib.sha256).hexdigest() if digest else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
