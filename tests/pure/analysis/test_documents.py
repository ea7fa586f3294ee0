"""Documents of traces that the commands' own tests do not reach."""

import json

import pytest

from conductor_core.analysis.compare import comparison_document
from conductor_core.analysis.documents import plan_document, run_document
from conductor_core.run import events as ev
from conductor_core.run.trace import fold
from conductor_core.workflow.model import CONDUCTOR_AGENT, Fault, Step, Workflow
from tests.support.run_events import answered, created, planned, step_completed, step_started, whole_run

FAULT = Fault(code="unknown_agent", message="no agent 9", step=0, field="agent", line=1, column=2)


def test_a_round_below_hangs_at_its_step() -> None:
    recursive = Workflow(steps=(Step(instruction="Begin.", agent=CONDUCTOR_AGENT),))
    inner = Workflow(steps=(Step(instruction="Deeper.", agent="checker"),))
    trace = fold(
        [
            created("r1"),
            *planned("r1", recursive),
            step_started("r1", 0, 30),
            ev.RecursionEntered(run_id="r1", path=(0,), depth=1),
            ev.PlanCompleted(
                run_id="r1", round=(0,), source="conductor", raw="inner", workflow=inner, topology="one shot"
            ),
            step_started("r1", 0, 40).model_copy(update={"path": (0, 0)}),
            step_completed("r1", 0, "deep", 50).model_copy(update={"path": (0, 0)}),
        ]
    )
    document = run_document(trace, whole=True)
    [step] = document["steps"]
    assert (step["round"]["conductor"]["raw"], step["round"]["topology"]) == ("inner", "one shot")
    assert [(below["path"], below["output"]) for below in step["round"]["steps"]] == [([0, 0], "deep")]
    assert json.loads(json.dumps(document)) == document, "plain JSON through and through"


@pytest.mark.parametrize(
    ("answer", "conclusion"),
    [
        (None, None),
        ("", {"kind": "empty", "text": ""}),
        ("By way of York, it takes long.\n\nAnswer: 13:37", {"kind": "value", "text": "13:37"}),
        ("def f(n):\n    return n", {"kind": "code", "text": "f(n)"}),
        ("Take a coat. Every answer is recorded.", {"kind": "text", "text": "Take a coat. Every answer is recorded."}),
        ("I cannot help with that.", {"kind": "declined", "text": "I cannot help with that."}),
    ],
)
def test_a_run_says_what_its_answer_comes_to(answer: str | None, conclusion: dict[str, str] | None) -> None:
    trace = fold(whole_run("r1")).model_copy(update={"answer": answer})
    assert run_document(trace)["conclusion"] == conclusion
    assert comparison_document([trace, trace])["runs"][0]["conclusion"] == conclusion


def test_an_echo_of_the_last_instruction_is_no_answer() -> None:
    trace = fold(whole_run("r1"))
    assert trace.last is not None
    trace.last.instruction = "Combine the answers above into one."
    trace.answer = "Combine the answers above into one."
    found = run_document(trace)["conclusion"]
    assert found["kind"] == "text"


def test_the_exact_messages_are_in_the_whole_record_alone() -> None:
    trace = fold(whole_run("r1"))
    whole, short = run_document(trace, whole=True), run_document(trace)
    assert whole["steps"][0]["messages"] == [{"role": "user", "content": "step 0"}]
    assert whole["conductor"]["messages"] == [{"role": "user", "content": "plan"}]
    assert "messages" not in short["steps"][0]
    assert "messages" not in short["conductor"]
    assert short.keys() <= whole.keys()


def test_a_rejected_plan_shows_what_was_written_last() -> None:
    rejected = [
        ev.PlanRejected(run_id="r1", attempt=number, raw=f"text {number}", faults=(FAULT,), will_retry=number == 1)
        for number in (1, 2)
    ]
    failed = ev.RunFailed(run_id="r1", error_code="PlanRejected", error="no usable workflow")
    trace = fold([created("r1", plan_only=True), *rejected, failed])
    plan = plan_document(trace)
    assert (plan["steps"], plan["raw"], plan["topology"]) == ([], "text 2", None)
    assert plan["faults"] == [
        {"code": "unknown_agent", "message": "no agent 9", "step": 0, "field": "agent", "line": 1, "column": 2}
    ]
    assert plan["error"] == {"code": "PlanRejected", "message": "no usable workflow"}
    assert run_document(trace)["conductor"]["raw"] == "text 2"


def test_a_plan_that_came_after_a_rejected_one_has_no_faults() -> None:
    rejected = ev.PlanRejected(run_id="r1", raw="x", faults=(FAULT,), will_retry=True)
    plan = plan_document(fold([created("r1", plan_only=True), rejected, *planned("r1")]))
    assert (plan["faults"], plan["raw"], len(plan["steps"])) == ([], "model_id = [0, 1]", 2)


def test_an_unknown_price_is_null() -> None:
    trace = fold([created("r1"), *planned("r1"), *answered("r1", 0)[:2], step_completed("r1", 0, "42", 50, None)])
    document = run_document(trace)
    assert (document["cost_usd"], document["steps"][0]["cost_usd"]) == (None, None)


def test_a_cost_says_what_it_rests_on() -> None:
    [started, *_], own = answered("r1", 0), step_completed("r1", 0, "42", 50)
    for listed, guessed, basis in (
        (False, False, "provider"),
        (True, False, "list_price"),
        (True, True, "estimated"),
        (False, True, "provider"),
    ):
        usage = own.usage.model_copy(update={"estimated": guessed})
        ended = own.model_copy(update={"cost_estimated": listed, "usage": usage})
        document = run_document(fold([created("r1"), *planned("r1"), started, ended]))
        assert (document["cost_basis"], document["steps"][0]["cost_basis"]) == (basis, basis)
        assert document["steps"][0]["cost_estimated"] is (basis == "estimated")
