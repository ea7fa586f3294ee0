"""A plan of one's own outlives a reload of the page, with all that can be undone."""

import os
from pathlib import Path

import pytest

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Step, Workflow
from pages.components.run import draft as drafts
from pages.components.run import kept_draft
from pages.components.run.kept_draft import MOST_BROWSERS, MOST_VERSIONS, NewPlan, read, write

ME, OTHER = "a" * 32, "b" * 32
STEP = Step(instruction="Solve {question}", agent="coder", access_list=())


def edited(changes: int) -> drafts.Draft:
    draft = drafts.begin(Workflow(steps=(STEP,)))
    for number in range(changes):
        draft = drafts.insert(draft, 1, STEP.model_copy(update={"instruction": f"{number}", "access_list": "all"}))
    return draft


def test_what_was_kept_comes_back_with_undo_and_redo(tmp_path: Path) -> None:
    plan = NewPlan(drafts.undo(drafts.restart(edited(2), Workflow(steps=(STEP, STEP)))), "a task", shown=False)
    write(tmp_path, ME, plan)
    assert read(tmp_path, ME) == plan
    assert read(tmp_path, OTHER) is None


def test_a_plan_that_was_run_is_kept_no_longer(tmp_path: Path) -> None:
    write(tmp_path, ME, NewPlan(edited(0), ""))
    write(tmp_path, ME, None)
    write(tmp_path, ME, None)
    assert read(tmp_path, ME) is None


def test_only_the_last_versions_are_kept(tmp_path: Path) -> None:
    draft = edited(MOST_VERSIONS + 5)
    write(tmp_path, ME, NewPlan(draft, ""))
    found = read(tmp_path, ME)
    assert found is not None
    assert found.draft.past == draft.past[-MOST_VERSIONS:]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, ME, NewPlan(edited(0), ""))
    (tmp_path / kept_draft.FOLDER / f"{ME}.json").write_text("{")
    with pytest.raises(BadInput, match=f"{ME}.json cannot be read"):
        read(tmp_path, ME)


def test_a_folder_that_cannot_be_written_says_what_that_means(tmp_path: Path) -> None:
    (tmp_path / kept_draft.FOLDER).write_text("a file is in the way")
    with pytest.raises(BadInput, match="only until the page is loaded again"):
        write(tmp_path, ME, NewPlan(edited(0), ""))


def test_browsers_that_planned_longest_ago_are_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / kept_draft.FOLDER
    folder.mkdir()
    for number in range(MOST_BROWSERS):
        old = folder / f"{number:032x}.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    write(tmp_path, ME, NewPlan(edited(0), ""))
    left = {file.stem for file in folder.iterdir()}
    assert len(left) == MOST_BROWSERS
    assert ME in left
    assert f"{0:032x}" not in left
