"""Smoothie asks every worker and keeps the answer that the others agree with most. It needs no labels.

It follows "Smoothie: Label Free Language Model Routing" (arXiv 2412.04692, sections 3 and 4). It treats the embeddings
of the workers' outputs as noisy views of an unseen right output. Worker i is off by a squared distance e_i, and errors
of different workers are independent. Then the expected squared distance of two workers' outputs is e_i + e_j, and any
third worker solves it: e_i = (d_ij + d_ik - d_jk) / 2, averaged over all pairs j, k. The quality score is
theta_i = size / (2 e_i), and the worker with the largest score is chosen.

- independent: the distances are means over all queries, which gives one ranking for all;
- dependent: they are means over the query and its nearest neighbours, by the embedding of the questions.

The scores of a query are estimated from outputs for the same query, so all workers are called and all calls count
(Table 7 of arXiv 2512.04388: 9,909 tokens per query).

Departures:
1. Outputs are embedded by TF-IDF of words and characters, without an SVD, where the paper uses SentenceBERT
   (all-mpnet-base-v2).
2. The other queries are those of the training split, with their stored outputs. The paper takes the other queries of
   the test split, all at once. Here a query's choice depends on no other test query, so that an evaluation can be
   interrupted and resumed.
3. 20 queries count for the dependent variant, the query itself among them, as in the released scripts; ``neighbours``
   sets another number (1: the query alone).
4. Workers are ordered by e_i and not by theta_i, which is the same for e_i > 0. With few samples an estimate may be
   negative, and theta_i would then reverse the order.
5. With two outputs nobody can say which is off. They are ordered by what the training split says of all workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.routers.encoder import Fitted, TfidfEncoder, unit_rows
from conductor_core.lab.evaluation.routers.workflows import TrainingRow, ask, check_rows, known_indices
from conductor_core.workflow.model import Workflow

Variant = Literal["independent", "dependent"]
NEIGHBOURS = 20
QUESTION_FEATURES = 128


def squared_distances(outputs: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the squared distances between all rows of ``outputs`` (workers, size), shape (workers, workers)."""
    wide = outputs.astype(np.float64)
    inner = wide @ wide.T
    lengths = inner.diagonal()
    return np.maximum(lengths[:, None] + lengths[None, :] - 2 * inner, 0.0)


def triplet_errors(distances: NDArray[Any]) -> NDArray[np.float64]:
    """Returns e_i of each worker from mean squared distances (workers, workers), for three workers or more."""
    count = len(distances)
    errors = np.zeros(count)
    for worker in range(count):
        first, second = (np.delete(np.arange(count), worker)[pair] for pair in np.triu_indices(count - 1, k=1))
        errors[worker] = np.mean(distances[worker, first] + distances[worker, second] - distances[first, second]) / 2
    return errors


@dataclass(eq=False)
class Smoothie(Fitted):
    """A fitted router. See the module.

    Attributes:
        questions: encodes questions; answers: encodes outputs.
        vectors: of the training questions, shape (rows, size).
        distances: of the workers' outputs for each of them, shape (rows, workers, workers).
    """

    kind = "smoothie"
    questions: TfidfEncoder
    answers: TfidfEncoder
    vectors: NDArray[np.float32]
    distances: NDArray[np.float64]
    variant: Variant
    neighbours: int

    def route(self, question: str, present: Sequence[str]) -> Workflow:
        """Returns a workflow that asks every present worker it knows. Raises: BadInput if it knows none of them.

        The last step's answer is not the router's answer; ``choose`` selects that one.
        """
        return ask(tuple(self.agents[index] for index in known_indices(self.agents, present)))

    def choose(self, question: str, outputs: Mapping[str, str]) -> str:
        """Returns the worker whose output is kept, among those in ``outputs`` (by worker); the first of equals.

        A worker without an output, or with an empty one, is left out. Raises: BadInput if none is left.
        """
        here = np.array(known_indices(self.agents, [agent for agent, output in outputs.items() if output.strip()]))
        if len(here) < 3:
            overall = self._errors_of_all()
            return self.agents[int(here[overall[here].argmin()])]
        own = squared_distances(self.answers.encode([outputs[self.agents[index]] for index in here]))
        others = self.distances[np.ix_(self._near(question), here, here)]
        errors = triplet_errors((others.sum(axis=0) + own) / (len(others) + 1))
        return self.agents[int(here[errors.argmin()])]

    def _errors_of_all(self) -> NDArray[np.float64]:
        distances = self.distances.mean(axis=0)
        # With two workers in all both are equal, and the first is taken.
        return triplet_errors(distances) if len(self.agents) > 2 else distances.sum(axis=1)

    def _near(self, question: str) -> NDArray[np.int64]:
        """Returns the training rows that count besides the query itself."""
        if self.variant == "independent":
            return np.arange(len(self.vectors))
        similarity = self.vectors @ self.questions.encode([question])[0]
        return np.argsort(-similarity, kind="stable")[: self.neighbours - 1]


def fit(
    rows: Sequence[TrainingRow],
    agents: Sequence[str],
    *,
    seed: int,
    variant: Variant = "dependent",
    neighbours: int = NEIGHBOURS,
) -> Smoothie:
    """Keeps the distances between the workers' answers to each row; it does not use scores.

    Raises: BadInput if a row lacks an agent's answer, or ``neighbours`` is less than one.
    """
    check_rows(rows, agents, answers=True)
    if neighbours < 1:
        raise BadInput("Smoothie needs at least one query to estimate from: neighbours must be 1 or more")
    texts = [row.question for row in rows]
    questions = TfidfEncoder.fit(texts, size=QUESTION_FEATURES, digits=False, seed=seed)
    outputs = [row.answers[agent] for row in rows for agent in agents]
    answers = TfidfEncoder.fit(outputs, size=None, digits=True, seed=seed)
    distances = np.stack([squared_distances(answers.encode([row.answers[agent] for agent in agents])) for row in rows])
    vectors = unit_rows(questions.encode(texts))
    return Smoothie(tuple(agents), questions, answers, vectors, distances, variant, neighbours)
