"""Who is chosen for a role among the seats that are taken."""

import random

from conductor_core.conductors.roles import SEATS, numbering
from conductor_core.lab.training.corpus.plans import ROLES, assign_seats, draw_present, specs

ALL = tuple(range(len(SEATS)))


def test_each_role_goes_to_its_own_seat_or_the_next_best() -> None:
    assert assign_seats(("plan", "code", "write"), ALL) == (0, 3, 6)
    assert assign_seats(("code",), (0, 1, 6)) == (1,)


def test_another_opinion_is_asked_of_somebody_else_while_there_is_one() -> None:
    assert len(set(assign_seats(("check", "check!", "check!", "check!"), ALL))) == 4
    assert assign_seats(("check", "check!"), (5,)) == (5, 5)


def test_a_role_can_go_to_the_agent_of_an_earlier_step() -> None:
    assert assign_seats(("plan", "code", "=0"), ALL) == (0, 3, 0)


def test_a_free_cast_still_keeps_to_who_is_present() -> None:
    rng = random.Random(0)
    drawn = [assign_seats(("plan", "maths", "check!"), (2, 4, 6), rng=rng, chance=1.0) for _ in range(60)]
    assert {seat for each in drawn for seat in each} == {2, 4, 6}
    assert all(each[2] not in each[:2] for each in drawn)


def test_every_role_ranks_all_seats() -> None:
    assert all(sorted(seats) == list(ALL) for seats in ROLES.values())


def test_present_workers_sit_on_their_seats() -> None:
    rng = random.Random(1)
    sizes = set()
    for _ in range(200):
        present = draw_present(rng)
        sizes.add(len(present))
        assert tuple(seat for seat, name in enumerate(numbering(specs(present))) if name) == present
    assert sizes == set(range(1, 8))
