from collections import Counter

import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.suites import load_suite
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, recognise


def test_families_and_difficulties_come_in_equal_parts() -> None:
    cells = len(FAMILIES) * len(DIFFICULTIES)
    suite = load_suite("rehearsal", limit=2 * cells)
    assert set(Counter((task.family, task.difficulty) for task in suite.tasks).values()) == {2}
    assert suite.simulated
    assert (suite.name, suite.split) == ("rehearsal", "test")


def test_the_same_seed_gives_the_same_tasks_and_a_shorter_suite_is_their_beginning() -> None:
    longer, shorter = load_suite("rehearsal", limit=50, seed=3), load_suite("rehearsal", limit=20, seed=3)
    assert longer.tasks[:20] == shorter.tasks
    assert load_suite("rehearsal", limit=20, seed=4).tasks != shorter.tasks


def test_no_question_is_asked_twice_nor_in_both_splits() -> None:
    test, train = (load_suite("rehearsal", split, limit=240).tasks for split in ("test", "train"))
    assert len({task.question for task in test}) == len({task.task_id for task in test}) == 240
    assert not {task.question for task in test} & {task.question for task in train}


def test_references_follow_from_the_questions() -> None:
    for task in load_suite("rehearsal", limit=60).tasks:
        known = recognise(task.question)
        assert known is not None
        assert known.answer == task.reference


def test_other_splits_and_limits_are_bad_input() -> None:
    with pytest.raises(BadInput, match="train and test"):
        load_suite("rehearsal", "dev")
    with pytest.raises(BadInput, match="at least one"):
        load_suite("rehearsal", limit=0)
