"""The rules by which a run waits, and what an edit or a decision may follow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from conductor_core.chat.messages import Usage
from conductor_core.engine.approvals import check_providers, check_steps
from conductor_core.errors import BadInput
from conductor_core.run import events as ev
from conductor_core.run.actor import local_caller
from conductor_core.run.commands import note_for_record
from conductor_core.run.request import Gate, RunRequest, read_gate
from conductor_core.run.trace import RunTrace, apply, fold
from conductor_core.run.values import Path, PoolInfo
from tests.support.fakes import ScriptedWorker, workflow_of

GATES = st.one_of(
    st.just(Gate(rule="plan")),
    st.just(Gate(rule="steps")),
    st.integers(0, 10**6).map(lambda number: Gate(rule="step", number=number)),
    st.floats(0, 1e9, allow_nan=False).map(lambda usd: Gate(rule="usd", usd=float(f"{usd:g}"))),
    st.from_regex(r"[a-z0-9.:-]*[a-z0-9]", fullmatch=True).map(lambda name: Gate(rule="provider", provider=name)),
)
CALLER = local_caller("cli")
BY = {"actor": CALLER.actor, "door": CALLER.door}
PLAN = workflow_of(("a", "Do it.", ()), ("b", "Check it.", (0,)))
OTHER = workflow_of(("a", "Do it.", ()), ("b", "Check it twice.", (0,)))


@given(GATES)
def test_a_gate_is_read_as_it_is_written(gate: Gate) -> None:
    assert read_gate(str(gate)) == gate
    assert RunRequest.model_validate_json(RunRequest(task="t", gates=(gate,)).model_dump_json()).gates == (gate,)


@pytest.mark.parametrize(
    "text", ["", "step", "step:", "step:-1", "step:x", "plan:1", "usd:-1", "usd:nan", "usd:inf", "provider:", "all"]
)
def test_what_is_no_gate_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"unknown gate .*; choose plan, steps"):
        read_gate(text)


def test_a_gate_has_the_value_of_its_rule_alone() -> None:
    with pytest.raises(ValidationError):
        Gate(rule="plan", number=1)


def asked_run() -> RunTrace:
    created = ev.RunCreated(
        run_id="r",
        request=RunRequest(run_id="r", task="t", gates=(Gate(rule="steps"),)),
        conductor=None,
        pool=PoolInfo(name="p", workers=()),
        simulated=False,
        app_version="0",
    )
    planned = ev.PlanCompleted(run_id="r", source="file", workflow=PLAN, topology="chain")
    started = ev.StepStarted(run_id="r", path=(0,), agent="a", identity="0", messages=())
    done = ev.StepCompleted(
        run_id="r", path=(0,), output="x", output_sha256="", finish_reason="stop", usage=Usage(), duration_ms=1
    )
    return fold([created, planned, started, done, request(1)])


def request(number: int, path: Path = (1,)) -> ev.ApprovalRequested:
    return ev.ApprovalRequested(run_id="r", number=number, of="step", path=path, rules=("steps",), identity="1")


def edited(after: object, command: int = 3) -> ev.PlanEdited:
    return ev.PlanEdited.model_validate({"run_id": "r", "before": PLAN, "after": after, "command": command} | BY)


def granted(*numbers: int, command: int | None = 3) -> ev.ApprovalGranted:
    return ev.ApprovalGranted.model_validate({"run_id": "r", "numbers": numbers, "command": command} | BY)


def test_a_decision_is_kept_with_who_made_it_and_when() -> None:
    trace = asked_run()
    assert [approval.what for approval in trace.asked_for] == ["step 1"]
    event = granted(1)
    apply(trace, event)
    approval = trace.approvals[0]
    assert (approval.status, approval.decided_by, approval.decided_at_utc) == ("granted", CALLER, event.at_utc)
    assert (trace.asked_for, trace.last_command) == ([], 3)


@pytest.mark.parametrize(
    "event",
    [
        granted(1, command=2),  # another decision came first
        granted(2, command=4),  # there is no such request
        ev.ApprovalDenied(run_id="r", numbers=(1,), command=5),
        ev.CommandRefused(run_id="r", command=3, asked="approve", reason="late"),
        request(3),
        ev.RunWaiting(run_id="r"),  # nothing is asked for
        ev.RunTaken(run_id="r"),
    ],
)
def test_one_decision_counts(event: ev.Event) -> None:
    trace = asked_run()
    apply(trace, granted(1))
    before = trace.model_copy(deep=True)
    with pytest.raises(ValueError, match=r"."):
        apply(trace, event)
    assert trace == before


def test_an_edit_replaces_what_was_asked_about_a_changed_step() -> None:
    trace = asked_run()
    apply(trace, edited(OTHER))
    assert (trace.approvals[0].status, trace.last_command, trace.root.edited_by) == ("replaced", 3, CALLER)
    assert (trace.steps[0].status, trace.steps[0].output) == ("completed", "x")
    assert trace.steps[1].instruction == "Check it twice."
    apply(trace, edited(PLAN, command=4))
    assert trace.root.before_edit == PLAN


def test_an_edit_keeps_what_was_asked_about_other_steps() -> None:
    trace = asked_run()
    apply(trace, edited(workflow_of(("a", "Do it.", ()), ("b", "Check it.", (0,)), ("a", "Say it.", (1,)))))
    assert ([step.status for step in trace.steps], len(trace.asked_for)) == (["completed", "waiting", "waiting"], 1)


@pytest.mark.parametrize("after", [workflow_of(("a", "Do it well.", ()), ("b", "Check it.", (0,))), workflow_of()])
def test_an_edit_changes_no_step_that_has_begun(after: object) -> None:
    trace = asked_run()
    before = trace.model_copy(deep=True)
    with pytest.raises(ValueError, match="step 0 has begun"):
        apply(trace, edited(after))
    assert trace == before


def test_a_denied_run_ends_with_who_and_why() -> None:
    trace = asked_run()
    apply(trace, ev.ApprovalDenied.model_validate({"run_id": "r", "numbers": (1,), "note": "too dear"} | BY))
    apply(trace, ev.RunDenied.model_validate({"run_id": "r", "error": "too dear"} | BY))
    assert (trace.status, trace.ended, trace.ended_by, trace.error_code) == ("denied", True, CALLER, "Denied")
    assert [step.status for step in trace.steps] == ["completed", "denied"]


@pytest.mark.parametrize(
    ("base_url", "gate"),
    [
        ("https://far.example./v1", "far.example"),
        ("https://far.example/v1", "Far.Example."),
        ("https://far.example.:8443/v1", "far.example:8443"),
        ("https://user:far@far.example/v1", "far.example"),
        ("http://[::1]:8000/v1", "::1"),
        ("http://[::1]:8000/v1", "[::1]:8000"),
    ],
)
def test_a_host_is_the_same_with_a_dot_at_its_end(base_url: str, gate: str) -> None:
    worker = ScriptedWorker("a", base_url=base_url).spec
    check_providers([read_gate(f"provider:{gate}")], [worker], None)


@pytest.mark.parametrize("other", ["far.example.org", "example", "far", "far.example:1"])
def test_another_host_is_not_the_same(other: str) -> None:
    worker = ScriptedWorker("a", base_url="https://far.example:8443/v1").spec
    with pytest.raises(BadInput, match="nothing of this run goes there"):
        check_providers([read_gate(f"provider:{other}")], [worker], None)


def test_a_gate_before_a_step_that_cannot_be_is_refused() -> None:
    plan = workflow_of(("a", "Do it.", ()))
    check_steps([read_gate("step:0"), read_gate("plan")], 5, plan)
    check_steps([read_gate("step:4")], 5, None)
    with pytest.raises(BadInput, match="gate step:1: unknown step; steps count from 0, and the workflow has 1"):
        check_steps([read_gate("step:1")], 5, plan)
    with pytest.raises(BadInput, match="a plan of this run has at most 5"):
        check_steps([read_gate("step:5")], 5, None)


def test_a_note_is_kept_without_keys_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-a-note-0123456789")
    kept = note_for_record("fine, sk-of-a-note-0123456789 works")
    assert "sk-of-a-note-0123456789" not in kept
    assert kept.startswith("fine, ")
    with pytest.raises(BadInput, match="the note has 2,001 characters; at most 2,000"):
        note_for_record("x" * 2001)
