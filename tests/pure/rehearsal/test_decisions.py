"""What a worker may do: every sight leads to chances that add up to one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, PROFILES
from conductor_core.rehearsal.families import Difficulty
from conductor_core.rehearsal.skills import Seen, Sight, decide, prevailing

_sights = st.builds(
    Sight,
    st.sampled_from(("solve", "compute", "code", "plan", "verify", "aggregate", "write", "format")),
    st.sampled_from(("clear", "plain", "vague")),
    st.booleans(),
    st.sampled_from(("good", "poor", None)),
    st.lists(st.builds(Seen, st.integers(0, 5), st.booleans(), st.booleans()), max_size=4).map(tuple),
)
_workers = st.sampled_from([worker.name for worker in PROFILES])


@given(_workers, st.sampled_from(FAMILIES), st.sampled_from(DIFFICULTIES), st.integers(1, 4), _sights)
def test_the_chances_of_what_may_happen_add_up(
    worker: str, family: str, difficulty: Difficulty, slips: int, sight: Sight
) -> None:
    branches = decide(worker, family, difficulty, slips, sight)
    assert sum(branch.chance for branch in branches) == pytest.approx(1)
    assert all(branch.chance >= 0 for branch in branches)
    known = {*range(slips + 1), *(each.answer for each in sight.given)}
    assert {branch.answer for branch in branches} <= {None, *known}
    # Only who recomputed may say so, and nobody recomputes what is not in view.
    if any(branch.checked for branch in branches):
        assert sight.role == "verify"
        assert sight.question
        assert sight.given


@given(_workers, _sights)
def test_without_the_question_no_answer_is_known_to_be_right(worker: str, sight: Sight) -> None:
    """Renaming the answers in view renames what is done, and nothing else."""
    blind = sight._replace(question=False)
    swapped = blind._replace(given=tuple(each._replace(answer=7 - each.answer) for each in blind.given))
    first, second = (decide(worker, FAMILIES[0], "hard", 2, each) for each in (blind, swapped))
    renamed = [b._replace(answer=None if b.answer is None else 7 - b.answer) for b in first]
    assert renamed == list(second)


def test_a_check_is_about_the_most_frequent_answer_and_among_equals_the_last() -> None:
    assert prevailing((Seen(2, False), Seen(0, False), Seen(2, True))).answer == 2
    assert prevailing((Seen(2, False), Seen(0, False))).answer == 0
