from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.routers.mas_router import Controller, MasRouter, MasRouterConfig, fit, policy_loss
from conductor_core.lab.evaluation.routers.workflows import DEBATE, MODES, ROLES
from conductor_core.workflow.model import Workflow
from tests.support.routing import AGENTS, BEST, question, world

KINDS, ROWS = world(100, seed=3)
QUICK = MasRouterConfig(epochs=16)

Reward = Callable[[int, Workflow], tuple[float, int]]


def paid(score: Callable[[int, Workflow], float]) -> Reward:
    """Every call costs 400 tokens."""
    return lambda index, workflow: (score(index, workflow), 400 * len(workflow.steps))


def test_the_policy_loss_by_hand() -> None:
    log_prob = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
    loss = policy_loss(log_prob, torch.tensor([[1.0, 0.0, 0.5]]))
    # Against the mean of the others: 1 - 0.25, 0 - 0.75, 0.5 - 0.5.
    assert loss.item() == pytest.approx(-(0.75 * -1 + -0.75 * -2) / 3)
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [pytest.approx([-0.25, 0.25, 0.0])]


def test_the_policy_gradient_is_that_of_the_expected_utility() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([0.3, -0.2, 0.1], requires_grad=True)
    worth = torch.tensor([1.0, 0.2, 0.5])
    (exact,) = torch.autograd.grad(-(logits.softmax(0) * worth).sum(), logits)
    drawn = torch.multinomial(logits.softmax(0).detach().expand(20_000, -1), 2, replacement=True)
    (estimate,) = torch.autograd.grad(policy_loss(logits.log_softmax(0)[drawn], worth[drawn]), logits)
    torch.testing.assert_close(estimate, exact, atol=0.01, rtol=0)


def test_the_probability_is_that_of_every_choice_made() -> None:
    config = MasRouterConfig(max_agents=2, hidden=8)
    torch.manual_seed(0)
    controller = Controller(features=4, agents=3, config=config)
    with torch.no_grad():
        for parameter in controller.parameters():
            parameter.zero_()
    latent = torch.zeros(50, 8)
    choices = controller.choose(latent, torch.tensor([True, False, True]), sample=True)
    # All weights zero: every choice is even, and one worker of three is absent.
    each = torch.log(torch.tensor(1 / len(ROLES))) + torch.log(torch.tensor(1 / 2))
    expected = torch.log(torch.tensor(1 / len(MODES))) + torch.log(torch.tensor(1 / 2)) + choices.count * each
    torch.testing.assert_close(choices.log_prob, expected)
    torch.testing.assert_close(choices.entropy, -expected)
    assert set(choices.workers.flatten().tolist()) == {0, 2}
    assert set(choices.count.tolist()) == {1, 2}


def test_the_evidence_bound_by_hand() -> None:
    config = MasRouterConfig(hidden=2, prior_std=0.1)
    controller = Controller(features=4, agents=3, config=config)
    with torch.no_grad():
        for parameter in controller.parameters():
            parameter.zero_()
        controller.mean.bias.copy_(torch.tensor([0.1, 0.0]))
    latent, bound = controller.latent(torch.tensor([[0.5, 0.5, 0.5, 0.5]]), sample=False)
    # The input, scaled by 2, is rebuilt as 0: error 1. The mean is one prior deviation off in one of two entries.
    assert latent.tolist() == [pytest.approx([0.1, 0.0])]
    assert bound.item() == pytest.approx(1 + 0.25)


def test_it_learns_which_worker_is_for_which_kind() -> None:
    reward = paid(lambda index, workflow: 0.9 if workflow.steps[-1].agent == BEST[KINDS[index]] else 0.3)
    router = fit(ROWS, AGENTS, reward=reward, seed=0, config=QUICK)
    rng = Random(9)
    asked = [(kind, question(kind, rng)) for kind in BEST for _ in range(20)]
    routed = [(kind, router.route(text, AGENTS)) for kind, text in asked]
    assert sum(flow.steps[-1].agent == BEST[kind] for kind, flow in routed) >= 36


def test_where_all_teams_do_equally_well_it_takes_the_cheapest() -> None:
    router = fit(ROWS, AGENTS, reward=paid(lambda _index, _workflow: 0.7), seed=0, config=QUICK)
    assert {len(router.route(row.question, AGENTS).steps) for row in ROWS} == {1}


def test_a_team_that_does_better_is_worth_its_cost() -> None:
    def score(_index: int, workflow: Workflow) -> float:
        return 0.9 if any(step.instruction == DEBATE for step in workflow.steps) else 0.2

    router = fit(ROWS, AGENTS, reward=paid(score), seed=0, config=QUICK)
    debates = [any(step.instruction == DEBATE for step in router.route(row.question, AGENTS).steps) for row in ROWS]
    assert sum(debates) >= 95


def test_a_team_is_asked_for_once_a_row() -> None:
    seen: list[tuple[int, Workflow]] = []

    def reward(index: int, workflow: Workflow) -> tuple[float, int]:
        seen.append((index, workflow))
        return 0.5, 100

    fit(ROWS[:8], AGENTS[:1], reward=reward, seed=0, config=replace(QUICK, max_agents=1))
    assert len(seen) == len(set(seen)) <= 8 * len(MODES) * len(ROLES)


def test_workers_that_are_absent_are_in_no_team() -> None:
    reward = paid(lambda index, workflow: 0.9 if workflow.steps[-1].agent == BEST[KINDS[index]] else 0.3)
    router = fit(ROWS, AGENTS, reward=reward, seed=0, config=replace(QUICK, epochs=2))
    for present in (["ann"], ["dan", "eve"], ["cid", "ann"]):
        named = {step.agent for row in ROWS[:30] for step in router.route(row.question, present).steps}
        assert named <= set(present) & set(AGENTS)
    with pytest.raises(BadInput, match="knows none"):
        router.route("Add 1 and 2.", ["eve"])


def test_the_same_seed_gives_the_same_router_saved_or_not(tmp_path: Path) -> None:
    reward = paid(lambda index, workflow: 0.9 if workflow.steps[-1].agent == BEST[KINDS[index]] else 0.3)
    one, again = (fit(ROWS, AGENTS, reward=reward, seed=4, config=replace(QUICK, epochs=2)) for _ in range(2))
    for name in ("one", "again"):
        {"one": one, "again": again}[name].save(tmp_path / name)
    files = [(tmp_path / name / "router.safetensors").read_bytes() for name in ("one", "again")]
    assert files[0] == files[1]
    loaded = MasRouter.load(tmp_path / "one")
    assert loaded.agents == AGENTS
    for row in ROWS[:20]:
        assert loaded.route(row.question, AGENTS) == one.route(row.question, AGENTS)


def test_what_cannot_be_fitted_or_loaded_is_named(tmp_path: Path) -> None:
    reward = paid(lambda _index, _workflow: 0.5)
    with pytest.raises(BadInput, match="draws must be 2 or more"):
        fit(ROWS, AGENTS, reward=reward, seed=0, config=MasRouterConfig(draws=1))
    fit(ROWS[:4], AGENTS, reward=reward, seed=0, config=MasRouterConfig(epochs=1)).save(tmp_path)
    other = (tmp_path / "router.json").read_text().replace("mas_router", "router_dc")
    (tmp_path / "router.json").write_text(other)
    with pytest.raises(BadInput, match="no fitted router of kind mas_router"):
        MasRouter.load(tmp_path)
