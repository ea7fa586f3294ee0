"""What a person sees while a run goes on."""

import asyncio
import json
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from conductor_core.chat.progress import Progress
from conductor_core.cli.live import ProgressView
from conductor_core.errors import StoreFull
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.values import SharedOutput
from conductor_core.workflow.model import Fault, Step, Workflow
from storage.database.connections import Database
from storage.log.event_log import EventLog
from tests.support.command_line import CommandLine
from tests.support.run_events import (
    TWO_STEPS,
    answered,
    created,
    planned,
    run_completed,
    step_completed,
    step_started,
    whole_run,
)


def shown(
    capsys: pytest.CaptureFixture[str], *events: Event, quiet: bool = False, terminal: bool = False
) -> tuple[str, str, str]:
    """Stdout, stderr, and what of the answer stdout has."""
    with patch.object(sys.stdout, "isatty", return_value=terminal):
        view = ProgressView(quiet=quiet, answer=True)
    for event in events:
        view.show(event)
    captured = capsys.readouterr()
    return captured.out, captured.err, view.answer_shown


def test_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    out, err, _ = shown(capsys, *whole_run("r1"))
    assert out == ""
    assert err == (
        "run r1 · Conductor tiny · pool rehearsal · simulated workers\n"
        "plan · the Conductor writes\n"
        "model_id = [0, 1]\n"
        "plan · chain in 0.0 s · 15 tokens · $0\n"
        "  0  solver   reads none      Solve it.\n"
        "  1  checker  reads 0         Check it.\n"
        "step 0 · solver · started, reads none\n"
        "step 0 · solver · done in 0.0 s · 3 tokens out · $0.5000\n"
        "step 1 · checker · started, reads none\n"
        "step 1 · checker · done in 0.0 s · 3 tokens out · $0.5000\n"
        "run r1 · completed · 0.1 s · 35 tokens · $1.00 as the provider says · simulated\n"
    )


def test_the_cost_of_estimated_tokens_is_marked_in_the_steps_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    guessed = step_completed("r1", 0, "4", 40)
    usage = guessed.usage.model_copy(update={"estimated": True})
    guessed = guessed.model_copy(update={"usage": usage, "cost_estimated": True})
    _, err, _ = shown(capsys, created("r1"), *planned("r1"), step_started("r1", 0, 30), guessed)
    assert "step 0 · solver · done in 0.0 s · 3 tokens out · ≈ $0.5000\n" in err


def test_a_step_that_runs_beside_another_is_not_said_to_be_denied_its_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = SharedOutput(path=(0,), agent="a", sha256="ab" * 32, characters=7, tokens=2)
    absent = SharedOutput(path=(1,), agent="b", sha256="", characters=0, tokens=0)
    begun = step_started("r1", 1, 30).model_copy(update={"withheld": (kept, absent)})
    _, err, _ = shown(capsys, created("r1"), *planned("r1"), begun)
    assert err.splitlines()[-1] == "step 1 · checker · started, reads none, 0 withheld"
    alone = begun.model_copy(update={"withheld": (absent,)})
    _, err, _ = shown(capsys, created("r1"), *planned("r1"), alone)
    assert err.splitlines()[-1] == "step 1 · checker · started, reads none", "what it may not read is not missing"


def test_quiet_is_quiet_but_for_an_answer_that_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    begun, *rest = whole_run("r1")
    assert shown(capsys, begun.model_copy(update={"simulated": False}), *rest, quiet=True) == ("", "", "")
    assert shown(capsys, begun, *rest, quiet=True) == ("", "simulated workers\n", "")


def test_quiet_still_says_why_there_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    failed = ev.RunFailed(run_id="r1", error_code="LimitReached", error="time is up")
    _, err, _ = shown(capsys, created("r1"), *planned("r1"), failed, quiet=True)
    assert err.startswith("run r1 · failed: time is up")
    assert len(err.splitlines()) == 1


def test_all_that_can_go_wrong_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    fault = Fault(code="x", message="no agent 9\x1b[2J")
    _, err, _ = shown(
        capsys,
        created("r1", parent_run_id="r0"),
        ev.PlanStarted(run_id="r1", messages=()),
        ev.PlanRejected(run_id="r1", raw="x", faults=(fault,), will_retry=True),
        ev.PlanStarted(run_id="r1", attempt=2, messages=()),
        planned("r1")[-1].model_copy(update={"repairs": ("closed a bracket",), "warnings": (fault,)}),
        ev.PlanEdited(run_id="r1", door="cli", before=TWO_STEPS, after=TWO_STEPS, topology="chain"),
        step_started("r1", 0, 30),
        ev.StepRetried(run_id="r1", path=(0,), attempt=1, error_code="WorkerFailed", error="500\x07", wait_ms=1500),
        step_completed("r1", 0, "4", 40).model_copy(update={"incomplete": True, "finish_reason": "length"}),
        ev.StepFailed(run_id="r1", path=(1,), error_code="WorkerRefused", error="401"),
        ev.StepSkipped(run_id="r1", path=(1,), because=((0,),)),
        ev.RecursionEntered(run_id="r1", path=(1,), depth=1),
        ev.PlanStarted(run_id="r1", round=(1,), messages=()),
        ev.PlanDelta(run_id="r1", round=(1,), text="of a round below"),
        ev.RecursionLeft(run_id="r1", path=(1,), how="stopped"),
        ev.RunCancelled(run_id="r1", door="page", duration_ms=61_000),
    )
    for line in (
        " · re-run of r0",
        "plan · rejected, the Conductor is asked again",
        "  no agent 9\\x1b[2J",
        "plan · the Conductor writes, attempt 2",
        "  repaired: closed a bracket",
        "  warning: no agent 9\\x1b[2J",
        "plan · edited by cli: chain",
        "step 0 · solver · attempt 1 failed: 500\\x07; again in 1.5 s",
        "step 0 · solver · done in 0.0 s · 3 tokens out · $0.5000 · incomplete (length)",
        "step 1 · checker · failed: 401",
        "step 1 · checker · skipped: needs step 0",
        "step 1 · checker · asks the Conductor: round 2",
        "plan of step 1 · the Conductor writes",
        "step 1 · checker · round 2 stopped",
        "run r1 · cancelled by page · 1 min 01 s",
    ):
        assert line in err
    assert "of a round below" not in err
    assert not set(err) & set("\x1b\x07")


def test_the_answer_is_streamed_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    *before, last = answered("r1", 1, "4\x1b2\n")
    out, _, answer = shown(
        capsys,
        created("r1"),
        *planned("r1"),
        *answered("r1", 0),
        *before,
        last,
        run_completed("r1", "4\x1b2\n"),
        terminal=True,
    )
    assert (out, answer) == ("4\\x1b2\n\n", "4\x1b2\n")


def test_the_answer_waits_for_what_else_would_be_printed_between(capsys: pytest.CaptureFixture[str]) -> None:
    streaming = [
        created("r1"),
        *planned("r1"),
        step_started("r1", 0, 30),
        step_started("r1", 1, 30),
        ev.StepDelta(run_id="r1", path=(1,), text="forty-"),
    ]
    assert shown(capsys, *streaming, terminal=True)[0] == ""
    whole = [*streaming, step_completed("r1", 0, "x", 40), ev.StepDelta(run_id="r1", path=(1,), text="two")]
    assert shown(capsys, *whole, terminal=True)[0] == "forty-two"


def test_an_answer_that_is_begun_again_is_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    out, _, answer = shown(
        capsys,
        created("r1"),
        *planned("r1"),
        *answered("r1", 0),
        step_started("r1", 1, 30),
        ev.StepDelta(run_id="r1", path=(1,), text="forty"),
        ev.StepRetried(run_id="r1", path=(1,), attempt=1, error_code="WorkerStreamCut", error="cut", wait_ms=0),
        ev.StepDelta(run_id="r1", path=(1,), text="42"),
        step_completed("r1", 1, "42", 50),
        run_completed("r1"),
        terminal=True,
    )
    assert (out, answer) == ("forty42\n", "42")


def test_a_disk_that_fills_up_stops_the_run_with_one_line(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Database._open_writer

    def small(self: Database) -> None:
        opened(self)
        assert self._writer is not None
        self._writer.execute("PRAGMA max_page_count=240")

    file = tmp_path / "workflow.json"
    steps = [{"instruction": "x" * 300_000, "agent": "planner", "access_list": []}]
    file.write_text(json.dumps({"task": "a task", "steps": steps}))
    with monkeypatch.context() as patched:
        patched.setattr(Database, "_open_writer", small)
        outcome = cli("run", "--workflow", file, "--json", "-q")
    assert (outcome.code, outcome.document["error"]["code"]) == (1, "StoreFull")
    [line] = outcome.err.splitlines()
    assert "no space left for the database" in line
    [run] = cli("runs", "--json").document["runs"]
    assert (run["run_id"], run["status"]) == (outcome.document["run_id"], "failed")


def test_a_log_that_takes_nothing_any_more_is_one_line_and_the_run_is_found_interrupted(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = EventLog.append

    def only_the_first(self: EventLog, *events: ev.Event) -> "asyncio.Future[None]":
        if isinstance(events[0], ev.RunCreated):
            return append(self, *events)
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(StoreFull("no space left"))
        return refused

    file = tmp_path / "workflow.json"
    file.write_text(json.dumps({"steps": [{"instruction": "x", "agent": "planner", "access_list": []}]}))
    with monkeypatch.context() as patched:
        patched.setattr(EventLog, "append", only_the_first)
        outcome = cli("run", "a task", "--workflow", file, "--json", "-q")
    assert (outcome.code, outcome.document) == (
        1,
        {"error": {"code": "StoreFull", "message": "the run stopped: no space left"}},
    )
    assert outcome.error == "the run stopped: no space left"
    assert cli("runs", "--json").document["runs"][0]["status"] == "interrupted"


def test_what_a_model_in_this_process_does_is_said_as_it_begins_and_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = ProgressView(quiet=False, answer=False)
    run_id = "r"
    workflow = Workflow(steps=(Step(instruction="x", agent="solver"),))
    for event in (created(run_id), *planned(run_id, workflow), step_started(run_id, 0, 30)):
        view.show(event)
    capsys.readouterr()
    said = [("loading", 0, 400), ("loading", 100, 500), ("loading", 250, 9000), ("reading", 512, 9100)]
    for phase, done, at_ms in said:
        progress = Progress.model_validate({"phase": phase, "done": done * 10**6, "total": 500 * 10**6})
        view.show(ev.StepProgress(run_id=run_id, at_ms=at_ms, path=(0,), progress=progress))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "step 0 · loading the model, 0 % of 500 MB",
        "step 0 · loading the model, 50 % of 500 MB",
        "step 0 · reading the prompt, 512,000,000 of 500,000,000 tokens",
    ]


def test_a_plan_that_takes_long_says_how_far_it_is_and_how_long_it_may_take(capsys: pytest.CaptureFixture[str]) -> None:
    view = ProgressView(quiet=False, answer=False)
    begun = planned("r", Workflow(steps=(Step(instruction="x", agent="solver"),)))[0]
    for event in (created("r"), begun):
        view.show(event)
    capsys.readouterr()
    said: list[dict[str, object]] = [
        {"phase": "loading", "done": 10**9, "total": 4 * 10**9, "left_s": 7},
        {"phase": "converting", "done": 10**9, "total": 4 * 10**9, "left_s": 30},
        {"phase": "reading", "done": 512, "total": 1344, "per_s": 26.42, "left_s": 31.6},
        {"phase": "thinking", "done": 1, "total": 1024},
        {"phase": "thinking", "done": 3, "total": 1024, "per_s": 1.5, "left_s": 98},
        {"phase": "thinking", "done": 4, "total": 1024, "per_s": 1.5, "left_s": 97},
        {"phase": "writing", "done": 40, "total": 1024, "per_s": 1.5, "left_s": 73},
    ]
    for seconds, each in enumerate(said):
        progress = Progress.model_validate(each)
        view.show(ev.PlanProgress(run_id="r", at_ms=7000 * seconds, progress=progress))
    assert capsys.readouterr().err.splitlines() == [
        "the Conductor · loading the model, 25 % of 4,000 MB, a few seconds left",
        "the Conductor · converting the model, 25 % of 4,000 MB, about 30 s left",
        "the Conductor · reading the prompt, 512 of 1,344 tokens, 26.4 tokens/s, about 30 s left",
        "the Conductor · thinking, 3 tokens, 1.5 tokens/s, about 2 min left",
    ]
    view.show(ev.PlanProgress(run_id="r", at_ms=60_000, progress=Progress(phase="reading", done=0, total=9)))
    quick = Progress(phase="writing", done=9, total=1024, per_s=90, left_s=1.5)
    view.show(ev.PlanProgress(run_id="r", at_ms=70_000, progress=quick))
    assert capsys.readouterr().err == "the Conductor · reading the prompt, 0 of 9 tokens\n", "a quick one shows itself"
