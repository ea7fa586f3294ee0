"""Events and traces to and from the text that is stored."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError

from conductor_core import chat, events, trace
from conductor_core.events import EVENT, Event
from conductor_core.workflow import model


def encode(event: Event) -> tuple[Event, str]:
    """``event`` as it is kept, and its JSON.

    A lone UTF-16 surrogate is no character and has no UTF-8 form; a provider's JSON can still carry one. It is kept as
    U+FFFD, and the returned event says so too, so that live readers and later ones see the same.
    """
    try:
        return event, event.model_dump_json()
    except PydanticSerializationError:
        event = EVENT.validate_python(_without_surrogates(event.model_dump()))
        return event, event.model_dump_json()


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
    return value


@cache
def fold_digest() -> str:
    """Digest of the code that folds events into a trace: a snapshot made by other code may mean something else."""
    digest = hashlib.sha256()
    for module in (model, chat, events, trace):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:16]
