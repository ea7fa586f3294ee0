"""MasRouter: a team for each task, with its collaboration mode, size, roles and workers. Imports torch.

It follows "MasRouter: Learning to Route LLMs for Multi-Agent Systems" (arXiv 2502.11133, section 4). A controller makes
one choice after the other, each given the earlier ones. A latent z of the query (a variational encoder) gives the
collaboration mode and the number of agents. Roles follow one by one, each given the mode and the roles so far. Each
agent gets its worker. The controller is trained by policy gradient on score minus lambda times cost, plus the encoder's
evidence lower bound with weight 0.001 (as in the released code).

Departures:
1. The query is frozen features (``encoder``), where the paper uses MiniLM sentence embeddings.
2. Modes, roles and workers are learned embeddings, not encoded descriptions, so a new worker needs a new fit. A worker
   that is absent from a pool is left out of the choice.
3. The number of agents is a choice with its own probability. The paper rounds a number between 1 and 6, through which
   no gradient of the score passes. At most 4 here: teams are at most 9 calls.
4. A worker is drawn for each agent given its own role, where the paper draws all from one multinomial given the mode
   and the roles; that lets the role decide, which can only help.
5. One set of roles for all tasks, and no domain classifier trained on labels of the tasks' domains.
6. A team of one has no deciding step; the released code always has one.
7. The gradient has a baseline (the mean of the query's other draws) and an entropy bonus, and ``draws`` teams are
   rewarded for each query. The paper has none of these.
8. Cost is tokens, not USD, since the simulated pool is free of charge.
9. Routing takes z's mean and the most likely choice each time; the released code draws at test time too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.routers.encoder import (
    Arrays,
    Fitted,
    TfidfEncoder,
    numbers_of,
    reproducible,
    with_numbers,
)
from conductor_core.lab.evaluation.routers.workflows import (
    MODES,
    ROLES,
    Reward,
    TrainingRow,
    check_rows,
    known_indices,
    team,
)
from conductor_core.workflow.model import Workflow

_ROLES = tuple(ROLES)


@dataclass(frozen=True)
class MasRouterConfig:
    """Settings of the controller and of its training.

    Attributes:
        cost_per_1k_tokens: lambda, in units of score. prior_std: deviation of z's normal prior. elbo: weight of the
            encoder's loss. draws: teams per query in one step, at least two. features: length of the encoder's vectors.
    """

    max_agents: int = 4
    cost_per_1k_tokens: float = 0.05
    epochs: int = 20
    batch: int = 32
    draws: int = 4
    learning_rate: float = 6e-3
    entropy: float = 0.01
    elbo: float = 0.001
    prior_std: float = 0.1
    features: int = 128
    hidden: int = 64


@dataclass(frozen=True)
class TeamChoices:
    """A batch of teams, as indices. Only the first ``count`` agents belong to a team.

    Attributes:
        mode, count: shape (teams,); roles, workers: (teams, max_agents).
        log_prob, entropy: sums over all choices of a team, shape (teams,).
    """

    mode: Tensor
    count: Tensor
    roles: Tensor
    workers: Tensor
    log_prob: Tensor
    entropy: Tensor

    def workflow(self, index: int, agents: Sequence[str]) -> Workflow:
        members = [
            (_ROLES[int(self.roles[index, place])], agents[int(self.workers[index, place])])
            for place in range(int(self.count[index]))
        ]
        return team(MODES[int(self.mode[index])], members)


class Controller(nn.Module):
    """The chain of choices. Logits are inner products of a context with learned embeddings."""

    def __init__(self, features: int, agents: int, config: MasRouterConfig) -> None:
        super().__init__()
        hidden = config.hidden
        self.encode_query = nn.Linear(features, hidden)
        self.mean, self.log_var = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.decode_latent, self.decode = nn.Linear(hidden, hidden), nn.Linear(hidden, features)
        self.modes = nn.Parameter(torch.randn(len(MODES), hidden) * 0.1)
        self.roles = nn.Parameter(torch.randn(len(ROLES), hidden) * 0.1)
        self.workers = nn.Parameter(torch.randn(agents, hidden) * 0.1)
        self.number = nn.Linear(hidden, config.max_agents)
        self.role_context = nn.Linear(3 * hidden, hidden)
        self.worker_context = nn.Linear(4 * hidden, hidden)
        self._features = features
        self._prior_std = config.prior_std
        self._max_agents = config.max_agents

    def latent(self, vectors: Tensor, *, sample: bool) -> tuple[Tensor, Tensor]:
        """Returns z of queries, shape (queries, hidden), and their negative evidence lower bounds, shape (queries,).

        ``vectors`` have length 1; they are scaled so that their entries are about 1 too.
        """
        scaled = vectors * self._features**0.5
        hidden = functional.relu(self.encode_query(scaled))
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        std = (0.5 * log_var).exp() * self._prior_std
        latent = mean + torch.randn_like(std) * std if sample else mean
        rebuilt = self.decode(functional.relu(self.decode_latent(latent)))
        error = (rebuilt - scaled).square().mean(dim=1)
        divergence = 0.5 * (mean.square() / self._prior_std**2 + log_var.exp() - 1 - log_var).mean(dim=1)
        return latent, error + divergence

    def choose(self, latent: Tensor, present: Tensor, *, sample: bool) -> TeamChoices:
        """Chooses teams. ``present``: whether each worker may be chosen, shape (workers,), true or false."""
        log_prob, entropy = torch.zeros(len(latent)), torch.zeros(len(latent))

        def pick(logits: Tensor, counts: Tensor | None = None) -> Tensor:
            nonlocal log_prob, entropy
            log_probs = logits.log_softmax(dim=1)
            probs = log_probs.exp()
            chosen = torch.multinomial(probs, 1)[:, 0] if sample else probs.argmax(dim=1)
            own = log_probs.gather(1, chosen[:, None])[:, 0]
            # An absent worker has probability 0 and adds nothing to the entropy.
            spread = -(probs * log_probs.masked_fill(probs == 0, 0.0)).sum(dim=1)
            log_prob = log_prob + (own if counts is None else own * counts)
            entropy = entropy + (spread if counts is None else spread * counts)
            return chosen

        mode = pick(latent @ self.modes.T)
        in_mode = self.modes[mode]
        count = 1 + pick(self.number(latent))
        history = torch.zeros_like(latent)
        roles, workers = [], []
        for place in range(self._max_agents):
            counts = (count > place).float()
            context = functional.relu(self.role_context(torch.cat([latent, in_mode, history], dim=1)))
            role = pick(context @ self.roles.T, counts)
            own = self.roles[role]
            context = functional.relu(self.worker_context(torch.cat([latent, in_mode, history, own], dim=1)))
            worker = pick((context @ self.workers.T).masked_fill(~present, float("-inf")), counts)
            history = functional.layer_norm(history + own, history.shape[1:])
            roles.append(role)
            workers.append(worker)
        return TeamChoices(mode, count, torch.stack(roles, dim=1), torch.stack(workers, dim=1), log_prob, entropy)


def policy_loss(log_prob: Tensor, utility: Tensor) -> Tensor:
    """Returns the policy gradient's loss: each draw against the mean of its query's others. Both are (queries, draws).

    Its gradient is that of the negative expected utility (score minus cost).
    """
    draws = utility.shape[1]
    others = (utility.sum(dim=1, keepdim=True) - utility) / (draws - 1)
    return -((utility - others).detach() * log_prob).mean()


@dataclass(eq=False)
class MasRouter(Fitted):
    """A fitted router. ``numbers``: the weights of its controller."""

    kind = "mas_router"
    encoder: TfidfEncoder
    numbers: Arrays
    config: MasRouterConfig

    def __post_init__(self) -> None:
        size, agents = self.encoder.size, len(self.agents)
        self._controller = with_numbers(lambda: Controller(size, agents, self.config), self.numbers)

    def route(self, question: str, present: Sequence[str]) -> Workflow:
        """Returns the most likely team of present workers. Raises: BadInput if it knows none of them."""
        here = torch.zeros(len(self.agents), dtype=torch.bool)
        here[list(known_indices(self.agents, present))] = True
        with torch.inference_mode():
            latent, _ = self._controller.latent(torch.from_numpy(self.encoder.encode([question])), sample=False)
            return self._controller.choose(latent, here, sample=False).workflow(0, self.agents)


def fit(
    rows: Sequence[TrainingRow],
    agents: Sequence[str],
    *,
    reward: Reward,
    seed: int,
    config: MasRouterConfig | None = None,
) -> MasRouter:
    """Trains on each row's question and on the rewards of the teams tried for it.

    A team's reward is asked for once per row, so a row needs at most ``epochs * draws`` rewards.

    Raises: BadInput if there is nothing to train on, or fewer than two draws are asked for.
    """
    check_rows(rows, agents)
    config = config or MasRouterConfig()
    if config.draws < 2:
        raise BadInput("MasRouter compares the teams drawn for a task: draws must be 2 or more")
    questions = [row.question for row in rows]
    encoder = TfidfEncoder.fit(questions, size=config.features, digits=False, seed=seed)
    with reproducible(seed):
        controller = Controller(encoder.size, len(agents), config)
        _train(controller, torch.from_numpy(encoder.encode(questions)), agents, reward, config)
    return MasRouter(tuple(agents), encoder, numbers_of(controller), config)


def _train(
    controller: Controller, vectors: Tensor, agents: Sequence[str], reward: Reward, config: MasRouterConfig
) -> None:
    present = torch.ones(len(agents), dtype=torch.bool)
    optimizer = torch.optim.Adam(controller.parameters(), lr=config.learning_rate)
    rewards: dict[tuple[int, Workflow], float] = {}
    for _ in range(config.epochs):
        for batch in torch.split(torch.randperm(len(vectors)), config.batch):
            latent, bound = controller.latent(vectors[batch].repeat_interleave(config.draws, dim=0), sample=True)
            choices = controller.choose(latent, present, sample=True)
            utility = []
            for draw, row in enumerate(batch.repeat_interleave(config.draws).tolist()):
                key = (row, choices.workflow(draw, agents))
                if key not in rewards:
                    score, tokens = reward(*key)
                    rewards[key] = score - config.cost_per_1k_tokens * tokens / 1000
                utility.append(rewards[key])
            shape = (len(batch), config.draws)
            loss = policy_loss(choices.log_prob.reshape(shape), torch.tensor(utility).reshape(shape))
            loss = loss - config.entropy * choices.entropy.mean() + config.elbo * bound.mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
