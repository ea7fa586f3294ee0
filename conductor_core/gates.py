"""Gates: the rules by which a run waits for an approval before anything leaves."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, model_validator

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Frozen

FORMS = "plan, steps, step:N, usd:X or provider:NAME"


class Gate(Frozen):
    """One rule. ``read_gate`` reads what ``str`` writes.

    Attributes:
        rule: ``plan`` asks before any worker of the first plan is called; ``steps`` before every step; ``step`` before
            the step ``number`` of the first plan; ``usd`` when the highest possible cost exceeds ``usd``, or cannot be
            told; ``provider`` before anything goes to ``provider``: a provider's kind, or a server's host.
    """

    rule: Literal["plan", "steps", "step", "usd", "provider"]
    number: NonNegativeInt | None = None
    usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    provider: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        values = {"step": self.number, "usd": self.usd, "provider": self.provider}
        if any((value is not None) != (name == self.rule) for name, value in values.items()):
            raise ValueError(f"a gate is {FORMS}")
        return self

    def __str__(self) -> str:
        match self.rule:
            case "step":
                return f"step:{self.number}"
            case "usd":
                return f"usd:{self.usd:g}"
            case "provider":
                return f"provider:{self.provider}"
        return self.rule


def read_gate(text: str) -> Gate:
    """Raises: BadInput if ``text`` is no gate."""
    rule, _, value = text.strip().partition(":")
    names = {"step": "number", "usd": "usd", "provider": "provider"}
    try:
        given = {names[rule]: value.strip() or None} if rule in names else {}
        if rule not in names and value:
            raise ValueError
        return Gate.model_validate({"rule": rule} | given)
    except ValueError as error:
        raise BadInput(f"{text!r} is no gate: give {FORMS}") from error
