"""What all routers share, with nothing heavy imported: the workflows they return, their training rows, their interface.

The workflows are workers asked side by side, and the teams of MasRouter.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol, get_args

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.orchestrators import AGGREGATE, SOLVE
from conductor_core.workflow.model import AccessList, Step, Workflow

Mode = Literal["direct", "thought", "chain", "full", "debate", "reflection"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""The collaboration modes of MasRouter's released set: IO, CoT, Chain, FullConnected, Debate and Reflection."""

ROLES: Mapping[str, str] = MappingProxyType(
    {
        "solver": SOLVE,
        "planner": "Make a plan for the following task, without solving it yet: {question}",
        "calculator": "Compute every figure that the following task needs and state the final answer: {question}",
        "programmer": "Write a program for the following task, go through it, and state the final answer: {question}",
        "expert": "Answer the following from what is known in its field, with the reason: {question}",
        "inspector": "Check every step of what is above for mistakes and state the corrected answer to: {question}",
        "writer": "State the final answer to the following task in exactly the form that it asks for: {question}",
    }
)
"""The first words to an agent of a team, by its role: those of the paper's 26 roles that suit more than one subject."""

THOUGHT = " Think step by step before you answer."
DEBATE = (
    "Compare the answers above with your own, say where they differ and why, and state the answer that you now hold "
    "to: {question}"
)
REFLECTION = "Check your answer above for mistakes and state the corrected answer to: {question}"


def ask(agents: Sequence[str]) -> Workflow:
    """Returns a workflow in which each worker gets the single-worker baseline's words, and none sees another."""
    return Workflow(steps=tuple(Step(instruction=SOLVE, agent=agent) for agent in agents))


def team(mode: Mode, members: Sequence[tuple[str, str]]) -> Workflow:
    """Returns the workflow of ``members`` (role and worker each) in ``mode``.

    With one agent, its last step is the answer. With several, one more step reads all their answers; its worker is the
    most frequent one among them, the first of equals.
    """
    steps: list[Step] = []
    for index, (role, agent) in enumerate(members):
        reads: AccessList = ()
        if mode == "chain":
            reads = (index - 1,) if index else ()
        elif mode == "full":
            reads = tuple(range(index))
        instruction = ROLES[role] + (THOUGHT if mode == "thought" else "")
        steps.append(Step(instruction=instruction, agent=agent, access_list=reads))
    first_round = tuple(range(len(members)))
    if mode == "debate":
        steps += [Step(instruction=DEBATE, agent=agent, access_list=first_round) for _, agent in members]
    if mode == "reflection":
        steps += [
            Step(instruction=REFLECTION, agent=agent, access_list=(own,)) for own, (_, agent) in enumerate(members)
        ]
    if len(members) > 1:
        last = Counter(agent for _, agent in members).most_common(1)[0][0]
        answers = tuple(range(len(steps) - len(members), len(steps)))
        steps.append(Step(instruction=AGGREGATE, agent=last, access_list=answers))
    return Workflow(steps=tuple(steps))


# Rows and interface.

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


ROUTER = "router.json"
"""The last file that is written when a fitted router is saved (``encoder.write``)."""


class Router(Protocol):
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
            f"this router was fitted on {', '.join(agents)} and knows none of the available workers "
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
