"""How a cost is written, alike wherever it is told."""

import pytest

from conductor_core.analysis.documents import run_document
from conductor_core.chat.messages import Usage
from conductor_core.cli.show import run_lines
from conductor_core.run import events as ev
from conductor_core.run.costs import Cost, spent_on, usage_of, waits_for_a_slot
from conductor_core.run.request import Overrides
from conductor_core.run.trace import RunTrace, fold
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.run_events import TWO_STEPS, answered, created, planned, recursive_run, step_started

WRITTEN = [
    (Cost(0.0, 0.0), "$0"),
    (Cost(0.0000004, 0.0000004), "<$0.000001"),
    (Cost(0.000273, 0.000273), "$0.000273"),
    (Cost(0.0123, 0.0123), "$0.0123"),
    (Cost(1234.5, 1234.5), "$1,234.50"),
    (Cost(None, 0.0123), "at least $0.0123"),
    (Cost(None, 0.0), "unknown"),
]


@pytest.mark.parametrize(("cost", "written"), WRITTEN)
def test_what_is_unknown_is_never_nothing_and_what_is_known_is_a_bound(cost: Cost, written: str) -> None:
    assert str(cost) == written
    assert cost.at_least is (cost.usd is None)


def test_a_sum_with_an_unknown_part_keeps_what_is_known() -> None:
    assert sum([Cost(0.5, 0.5), Cost(None, 0.25), Cost()], Cost()) == Cost(None, 0.75)
    assert sum([Cost(0.5, 0.5), Cost(0.25, 0.25)], Cost()) == Cost(0.75, 0.75)


def test_where_nothing_says_that_it_is_a_cost_an_unknown_one_says_so() -> None:
    assert [Cost(None, 0).in_line, Cost(None, 0.5).in_line, Cost().in_line] == [
        "cost unknown",
        "at least $0.5000",
        "$0",
    ]


# What a step spent with its round, and which steps wait for a slot of their worker.


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
