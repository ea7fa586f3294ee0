"""Pools are seated by what their descriptions say, always in the same way, and nobody is seated twice."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import ConductorInfo, WorkerSpec
from conductor_core.conductors.roles import SEATS, agents_by_ordinal, fitness, numbering
from conductor_core.engine.pools import read_specs

REHEARSAL, PAPER = read_specs("rehearsal"), read_specs("paper")


def worker(description: str, name: str = "w") -> WorkerSpec:
    return WorkerSpec(name=name, provider="rehearsal", model="m", description=description)


def seat_of(description: str) -> str:
    scores = fitness(worker(description))
    return SEATS[scores.index(max(scores))]


@pytest.mark.parametrize(
    ("description", "seat"),
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
def test_a_description_suits_a_seat(description: str, seat: str) -> None:
    assert seat_of(description) == seat


def test_the_rehearsal_pool_sits_in_its_own_order_and_any_part_of_it_keeps_its_seats() -> None:
    names = tuple(spec.name for spec in REHEARSAL)
    for size in range(1, 8):
        for present in itertools.combinations(range(7), size):
            seated = numbering([REHEARSAL[index] for index in present])
            assert seated == tuple(name if index in present else None for index, name in enumerate(names))


def test_the_pool_of_the_paper_is_seated_by_what_it_says() -> None:
    seated = dict(zip(SEATS, numbering(PAPER), strict=True))
    assert seated["check"] == "claude-sonnet-4"
    assert seated["code"] == "gpt-5"
    assert seated["plan"] == "gemini-2.5-pro"
    assert seated["know"] == "gemma3-27b-it"


def test_the_order_of_a_pool_does_not_matter_where_descriptions_differ() -> None:
    shuffled = Random(3).sample(PAPER, len(PAPER))
    assert numbering(shuffled) == numbering(PAPER)


@given(st.lists(st.sampled_from([*(spec.description for spec in (*REHEARSAL, *PAPER)), "", "x", "🙂"]), max_size=12))
def test_every_worker_has_one_seat_or_none_is_free(descriptions: list[str]) -> None:
    pool = [worker(text, f"w{index}") for index, text in enumerate(descriptions)]
    seated = [name for name in numbering(pool) if name is not None]
    assert len(set(seated)) == len(seated) == min(len(pool), len(SEATS))


def test_only_seated_conductors_are_seated() -> None:
    plain = ConductorInfo(name="big", kind="local", model="big")
    pool = REHEARSAL[3:5]
    assert agents_by_ordinal(plain, pool) == ("coder", "scientist")
    assert agents_by_ordinal(plain.model_copy(update={"seated": True}), pool)[3:5] == ("coder", "scientist")
    assert agents_by_ordinal(None, pool) == ("coder", "scientist")
