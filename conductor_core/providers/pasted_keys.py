"""Finds keys in the fields of a model, which every run records, and refuses variables that do not look like a key's.

A file of models may come from anybody. The value of its ``api_key_env`` is sent to its ``base_url``.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.privacy.keys import environment_keys, holds_a_key, names_a_key

_SECRET_NAMES = re.compile(
    r"api_?key|(?:access|private|secret|subscription|account|functions|master|auth)_?key|(?:^|_)auth(?:$|_)"
    r"|authorization|bearer|credential|secret|passw(?:or)?d|passphrase|cookie|(?:^|_)jwt$|^x_goog_.*key$|^(?:token|key)$"
    r"|(?:access|api|auth|bearer|client|id|personal|refresh|secret|session|user)_?tokens?$"
)

_SEARCHED_FOR_FORMS = ("base_url", "description")
"""In other fields a name may have a key's form: ``hf_llama3_instruct``."""


def variable_fault(name: str, allowed: Collection[str]) -> str | None:
    """Says why no worker may read the variable ``name``; None if one may. ``allowed``: the setting's names."""
    if names_a_key(name) or name in allowed:
        return None
    return (
        f"{name} does not look like the variable of a key (no KEY, TOKEN or SECRET in its name), and its value would "
        f"be sent to the model's server; if it is one, allow it by CONDUCTOR_KEY_VARIABLES={name}"
    )


def pasted_keys(
    fields: Mapping[str, Any], known: Collection[str], file: str = "pool file"
) -> Iterator[tuple[str, str]]:
    """Yields, for each key in the fields of a model, the field and a fault that names the place but never the key.

    Args:
        known: keys that must not be anywhere. file: the name of a file of such models.
    """
    for name, value in fields.items():
        if name == "params" and isinstance(value, Mapping):
            for place in _in_params(value, "", known):
                yield name, f"{place}: a key does not belong in a {file}; name its variable in api_key_env"
        elif isinstance(value, str) and (
            holds_a_key(value, known) if name in _SEARCHED_FOR_FORMS else any(key in value for key in known)
        ):
            yield name, "holds a key, which every run would record; put it in a variable, named in api_key_env"


def check_spec(spec: WorkerSpec, allowed: Collection[str]) -> None:
    """Raises BadInput for a worker that may not be opened, even if an earlier version recorded it."""
    if spec.api_key_env is not None and (fault := variable_fault(spec.api_key_env, allowed)):
        raise BadInput(f"worker {spec.name}: api_key_env: {fault}")
    for name, fault in pasted_keys(spec.model_dump(), environment_keys()):
        raise BadInput(masking.known().text(f"worker {spec.name}: {name}: {fault}"))


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret. ``apiKey``, ``X-Api-Key`` and ``api_key`` are one name."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return bool(_SECRET_NAMES.search(re.sub(r"[^a-z0-9]+", "_", snake)))


def _in_params(value: Any, place: str, known: Collection[str]) -> Iterator[str]:
    """Yields the places of keys in ``value``, such as ``extra_body.api_key`` or ``stop[0]``."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if holds_a_key(name, known):
                yield place or "a name"
                continue
            here = f"{place}.{name[:60]}" if place else name[:60]
            if is_secret_name(name) and _could_be_one(item):
                yield here
            else:
                yield from _in_params(item, here, known)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _in_params(item, f"{place}[{index}]", known)
    elif isinstance(value, str) and holds_a_key(value, known):
        yield place


def _could_be_one(value: Any) -> bool:
    """Whether ``value`` can be a secret. A table may describe one, as JSON schemas do, and is searched, too."""
    return not isinstance(value, bool | Mapping) and value is not None
