"""Rows of a list of runs: the lines that lead from each run to those that came from it, and what a row says."""

import pytest

from pages.components.run_list.table import branches, task_of
from storage import RunSummary


def run(run_id: str, sequence: int, parent: str | None = None) -> RunSummary:
    return RunSummary(run_id=run_id, sequence=sequence, parent_run_id=parent)


def drawn(*runs: RunSummary) -> list[str]:
    return [f"{guide}{run.run_id}" for run, guide in branches(runs)]


def test_each_run_stands_below_the_one_it_came_from_older_ones_first() -> None:
    assert drawn(run("e", 5, "b"), run("d", 4, "a"), run("c", 3, "b"), run("b", 2, "a"), run("a", 1)) == [
        "a", "├b", "│├c", "│└e", "└d",
    ]  # fmt: skip


def test_below_the_last_branch_the_line_ends() -> None:
    assert drawn(run("a", 1), run("b", 2, "a"), run("c", 3, "b"), run("d", 4, "c")) == ["a", "└b", " └c", "  └d"]


def test_runs_whose_parent_is_gone_begin_a_tree_of_their_own() -> None:
    assert drawn(run("b", 2, "gone"), run("c", 3, "b"), run("d", 4, "gone")) == ["b", "└c", "d"]


@pytest.mark.parametrize(("status", "shown"), [("key_away", "encrypted"), ("erased", "erased"), ("damaged", "no task")])
def test_a_row_without_a_task_says_why(status: str, shown: str) -> None:
    assert task_of(RunSummary.model_validate({"run_id": "r", "sequence": 1, "status": status})) == shown
