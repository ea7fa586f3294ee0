"""A run leaves as one page and comes back as an imported run with the same steps, outputs and costs."""

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.run import events as ev
from conductor_core.run.values import PoolInfo
from storage import open_store
from tests.support.command_line import CommandLine
from tests.support.command_line import log as storage_main
from tests.support.run_events import created_otherwise, whole_run

SAME = (
    "status",
    "simulated",
    "task",
    "steps",
    "answer",
    "usage",
    "cost_usd",
    "known_usd",
    "duration_ms",
    "plan_source",
)


@pytest.fixture
def ran(cli: CommandLine, tmp_path: Path) -> Any:
    """The document of a run of two steps."""
    steps = [
        {"instruction": "{question}", "agent": "reasoner", "access_list": []},
        {"instruction": "Check it.", "agent": "verifier", "access_list": "all"},
    ]
    file = tmp_path / "workflow.json"
    file.write_text(json.dumps({"task": "What is 6 times 7?", "steps": steps}))
    return cli("run", "--workflow", file, "--json", "-q").document


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'other.sqlite3'}"


def test_a_run_comes_back_with_the_same_steps_outputs_and_costs(cli: CommandLine, ran: Any, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    exported = cli("export", ran["run_id"], "--as", "html", "--out", page)
    assert (exported.code, exported.err) == (0, f"wrote {page}\n")
    imported = cli("import", page, "--db", _url(tmp_path), "--json")
    assert imported.code == 0
    found = imported.document
    assert {name: found[name] for name in SAME} == {name: ran[name] for name in SAME}
    assert found["run_id"] != ran["run_id"]
    assert found["imported"]["run_id"] == ran["run_id"]
    shown = cli("show", found["run_id"], "--db", _url(tmp_path), "--json").document
    assert {name: shown[name] for name in SAME if name != "steps"} == {
        name: ran[name] for name in SAME if name != "steps"
    }
    assert "imported" in cli("show", found["run_id"], "--db", _url(tmp_path)).out
    (listed,) = cli("runs", "--db", _url(tmp_path), "--json").document["runs"]
    assert listed["imported"] is True
    assert "completed (imported)" in cli("runs", "--db", _url(tmp_path)).out
    assert ran["imported"] is None


def test_the_same_file_imported_twice_is_two_runs(cli: CommandLine, ran: Any, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    cli("export", ran["run_id"], "--as", "html", "--out", page)
    ids = [cli("import", page).out.strip() for _ in range(2)]
    assert len({ran["run_id"], *ids}) == 3
    assert cli("show", ran["run_id"], "--json").document["imported"] is None


def test_an_erasure_names_imported_copies_and_an_import_says_that_its_run_was_erased(
    cli: CommandLine, ran: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, run_id = tmp_path / "run.html", ran["run_id"]
    cli("export", run_id, "--as", "html", "--out", page)
    copy = cli("import", page)
    assert "note" not in copy.err
    capsys.readouterr()
    assert storage_main(["erase", run_id]) == 0
    assert f"re-runs and imported copies of it may hold its text: {copy.out.strip()}" in capsys.readouterr().out
    again = cli("import", page)
    assert again.code == 0
    assert f"note: in this database run {run_id} was erased" in again.err


def test_what_a_pattern_matches_is_hidden_in_the_file_and_stays_in_the_record(
    cli: CommandLine, ran: Any, tmp_path: Path
) -> None:
    page = tmp_path / "run.html"
    assert (
        cli("export", ran["run_id"], "--as", "html", "--out", page, "--redact", "6 times", "--redact", "(?i)WHAT").code
        == 0
    )
    run_id = cli("import", page).out.strip()
    assert cli("show", run_id, "--json").document["task"] == "[redacted] is [redacted] 7?"
    assert cli("show", ran["run_id"], "--json").document["task"] == "What is 6 times 7?"
    assert cli("export", ran["run_id"], "--as", "html", "--out", page, "--redact", "(").error.startswith(
        "--redact '(' is not a regular"
    )


def test_answers_that_a_rerun_takes_from_an_imported_run_are_marked_wherever_they_go(
    cli: CommandLine, ran: Any, tmp_path: Path
) -> None:
    page = tmp_path / "run.html"
    cli("export", ran["run_id"], "--as", "html", "--out", page)
    imported = cli("import", page, "--db", _url(tmp_path)).out.strip()
    change = ("--step", "1", "--instruction", "Check it twice. {question}", "--db", _url(tmp_path))
    assert f"reuses the answer of step 0 of imported run {imported}" in cli("rerun", imported, *change, "--dry-run").out
    child = cli("rerun", imported, *change, "--json", "-q").document
    again = cli("rerun", child["run_id"], *change[:3], "Check. {question}", *change[4:], "--json", "-q").document
    for run in (child, again):
        assert (run["imported"], run["imported_answers"]) == (None, True)
        assert [step["reused_imported"] for step in run["steps"]] == [True, False]
        assert run["steps"][0]["reused_from"] == imported
        shown = cli("show", run["run_id"], "--db", _url(tmp_path)).out
        assert "reuses answers of an imported run, which this database did not carry out: steps 0" in shown
        assert f"reused from step 0 of imported run {imported}" in shown
    listed = {run["run_id"]: run for run in cli("runs", "--db", _url(tmp_path), "--json").document["runs"]}
    assert [listed[run["run_id"]]["imported_answers"] for run in (child, again)] == [True, True]
    assert listed[imported]["imported_answers"] is False
    assert "completed (imported answers)" in cli("runs", "--db", _url(tmp_path)).out
    own = cli("rerun", ran["run_id"], *change[:4], "--json", "-q").document
    assert (own["imported_answers"], own["steps"][0]["reused_imported"]) == (False, False)


def test_what_only_the_file_says_is_said_to_be_its_word(cli: CommandLine, ran: Any, tmp_path: Path) -> None:
    again = cli("rerun", ran["run_id"], "--step", "1", "--instruction", "Check. {question}", "--json", "-q").document
    page = tmp_path / "run.html"
    cli("export", again["run_id"], "--as", "html", "--out", page)
    imported = cli("import", page, "--db", _url(tmp_path)).out.strip()
    shown = cli("show", imported, "--db", _url(tmp_path)).out
    (created,) = [line for line in shown.splitlines() if line.startswith("created ")]
    assert ", cli (says the file), seed" in created
    assert f"reused from step 0 of run {ran['run_id']} (says the file)" in shown
    assert "says the file" not in cli("show", again["run_id"]).out


def test_a_file_that_names_no_conductor_does_not_ask_mine_unsaid(cli: CommandLine, tmp_path: Path) -> None:
    events = whole_run("r")
    events[0] = created_otherwise(events[0], conductor=None)
    store = open_store(_url(tmp_path))
    store.log.append_and_wait(*events)
    store.close()
    page = tmp_path / "run.html"
    cli("export", "r", "--as", "html", "--out", page, "--db", _url(tmp_path))
    run_id = cli("import", page, "--db", _url(tmp_path)).out.strip()
    change = ("rerun", run_id, "--step", "1", "--agent", "conductor", "--dry-run", "--db", _url(tmp_path))
    note = (
        f"note: run {run_id} names no Conductor, and a step asks one: yours is used, tiny; --conductor chooses another"
    )
    assert note in cli(*change).err.splitlines()
    assert "note:" not in cli(*change, "--conductor", "tiny").err
    assert "note:" not in cli("rerun", run_id, "--step", "1", "--instruction", "x", *change[5:]).err


def test_a_foreign_file_changes_nothing(cli: CommandLine, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(b"<html>\xff")
    for file in (page, tmp_path, tmp_path / "absent"):
        outcome = cli("import", file, "--db", _url(tmp_path))
        assert (outcome.code, bool(outcome.error)) == (2, True)
    assert not (tmp_path / "other.sqlite3").exists()


def test_an_imported_run_with_models_of_its_own_calls_none_of_them_here(cli: CommandLine, tmp_path: Path) -> None:
    events = whole_run("r")
    workers = tuple(
        WorkerSpec(name=name, provider="openai", model="m", base_url="http://127.0.0.1:9/v1")
        for name in ("solver", "checker")
    )
    events[0] = created_otherwise(events[0], pool=PoolInfo(name="theirs", workers=workers), simulated=False)
    store = open_store(_url(tmp_path))
    store.log.append_and_wait(*events)
    store.close()
    page = tmp_path / "run.html"
    cli("export", "r", "--as", "html", "--out", page, "--db", _url(tmp_path))
    run_id = cli("import", page, "--db", _url(tmp_path)).out.strip()
    outcome = cli("rerun", run_id, "--step", "0", "--instruction", "x", "--db", _url(tmp_path))
    assert outcome.code == 2
    assert "was imported" in outcome.error
    script = cli("export", run_id, "--as", "langgraph", "--db", _url(tmp_path))
    assert (script.code, script.out) == (2, "")
    assert "was imported" in script.error
    own = tmp_path / "own.toml"
    own.write_text(
        "".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "mine"\nbase_url = "http://127.0.0.1:8/v1"\n'
            for name in ("solver", "checker")
        )
    )
    script = cli("export", run_id, "--as", "langgraph", "--pool", own, "--db", _url(tmp_path))
    assert script.code == 0
    assert "127.0.0.1:8" in script.out
    assert "127.0.0.1:9" not in script.out


def test_a_run_that_was_queued_and_waited_elsewhere_can_be_imported(cli: CommandLine, tmp_path: Path) -> None:
    first, *rest = whole_run("r")
    store = open_store(_url(tmp_path))
    store.log.append_and_wait(created_otherwise(first, queued=True))
    asked = ev.ApprovalRequested(run_id="r", number=1, of="plan", path=(), rules=("plan",), identity="i")
    granted = ev.ApprovalGranted(run_id="r", at_ms=20, numbers=(1,), door="page")
    store.log.append_and_wait(ev.RunTaken(run_id="r"), *rest[:4], asked, ev.RunWaiting(run_id="r", at_ms=20))
    store.log.append_and_wait(ev.RunTaken(run_id="r", at_ms=20), granted, *rest[4:])
    store.close()
    page = tmp_path / "run.html"
    cli("export", "r", "--as", "html", "--out", page, "--db", _url(tmp_path))
    outcome = cli("import", page, "--json")
    assert (outcome.code, outcome.document["status"]) == (0, "completed")
