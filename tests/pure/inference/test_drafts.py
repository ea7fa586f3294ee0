"""What is guessed, and when a guess is worth a pass."""

from collections.abc import Sequence

import pytest

from conductor_core.inference.drafts import (
    KEPT_COMPLETIONS,
    LONGEST_WITH_DRAFT,
    MOST_DRAFTED,
    Drafts,
    Earlier,
    PassTimes,
    Phrases,
)

FREE = [1.0] * LONGEST_WITH_DRAFT
"""A pass takes as long for eight tokens as for one."""
DEAR = [float(tokens) for tokens in range(1, LONGEST_WITH_DRAFT + 1)]


def all_of(guess: Sequence[int]) -> Sequence[int]:
    return guess


def drafts(prompt: Sequence[int], tried_s: Sequence[float] = FREE, earlier: Earlier | None = None) -> Drafts:
    return Drafts(prompt, earlier or Earlier(), PassTimes(tried_s))


def phrases(ids: Sequence[int]) -> Phrases:
    made = Phrases()
    made.extend(ids)
    return made


def test_what_followed_the_longest_match_is_found() -> None:
    known = phrases([1, 2, 3, 10, 11, 9, 3, 20])
    assert known.following([1, 2, 3]) == (3, [10, 11, 9, 3])
    assert known.following([8, 3]) == (1, [20])
    assert known.following([20]) == (0, [])
    assert known.following([]) == (0, [])


def test_the_last_of_several_places_counts() -> None:
    assert phrases([5, 1, 5, 2, 7]).following([5]) == (1, [2, 7])


def test_a_completion_is_guessed_from_an_earlier_one_if_that_matches_better() -> None:
    earlier = Earlier()
    earlier.add([1, 2, 3, 4])
    made = drafts([3, 9, 1, 2, 3], earlier=earlier)
    assert made.next(1, all_of, 9) == [4]
    assert drafts([4, 5, 4], earlier=earlier).next(1, all_of, 9) == [5, 4]


def test_only_the_last_completions_are_known() -> None:
    earlier = Earlier()
    for number in range(3 * KEPT_COMPLETIONS):
        earlier.add([number, 1000 + number])
    assert earlier.phrases.following([0]) == (0, [])
    assert earlier.phrases.following([3 * KEPT_COMPLETIONS - 1])[1][0] == 1000 + 3 * KEPT_COMPLETIONS - 1
    assert len(earlier.phrases.ids) < 4 * KEPT_COMPLETIONS


def test_a_guess_is_as_long_as_grammar_and_room_allow() -> None:
    prompt = [1, 2, 3, 4, 5, 6, 1]
    assert drafts(prompt).next(1, all_of, 99) == [2, 3, 4, 5]
    assert drafts(prompt).next(1, lambda guess: guess[:3], 99) == [2, 3, 4]
    assert drafts(prompt).next(1, all_of, 2) == [2, 3]
    assert len(drafts(prompt).next(LONGEST_WITH_DRAFT - 1, all_of, 99)) == 1
    assert drafts(prompt).next(LONGEST_WITH_DRAFT, all_of, 99) == []
    assert drafts(prompt).next(99, all_of, 99) == []


def test_nothing_is_guessed_where_each_token_costs_a_pass() -> None:
    assert list(drafts([1, 2, 3, 1], DEAR).next(1, all_of, 99)) == []


def test_wrong_guesses_end_the_guessing_and_right_ones_begin_it_again() -> None:
    costs = [1.0, 1.3, 1.6, 1.9, 2.2, 2.5, 2.8, 3.1]
    made = drafts([1, 2, 1], costs)
    assert made.next(1, all_of, 99)
    for _ in range(10):  # 1 is followed by 2 in the prompt, and now by 3
        made.learn([3])
        made.learn([1])
        made._here = phrases([1, 2, 9, 9, 1])
        made._guess = [2]
    assert list(made.next(1, all_of, 99)) == []
    for _ in range(10):  # nothing of it was read, and still it is seen that the guesses are right
        made.next(1, all_of, 99)
        made.learn([2])
        made.learn([1])
    assert len(made.next(1, all_of, 99)) > 0


def test_without_times_nothing_is_guessed() -> None:
    made = Drafts([1, 2, 1], Earlier(), None)
    made.learn([2])
    assert list(made.next(1, all_of, 99)) == []


def test_the_times_of_a_trial_are_scaled_by_the_first_pass_and_follow_the_later_ones() -> None:
    times = PassTimes([1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    times.took(1, 0.5)
    assert [times.seconds(tokens) for tokens in (1, 2, 3)] == [0.5, 0.5, 1.0]
    for _ in range(60):
        times.took(3, 3.0)
        times.took(8, 3.0)
    assert times.seconds(8) == pytest.approx(3.0, rel=0.01)
    assert times.seconds(3) == 1.0  # passes of four tokens take no longer
    times.took(LONGEST_WITH_DRAFT + 1, 100.0)
    assert times.seconds(LONGEST_WITH_DRAFT + 1) == float("inf")


def test_a_pass_that_was_held_up_hardly_counts() -> None:
    times = PassTimes(FREE)
    times.took(8, 1.0)
    times.took(8, 1000.0)
    assert times.seconds(8) <= 1.1


def test_a_draft_is_short_of_what_a_pass_should_have() -> None:
    assert len(drafts([1, 2, 3, 4, 5, 6, 7, 1]).next(1, all_of, 99)) <= MOST_DRAFTED
