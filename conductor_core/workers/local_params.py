"""What ``params`` of a local worker may hold; apart from ``local``, so that a pool file is read without inference."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class LocalParams(BaseModel):
    """How a local model answers. ``thinking``: asks a hybrid model to think before it answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(0.0, ge=0, le=4)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    seed: int = 0
    max_tokens: int = Field(1024, ge=1)
    thinking: bool = False


def params_fault(params: Mapping[str, Any]) -> str | None:
    """What is wrong with ``params``, in the form of a pool file's faults; None: nothing."""
    try:
        LocalParams.model_validate(dict(params))
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            return f"{name}: a local model knows only {', '.join(LocalParams.model_fields)}"
        return f"{name}: {fault['msg']}"
    return None
