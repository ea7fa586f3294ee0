from dataclasses import replace
from math import exp, inf, log
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.orchestrators import SOLVE
from conductor_core.lab.evaluation.routers.router_dc import (
    RouterDC,
    draw_pairs,
    fit,
    sample_llm_loss,
    sample_sample_loss,
)
from tests.support.routing import AGENTS, BEST, question, world

QUICK = 150
"""Steps of a training."""
KINDS, ROWS = world(160, seed=1)


def contrast(positive: float, *negatives: float) -> float:
    return -log(exp(positive) / (exp(positive) + sum(exp(each) for each in negatives)))


def test_the_sample_llm_loss_by_hand() -> None:
    similarity = torch.tensor([[0.5, -0.2, 0.1, 0.3]])
    scores = torch.tensor([[1.0, 0.9, 0.2, 0.0]])
    loss = sample_llm_loss(similarity, scores, top_k=2, last_k=2)
    assert loss.item() == pytest.approx(contrast(0.5, 0.1, 0.3) + contrast(-0.2, 0.1, 0.3))


def test_a_worker_that_scored_nothing_is_not_drawn_to_and_a_good_one_is_not_pushed_away() -> None:
    similarity = torch.tensor([[0.5, -0.2, 0.1, 0.3], [0.4, 0.3, 0.2, 0.1]])
    scores = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.6, 0.1]])
    loss = sample_llm_loss(similarity, scores, top_k=2, last_k=2)
    first = contrast(0.5, 0.1, 0.3)
    second = contrast(0.4, 0.1) + contrast(0.3, 0.1)
    assert loss.item() == pytest.approx((first + second) / 2)


def test_where_all_or_none_are_right_there_is_nothing_to_learn() -> None:
    similarity = torch.tensor([[0.5, -0.2], [0.5, -0.2]], requires_grad=True)
    loss = sample_llm_loss(similarity, torch.tensor([[1.0, 1.0], [0.0, 0.0]]), top_k=1, last_k=1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert similarity.grad is not None
    assert torch.equal(similarity.grad, torch.zeros(2, 2))


def test_the_sample_sample_loss_by_hand() -> None:
    loss = sample_sample_loss(torch.tensor([[0.9, 0.1, -0.3], [0.2, 0.2, 0.2]]))
    assert loss.item() == pytest.approx((contrast(0.9, 0.1, -0.3) + log(3)) / 2)


def test_pairs_are_of_the_same_cluster_and_the_rest_of_others() -> None:
    torch.manual_seed(0)
    clusters = torch.tensor([0, 0, 1, 1, 1, 2])
    rows, columns = draw_pairs(clusters, 3)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    for row, (near, *far) in zip(rows.tolist(), columns.tolist(), strict=True):
        assert near != row
        assert clusters[near] == clusters[row]
        assert len(set(far)) == 3
        assert all(clusters[each] != clusters[row] for each in far)
    assert len(draw_pairs(torch.tensor([0, 0, 0]), 1)[0]) == 0


def test_it_learns_which_worker_is_for_which_kind() -> None:
    router = fit(ROWS, AGENTS, seed=0, steps=QUICK)
    rng = Random(9)
    asked = [(kind, question(kind, rng)) for kind in BEST for _ in range(20)]
    routed = [router.route(text, AGENTS) for _, text in asked]
    assert sum(flow.steps[0].agent == BEST[kind] for (kind, _), flow in zip(asked, routed, strict=True)) >= 38
    assert all(len(flow.steps) == 1 and flow.steps[0].instruction == SOLVE for flow in routed)


def test_workers_that_are_absent_are_not_routed_to() -> None:
    router = fit(ROWS, AGENTS, seed=0, steps=QUICK)
    for row, kind in zip(ROWS[:20], KINDS[:20], strict=True):
        rest = [agent for agent in AGENTS if agent != BEST[kind]]
        nearest = max(rest, key=router.similarities(row.question).__getitem__)
        assert router.route(row.question, rest).steps[0].agent == nearest
    with pytest.raises(BadInput, match="knows none of the available workers"):
        router.route("Add 1 and 2.", ["eve"])


def test_the_same_seed_gives_the_same_router_and_leaves_other_draws_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, again, other = (fit(ROWS, AGENTS, seed=seed, steps=5) for seed in (3, 3, 4))
    assert torch.equal(torch.rand(1), expected)
    assert one.similarities("Add 1 and 2.") == again.similarities("Add 1 and 2.")
    assert one.similarities("Add 1 and 2.") != other.similarities("Add 1 and 2.")

    one.save(tmp_path / "router")
    loaded = RouterDC.load(tmp_path / "router")
    assert loaded.agents == AGENTS
    np.testing.assert_allclose(
        list(loaded.similarities("Add 1 and 2.").values()), list(one.similarities("Add 1 and 2.").values()), atol=1e-6
    )


def test_small_pools_and_few_rows_are_enough() -> None:
    router = fit(ROWS[:2], AGENTS[:1], seed=0, steps=3)
    assert router.route("Add 1 and 2.", AGENTS).steps[0].agent == "ann"
    assert all(abs(value) < inf for value in fit(ROWS, AGENTS[:2], seed=0, steps=QUICK).similarities("Add").values())


def test_what_cannot_be_fitted_on_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="row 1 has no score of eve"):
        fit([replace(ROWS[0], scores={"eve": 1.0}), ROWS[1]], ["eve"], seed=0)
    with pytest.raises(BadInput, match="at least one training task"):
        fit([], AGENTS, seed=0)
    with pytest.raises(BadInput, match="no fitted router that can be read"):
        RouterDC.load(tmp_path)
