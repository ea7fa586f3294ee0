"""Roles are assigned by what descriptions say, always in the same way, and nobody gets two."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import ConductorInfo, WorkerSpec
from conductor_core.conductors.roles import ROLES, agents_by_ordinal, fitness, numbering
from conductor_core.engine.pools import read_specs

REHEARSAL, PAPER = read_specs("rehearsal"), read_specs("paper")


def worker(description: str, name: str = "w") -> WorkerSpec:
    return WorkerSpec(name=name, provider="rehearsal", model="m", description=description)


def role_of(description: str) -> str:
    scores = fitness(worker(description))
    return ROLES[scores.index(max(scores))]


@pytest.mark.parametrize(
    ("description", "role"),
    [
        ("breaks tasks into steps and plans ahead", "plan"),
        ("Scheduling and project outlines", "plan"),
        ("thinks long, puzzles and logic", "reason"),
        ("a second opinion, with visible thinking", "reason"),
        ("exact arithmetic, percentages and units", "compute"),
        ("competition mathematics", "compute"),
        ("Writes Python functions that pass unit tests", "code"),
        ("writing programs; strong at algorithms", "code"),
        ("physics and chemistry at graduate level", "know"),
        ("world knowledge, history and geography", "know"),
        ("finds mistakes, verifies results", "check"),
        ("strict judge: compares and combines answers", "check"),
        ("clear prose and strict JSON formats", "write"),
        ("small and cheap", "write"),
        ("translates many languages", "write"),
        ("calculates; weak at code and Python", "compute"),
        ("weak at maths; writes letters", "write"),
        ("cheap, without thinking", "write"),
    ],
)
def test_a_description_suits_a_role(description: str, role: str) -> None:
    assert role_of(description) == role


def test_the_rehearsal_pool_has_its_own_order_and_any_part_of_it_keeps_its_roles() -> None:
    names = tuple(spec.name for spec in REHEARSAL)
    for size in range(1, 8):
        for present in itertools.combinations(range(7), size):
            assigned = numbering([REHEARSAL[index] for index in present])
            assert assigned == tuple(name if index in present else None for index, name in enumerate(names))


def test_the_pool_of_the_paper_gets_roles_by_what_it_says() -> None:
    assigned = dict(zip(ROLES, numbering(PAPER), strict=True))
    assert assigned["check"] == "claude-sonnet-4"
    assert assigned["code"] == "gpt-5"
    assert assigned["plan"] == "gemini-2.5-pro"
    assert assigned["know"] == "gemma3-27b-it"


def test_the_order_of_a_pool_does_not_matter_where_descriptions_differ() -> None:
    shuffled = Random(3).sample(PAPER, len(PAPER))
    assert numbering(shuffled) == numbering(PAPER)


@given(st.lists(st.sampled_from([*(spec.description for spec in (*REHEARSAL, *PAPER)), "", "x", "🙂"]), max_size=12))
def test_every_worker_has_one_role_or_none_is_free(descriptions: list[str]) -> None:
    pool = [worker(text, f"w{index}") for index, text in enumerate(descriptions)]
    assigned = [name for name in numbering(pool) if name is not None]
    assert len(set(assigned)) == len(assigned) == min(len(pool), len(ROLES))


def test_only_small_conductors_get_roles() -> None:
    plain = ConductorInfo(name="big", kind="local", model="big")
    pool = REHEARSAL[3:5]
    assert agents_by_ordinal(plain, pool) == ("coder", "scientist")
    assert agents_by_ordinal(plain.model_copy(update={"seated": True}), pool)[3:5] == ("coder", "scientist")
    assert agents_by_ordinal(None, pool) == ("coder", "scientist")
