"""KindTable: one plan for each kind of task, with the kind read from the question's words. Imports scikit-learn.

This baseline is our own and in no paper. It shows how much of a score needs a language model, because it has none: a
linear classifier (multinomial logistic regression over TF-IDF n-grams) maps the question to its kind (family and
difficulty, as the training tasks name them), and a table holds the best plan found for each kind.

A local search finds the plan of a kind among workflows of at most four steps. Each step has a role of
``ROLES`` and a worker, and sees all earlier outputs or none. The search begins at the best single worker. A move gives
a step another role, another worker or the other access list, adds a step at the end or before it, or removes one. The
search makes the best move until none gains. A plan is worth its mean score on a few tasks of the kind, less a price per
token, as in MasRouter.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.routers.encoder import Fitted, TfidfEncoder
from conductor_core.lab.evaluation.routers.workflows import ROLES, Reward, TrainingRow, check_rows, known_indices
from conductor_core.workflow.model import Step, Workflow


class Call(NamedTuple):
    """One step of a plan. ``reads``: whether it sees all earlier outputs; if not, it sees none."""

    role: str
    agent: str
    reads: bool


Plan = tuple[Call, ...]


MAX_STEPS = 4
COST_PER_TOKEN = 0.05 / 1000
"""In units of score, as in MasRouter."""
TASKS_PER_KIND = 3
"""Number of training tasks of a kind on which a plan is tried."""


@dataclass(eq=False)
class KindTable(Fitted):
    """A fitted table. See the module.

    Attributes:
        kinds: the kinds in the order of the rows of ``weights``.
        weights: shape (kinds, features). bias: shape (kinds,).
        plans: plans by kind. alone: workers by kind, from the best one alone to the worst.
    """

    kind = "kind_table"
    encoder: TfidfEncoder
    kinds: tuple[str, ...]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    plans: dict[str, Plan]
    alone: dict[str, tuple[str, ...]]

    def kind_of(self, question: str) -> str:
        scores = self.weights @ self.encoder.encode([question])[0] + self.bias
        return self.kinds[int(scores.argmax())]

    def route(self, question: str, present: Sequence[str]) -> Workflow:
        """Returns the plan of the question's kind, or the best present worker for it if one of the plan is absent.

        Raises: BadInput if it knows no present worker.
        """
        known_indices(self.agents, present)
        kind = self.kind_of(question)
        plan = self.plans[kind]
        if any(call.agent not in present for call in plan):
            plan = (Call("solver", next(agent for agent in self.alone[kind] if agent in present), False),)
        return workflow_of(plan)


def fit(
    rows: Sequence[TrainingRow],
    agents: Sequence[str],
    *,
    reward: Reward,
    seed: int,
) -> KindTable:
    """Learns the kinds from all ``rows``, and searches each kind's plan by ``reward`` on its first tasks.

    Raises: BadInput if there are fewer than two kinds, or tasks without a named kind.
    """
    check_rows(rows, agents)
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        by_kind[row.kind].append(index)
    if "" in by_kind or len(by_kind) < 2:
        raise BadInput("kind-table needs training tasks of at least two kinds, each with its family or difficulty")
    kinds = sorted(by_kind)
    encoder = TfidfEncoder.fit([row.question for row in rows], size=None, digits=False, seed=seed)
    weights, bias = _classifier(encoder, rows, kinds)
    plans, alone = {}, {}
    for kind in kinds:
        worth = _Worth(reward, by_kind[kind][:TASKS_PER_KIND])
        alone[kind] = tuple(sorted(agents, key=lambda agent: -worth((Call("solver", agent, False),))))
        plans[kind] = best_plan(worth, alone[kind][0], agents)
    return KindTable(tuple(agents), encoder, tuple(kinds), weights, bias, plans, alone)


def workflow_of(plan: Plan) -> Workflow:
    return Workflow(
        steps=tuple(
            Step(instruction=ROLES[call.role], agent=call.agent, access_list=tuple(range(index)) if call.reads else ())
            for index, call in enumerate(plan)
        )
    )


def _classifier(
    encoder: TfidfEncoder, rows: Sequence[TrainingRow], kinds: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    vectors = encoder.encode([row.question for row in rows])
    numbers = {kind: number for number, kind in enumerate(kinds)}
    model = LogisticRegression(C=100.0, max_iter=1000)
    model.fit(vectors, [numbers[row.kind] for row in rows])
    weights, bias = model.coef_, model.intercept_
    if len(kinds) == 2:  # scikit-learn keeps one row for two classes
        weights, bias = np.vstack([-weights, weights]), np.concatenate([-bias, bias])
    return weights.astype(np.float32), bias.astype(np.float32)


class _Worth:
    """Computes a plan's worth on the tasks of one kind: mean score less the price of its tokens. Keeps each result."""

    def __init__(self, reward: Reward, tasks: Sequence[int]) -> None:
        self._reward, self._tasks = reward, tasks
        self._known: dict[Plan, float] = {}

    def __call__(self, plan: Plan) -> float:
        if plan not in self._known:
            workflow = workflow_of(plan)
            asked = [self._reward(task, workflow) for task in self._tasks]
            self._known[plan] = sum(score - COST_PER_TOKEN * tokens for score, tokens in asked) / len(asked)
        return self._known[plan]


def best_plan(worth: "_Worth", first: str, agents: Sequence[str]) -> Plan:
    """Searches from the worker ``first`` alone: makes the best move as long as one gains."""
    plan: Plan = (Call("solver", first, False),)
    while True:
        best = max(moves(plan, agents), key=worth)
        if worth(best) <= worth(plan):
            return plan
        plan = best


def moves(plan: Plan, agents: Sequence[str], max_steps: int = MAX_STEPS) -> Iterator[Plan]:
    for index, call in enumerate(plan):
        before, after = plan[:index], plan[index + 1 :]
        others = [Call(call.role, agent, call.reads) for agent in agents if agent != call.agent]
        others += [Call(role, call.agent, call.reads) for role in ROLES if role != call.role]
        if index:
            others.append(call._replace(reads=not call.reads))
        yield from ((*before, other, *after) for other in others)
        if len(plan) > 1:
            left = (*before, *after)
            yield (left[0]._replace(reads=False), *left[1:])
    if len(plan) < max_steps:
        for role in ROLES:
            for agent in agents:
                yield (*plan, Call(role, agent, True))
                yield (Call(role, agent, False), plan[0]._replace(reads=True), *plan[1:])
