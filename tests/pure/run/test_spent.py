"""What a step spent with its round, and which steps wait for a slot of their worker."""

from conductor_core.analysis.documents import run_document
from conductor_core.chat.messages import Usage
from conductor_core.cli.show import run_lines
from conductor_core.run import events as ev
from conductor_core.run.costs import spent_on, usage_of, waits_for_a_slot
from conductor_core.run.request import Overrides
from conductor_core.run.trace import RunTrace, fold
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.run_events import TWO_STEPS, answered, created, planned, recursive_run, step_started

PARALLEL = Workflow(
    steps=(
        Step(instruction="One.", agent="solver"),
        Step(instruction="Two.", agent="solver"),
        Step(instruction="Both.", agent="checker", access_list=(0,)),
    )
)


def slots(trace: RunTrace) -> list[bool]:
    return [waits_for_a_slot(trace, step) for step in trace.steps]


def test_a_step_of_the_conductor_spends_what_its_round_does() -> None:
    first = Workflow(steps=(Step(instruction="Solve.", agent="solver"), Step(instruction="On.", agent=CONDUCTOR_AGENT)))
    trace = fold(recursive_run("r", first, TWO_STEPS))
    worker, opener = trace.steps
    assert opener.round is not None
    inner = [opener.usage, opener.round.usage, *(step.usage for step in opener.round.steps)]
    assert usage_of(opener) == sum(inner, Usage()) != Usage()
    assert usage_of(worker) == worker.usage
    spent = spent_on(trace, opener)
    assert spent.cost_usd == (opener.cost_usd or 0) + sum(step.cost_usd or 0.0 for step in opener.round.steps)
    document = run_document(trace)["steps"]
    assert document[0]["with_round"] is None
    assert document[1]["with_round"]["usage"] == usage_of(opener).model_dump(mode="json")
    assert document[1]["with_round"]["cost_usd"] == spent.cost_usd
    (line,) = (line for line in run_lines(trace) if line.startswith("step 1 · "))
    assert f"{usage_of(opener).input_tokens} tokens in, {usage_of(opener).output_tokens} out" in line
    assert line.endswith("with round 2")


def test_waiting_for_a_slot_is_not_waiting_for_a_step() -> None:
    events = [created("r"), *planned("r", PARALLEL), step_started("r", 0, 30)]
    trace = fold(events)
    assert slots(trace) == [False, True, False]
    said = [line for line in run_lines(trace) if line.startswith("step ")]
    assert "waiting for a slot: solver answers 8 at once" in said[1]
    assert said[2].endswith("waiting")
    assert [step["waits_for_a_slot"] for step in run_document(trace)["steps"]] == slots(trace)
    assert slots(fold([*events, *answered("r", 0)[1:]])) == [False, True, True]
    trace.overrides = Overrides(last_step=2)
    assert slots(trace) == [False, False, False], "the answer does not need step 1"
    assert slots(fold([*events, ev.RunCancelled(run_id="r")])) == [False, False, False]
