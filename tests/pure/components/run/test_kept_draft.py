"""A plan of one's own outlives a reload of the page, with all that can be undone."""

import errno
import os
from pathlib import Path

import pytest

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Step, Workflow
from pages.components.run import draft as drafts
from pages.components.run import draft_file, kept_files
from pages.components.run.draft_file import NewPlan, read, remove, write
from pages.components.run.kept_files import MOST_VERSIONS

ME, OTHER = "a" * 32, "b" * 32
STEP = Step(instruction="Solve {question}", agent="coder", access_list=())


def edited(changes: int) -> drafts.Draft:
    draft = drafts.begin(Workflow(steps=(STEP,)))
    for number in range(changes):
        draft = drafts.insert(draft, 1, STEP.model_copy(update={"instruction": f"{number}", "access_list": "all"}))
    return draft


def test_what_was_kept_comes_back_with_undo_and_redo(tmp_path: Path) -> None:
    plan = NewPlan(drafts.undo(drafts.restart(edited(2), Workflow(steps=(STEP, STEP)))), "a task", shown=False)
    place = write(tmp_path, ME, plan, None)
    for found in (read(tmp_path, ME), read(tmp_path, ME, place.edit_id)):
        assert found is not None
        assert (found.plan, found.place) == (plan, place)
    assert read(tmp_path, OTHER) is read(tmp_path, OTHER, place.edit_id) is None
    for name in ("", "..", "*", f"{place.edit_id}x"):
        assert read(tmp_path, ME, name) is None


def test_neither_of_two_pages_overwrites_the_other(tmp_path: Path) -> None:
    first = write(tmp_path, ME, NewPlan(edited(0), ""), None)
    left = write(tmp_path, ME, NewPlan(edited(1), "left"), first)
    right = write(tmp_path, ME, NewPlan(edited(2), "right"), first)
    assert left.edit_id == first.edit_id != right.edit_id
    assert write(tmp_path, ME, NewPlan(edited(3), "right"), right).edit_id == right.edit_id
    found = read(tmp_path, ME, left.edit_id)
    assert found is not None
    assert found.plan.task == "left"


def test_a_plan_that_was_run_is_kept_no_longer(tmp_path: Path) -> None:
    first = write(tmp_path, ME, NewPlan(edited(0), ""), None)
    remove(tmp_path, ME, first)
    remove(tmp_path, ME, first)
    assert read(tmp_path, ME) is None
    write(tmp_path, ME, NewPlan(edited(1), "of another page"), first)
    remove(tmp_path, ME, first)
    assert read(tmp_path, ME) is not None, "what another page wrote since stays"


def test_only_the_last_versions_are_kept(tmp_path: Path) -> None:
    draft = edited(MOST_VERSIONS + 5)
    write(tmp_path, ME, NewPlan(draft, ""), None)
    found = read(tmp_path, ME)
    assert found is not None
    assert found.plan.draft.past == draft.past[-MOST_VERSIONS:]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    place = write(tmp_path, ME, NewPlan(edited(0), ""), None)
    (tmp_path / draft_file.FOLDER / f"{ME}.{place.edit_id}.json").write_text("{")
    with pytest.raises(BadInput, match=f"{place.edit_id}.json cannot be read"):
        read(tmp_path, ME)


def test_a_folder_that_cannot_be_written_says_what_that_means(tmp_path: Path) -> None:
    (tmp_path / draft_file.FOLDER).write_text("a file is in the way")
    with pytest.raises(BadInput, match="only until the page is loaded again"):
        write(tmp_path, ME, NewPlan(edited(0), ""), None)


def test_browsers_that_planned_longest_ago_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "MOST_FILES", 3)
    folder = tmp_path / draft_file.FOLDER
    folder.mkdir()
    for number in range(3):
        old = folder / f"{number:032x}.{number:012x}.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    write(tmp_path, ME, NewPlan(edited(0), ""), None)
    left = {file.stem.partition(".")[0] for file in folder.iterdir()}
    assert left == {ME, f"{1:032x}", f"{2:032x}"}


def test_writes_that_fail_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadInput, match="No space left"):
        write(tmp_path, ME, NewPlan(edited(1), ""), None)
    assert list((tmp_path / draft_file.FOLDER).iterdir()) == []
