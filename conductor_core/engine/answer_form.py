"""What a client demands of an answer, kept whatever a server does: its form, and the texts before which it ends."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from conductor_core.chat.messages import AnswerRules

_FENCE = re.compile(r"\s*```[A-Za-z]*\s*\n(?P<inside>.*?)\n?\s*```\s*", re.DOTALL)
PATTERN_S = 0.2
MOST_SAID = 600
"""Characters of a fault that a model is told."""


def document_in(text: str) -> str:
    """Returns the JSON of an answer, without the fence that many models put around it."""
    fenced = _FENCE.fullmatch(text)
    return (text if fenced is None else fenced["inside"]).strip()


def form_fault(text: str, rules: AnswerRules) -> str | None:
    """Returns why an answer has not the form asked for, in a sentence; None: it has."""
    if rules.form == "text":
        return None
    try:
        said = json.loads(document_in(text))
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"[:MOST_SAID]
    if rules.form == "json":
        return None if isinstance(said, dict) else "it is not a JSON object"
    # Imported when used: most answers have no form.
    from jsonschema.exceptions import SchemaError, best_match
    from referencing.exceptions import Unresolvable

    try:
        found = best_match(_validator()(dict(rules.json_schema or {})).iter_errors(said))
    except (SchemaError, Unresolvable, RecursionError) as error:
        return f"the schema itself cannot be checked: {type(error).__name__}"
    if found is None:
        return None
    return f"at {found.json_path} it does not fit the schema: {found.message}"[:MOST_SAID]


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    return extend(Draft202012Validator, {"pattern": _pattern})


def _pattern(validator: Any, pattern: str, said: Any, _schema: object) -> Iterator[Exception]:
    """Checks a client's pattern for a moment only: some take longer than anybody waits."""
    import regex
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(said, "string"):
        return
    try:
        found = regex.search(pattern, said, timeout=PATTERN_S)
    except TimeoutError:
        yield ValidationError(f"the pattern {pattern!r} takes too long to check")
    except regex.error:
        yield ValidationError(f"the pattern {pattern!r} cannot be read")
    else:
        if found is None:
            yield ValidationError(f"{said!r} does not match {pattern!r}")


def correction(fault: str) -> str:
    """Returns what a model is told whose answer has not the form asked for."""
    return f"That is not the form asked for: {fault}. Write the answer again, as JSON alone."


class StopTexts:
    """Ends an answer before the first of some texts. ``hit``: which one came; None: none has."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(filter(None, texts))
        self._most_held = max(map(len, self._texts), default=1) - 1
        self._held = ""
        self.hit: str | None = None

    def feed(self, text: str) -> str:
        """Returns what of the answer can be shown now: not what may be the beginning of such a text."""
        if not self._texts or self.hit is not None:
            return "" if self.hit is not None else text
        said = self._held + text
        found = min(
            ((at, stop) for stop in self._texts if (at := said.find(stop)) >= 0), key=lambda each: each[0], default=None
        )
        if found is not None:
            self.hit, self._held = found[1], ""
            return said[: found[0]]
        held = self._beginning_in(said)
        self._held = said[len(said) - held :] if held else ""
        return said[: len(said) - held]

    def rest(self) -> str:
        """Returns what was held back: nothing follows."""
        rest, self._held = self._held, ""
        return rest

    def _beginning_in(self, said: str) -> int:
        """Returns how many characters at the end of ``said`` may begin such a text."""
        for held in range(min(self._most_held, len(said)), 0, -1):
            if any(stop.startswith(said[len(said) - held :]) for stop in self._texts):
                return held
        return 0
