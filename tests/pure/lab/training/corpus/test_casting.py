"""Who is chosen for a part among the roles that are taken."""

import random

from conductor_core.conductors.roles import ROLES, numbering
from conductor_core.lab.training.corpus.plans import PARTS, assign_roles, draw_present, specs

ALL = tuple(range(len(ROLES)))


def test_each_part_goes_to_its_own_role_or_the_next_best() -> None:
    assert assign_roles(("plan", "code", "write"), ALL) == (0, 3, 6)
    assert assign_roles(("code",), (0, 1, 6)) == (1,)


def test_another_opinion_is_asked_of_somebody_else_while_there_is_one() -> None:
    assert len(set(assign_roles(("check", "check!", "check!", "check!"), ALL))) == 4
    assert assign_roles(("check", "check!"), (5,)) == (5, 5)


def test_a_role_can_go_to_the_agent_of_an_earlier_step() -> None:
    assert assign_roles(("plan", "code", "=0"), ALL) == (0, 3, 0)


def test_a_free_cast_still_keeps_to_who_is_present() -> None:
    rng = random.Random(0)
    drawn = [assign_roles(("plan", "maths", "check!"), (2, 4, 6), rng=rng, chance=1.0) for _ in range(60)]
    assert {role for each in drawn for role in each} == {2, 4, 6}
    assert all(each[2] not in each[:2] for each in drawn)


def test_every_part_ranks_all_roles() -> None:
    assert all(sorted(roles) == list(ALL) for roles in PARTS.values())


def test_present_workers_have_their_roles() -> None:
    rng = random.Random(1)
    sizes = set()
    for _ in range(200):
        present = draw_present(rng)
        sizes.add(len(present))
        assert tuple(role for role, name in enumerate(numbering(specs(present))) if name) == present
    assert sizes == set(range(1, 8))
