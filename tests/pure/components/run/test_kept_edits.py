"""Edits of runs' plans outlive a reload, and two pages that edit the same run keep two."""

import os
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Step, Workflow
from pages.components.run import draft as drafts
from pages.components.run import kept_edits, kept_files
from pages.components.run.kept_edits import of_run, read, remove, write
from pages.components.run.kept_files import MOST_VERSIONS, bounded

ME, OTHER = "a" * 32, "b" * 32
PLAN = Workflow(steps=(Step(instruction="Solve {question}", agent="coder"),))
RUN = "../run/with any name"


def told(words: str, draft: drafts.Draft | None = None) -> drafts.Draft:
    step = PLAN.steps[0].model_copy(update={"instruction": words})
    return drafts.change(draft or drafts.begin(PLAN), 0, step)


def dumped(draft: drafts.Draft) -> bytes:
    return TypeAdapter(drafts.Draft).dump_json(draft)


def test_an_edit_comes_back_with_undo_and_redo(tmp_path: Path) -> None:
    draft = drafts.undo(told("two", told("one")))
    place = write(tmp_path, ME, RUN, draft, None)
    found = read(tmp_path, ME, RUN, place.edit_id)
    assert found is not None
    assert (found.draft, found.place) == (draft, place)
    assert (tmp_path / kept_edits.FOLDER).is_dir()
    assert [file.parent for file in tmp_path.rglob("*.json")] == [tmp_path / kept_edits.FOLDER]


def test_other_browsers_and_other_runs_have_none_of_it(tmp_path: Path) -> None:
    place = write(tmp_path, ME, RUN, told("one"), None)
    assert read(tmp_path, OTHER, RUN, place.edit_id) is None
    assert read(tmp_path, ME, "another", place.edit_id) is None
    assert of_run(tmp_path, OTHER, RUN, 3) == of_run(tmp_path, ME, "another", 3) == ([], [])
    for name in ("", "..", "../" + place.edit_id, "*", place.edit_id.upper() + "x"):
        assert read(tmp_path, ME, RUN, name) is None


def test_a_page_goes_on_in_its_own_file(tmp_path: Path) -> None:
    first = write(tmp_path, ME, RUN, told("one"), None)
    second = write(tmp_path, ME, RUN, told("two"), first)
    assert second.edit_id == first.edit_id
    assert [edit.draft for edit in of_run(tmp_path, ME, RUN, 3)[0]] == [told("two")]


def test_neither_of_two_pages_overwrites_the_other(tmp_path: Path) -> None:
    both = write(tmp_path, ME, RUN, told("both"), None)
    left = write(tmp_path, ME, RUN, told("left"), both)
    right = write(tmp_path, ME, RUN, told("right"), both)
    assert left.edit_id == both.edit_id != right.edit_id
    assert write(tmp_path, ME, RUN, told("left again"), left).edit_id == left.edit_id
    assert write(tmp_path, ME, RUN, told("right again"), right).edit_id == right.edit_id
    assert {edit.draft.workflow.steps[0].instruction for edit in of_run(tmp_path, ME, RUN, 3)[0]} == {
        "left again",
        "right again",
    }


def test_what_was_run_elsewhere_can_be_edited_on(tmp_path: Path) -> None:
    place = write(tmp_path, ME, RUN, told("one"), None)
    remove(tmp_path, ME, RUN, place.edit_id)
    remove(tmp_path, ME, RUN, place.edit_id)
    assert of_run(tmp_path, ME, RUN, 3) == ([], [])
    assert write(tmp_path, ME, RUN, told("two"), place).edit_id == place.edit_id


def test_only_the_last_versions_are_kept(tmp_path: Path) -> None:
    draft = drafts.begin(PLAN)
    for number in range(MOST_VERSIONS + 5):
        draft = told(str(number), draft)
    found = read(tmp_path, ME, RUN, write(tmp_path, ME, RUN, draft, None).edit_id)
    assert found is not None
    assert found.draft.past == draft.past[-MOST_VERSIONS:]


def test_what_is_kept_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = drafts.begin(PLAN)
    for number in range(10):
        draft = told(f"{number}" * 1000, draft)
    draft = drafts.undo(drafts.undo(draft))
    near = bounded(draft, 8000)
    assert near.now == draft.now
    assert len(dumped(near)) <= 8000
    assert near.past, "the last ones can be undone"
    assert near.past == draft.past[-len(near.past) :]
    assert bounded(draft) == draft
    with pytest.raises(BadInput, match="larger than 0 MiB"):
        bounded(draft, 1500)
    monkeypatch.setattr(kept_files, "MOST_BYTES_OF_ALL", 6000)
    for number in range(6):
        write(tmp_path, ME, f"run {number}", told("x" * 1000), None)
    sizes = [file.stat().st_size for file in (tmp_path / kept_edits.FOLDER).iterdir()]
    assert 0 < sum(sizes) <= 6000


def test_the_newest_come_first_and_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "MOST_FILES", 3)
    for number in range(5):
        place = write(tmp_path, ME, RUN, told(str(number)), None)
        (file,) = (tmp_path / kept_edits.FOLDER).glob(f"*{place.edit_id}.json")
        os.utime(file, (number, number))
    kept = [edit.draft.workflow.steps[0].instruction for edit in of_run(tmp_path, ME, RUN, 10)[0]]
    assert kept == ["4", "3", "2"]


def test_a_damaged_file_is_named_and_hides_no_other(tmp_path: Path) -> None:
    place = write(tmp_path, ME, RUN, told("one"), None)
    (file,) = (tmp_path / kept_edits.FOLDER).iterdir()
    write(tmp_path, ME, RUN, told("two"), None)
    file.write_text("{")
    with pytest.raises(BadInput, match=f"{place.edit_id}.json cannot be read"):
        read(tmp_path, ME, RUN, place.edit_id)
    edits, (fault,) = of_run(tmp_path, ME, RUN, 1)
    assert [edit.draft for edit in edits] == [told("two")]
    assert f"{place.edit_id}.json cannot be read" in fault


def test_a_write_that_fails_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write(tmp_path, ME, RUN, told("one"), None)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    for _ in range(3):
        with pytest.raises(BadInput, match="No space left on device"):
            write(tmp_path, ME, RUN, told("two"), place)
    found = read(tmp_path, ME, RUN, place.edit_id)
    assert found is not None
    assert found.draft == told("one")
    assert len(list((tmp_path / kept_edits.FOLDER).iterdir())) == 1


def test_a_folder_that_cannot_be_written_says_what_that_means(tmp_path: Path) -> None:
    (tmp_path / kept_edits.FOLDER).write_text("a file is in the way")
    with pytest.raises(BadInput, match="only until the page is loaded again"):
        write(tmp_path, ME, RUN, told("one"), None)
