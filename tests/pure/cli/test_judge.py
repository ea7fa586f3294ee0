"""``conductor judge`` and ``judgements``: what is kept, listed and exported."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.lab.evaluation.suites import load_suite
from storage import Store, open_store
from storage.access_log import AccessQuery
from tests.support.command_line import CommandLine
from tests.support.run_events import whole_run


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite3"


@pytest.fixture
def store(db: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{db}")) as store:
        store.log.append_and_wait(*whole_run("first", answer="**Answer: 42**"))
        store.log.append_and_wait(*whole_run("other", "What is the sea?", "Wet."))
        yield store


def test_a_run_and_a_step_are_judged_and_listed(cli: CommandLine, store: Store, db: Path) -> None:
    assert cli("judgements", "--db", db).out == "no judgements: conductor judge RUN_ID right or wrong\n"
    assert cli("judge", "fir", "wrong", "--db", db).out == "first: wrong\n"
    assert cli("judge", "first", "right", "--note", "Now\x1b[31m it is.", "--db", db).code == 0
    kept = cli("judge", "first", "--step", "1", "--score", 0.25, "--db", db, "--json").document
    assert (kept["step"], kept["score"], kept["door"], kept["by"]) == ("1", 0.25, "cli", "person")
    listed = cli("judgements", "--db", db).out
    assert [line.split()[:3] for line in listed.splitlines()[1:-1]] == [
        ["first", "1", "0.25"],
        ["first", "answer", "right"],
    ]
    assert "\x1b" not in listed
    assert listed.splitlines()[-1] == "runs: 1 right, 0 wrong, 1 not judged"
    document = cli("judgements", "--db", db, "--mark", "right", "--json").document
    assert [each["id"] for each in document["judgements"]] == [2]
    assert document["runs"] == {"right": 1, "wrong": 0, "unjudged": 1, "noted": 1}
    assert [each.what for each in store.access_log.read(AccessQuery(run_id="first", kind="viewed")).records] == [
        "judgements"
    ] * 2
    assert cli("judge", "first", "--note", "taken back", "--db", db).out == "first: taken back\n"
    assert cli("judgements", "--db", db, "--mark", "right").out.startswith("no judgements")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("judge", "first"), "a mark, a score or a note"),
        (("judge", "first", "maybe"), "for 'right|wrong': 'maybe' is not one of"),
        (("judge", "first", "--score", "2"), "from 0 (bad) to 1"),
        (("judge", "first", "better"), "right"),
        (("judge", "first", "right", "--step", "9"), "run first has no step '9'"),
        (("judge", "unknown", "right"), "unknown"),
        (("judgements", "export"), "--to FILE.jsonl"),
        (("judgements", "--to", "x.jsonl"), "--to is for export"),
        (("judgements", "--by", "nobody"), "--by"),
    ],
)
def test_bad_input_is_one_clear_line(
    cli: CommandLine, store: Store, db: Path, arguments: tuple[str, ...], message: str
) -> None:
    outcome = cli(*arguments, "--db", db)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.error
    assert store.judgements.list() == ()


def test_right_answers_are_exported_as_a_suite_and_the_rest_is_told(
    cli: CommandLine, store: Store, db: Path, tmp_path: Path
) -> None:
    to = tmp_path / "suite.jsonl"
    cli("judge", "other", "wrong", "--db", db)
    nothing = cli("judgements", "export", "--to", to, "--db", db)
    assert (nothing.code, to.exists()) == (2, False)
    assert "left out: 1 task: judged wrong, and no right answer is known" in nothing.err
    cli("judge", "first", "right", "--db", db)
    made = cli("judgements", "export", "--to", to, "--db", db, "--json")
    assert made.code == 0
    assert made.document == {
        "tasks": 1, "left_out": {"judged wrong, and no right answer is known": 1}, "file": str(to)
    }  # fmt: skip
    assert [task.reference for task in load_suite(str(to)).tasks] == ["42"]
    assert json.loads(to.read_text())["judgements"][0]["mark"] == "right"
    exports = store.access_log.read(AccessQuery(kind="exported")).records
    assert [(each.run_id, each.what) for each in exports] == [("first", "judgements")]
