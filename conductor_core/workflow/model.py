"""A workflow as data: ordered steps, each an instruction, an agent and an access list.

The vocabulary of the whole package; it imports nothing but pydantic. Step indices start at 0. Source of the form:
"Learning to Orchestrate Agents in Natural Language with the Conductor" (arXiv 2512.04388), section 3.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

CONDUCTOR_AGENT = "conductor"
"""The agent name by which a step asks the Conductor itself (recursion)."""

QUESTION = "{question}"
"""Stands for the task's text in an instruction; the engine fills it in. A small Conductor cannot copy text."""

Place = Literal["workflow", "instruction", "agent", "access_list"]


class Frozen(BaseModel):
    """Base of all value objects: immutable, strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _sequence_to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


AccessList = Annotated[Literal["all"] | tuple[int, ...], BeforeValidator(_sequence_to_tuple)]
"""``"all"``, or the indices of the earlier steps whose outputs are shown; empty: sees nothing."""


def readable(access_list: AccessList, index: int) -> tuple[int, ...]:
    """Returns the steps before step ``index`` that ``access_list`` lets it see, ascending, without repetition."""
    if access_list == "all":
        return tuple(range(index))
    return tuple(sorted({earlier for earlier in access_list if 0 <= earlier < index}))


class Step(Frozen):
    """One step: who is told what, and which earlier outputs they may see."""

    instruction: str
    agent: str
    access_list: AccessList = ()


class Workflow(Frozen):
    """An ordered list of steps. No steps at all is the Conductor's way to end a recursion."""

    steps: tuple[Step, ...]

    def reads(self, index: int) -> tuple[int, ...]:
        """Indices of the earlier steps that step ``index`` may see, ascending, without repetition.

        Indices that do not name an earlier step are left out: validation reports them, execution never follows them.
        """
        return readable(self.steps[index].access_list, index)

    @property
    def all_reads(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(self.reads, range(len(self.steps))))

    def require(self, index: int) -> None:
        """Raises: IndexError, which names the step, if there is none at ``index``."""
        if not 0 <= index < len(self.steps):
            raise IndexError(f"unknown step {index}: the workflow has {len(self.steps)}")


def gets_task(instruction: str, *, give_question: bool) -> bool:
    return give_question or QUESTION in instruction


class Fault(Frozen):
    """One thing wrong with a workflow (a fault) or doubtful about it (a warning), and where.

    Attributes:
        code: stable name, e.g. ``unknown_agent``.
        message: one sentence for a person, naming the fault and what would be right.
        step: index of the step it is about, None if about the whole.
        field: which part of the step, so that an editor can show the fault at the field.
        line, column: place in the text it was read from, both from 1, None where there is no text.
    """

    code: str
    message: str
    step: int | None = None
    field: Place = "workflow"
    line: int | None = None
    column: int | None = None
