"""The published skill table."""

import re

import pytest

from conductor_core.rehearsal.families import DIFFICULTIES, FAMILIES
from conductor_core.rehearsal.skills import (
    GOOD_PLAN_LOGITS,
    POOR_PLAN_LOGITS,
    PROFILES,
    Profile,
    plan_chance,
    recompute_chance,
    rehearsal_specs,
    solve_chance,
)

VENDOR_WORDS = re.compile("gpt|claude|gemini|llama|qwen|gemma|deepseek|mistral|grok|openai|anthropic")


def test_seven_workers_with_neutral_names_that_cost_nothing_and_say_what_they_are() -> None:
    specs = rehearsal_specs()
    assert len({spec.name for spec in specs}) == 7
    for spec in specs:
        assert spec.simulated
        assert spec.model == f"rehearsal/{spec.name}"
        assert 0 < len(spec.description) <= 80
        assert spec.usd_per_mtok is not None
        assert (spec.usd_per_mtok.input, spec.usd_per_mtok.output) == (0, 0)
        assert not VENDOR_WORDS.search(f"{spec.name} {spec.description}".lower())


@pytest.mark.parametrize("worker", PROFILES, ids=lambda worker: str(worker.name))
def test_chances_are_ordered_as_described(worker: Profile) -> None:
    for family in FAMILIES:
        easy, medium, hard = (solve_chance(worker, family, difficulty) for difficulty in DIFFICULTIES)
        assert 0 < hard < medium < easy < 1
        assert medium == pytest.approx(worker.skills[family])
        assert recompute_chance(worker, family, "medium") == pytest.approx(worker.checks[family])
        for difficulty in DIFFICULTIES:
            alone = solve_chance(worker, family, difficulty)
            planned = solve_chance(worker, family, difficulty, help_logits=GOOD_PLAN_LOGITS[difficulty])
            assert planned > alone > solve_chance(worker, family, difficulty, help_logits=POOR_PLAN_LOGITS)
            other, own = (recompute_chance(worker, family, difficulty, own_work=own) for own in (False, True))
            assert other > own


def test_a_plan_helps_most_where_it_is_hardest() -> None:
    assert GOOD_PLAN_LOGITS["easy"] < GOOD_PLAN_LOGITS["medium"] < GOOD_PLAN_LOGITS["hard"]


def test_each_family_has_a_specialist_and_nobody_is_best_at_everything() -> None:
    best = {family: max(PROFILES, key=lambda worker: worker.skills[family]).name for family in FAMILIES}
    assert len(set(best.values())) >= 6
    assert best["code"] == "coder"
    assert best["facts"] == "scientist"
    assert max(PROFILES, key=lambda worker: plan_chance(worker, "hard")).name == "planner"
    assert min(PROFILES, key=lambda worker: sum(worker.skills.values())).name == "writer"


def test_the_coder_is_weak_at_strict_formats_and_the_cheap_writer_checks_them_best() -> None:
    assert min(PROFILES, key=lambda worker: worker.skills["format"]).name == "coder"
    assert max(PROFILES, key=lambda worker: worker.checks["format"]).name == "writer"
    others = [family for family in FAMILIES if family not in ("format", "facts", "code")]
    assert {max(PROFILES, key=lambda worker: worker.checks[family]).name for family in others} == {"verifier"}
