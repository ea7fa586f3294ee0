"""What routers are fitted on, and what they all share. Imports nothing heavy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Workflow

Reward = Callable[[int, Workflow], tuple[float, int]]
"""Of the training row with this index and a workflow: its score (0 to 1) and the tokens of all its calls."""


@dataclass(frozen=True)
class TrainingRow:
    """A training task as the single workers did it. All mappings are by the worker's name.

    Attributes:
        scores: between 0 and 1; a chance, or the mean of several tries. answers: what each worker wrote.
        tokens: input and output tokens of that call.
        kind: the family and difficulty that the suite names; "" where it names none.
    """

    question: str
    scores: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    kind: str = ""


class Router(Protocol):
    """A fitted router."""

    @property
    def agents(self) -> tuple[str, ...]:
        """The workers it was fitted on: it knows no others."""

    def route(self, question: str, present: Sequence[str]) -> Workflow:
        """The workflow for ``question``, with workers of ``present`` only. Raises: BadInput if it knows none."""


def known_indices(agents: Sequence[str], present: Sequence[str]) -> tuple[int, ...]:
    """Indices into ``agents`` of those that are present, ascending. Raises: BadInput if there are none."""
    indices = tuple(index for index, agent in enumerate(agents) if agent in present)
    if not indices:
        raise BadInput(
            f"this router was fitted on {', '.join(agents)} and knows none of the workers at hand "
            f"({', '.join(present) or 'none'}): fit it again on this pool"
        )
    return indices


def check_rows(
    rows: Sequence[TrainingRow], agents: Sequence[str], *, scores: bool = False, answers: bool = False
) -> None:
    """Raises: BadInput if there is nothing to fit on, or a row lacks what is asked for of some agent."""
    if not rows or not agents:
        raise BadInput("a router needs at least one training task and one worker to be fitted")
    for number, row in enumerate(rows):
        for wanted, known, what in ((scores, row.scores, "score"), (answers, row.answers, "answer")):
            missing = [agent for agent in agents if agent not in known] if wanted else []
            if missing:
                raise BadInput(f"training row {number} has no {what} of {', '.join(missing)}")
