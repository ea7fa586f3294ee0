"""Draws which seats of a pool are taken in a training example, and chooses workers for the roles of a plan.

A seat stands for one way of being useful (``conductors.seating``); the pools of the corpus are parts of the rehearsal
pool, which fills all seats.
"""

import random
from collections.abc import Sequence

from conductor_core.chat import WorkerSpec
from conductor_core.conductors.seating import SEATS
from conductor_core.rehearsal import rehearsal_specs

_BEST_FIRST: dict[str, tuple[str, ...]] = {
    "plan": ("plan", "reason", "check", "know", "code", "compute", "write"),
    "maths": ("compute", "reason", "know", "plan", "code", "check", "write"),
    "reason": ("reason", "plan", "know", "check", "compute", "code", "write"),
    "science": ("know", "reason", "compute", "check", "plan", "code", "write"),
    "fact": ("know", "reason", "plan", "check", "write", "compute", "code"),
    "quick": ("write", "know", "reason", "plan", "check", "compute", "code"),
    "code": ("code", "reason", "check", "compute", "plan", "know", "write"),
    "test": ("check", "code", "reason", "compute", "plan", "know", "write"),
    "check": ("check", "reason", "compute", "know", "plan", "code", "write"),
    "judge": ("check", "reason", "plan", "know", "compute", "code", "write"),
    "merge": ("check", "write", "reason", "know", "plan", "compute", "code"),
    "write": ("write", "know", "reason", "plan", "check", "code", "compute"),
    "edit": ("write", "check", "know", "reason", "plan", "code", "compute"),
    "format": ("write", "check", "reason", "know", "plan", "compute", "code"),
    "translate": ("write", "know", "reason", "check", "plan", "code", "compute"),
    "read": ("know", "compute", "reason", "check", "write", "plan", "code"),
    "solve": ("reason", "know", "compute", "plan", "check", "code", "write"),
    "item": ("know", "reason", "compute", "plan", "check", "write", "code"),
}
ROLES: dict[str, tuple[int, ...]] = {
    role: tuple(SEATS.index(seat) for seat in seats) for role, seats in _BEST_FIRST.items()
}
"""The seats that suit each role, best first."""


def draw_present(rng: random.Random) -> tuple[int, ...]:
    """Returns the seats that are taken: often all, else some, so that no plan relies on a worker that may be absent."""
    size = rng.choices((1, 2, 3, 4, 5, 6, 7), (2, 5, 11, 11, 11, 10, 50))[0]
    return tuple(sorted(rng.sample(range(len(SEATS)), size)))


def specs(present: Sequence[int]) -> tuple[WorkerSpec, ...]:
    """Returns the workers on the seats ``present``, as a request gives them to a Conductor."""
    workers = rehearsal_specs()
    return tuple(workers[seat] for seat in present)


def assign_seats(
    roles: Sequence[str], present: Sequence[int], *, rng: random.Random | None = None, chance: float = 0.0
) -> tuple[int, ...]:
    """Returns a seat for each role.

    ``role!`` takes a worker that no earlier step has, while there is one: another worker's attempt or check is worth
    more. ``=i`` takes the worker of step i again.

    Args:
        chance: share of steps that go to any present worker instead of the best one, drawn by ``rng``.
    """
    taken: list[int] = []
    for role in roles:
        if role.startswith("="):
            taken.append(taken[int(role[1:])])
            continue
        free = [seat for seat in present if seat not in taken] if role.endswith("!") else []
        who = free or list(present)
        if rng is not None and rng.random() < chance:
            taken.append(rng.choice(who))
        else:
            taken.append(min(who, key=ROLES[role.rstrip("!")].index))
    return tuple(taken)
