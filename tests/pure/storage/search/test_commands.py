"""``conductor log search`` and its neighbours, as a person and a program read them."""

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_core.run import events as ev
from conductor_core.run.request import SHADOW_PURPOSE
from storage import Store, open_store
from tests.support.command_line import log as main
from tests.support.damaging import doctor
from tests.support.run_events import created, planned, step_started, whole_run


@pytest.fixture
def database(store: Store, path: Path) -> Path:
    store.log.append_and_wait(*whole_run("first", "Where does Zoë live?"), *whole_run("second", "A \x1b[31mred task"))
    store.close()
    return path


def printed(capsys: pytest.CaptureFixture[str], database: Path, *arguments: str) -> str:
    assert main([*arguments, "--db", str(database)]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], database: Path, *arguments: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(printed(capsys, database, *arguments, "--json"))
    return told


def test_a_search_prints_hits_in_their_place(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, database, "search", "zoe")
    assert said.splitlines() == [
        "run first (completed, simulated): the task",
        "    Where does [Zoë] live?",
        "1 text in 1 run",
    ]
    in_json = printed(capsys, database, "search", "zoe", "--agent", "solver", "--in", "task", "--json")
    assert '\n      "snippet": "Where does Zoë live?",\n' in in_json, "a person can read it"
    told = json.loads(in_json)
    (hit,) = told["hits"]
    assert (hit["run_id"], hit["places"][0]["field"], hit["found"]) == ("first", "task", ["Zoë"])
    assert told["count"] == {"texts": 1, "runs": 1, "at_least": False}
    assert told["not_searched"] == {"ended": 0, "running": 0, "encrypted": 0, "damaged": 0}


def test_without_words_runs_are_listed_and_nothing_steers_the_terminal(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(capsys, database, "search", "--status", "completed", "--since", "2020-01-01")
    assert said.splitlines()[-1] == "2 runs"
    assert "\x1b" not in said
    assert document(capsys, database, "search", "--until", "2020-01-01")["runs"] == []
    assert len(document(capsys, database, "search", "--until", "9999-12-31")["runs"]) == 2


def test_the_ledger_the_receipt_and_the_sums_are_printed(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, database, "ledger", "step", "--calls")["receivers"][0]["provider"] == "rehearsal"
    (of_step,) = document(capsys, database, "ledger", "step", "1")["receivers"]
    assert (of_step["agents"], of_step["calls"]) == ("solver", 2)
    receipt = document(capsys, database, "received", "rehearsal", "no such words")
    assert receipt["times"] == 0
    assert receipt["rests_on"]
    assert receipt["not_seen"]
    assert {row["agent"] for row in document(capsys, database, "spending")["spending"]} == {"conductor", "solver"}
    assert document(capsys, database, "failures")["failures"] == []
    for command in ("ledger", "spending", "failures"):
        assert printed(capsys, database, command)
    lines = printed(capsys, database, "received", "rehearsal", "no such words").splitlines()
    assert lines[lines.index("Not seen:") + 1].startswith("  The text in o")


def test_the_calls_of_the_ledger_go_on_where_a_page_ended(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = [document(capsys, database, "ledger", "--calls", "--limit", "4")]
    pages.append(document(capsys, database, "ledger", "--calls", "--limit", "4", "--before", str(pages[0]["before"])))
    assert [[(call["run_id"], call["purpose"], call["path"]) for call in page["calls"]] for page in pages] == [
        [("second", "step", "1"), ("second", "step", "0"), ("second", "plan", ""), ("first", "step", "1")],
        [("first", "step", "0"), ("first", "plan", "")],
    ]
    assert pages[1]["before"] is None


@pytest.mark.parametrize("command", ["search", "ledger", "spending", "failures"])
def test_each_answer_by_the_index_says_what_it_leaves_out(
    database: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(f"sqlite:///{database}")
    store.log.append_and_wait(created("on"))
    store.close()
    doctor(database, "UPDATE runs SET task = CAST(task AS BLOB) WHERE run_id = 'first'")
    assert document(capsys, database, command)["not_searched"] == {
        "ended": 0,
        "running": 1,
        "encrypted": 1,
        "damaged": 0,
    }
    assert main([command, "--db", str(database)]) == 0
    assert capsys.readouterr().err == "not searched: 1 still running, 1 encrypted, never indexed\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["search", '""'], "the search is empty: type a word"),
        (["search", "--in", "task"], "--in needs WORDS to search for"),
        (["search", "--run", "nobody"], "nobody"),
        (["search", "--before", "9999999999999999999"], "should be less than or equal to 9223372036854775807"),
        (
            ["ledger", "--calls", "--before", "9999999999999999999"],
            "should be less than or equal to 9223372036854775807",
        ),
        (["search", "--limit", "x"], "Invalid value for '--limit'"),
        (["search", "--least-usd", "nan"], "'nan' is not an amount in USD"),
        (["search", "--since", "0001-01-01T00:00+05:00"], "'0001-01-01T00:00+05:00' is not a date (2026-01-31)"),
        (["spending", "--until", "yesterday"], "'yesterday' is not a date (2026-01-31) or an ISO 8601 time"),
        (["search", "--agent", "\udcff"], "'\\udcff' is not valid UTF-8 text"),
        (["failures", "--run", "\udcff"], "'\\udcff' is not valid UTF-8 text"),
        (["received", "openai", "\udcff"], "'\\udcff' is not valid UTF-8 text"),
    ],
)
def test_what_cannot_be_searched_is_one_line_and_exit_2(
    database: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--db", str(database)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), said.err[:7]) == ("", 1, "error: ")
    assert says in said.err


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert main(["search", "x", "--db", str(tmp_path / "no.sqlite3")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_failures_are_counted_by_kind_and_by_what_is_asked_for(
    store: Store, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run_id, purpose in (("asked", ""), ("shadowed", SHADOW_PURPOSE)):
        failed = ev.StepFailed(run_id=run_id, path=(0,), error_code="WorkerTimedOut", error="too late")
        end = ev.RunFailed(run_id=run_id, error_code="WorkerTimedOut", error="step 0 failed")
        begun = [created(run_id, purpose=purpose), *planned(run_id), step_started(run_id, 0, 30)]
        store.log.append_and_wait(*begun, failed, end)
    store.close()
    said = printed(capsys, path, "failures", "--since", "2020-01-01")
    assert said.startswith("✕ failed                1 request, 1 time, last ")
    assert "WorkerTimedOut (failed): 1 time in 1 run; last: too late" in said
    told = document(capsys, path, "failures", "--by", "worker", "--purpose", "*")
    assert [(each["name"], each["runs"]) for each in told["counts"]] == [("solver", 2)]
    assert [(each["code"], each["kind"]) for each in told["failures"]] == [("WorkerTimedOut", "failed")]
    assert document(capsys, path, "failures", "--until", "2020-01-01")["counts"] == []
