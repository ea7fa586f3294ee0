from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.orchestrators import SOLVE
from conductor_core.lab.evaluation.routers.smoothie import Smoothie, fit, squared_distances, triplet_errors
from tests.support.routing import AGENTS, BEST, question, world

KINDS, ROWS = world(120, seed=2)


def test_distances_by_hand() -> None:
    outputs = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    np.testing.assert_allclose(squared_distances(outputs), [[0, 25, 1], [25, 0, 18], [1, 18, 0]], atol=1e-9)


def test_a_triplet_by_hand() -> None:
    # Three workers off by 1, 2 and 5: each pair's distance is the sum of both.
    errors = triplet_errors(np.array([[0.0, 3, 6], [3, 0, 7], [6, 7, 0]]))
    np.testing.assert_allclose(errors, [1, 2, 5])


def test_with_more_workers_all_triplets_are_averaged() -> None:
    distances = np.array([[0.0, 3, 6, 4], [3, 0, 7, 9], [6, 7, 0, 8], [4, 9, 8, 0]])
    by_hand = [(3 + 6 - 7) / 2, (3 + 4 - 9) / 2, (6 + 4 - 8) / 2]
    assert triplet_errors(distances)[0] == pytest.approx(sum(by_hand) / 3)


def test_the_estimator_recovers_how_far_off_each_worker_is() -> None:
    rng = np.random.default_rng(0)
    spread = np.array([0.2, 0.5, 1.0, 2.0])
    queries, size = 3000, 8
    truth = rng.normal(size=(queries, 1, size)) * 3
    outputs = truth + rng.normal(size=(queries, 4, size)) * spread[None, :, None]
    distances = np.mean([squared_distances(each) for each in outputs], axis=0)
    np.testing.assert_allclose(triplet_errors(distances), size * spread**2, rtol=0.1, atol=0.05)


def score(router: Smoothie) -> float:
    kinds, rows = world(60, seed=8)
    return sum(row.scores[router.choose(row.question, row.answers)] for row in rows) / len(kinds)


def test_every_worker_is_asked_and_the_answer_that_others_agree_with_is_kept() -> None:
    router = fit(ROWS, AGENTS, seed=0)
    workflow = router.route(ROWS[0].question, AGENTS)
    assert [(step.agent, step.instruction, step.access_list) for step in workflow.steps] == [
        (agent, SOLVE, ()) for agent in AGENTS
    ]
    alone = max(np.mean([row.scores[agent] for row in world(60, seed=8)[1]]) for agent in AGENTS)
    assert score(fit(ROWS, AGENTS, seed=0, neighbours=5)) > alone + 0.1
    assert score(fit(ROWS, AGENTS, seed=0, neighbours=1)) > alone + 0.1


def test_the_independent_variant_ranks_the_workers_once_for_all() -> None:
    # One worker is always right, the rest hardly ever.
    rng = Random(0)
    rows = [
        replace(
            row,
            answers={
                agent: f"it is {number}" if agent == "dan" or rng.random() < 0.3 else f"no {rng.randint(1000, 9999)} x"
                for agent in AGENTS
            },
        )
        for number, row in enumerate(ROWS)
    ]
    router = fit(rows, AGENTS, seed=0, variant="independent")
    assert {router.choose(row.question, row.answers) for row in rows} == {"dan"}


def test_the_dependent_variant_listens_to_like_questions() -> None:
    router = fit(ROWS, AGENTS, seed=0, variant="dependent")
    rng = Random(4)
    # All outputs equally far apart: the query itself tells nothing, its neighbours all.
    outputs = {agent: word * 3 for agent, word in zip(AGENTS, ("qaqa ", "wewe ", "rtrt ", "zuzu "), strict=True)}
    for kind, best in BEST.items():
        chosen = [router.choose(question(kind, rng), outputs) for _ in range(20)]
        assert chosen.count(best) >= 14


def test_only_present_workers_are_asked_and_only_outputs_are_chosen_from() -> None:
    router = fit(ROWS, AGENTS, seed=0)
    assert [step.agent for step in router.route("Add 1 and 2.", ["dan", "eve", "bob"]).steps] == ["bob", "dan"]
    answers = ROWS[0].answers
    for present in (AGENTS[1:], AGENTS[:2], AGENTS[3:]):
        assert router.choose(ROWS[0].question, {agent: answers[agent] for agent in present}) in present
    assert router.choose(ROWS[0].question, {"ann": " ", "bob": "3"}) == "bob"
    with pytest.raises(BadInput, match="knows none"):
        router.choose(ROWS[0].question, {"ann": ""})
    with pytest.raises(BadInput, match="knows none"):
        router.route("Add 1 and 2.", [])


def test_two_workers_are_put_in_order_by_all_that_was_seen() -> None:
    router = fit(ROWS, AGENTS, seed=0, variant="independent")
    everything = router.choose(ROWS[0].question, dict.fromkeys(AGENTS, "the same"))
    rest = next(agent for agent in AGENTS if agent != everything)
    assert router.choose(ROWS[0].question, {rest: "this", everything: "that"}) == everything
    assert fit(ROWS, AGENTS[:2], seed=0).choose("Add 1 and 2.", {"ann": "3", "bob": "4"}) == "ann"


def test_a_saved_router_chooses_the_same(tmp_path: Path) -> None:
    router = fit(ROWS, AGENTS, seed=0, neighbours=7)
    router.save(tmp_path / "router")
    again = Smoothie.load(tmp_path / "router")
    assert (again.agents, again.variant, again.neighbours) == (AGENTS, "dependent", 7)
    for row in world(30, seed=5)[1]:
        assert again.choose(row.question, row.answers) == router.choose(row.question, row.answers)


def test_what_cannot_be_fitted_on_is_named() -> None:
    with pytest.raises(BadInput, match="row 0 has no answer of ann"):
        fit([replace(ROWS[0], answers={})], ["ann"], seed=0)
    with pytest.raises(BadInput, match="1 or more"):
        fit(ROWS, AGENTS, seed=0, neighbours=0)
