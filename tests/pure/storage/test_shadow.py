"""Which runs are a forwarded request, its shadow and a question about it, and whose verdict counts."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from conductor_core.analysis.shadow import Request, report
from conductor_core.chat.messages import ToolCall
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.events import Event
from conductor_core.run.judgement import By, Mark, Verdict
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, SHADOW_PURPOSE
from conductor_core.run.values import Imported
from conductor_core.workflow.model import Step, Workflow
from storage import Store
from tests.support.command_line import log as main
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

NOW = datetime.now(UTC)
FILE = Imported(run_id="there", written_by="0", written_at_utc=NOW, imported_at_utc=NOW)
Write = Callable[..., str]
ADA, BOB = (Caller(actor=Actor(kind="person", id=name, name=name), door="page") for name in ("ada", "bob"))


@pytest.fixture
def write(store: Store) -> Write:
    """Writes a run of one step that costs 0.5 USD and tells its events a day later or earlier."""

    def run(
        run_id: str,
        purpose: str,
        about: str | None = None,
        agent: str = "gpt",
        days: float = 0,
        usd: float | None = 0.5,
        ending: Event | Literal["whole"] | None = "whole",
        **fields: Any,
    ) -> str:
        first = created(run_id, purpose=purpose, about_run_id=about, **fields)
        steps = [Step(instruction="{question}", agent=name) for name in (agent, "checker")]
        plan = planned(run_id, Workflow(steps=tuple(steps)))
        step: list[Event] = [step_started(run_id, 0, 30), step_completed(run_id, 0, "42", 40, usd)]
        last = run_completed(run_id) if ending == "whole" else ending
        told: list[Event] = [first, *plan, *step, *([] if last is None else [last])]
        at_utc = NOW + timedelta(days=days)
        store.log.append_and_wait(*(event.model_copy(update={"at_utc": at_utc}) for event in told))
        return run_id

    return run


def failed(run_id: str, code: str) -> ev.RunFailed:
    return ev.RunFailed(run_id=run_id, error_code=code, error="It failed.", duration_ms=5)


def only(store: Store) -> Request:
    (request,) = store.shadow_traffic.read().requests
    return request


def judged(store: Store, mark: Mark, run_id: str = "shadow", by: By = "person", caller: Caller = ADA) -> None:
    compared = None if mark in ("right", "wrong") else {"shadow": "today", "today": "shadow"}[run_id]
    store.judgements.add(run_id, caller, mark=mark, by=by, compared_with=compared)


@pytest.fixture
def pair(write: Write) -> None:
    write("today", PASS_PURPOSE, agent="gpt")
    write("shadow", SHADOW_PURPOSE, "today", agent="writer")


def test_a_shadow_belongs_to_its_request_and_a_question_to_the_shadow(store: Store, write: Write, pair: None) -> None:
    write("other", "evaluation")
    for number in range(2):
        write(f"question {number}", JUDGE_PURPOSE, "shadow")
    request = only(store)
    assert request.shadow is not None
    assert (request.forwarded.run_id, request.forwarded.by) == ("today", "gpt")
    assert (request.shadow.run_id, request.shadow.by, request.shadow.status) == ("shadow", "tiny", "completed")
    assert (request.forwarded.tokens, request.forwarded.cost_usd, request.forwarded.duration_ms) == (25, 0.5, 100.0)
    assert (request.judgings, request.judged_usd, request.unread) == (2, 1.0, 2)
    store.judgements.add_all(
        [Verdict(run_id="shadow", mark="same", by="judge", source_run_id="question 0", compared_with="today")], ADA
    )
    assert only(store).unread == 1
    assert request.whole
    assert request.verdict is None


def test_what_belongs_to_no_request_is_counted(store: Store, write: Write, pair: None) -> None:
    write("later shadow", SHADOW_PURPOSE, "today")
    write("shadow of nothing", SHADOW_PURPOSE, "a run that is gone")
    write("from a file", PASS_PURPOSE, imported=FILE)
    write("old", PASS_PURPOSE, days=-40)
    write("shadow of the old", SHADOW_PURPOSE, "old")
    found = store.shadow_traffic.read()
    assert [each.forwarded.run_id for each in found.requests] == ["old", "today"]
    assert (found.gone, found.repeated) == (1, 1)
    newest = found.requests[1].shadow
    assert newest is not None
    assert newest.run_id == "later shadow"
    since = store.shadow_traffic.read(NOW - timedelta(days=1))
    assert [each.forwarded.run_id for each in since.requests] == ["today"]
    assert (since.gone, since.repeated) == (1, 1), "one of an older request is not of a deleted one"


def test_an_erased_request_leaves_its_shadow_counted(store: Store, write: Write, pair: None) -> None:
    store.erase(["today"], ADA)
    found = store.shadow_traffic.read()
    assert (found.requests, found.gone) == ((), 1)


def test_a_rate_limit_is_told_from_other_failures(store: Store, write: Write) -> None:
    write("today", PASS_PURPOSE, ending=failed("today", "WorkerRateLimited"))
    write("shadow", SHADOW_PURPOSE, "today", ending=failed("shadow", "WorkerFailed"))
    request = only(store)
    assert request.shadow is not None
    assert (request.forwarded.status, request.shadow.status) == ("limited", "failed")
    assert [line.name for line in report(store.shadow_traffic.read()).endings] == ["Failed", "Rate-limited"]


def test_an_unknown_price_is_unknown_and_a_running_shadow_unfinished(store: Store, write: Write) -> None:
    write("today", PASS_PURPOSE, usd=None)
    write("shadow", SHADOW_PURPOSE, "today", ending=None)
    request = only(store)
    assert request.forwarded.cost_usd is None
    assert report(store.shadow_traffic.read()).unfinished == 1


def test_a_shadow_that_came_to_a_call_of_a_tool_is_compared_and_another_cancelled_one_is_not(
    store: Store, write: Write
) -> None:
    for name, calls in (("calls", True), ("stopped", False)):
        write(f"today {name}", PASS_PURPOSE)
        write(name, SHADOW_PURPOSE, f"today {name}", ending=None)
        call = ToolCall(name="look_up", arguments="{}", call_id="call_0")
        called = ev.ToolCalled(run_id=name, path=(1,), calls=(call,))
        waits: list[Event] = [step_started(name, 1, 50), called, ev.RunWaiting(run_id=name)]
        ended = ev.RunCancelled(run_id=name, actor=ADA.actor, door="api", duration_ms=60)
        store.log.append_and_wait(*(waits if calls else []), ended)
    stopped, calling = store.shadow_traffic.read().requests
    assert calling.shadow is not None
    assert stopped.shadow is not None
    assert (calling.shadow.status, calling.whole) == ("called", True)
    assert (stopped.shadow.status, stopped.whole) == ("cancelled", False)
    found = report(store.shadow_traffic.read())
    assert (found.compared, found.broken_off, found.endings) == (1, 1, ())


def test_a_person_counts_before_a_grader_and_a_grader_before_a_judge(store: Store, pair: None) -> None:
    judged(store, "better", by="judge")
    assert only(store).verdict == "better"
    judged(store, "right", "today", by="grader")
    judged(store, "wrong", by="grader")
    request = only(store)
    assert request.rights == (True, False)
    assert request.verdict == "better", "who compared is believed before what follows from right and wrong"
    assert request.disputed, "the grader contradicts the judge"
    judged(store, "worse")
    assert only(store).verdict == "worse"
    judged(store, "right", caller=BOB)
    assert only(store).rights == (True, True)
    judged(store, "wrong", caller=BOB)
    assert only(store).rights == (True, False), "the last of a judge counts"


def test_a_comparison_told_the_other_way_round_is_the_same_one(store: Store, pair: None) -> None:
    judged(store, "worse", "today")
    assert only(store).verdict == "better"
    judged(store, "worse", caller=BOB)
    assert only(store).disputed


def test_a_verdict_that_was_taken_back_counts_no_more(store: Store, pair: None) -> None:
    judged(store, "better")
    before = store.shadow_traffic.state()
    (last,) = store.judgements.of("shadow")
    store.judgements.take_back(last, ADA)
    assert only(store).verdict is None
    assert store.shadow_traffic.state() != before


def test_the_command_prints_the_figures_and_nothing_steers_the_terminal(
    store: Store, write: Write, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shadow", "--db", str(path)]) == 0
    assert "no forwarded requests" in capsys.readouterr().out
    write("today", PASS_PURPOSE, agent="\x1b[31mgpt")
    write("shadow", SHADOW_PURPOSE, "today")
    store.close()
    assert main(["shadow", "--db", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("On 1 compared request the Conductor took 1.0 times as long and cost 1.0 times as much;")
    assert "1 forwarded request, 1 with a shadow" in said
    assert "\x1b" not in said
    assert main(["shadow", "--since", "2999-01-01", "--json", "--db", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["forwarded"] == 0
