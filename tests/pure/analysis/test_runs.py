"""Two runs: whose output changed, because of what, and where the two part."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.analysis.compare import (
    RunsCompared,
    compare_runs,
    comparison_document,
    headline,
    output_words,
    plan_sentences,
)
from conductor_core.chat.messages import Message, Usage, WorkerSpec
from conductor_core.errors import WorkerRefused
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Limits, PoolInfo
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.fakes import Reply, ScriptedConductor, ScriptedWorker, lists_of, pure_answer, run, workflow_of
from tests.support.run_events import (
    PAGE,
    POOL,
    TWO_STEPS,
    answered,
    created,
    planned,
    run_completed,
    step_started,
    whole_run,
)
from tests.support.workflows import AGENTS, edits, workflows

BEFORE = workflow_of(
    ("a", "plan it", ()), ("b", "solve {question}", ()), ("c", "check it", (0,)), ("a", "sum up", (2,))
)


def alike(name: str, messages: Sequence[Message]) -> str:
    """One of three, so that a changed question often brings the same answer."""
    return ["yes", "no", "perhaps"][len(pure_answer(name)(messages)) % 3]


def both(before: Workflow, after: Workflow, answer: Any = pure_answer, task: str = "T") -> RunsCompared:
    async def ran() -> tuple[RunTrace, RunTrace]:
        limits = Limits(max_steps=12)
        workers = [ScriptedWorker(name, answer(name)) for name in AGENTS]
        first, _ = await run(*workers, workflow=before, task=task, limits=limits)
        second, _ = await run(*workers, workflow=after, task=task, limits=limits)
        return first, second

    return compare_runs(*asyncio.run(ran()))


def causes(compared: RunsCompared) -> list[str]:
    return [pair.because for pair in compared.root.pairs]


def folded(run_id: str, *events: Event, **fields: Any) -> RunTrace:
    return fold([created(run_id, **fields), *events])


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_with_workers_that_always_answer_alike_every_change_has_its_cause(data: st.DataObject) -> None:
    before = data.draw(workflows())
    after = data.draw(st.one_of(edits(before), workflows()))
    compared = both(before, after, lambda name: partial(alike, name))
    changed_before: set[int] = set()
    for pair in compared.root.pairs:
        assert pair.because != "chance"
        if pair.a is None or pair.b is None:
            assert pair.because == "edited"
            continue
        assert pair.output_changed == (pair.a.output != pair.b.output) == (pair.because != "none")
        if pair.because == "inputs":
            assert pair.a.messages != pair.b.messages
            assert (pair.a.agent, pair.a.instruction) == (pair.b.agent, pair.b.instruction)
            assert changed_before & set(pair.b.reads)
        if pair.output_changed or pair.plan:
            changed_before.add(pair.b.index)


def test_an_edited_step_changes_those_that_read_it_and_no_other() -> None:
    after = workflow_of(
        ("a", "plan it", ()), ("b", "solve {question}", ()), ("c", "check it", (0, 1)), ("a", "sum up", (2,))
    )
    compared = both(BEFORE, after)
    assert causes(compared) == ["none", "none", "edited", "inputs"]
    assert compared.first_difference is compared.root.pairs[2]
    assert headline(compared) == (
        "One change of the plan: step 2 also reads step 1. 2 outputs of 4 changed: "
        "step 2 because it was edited, step 3 because only its inputs changed. "
        "The answers differ in wording; compared by text, for they do not both mark a value."
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("By way of York. Answer: 13:37", "The answers differ in wording and mark the same value."),
        ("By way of Leeds. Answer: 13:43", "The answer changed."),
        ("By way of Leeds. Answer: 13:37", "The answer is the same."),
        (
            "By way of Leeds. It is a long way, and it rains.",
            "The answers differ in wording; compared by text, for they do not both mark a value.",
        ),
    ],
)
def test_an_answer_in_other_words_is_told_from_another_answer(answer: str, said: str) -> None:
    first = both(BEFORE, BEFORE).a.model_copy(update={"answer": "By way of Leeds. Answer: 13:37"})
    assert headline(compare_runs(first, first.model_copy(update={"answer": answer}))).endswith(said)


def test_another_task_is_another_input() -> None:
    compared = both(BEFORE, BEFORE, task="T")
    assert causes(compared) == ["none"] * 4
    assert compared.first_difference is None
    assert headline(compared) == "Both have the same plan. The answer is the same."
    other = compare_runs(compared.a, both(BEFORE, BEFORE, task="U").a)
    assert not other.same_task
    assert causes(other) == ["none", "inputs", "none", "none"]
    assert headline(other).startswith("The two runs have different tasks. Both have the same plan. One output of 4")


def test_the_same_question_with_another_answer_is_chance() -> None:
    plan = workflow_of(("a", "solve", ()))
    a = asyncio.run(run(ScriptedWorker("a", lambda _: "x"), workflow=plan))[0]
    b = asyncio.run(run(ScriptedWorker("a", lambda _: "y"), workflow=plan))[0]
    assert causes(compare_runs(a, b)) == ["chance"]


def test_another_seed_of_a_simulated_worker_is_chance_and_other_settings_are_an_edit() -> None:
    def with_identity(run_id: str, digest: str, pool: PoolInfo = POOL) -> RunTrace:
        first = step_started(run_id, 0, 30).model_copy(update={"identity": digest})
        done = answered(run_id, 0, output=digest)[1:]
        return folded(run_id, *planned(run_id), first, *done, pool=pool)

    plain = with_identity("a", "seed 0")
    assert causes(compare_runs(plain, with_identity("b", "seed 1")))[0] == "chance"
    hot = WorkerSpec(name="solver", provider="rehearsal", model="solver", params={"temperature": 2})
    changed = PoolInfo(name="rehearsal", workers=(hot, POOL.workers[1]))
    assert causes(compare_runs(plain, with_identity("b", "hot", changed)))[0] == "edited"


def test_a_run_without_a_plan_lacks_every_step() -> None:
    compared = compare_runs(folded("a"), fold(whole_run("b")))
    assert [(pair.a, pair.because) for pair in compared.root.pairs] == [(None, "edited")] * 2
    assert headline(compared).startswith("Run A had no plan.")
    assert headline(compared).endswith("A has no answer.")
    assert compare_runs(folded("a"), folded("b")).first_difference is None


def test_failed_skipped_and_waiting_steps_are_compared_by_what_they_said() -> None:
    failed = ev.StepFailed(run_id="b", at_ms=40, path=(0,), error_code="X", error="why", attempts=1, partial="")
    skipped = ev.StepSkipped(run_id="b", at_ms=41, path=(1,), because=((0,),))
    b = folded("b", *planned("b"), step_started("b", 0, 30), failed, skipped)
    compared = compare_runs(fold(whole_run("a")), b)
    assert causes(compared) == ["chance", "inputs"]
    said = [output_words(pair) for pair in compared.root.pairs]
    assert said == [
        "changed: by chance: the same question to the same worker; completed in A, failed in B",
        "changed: only its inputs changed; completed in A, skipped in B",
    ]
    waits = folded("c", *planned("c"))
    assert [pair.output_changed for pair in compare_runs(waits, b).root.pairs] == [False, False]
    assert compare_runs(waits, b).first_difference is not None  # one failed, one waits
    cancelled = ev.RunCancelled(run_id="d", at_ms=35, usage=Usage(), cost_usd=0, duration_ms=35)
    d = folded("d", *planned("d"), *answered("d", 0), cancelled)
    last = compare_runs(fold(whole_run("a")), d).root.pairs[1]
    assert output_words(last) == "changed: the step did not run in B, completed in A, skipped in B"


def test_a_refusal_is_an_output() -> None:
    plan = workflow_of(("a", "solve", ()))

    def refuses(_: Sequence[Message]) -> Reply:
        raise WorkerRefused("no")

    a = asyncio.run(run(ScriptedWorker("a", lambda _: "yes"), workflow=plan))[0]
    b = asyncio.run(run(ScriptedWorker("a", refuses), workflow=plan))[0]
    assert causes(compare_runs(a, b)) == ["chance"]


def test_inner_rounds_are_compared_and_the_first_difference_lies_inside() -> None:
    outer = workflow_of((CONDUCTOR_AGENT, "go deeper", ()))
    one, other = (workflow_of(("a", "solve", ()), ("b", word, (0,))) for word in ("check", "verify"))

    def ran(inner: Workflow) -> RunTrace:
        workers = [ScriptedWorker(name, pure_answer(name)) for name in AGENTS]
        conductor = ScriptedConductor(lists_of(inner, [*AGENTS, CONDUCTOR_AGENT]))
        return asyncio.run(run(*workers, workflow=outer, conductor=conductor))[0]

    compared = compare_runs(ran(one), ran(other))
    first = compared.first_difference
    assert first is not None
    assert first.label == "0.1"
    assert plan_sentences(compared) == ("in the round of step 0, instruction of step 1 edited",)
    document = comparison_document([compared.a, compared.b])
    assert document["first_difference"] == {"a": "0.1", "b": "0.1"}
    assert document["steps"][0]["round"]["plan"][0]["fields"] == ["instruction"]


def test_a_recorded_edit_says_which_step_is_which() -> None:
    twins = Workflow(steps=(Step(instruction="try", agent="solver"), Step(instruction="try", agent="solver")))
    swapped = ev.PlanEdited(run_id="b", at_ms=21, before=twins, after=twins, origins=(1, 0), **dict(PAGE))
    b = folded("b", *planned("b", twins), swapped)
    a = folded("a", *planned("a", twins))
    assert [(pair.a.index, pair.b.index) for pair in compare_runs(a, b).root.pairs if pair.a and pair.b] == [
        (1, 0),
        (0, 1),
    ]
    assert compare_runs(b, a).root.plans.origins == (1, 0)


def test_the_document_has_what_the_contract_names() -> None:
    unknown = [*whole_run("b")[:-1], run_completed("b", "43").model_copy(update={"cost_usd": None})]
    a, b = fold(whole_run("a")), fold(unknown)
    document = comparison_document([a, b])
    assert document.keys() >= {"runs", "plan", "steps", "answer_changed", "usage", "cost_usd", "duration_ms"}
    assert document["plan"] == []
    assert [set(step) >= {"a", "b", "output_changed", "because"} for step in document["steps"]] == [True, True]
    assert document["answer_changed"] is True
    assert [run["run_id"] for run in document["runs"]] == ["a", "b"]
    three = comparison_document([a, b, folded("c", *planned("c", TWO_STEPS))])
    assert [each["run_id"] for each in three["with_first"]] == ["b", "c"]
    assert len(three["usage"]) == len(three["cost_usd"]) == len(three["duration_ms"]) == 3
