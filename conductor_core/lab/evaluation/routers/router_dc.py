"""RouterDC: one worker per task, by the nearest worker embedding. Imports torch and scikit-learn.

It follows "RouterDC: Query-Based Router by Dual Contrastive Learning for Assembling Large Language Models"
(arXiv 2409.19886, section 3). A query x is encoded as E(x), each worker t has a learned embedding k_t, and x goes to
the worker with the largest cos(E(x), k_t). Two contrastive losses are summed:

- sample-LLM pulls E(x) to each of the K+ best workers of x and pushes it away from its K- worst;
- sample-sample, weight lambda, pulls E(x) to a query of its cluster and pushes it away from H queries of others.

As in the paper: K+ = K- = H = 3, lambda = 1, 5 clusters, temperature 1, AdamW, 1,000 steps of 64 queries. No query is
pulled to a worker that scored nothing, or pushed away from one that scored half or more.

Departures:
1. The encoder is frozen features (``encoder``: TF-IDF and SVD) with a trained layer above, where the
   paper fine-tunes mDeBERTaV3-base; hence a learning rate of 1e-3 and not 5e-5.
2. Clusters: k-means on the SVD vectors, which have few dimensions. The paper first reduces the encoder's by t-SNE.
3. Equal scores get a random order in each batch: right-or-wrong scores are equal most of the time, and any fixed order
   would teach a preference for the first workers.
4. The positive query of the second loss is another query; drawing x itself would teach nothing.
5. In pools of fewer than six, K+ and K- are at most half of the pool, so that no worker is in both groups.
6. The last weights are kept. No checkpoint is chosen by its score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn import functional

from conductor_core.lab.evaluation.routers.encoder import (
    Arrays,
    Fitted,
    TfidfEncoder,
    numbers_of,
    reproducible,
    with_numbers,
)
from conductor_core.lab.evaluation.routers.workflows import TrainingRow, ask, check_rows, known_indices
from conductor_core.workflow.model import Workflow

_EMBEDDING_STD = 0.78
"""Standard deviation of the workers' embeddings before training, as in the paper's released code."""


# The paper's settings, and those of departure 1.
TOP_K = LAST_K = NEGATIVES = 3
CLUSTERS, STEPS, BATCH = 5, 1000, 64
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.01
FEATURES, HIDDEN = 128, 64
"""Lengths of the encoder's vectors, and of E(x) and the workers' embeddings."""


def sample_llm_loss(similarity: Tensor, scores: Tensor, *, top_k: int, last_k: int) -> Tensor:
    """Returns equation 3: the sum of contrastive losses over a query's positives, as the mean over the batch.

    Args:
        similarity: cos(E(x), k_t), shape (queries, workers). scores: the same shape. Among equal scores
            the earlier column is the better worker; the caller shuffles columns to break ties.
    """
    order = scores.argsort(dim=1, descending=True, stable=True)
    positives, negatives = order[:, :top_k], order[:, order.shape[1] - last_k :]
    pushed = similarity.gather(1, negatives).masked_fill(scores.gather(1, negatives) >= 0.5, float("-inf"))
    drawn = similarity.gather(1, positives)
    # Each positive is compared with the same negatives: (queries, K+, 1 + K-).
    against = torch.cat([drawn[:, :, None], pushed[:, None, :].expand(-1, drawn.shape[1], -1)], dim=2)
    losses = against.logsumexp(dim=2) - drawn
    return (losses * (scores.gather(1, positives) > 0)).sum(dim=1).mean()


def sample_sample_loss(similarity: Tensor) -> Tensor:
    """Returns equation 4: the contrastive loss of column 0 (own cluster) against the others; shape (queries, 1 + H)."""
    return (similarity.logsumexp(dim=1) - similarity[:, 0]).mean()


def draw_pairs(clusters: Tensor, negatives: int) -> tuple[Tensor, Tensor]:
    """Draws pairs for each query whose batch has another query of its cluster and ``negatives`` of other clusters.

    Returns: row indices, shape (n,), and column indices, shape (n, 1 + negatives), the query of its own cluster first.
    """
    same = clusters[:, None] == clusters[None, :]
    others = ~same
    same = same & ~torch.eye(len(clusters), dtype=torch.bool)
    rows = torch.nonzero(same.any(dim=1) & (others.sum(dim=1) >= negatives))[:, 0]
    if not len(rows):
        return rows, torch.zeros((0, 1 + negatives), dtype=torch.long)
    near = torch.multinomial(same[rows].float(), 1)
    far = torch.multinomial(others[rows].float(), negatives)
    return rows, torch.cat([near, far], dim=1)


class _Module(nn.Module):
    """The trained layer of E(x) above the frozen features, and the workers' embeddings."""

    def __init__(self, features: int, agents: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, HIDDEN)
        self.agents = nn.Parameter(torch.randn(agents, HIDDEN) * _EMBEDDING_STD)

    def encode(self, features: Tensor) -> Tensor:
        """Returns vectors of length 1, shape (queries, hidden)."""
        return functional.normalize(self.layer(features), dim=1)

    def similarity(self, encoded: Tensor) -> Tensor:
        return encoded @ functional.normalize(self.agents, dim=1).T


@dataclass(eq=False)
class RouterDC(Fitted):
    """A fitted router. ``numbers``: the weights of its module."""

    kind = "router_dc"
    encoder: TfidfEncoder
    numbers: Arrays

    def __post_init__(self) -> None:
        size, agents = self.encoder.size, len(self.agents)
        self._module = with_numbers(lambda: _Module(size, agents), self.numbers)

    def similarities(self, question: str) -> dict[str, float]:
        """Returns cos(E(question), k_t) for every worker on which it was fitted."""
        with torch.inference_mode():
            encoded = self._module.encode(torch.from_numpy(self.encoder.encode([question])))
            row = self._module.similarity(encoded)[0]
        return {agent: float(value) for agent, value in zip(self.agents, row, strict=True)}

    def route(self, question: str, present: Sequence[str]) -> Workflow:
        """Returns one step that asks the nearest present worker. Raises: BadInput if it knows none of them."""
        similarities = self.similarities(question)
        return ask(
            (max((self.agents[index] for index in known_indices(self.agents, present)), key=similarities.__getitem__),)
        )


def fit(rows: Sequence[TrainingRow], agents: Sequence[str], *, seed: int, steps: int = STEPS) -> RouterDC:
    """Trains on each row's question and scores. 500 rows take some seconds.

    Raises: BadInput if a row lacks an agent's score.
    """
    check_rows(rows, agents, scores=True)
    questions = [row.question for row in rows]
    encoder = TfidfEncoder.fit(questions, size=FEATURES, digits=False, seed=seed)
    vectors = encoder.encode(questions)
    clusters = KMeans(min(CLUSTERS, len(np.unique(vectors, axis=0))), random_state=seed, n_init=4)
    scores = torch.tensor([[row.scores[agent] for agent in agents] for row in rows], dtype=torch.float32)
    with reproducible(seed):
        module = _Module(encoder.size, len(agents))
        _train(module, torch.from_numpy(vectors), scores, torch.from_numpy(clusters.fit_predict(vectors)), steps)
    return RouterDC(tuple(agents), encoder, numbers_of(module))


def _train(module: _Module, vectors: Tensor, scores: Tensor, clusters: Tensor, steps: int) -> None:
    agents = scores.shape[1]
    half = max(1, agents // 2)
    top_k, last_k = min(TOP_K, half), min(LAST_K, half)
    optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for _ in range(steps):
        batch = torch.randint(len(vectors), (BATCH,))
        encoded = module.encode(vectors[batch])
        columns = torch.randperm(agents)
        similarity = module.similarity(encoded)[:, columns]
        loss = sample_llm_loss(similarity, scores[batch][:, columns], top_k=top_k, last_k=last_k)
        rows, others = draw_pairs(clusters[batch], NEGATIVES)
        if len(rows):
            pairs = (encoded @ encoded.T)[rows].gather(1, others)
            loss = loss + sample_sample_loss(pairs)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
