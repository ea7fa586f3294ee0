"""Who is chosen for a role, by description alone."""

import random

import pytest

from conductor_core.conductors.short_prompt import DESCRIPTION_CHARACTERS
from conductor_core.training.skills import ROLES, SKILLS, Profile, cast, draw_pool, fitness

POOL = (
    Profile("writes prose", ("writing",)),
    Profile("plans", ("planning",)),
    Profile("codes, checks", ("coding", "checking")),
    Profile("does most things", ("general",)),
)


def test_each_role_goes_to_the_fittest() -> None:
    assert cast(("plan", "code", "write"), POOL) == (1, 2, 0)
    assert cast(("translate",), POOL) == (0,)


def test_another_opinion_is_asked_of_somebody_else_while_there_is_one() -> None:
    assert cast(("check", "check!"), POOL)[0] == 2
    assert len(set(cast(("check", "check!", "check!", "check!"), POOL))) == 4
    assert cast(("check", "check!"), POOL[:1]) == (0, 0)


def test_a_role_can_go_to_the_agent_of_an_earlier_step() -> None:
    assert cast(("plan", "code", "=0"), POOL) == (1, 2, 1)


def test_who_is_described_as_weak_is_passed_over() -> None:
    strong, weak = Profile("codes", ("coding",)), Profile("codes badly", ("coding",), weak="coding")
    assert fitness(strong, "code") > fitness(weak, "code")


@pytest.mark.parametrize("role", ROLES)
def test_every_role_wants_skills_that_exist(role: str) -> None:
    assert set(ROLES[role]) <= set(SKILLS)


def test_descriptions_fit_into_the_prompt() -> None:
    rng = random.Random(0)
    pools = [draw_pool(rng) for _ in range(300)]
    assert {len(pool) for pool in pools} == set(range(1, 10))
    strongest = [worker for pool in pools for worker in pool if worker.weak is None]
    assert all(len(worker.description) <= DESCRIPTION_CHARACTERS for worker in strongest)
