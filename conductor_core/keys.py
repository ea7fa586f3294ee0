"""Recognises keys: environment variables that hold one, and texts in the known forms of keys."""

import os
import re
from collections.abc import Collection

_OF_A_KEY = re.compile(r"(?:^|_)(?:API)?(?:KEY|TOKEN|SECRET)S?\d*(?:_|$)", re.IGNORECASE)
KNOWN_FORM = re.compile(
    # How far a digit is looked for is bounded: else a text of beginnings alone takes the square of its length.
    r"\b(?:r8_|(?:(?:sk|pk|rk|xai)-|(?:sk|gsk|hf)_|AIza)(?=[^\s\d]{0,256}+\d))[A-Za-z0-9_-]{12,}"
    r"|(?i:\bbearer\s+)(?=\S*[0-9=])[A-Za-z0-9_.+/=-]{12,}"
    # Base64 alone: "a basic Qwen2.5-0.5B-Instruct" is prose.
    r"|(?i:\bbasic\s+)(?=\S*[0-9=])[A-Za-z0-9+/]{12,}"
)
_FILES = frozenset({"CONDUCTOR_MASTER_KEY", "CONDUCTOR_SIGNING_KEY"})
"""Settings that hold the place of a key's file, which is no secret and stands in messages."""
_SHORTEST = 8
"""A shorter value of a variable may occur in an address by chance."""


def names_a_key(variable: str) -> bool:
    """Whether KEY, TOKEN or SECRET is a part of a variable's name: ``OPENAI_API_KEY``, not ``MONKEY``."""
    return bool(_OF_A_KEY.search(variable))


def is_set(variable: str) -> bool:
    """Whether a variable of the environment has a value that is more than blanks."""
    return bool(os.environ.get(variable, "").strip())


def environment_keys() -> tuple[str, ...]:
    """Returns the values of all variables that look like keys."""
    values = (value.strip() for name, value in os.environ.items() if names_a_key(name) and name not in _FILES)
    return tuple(value for value in values if len(value) >= _SHORTEST)


def holds_a_key(text: str, known: Collection[str]) -> bool:
    """Whether ``text`` holds one of the ``known`` keys or a text in a key's form."""
    return any(key in text for key in known) or bool(KNOWN_FORM.search(text))
