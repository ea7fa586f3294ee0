"""The rounds of one run beside each other."""

import pytest

from conductor_core.analysis.compare import (
    compare_rounds,
    headline,
    kept_answer,
    opened_rounds,
    output_words,
    round_run,
    rounds_document,
)
from conductor_core.chat.messages import Usage
from conductor_core.run.events import Event, PlanCompleted, PlanStarted, RecursionEntered, RecursionLeft
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Path, label
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from tests.support.fakes import workflow_of
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

FIRST = workflow_of(("solver", "solve", ()), ("checker", "check", (0,)), (CONDUCTOR_AGENT, "go on", (1,)))
SECOND = workflow_of(("solver", "solve", ()), ("checker", "check twice", (0,)))
AGAIN = workflow_of(("solver", "solve", ()), (CONDUCTOR_AGENT, "go on", (0,)))


def ran(path: Path, output: str, at_ms: float) -> list[Event]:
    done = step_completed("r", 0, output, at_ms + 10, cost_usd=0.5)
    return [each.model_copy(update={"path": path}) for each in (step_started("r", 0, at_ms), done)]


def opened(path: Path, workflow: Workflow, at_ms: float) -> list[Event]:
    begun = step_started("r", 0, at_ms).model_copy(update={"path": path})
    return [
        begun,
        RecursionEntered(run_id="r", at_ms=at_ms, path=path, depth=len(path)),
        PlanStarted(run_id="r", at_ms=at_ms, round=path, messages=()),
        PlanCompleted(
            run_id="r", at_ms=at_ms + 5, round=path, source="conductor", raw="", workflow=workflow, topology="x"
        ),
    ]


def left(path: Path, output: str, at_ms: float) -> list[Event]:
    done = step_completed("r", 0, output, at_ms, cost_usd=0.0).model_copy(update={"path": path, "usage": Usage()})
    return [RecursionLeft(run_id="r", at_ms=at_ms, path=path, how="answered"), done]


def begun() -> list[Event]:
    return [created("r"), *planned("r", FIRST), *ran((0,), "41", 30), *ran((1,), "it is 41", 50)]


@pytest.fixture
def trace() -> RunTrace:
    second = [*opened((2,), SECOND, 70), *ran((2, 0), "42", 80), *ran((2, 1), "it is 42", 100)]
    return fold([*begun(), *second, *left((2,), "it is 42", 115), run_completed("r", "it is 42", 120)])


def test_the_second_round_stands_beside_the_first_as_two_runs_do(trace: RunTrace) -> None:
    assert opened_rounds(trace) == ((2,),)
    compared = compare_rounds(trace, (2,))
    assert (compared.a.answer, compared.b.answer) == ("it is 41", "it is 42")
    assert [pair.label for pair in compared.root.pairs] == ["0 → 2.0", "1 → 2.1"]
    assert [output_words(pair, compared.names) for pair in compared.root.pairs] == [
        "changed: by chance: the same question to the same worker",
        "changed: the step was edited",
    ]
    said = headline(compared)
    assert "One change of the plan: instruction of step 1 edited." in said
    assert said.endswith("The answer changed.")


def test_a_round_spends_what_is_its_own(trace: RunTrace) -> None:
    first, second = round_run(trace, ()), round_run(trace, (2,))
    assert first.usage + second.usage == trace.usage
    assert (first.cost_usd or 0) + (second.cost_usd or 0) == trace.cost_usd
    assert second.duration_ms == 40
    assert [label(step.path) for step in first.walk()] == ["0", "1"]
    assert trace.steps[2].round is not None, "the run itself stays as it is"


def test_a_third_round_stands_beside_the_second() -> None:
    second = [*opened((2,), AGAIN, 70), *ran((2, 0), "42", 80)]
    third = [*opened((2, 1), SECOND, 100), *ran((2, 1, 0), "43", 110), *ran((2, 1, 1), "it is 43", 130)]
    trace = fold([*begun(), *second, *third])
    assert opened_rounds(trace) == ((2,), (2, 1))
    compared = compare_rounds(trace, (2, 1))
    assert compared.names == ("round 2", "round 3")
    assert (compared.a.answer, compared.b.answer) == ("42", "it is 43")
    assert [pair.label for pair in compared.root.pairs] == ["2.0 → 2.1.0", "2.1.1"]
    assert output_words(compared.root.pairs[1], compared.names) == "only in round 3"


def test_a_round_of_no_steps_keeps_the_answer() -> None:
    trace = fold([*begun(), *opened((2,), Workflow(steps=()), 70), *left((2,), "it is 41", 80)])
    assert kept_answer(trace, (2,))
    (told,) = rounds_document(trace)["rounds"]
    assert (told["a"], told["b"], told["kept_answer"], told["answers"]) == (None, "2", True, ["it is 41"] * 2)


def test_a_round_without_an_answer_says_so() -> None:
    compared = compare_rounds(fold([*begun(), *opened((2,), SECOND, 70)]), (2,))
    assert headline(compared).endswith("Round 2 has no answer.")


def test_a_run_of_one_round_has_none_to_compare() -> None:
    assert opened_rounds(fold([created("r"), *planned("r", SECOND)])) == ()
