"""Edits of runs' plans and a plan of one's own outlive a reload, and two pages that write the same keep two."""

import os
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Step, Workflow
from pages.components.run import draft as drafts
from pages.components.run import draft_store
from pages.components.run.draft_store import EDITS, MOST_VERSIONS, PLANS, Kept, Place, bounded, newest, remove

ME, OTHER = "a" * 32, "b" * 32
PLAN = Workflow(steps=(Step(instruction="Solve {question}", agent="coder"),))
RUN = "../run/with any name"


def read(folder: Path, browser: str, run_id: str | None, name: str | None = None) -> drafts.Draft | None:
    found = draft_store.read(folder, browser, run_id, name)
    return None if found is None else found[0].draft


def write(folder: Path, browser: str, run_id: str | None, draft: drafts.Draft, before: Place | None) -> Place:
    return draft_store.write(folder, browser, run_id, Kept(draft), before)


def instructions(folder: Path, most: int) -> list[str]:
    return [kept.draft.workflow.steps[0].instruction for kept, _ in newest(folder, ME, RUN, most)[0]]


def told(words: str, draft: drafts.Draft | None = None) -> drafts.Draft:
    step = PLAN.steps[0].model_copy(update={"instruction": words})
    return drafts.change_step(draft or drafts.begin(PLAN), 0, step)


def dumped(draft: drafts.Draft) -> bytes:
    return TypeAdapter(drafts.Draft).dump_json(draft)


def test_an_edit_comes_back_with_undo_and_redo(tmp_path: Path) -> None:
    draft = drafts.undo(told("two", told("one")))
    place = write(tmp_path, ME, RUN, draft, None)
    assert draft_store.read(tmp_path, ME, RUN, place.name) == (Kept(draft), place)
    assert [file.parent for file in tmp_path.rglob("*.json")] == [tmp_path / EDITS]


def test_other_browsers_and_other_runs_have_none_of_it(tmp_path: Path) -> None:
    place = write(tmp_path, ME, RUN, told("one"), None)
    assert read(tmp_path, OTHER, RUN, place.name) is None
    assert read(tmp_path, ME, "another", place.name) is None
    assert newest(tmp_path, OTHER, RUN, 3) == newest(tmp_path, ME, "another", 3) == ([], [])
    for name in ("", "..", "../" + place.name, "*", place.name.upper() + "x"):
        assert read(tmp_path, ME, RUN, name) is None


def test_a_page_goes_on_in_its_own_file(tmp_path: Path) -> None:
    first = write(tmp_path, ME, RUN, told("one"), None)
    second = write(tmp_path, ME, RUN, told("two"), first)
    assert second.name == first.name
    assert instructions(tmp_path, 3) == ["two"]


def test_neither_of_two_pages_overwrites_the_other(tmp_path: Path) -> None:
    both = write(tmp_path, ME, RUN, told("both"), None)
    left = write(tmp_path, ME, RUN, told("left"), both)
    right = write(tmp_path, ME, RUN, told("right"), both)
    assert left.name == both.name != right.name
    assert write(tmp_path, ME, RUN, told("left again"), left).name == left.name
    assert write(tmp_path, ME, RUN, told("right again"), right).name == right.name
    assert sorted(instructions(tmp_path, 3)) == ["left again", "right again"]


def test_what_was_run_elsewhere_can_be_edited_on(tmp_path: Path) -> None:
    place = write(tmp_path, ME, RUN, told("one"), None)
    remove(tmp_path, ME, RUN, place.name)
    remove(tmp_path, ME, RUN, place.name)
    assert newest(tmp_path, ME, RUN, 3) == ([], [])
    assert write(tmp_path, ME, RUN, told("two"), place).name == place.name


def test_only_the_last_versions_are_kept(tmp_path: Path) -> None:
    draft = drafts.begin(PLAN)
    for number in range(MOST_VERSIONS + 5):
        draft = told(str(number), draft)
    found = read(tmp_path, ME, RUN, write(tmp_path, ME, RUN, draft, None).name)
    assert found is not None
    assert found.past == draft.past[-MOST_VERSIONS:]


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
    monkeypatch.setattr(draft_store, "MOST_BYTES_OF_ALL", 6000)
    for number in range(6):
        write(tmp_path, ME, f"run {number}", told("x" * 1000), None)
    sizes = [file.stat().st_size for file in (tmp_path / EDITS).iterdir()]
    assert 0 < sum(sizes) <= 6000


def test_the_newest_come_first_and_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_store, "MOST_FILES", 3)
    for number in range(5):
        place = write(tmp_path, ME, RUN, told(str(number)), None)
        (file,) = (tmp_path / EDITS).glob(f"*{place.name}.json")
        os.utime(file, (number, number))
    assert instructions(tmp_path, 10) == ["4", "3", "2"]


def test_a_damaged_file_is_named_and_hides_no_other(tmp_path: Path) -> None:
    place = write(tmp_path, ME, RUN, told("one"), None)
    (file,) = (tmp_path / EDITS).iterdir()
    write(tmp_path, ME, RUN, told("two"), None)
    file.write_text("{")
    with pytest.raises(BadInput, match=f"{place.name}.json cannot be read"):
        read(tmp_path, ME, RUN, place.name)
    edits, (fault,) = newest(tmp_path, ME, RUN, 1)
    assert [kept.draft for kept, _ in edits] == [told("two")]
    assert f"{place.name}.json cannot be read" in fault


def test_a_write_that_fails_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write(tmp_path, ME, RUN, told("one"), None)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    for _ in range(3):
        with pytest.raises(BadInput, match="No space left on device"):
            write(tmp_path, ME, RUN, told("two"), place)
    assert read(tmp_path, ME, RUN, place.name) == told("one")
    assert len(list((tmp_path / EDITS).iterdir())) == 1


def test_a_folder_that_cannot_be_written_says_what_that_means(tmp_path: Path) -> None:
    (tmp_path / EDITS).write_text("a file is in the way")
    with pytest.raises(BadInput, match="only until the page is loaded again"):
        write(tmp_path, ME, RUN, told("one"), None)


def test_a_plan_of_ones_own_comes_back_by_its_name_or_as_the_newest(tmp_path: Path) -> None:
    plan = Kept(drafts.undo(drafts.restart(told("one"), PLAN)), "a task", shown=False)
    place = draft_store.write(tmp_path, ME, None, plan, None)
    for name in (None, place.name):
        assert draft_store.read(tmp_path, ME, None, name) == (plan, place)
        assert read(tmp_path, OTHER, None, name) is None
    for name in ("", "..", "*", f"{place.name}x"):
        assert read(tmp_path, ME, None, name) is None
    assert [file.parent for file in tmp_path.rglob("*.json")] == [tmp_path / PLANS]


def test_a_plan_that_was_run_is_kept_no_longer_but_what_another_page_wrote_since_is(tmp_path: Path) -> None:
    first = write(tmp_path, ME, None, told("one"), None)
    for _ in range(2):
        remove(tmp_path, ME, None, first.name, first)
    assert read(tmp_path, ME, None) is None
    write(tmp_path, ME, None, told("of another page"), first)
    remove(tmp_path, ME, None, first.name, first)
    assert read(tmp_path, ME, None) == told("of another page")
