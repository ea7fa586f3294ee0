"""The training rows of routers, and the interface that all routers share. Imports nothing heavy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Workflow

Reward = Callable[[int, Workflow], tuple[float, int]]
"""Returns the score (0 to 1) of a workflow on the training row with an index, and the tokens of all its calls."""


@dataclass(frozen=True)
class TrainingRow:
    """A training task with the results of the single workers. All mappings are by the worker's name.

    Attributes:
        scores: between 0 and 1; a chance, or the mean of several tries. answers: each worker's text.
        tokens: input and output tokens of each worker's call.
        kind: the family and difficulty that the suite names; "" if it names none.
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
        """Returns the workers on which it was fitted. It knows no others."""

    def route(self, question: str, present: Sequence[str]) -> Workflow:
        """Returns the workflow for ``question`` with workers of ``present`` only. Raises: BadInput if it knows none."""


def known_indices(agents: Sequence[str], present: Sequence[str]) -> tuple[int, ...]:
    """Returns the indices into ``agents`` of the present ones, ascending. Raises: BadInput if there are none."""
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
    """Checks rows. Raises: BadInput if there are none, or a row lacks a wanted score or answer of some agent."""
    if not rows or not agents:
        raise BadInput("a router needs at least one training task and one worker to be fitted")
    for number, row in enumerate(rows):
        for wanted, known, what in ((scores, row.scores, "score"), (answers, row.answers, "answer")):
            missing = [agent for agent in agents if agent not in known] if wanted else []
            if missing:
                raise BadInput(f"training row {number} has no {what} of {', '.join(missing)}")
