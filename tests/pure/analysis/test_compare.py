"""Two runs, two rounds and two plans beside each other."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.analysis.compare import (
    NO_PLAN,
    Difference,
    RoundsCompared,
    RunsCompared,
    compare_plans,
    compare_rounds,
    compare_runs,
    comparison_document,
    headline,
    kept_answer,
    opened_rounds,
    output_words,
    plan_sentences,
    round_run,
    rounds_document,
)
from conductor_core.analysis.conclusion import Likeness, answer_key, likeness, name_of
from conductor_core.chat.messages import Message, Usage, WorkerSpec
from conductor_core.engine.estimates import edit_step
from conductor_core.errors import WorkerRefused
from conductor_core.run import events as ev
from conductor_core.run.events import Event, PlanCompleted, PlanStarted, RecursionEntered, RecursionLeft
from conductor_core.run.request import TOUR_PURPOSE, TierChoice
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Limits, Path, PoolInfo, label
from conductor_core.workflow.edits import add_step, remove_step
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
    step_completed,
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


# What a list calls a run: by who planned it, or by what was changed.

WRITTEN = workflow_of(("writer", "plan {question}", ()), ("coder", "solve", (0,)), ("coder", "check", (1,)))


def rerun(workflow: Workflow) -> RunTrace:
    async def both() -> RunTrace:
        workers = ScriptedWorker("writer"), ScriptedWorker("coder")
        first, _ = await run(*workers, workflow=WRITTEN)
        return (await run(*workers, workflow=workflow, reuse_from=first))[0]

    return asyncio.run(both())


@pytest.mark.parametrize(
    ("edited", "named"),
    [
        (WRITTEN, "again"),
        (edit_step(WRITTEN, 0, agent="coder"), "step 0: writer → coder"),
        (edit_step(WRITTEN, 2, access=(0, 1)), "step 2 also reads step 0"),
        (edit_step(WRITTEN, 2, access=()), "step 2 no longer reads step 1"),
        (edit_step(WRITTEN, 1, instruction="solve it"), "instruction of step 1 edited"),
        (
            edit_step(WRITTEN, 1, instruction="solve it", agent="writer"),
            "step 1: coder → writer, instruction edited",
        ),
        (add_step(WRITTEN, 3, Step(instruction="end", agent="coder")), "step 3 (coder) added"),
        (remove_step(WRITTEN, 2)[0], "step 2 (coder) removed"),
    ],
)
def test_a_rerun_is_named_by_its_change(edited: Workflow, named: str) -> None:
    assert name_of(rerun(edited)) == named


def test_a_run_that_resumes_another_is_named_by_what_was_missing() -> None:
    resumed = rerun(edit_step(WRITTEN, 1, instruction="solve it")).model_copy(update={"resumed": True})
    assert name_of(resumed) == "the 2 missing steps"


def test_a_first_run_is_named_by_who_wrote_its_plan() -> None:
    first = rerun(WRITTEN).model_copy(update={"parent_run_id": None})
    assert name_of(first) == "Plan by hand"
    assert name_of(first.model_copy(update={"purpose": TOUR_PURPOSE})) == "Plan of the tour"
    easy = TierChoice(easy=True, worker="fast", probability=0.9, threshold=0.8, reason="")
    assert name_of(first.model_copy(update={"tier": easy})) == "Sent to fast"


# The rounds of one run beside each other.

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


# The differences of two plans: complete, so that they lead from one to the other, and no more than there are.

STEPS = tuple(
    Step(instruction=f"do {word}", agent=word, access_list=reads)
    for word, reads in (("plan", ()), ("solve", (0,)), ("guess", ()), ("verify", (2,)))
)
PLAN = Workflow(steps=STEPS)


def changes(before: Workflow, after: Workflow) -> list[tuple[str, int | None, int | None, tuple[str, ...]]]:
    return [(each.change, each.a, each.b, each.fields) for each in compare_plans(before, after).differences]


def applied(plan: Workflow, differences: Sequence[Difference]) -> Workflow:
    """Returns plan B, given plan A and the differences of B from A. Raises: ValueError if they do not fit ``plan``."""
    placed: dict[int, int | Step] = {}
    gone = {each.a for each in differences if each.change == "removed"}
    for each in differences:
        if each.b is not None and each.change == "moved" and each.a is not None:
            placed[each.b] = each.a
        elif each.b is not None and each.change == "added" and each.after is not None:
            placed[each.b] = each.after
    stays = [index for index in range(len(plan.steps)) if index not in gone and index not in placed.values()]
    size = len(placed) + len(stays)
    free = [index for index in range(size) if index not in placed]
    if len(free) != len(stays) or not gone | {place for place in placed.values() if isinstance(place, int)} <= set(
        range(len(plan.steps))
    ):
        raise ValueError(f"the differences do not fit a plan of {len(plan.steps)} steps")
    placed |= dict(zip(free, stays, strict=True))
    numbers = {place: index for index, place in placed.items() if isinstance(place, int)}
    changed = {each.b: each for each in differences if each.change == "changed"}
    steps: list[Step] = []
    for index in range(size):
        place = placed[index]
        step = plan.steps[place] if isinstance(place, int) else place
        if isinstance(place, int):
            reads = step.access_list
            if reads != "all":
                reads = tuple(numbers[read] for read in reads if read in numbers)
            step = step.model_copy(update={"access_list": reads})
        if (own := changed.get(index)) is not None and own.after is not None:
            step = step.model_copy(update={part: getattr(own.after, part) for part in own.fields})
        steps.append(step)
    return Workflow(steps=tuple(steps))


def with_step(index: int, **update: object) -> Workflow:
    steps = list(STEPS)
    steps[index] = steps[index].model_copy(update=update)
    return Workflow(steps=tuple(steps))


def planned_run(run_id: str, workflow: Workflow | None, inner: Workflow | None) -> RunTrace:
    events = [created(run_id), *([] if workflow is None else planned(run_id, workflow))]
    asks = next((index for index, step in enumerate(workflow.steps if workflow else ()) if step.agent == "c"), None)
    if inner is not None and asks is not None:
        events += [
            RecursionEntered(run_id=run_id, path=(asks,), depth=1),
            PlanCompleted(run_id=run_id, round=(asks,), source="conductor", raw="", workflow=inner, topology="chain"),
        ]
    return fold(events)


def rounds_of(compared: RoundsCompared) -> list[RoundsCompared]:
    return [compared, *(each for pair in compared.pairs if pair.inner for each in rounds_of(pair.inner))]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_differences_of_two_runs_applied_to_one_plan_give_the_other(data: st.DataObject) -> None:
    before = data.draw(workflows())
    after = data.draw(st.one_of(edits(before), workflows(), st.none()))
    inner = data.draw(workflows(3))
    a = planned_run("a", before, inner)
    b = planned_run("b", after, data.draw(st.one_of(edits(inner), st.none())))
    for there, back in ((a, b), (b, a)):
        compared = compare_runs(there, back)
        for each in rounds_of(compared.root):
            target = NO_PLAN if each.b is None or each.b.workflow is None else each.b.workflow
            assert applied(each.plans.a, each.plans.differences) == target
            assert (not each.plans.differences) == (each.plans.a == target)
            # Each step of either plan stands in exactly one pair.
            for side, steps in (("a", each.plans.a.steps), ("b", target.steps)):
                places = [step.index for pair in each.pairs if (step := getattr(pair, side)) is not None]
                assert sorted(places) == list(range(len(steps)))


def test_an_access_list_whose_steps_only_got_other_numbers_did_not_change() -> None:
    new = Step(instruction="think first", agent="plan")
    after = Workflow(
        steps=(
            new,
            *(
                step.model_copy(update={"access_list": tuple(read + 1 for read in PLAN.reads(index))})
                for index, step in enumerate(STEPS)
            ),
        )
    )
    assert changes(PLAN, after) == [("added", None, 0, ())]


def test_each_part_that_changed_is_named() -> None:
    assert changes(PLAN, with_step(3, access_list=(1, 2))) == [("changed", 3, 3, ("access_list",))]
    assert changes(PLAN, with_step(1, agent="other", instruction="do solve it")) == [
        ("changed", 1, 1, ("instruction", "agent"))
    ]


def test_a_step_is_removed_and_who_read_it_lost_access() -> None:
    after = Workflow(steps=(*STEPS[:2], STEPS[3].model_copy(update={"access_list": ()})))
    assert changes(PLAN, after) == [("changed", 3, 2, ("access_list",)), ("removed", 2, None, ())]
    assert compare_plans(PLAN, after).rows() == [(0, 0), (1, 1), (2, None), (3, 2)]


def test_a_step_that_changed_places_moved() -> None:
    after = Workflow(steps=(STEPS[2], STEPS[0], STEPS[1].model_copy(update={"access_list": (1,)}), STEPS[3]))
    found = changes(PLAN, after)
    assert ("moved", 2, 0, ()) in found
    assert [each for each in found if each[0] != "moved"] == [("changed", 3, 3, ("access_list",))]


def test_all_that_grants_the_same_as_a_list_is_a_change_of_writing() -> None:
    assert changes(with_step(1, access_list=(0,)), with_step(1, access_list="all")) == [
        ("changed", 1, 1, ("access_list",))
    ]
    assert not compare_plans(PLAN, with_step(1, access_list="all")).changes.steps[1].changed


def test_all_covers_a_step_that_is_new() -> None:
    before = Workflow(steps=(STEPS[0], STEPS[1].model_copy(update={"access_list": "all"})))
    after = Workflow(steps=(STEPS[0], STEPS[2], before.steps[1]))
    assert changes(before, after) == [("added", None, 1, ()), ("changed", 1, 2, ("access_list",))]


def test_differences_that_do_not_fit_a_plan_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit a plan of 4 steps"):
        applied(PLAN, [Difference(change="removed", a=7)])


def test_recursion_is_a_step_like_any_other_in_a_plan() -> None:
    after = with_step(2, agent=CONDUCTOR_AGENT)
    assert changes(PLAN, after) == [("changed", 2, 2, ("agent",))]


# Two answers are one if they conclude the same, whatever their words.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("We add them. The answer is **42**.", "Hence \\boxed{42}"),
        ("The answer is Paris.", "the answer is  “paris”"),
        ("The answer is $1,250.50.", "Answer: $1250.5"),
        ("The answer is 3.0.", "#### 3"),
        ("We add them. The answer is -5.", "We halve it.\n\nAnswer: - 5"),
        ("I cannot help with that request.", "I'm sorry, but I can't answer this."),
        ("```python\ndef f():\n    return 1\n```", "Here it is:\n```python\ndef f():\n    return 1\n```\nDone."),
    ],
)
def test_the_same_conclusion(one: str, other: str) -> None:
    assert answer_key(one) == answer_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The answer is 42.", "The answer is 41."),
        ("The answer is 1,25.", "The answer is 125."),
        ("The answer is 5%.", "The answer is 5."),
        ("We add them.\n\nAnswer: - 5", "We add them.\n\nAnswer: 5"),
        ("```python\ndef f():\n    return 1\n```", "```python\ndef f():\n    return 2\n```"),
        ("", "The answer is 42."),
    ],
)
def test_another_conclusion(one: str, other: str) -> None:
    assert answer_key(one) != answer_key(other)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("Take a coat. It rains.", "Take a coat. It rains.", "same"),
        ("Half of it. The answer is 42.", "We add them up.\n\nAnswer: 42", "same value"),
        ("Half of it. The answer is 42.", "We add them up.\n\nAnswer: 41", "differ"),
        ("Take a coat. It rains.", "It rains. Take a coat.", "differ in wording"),
        ("Take a coat. It rains.", "Take a coat.  It rains!", "differ in wording"),
        ("Take a coat. It rains.", "It rains.\n\nAnswer: a coat", "differ in wording"),
        ("Take a coat. It rains.", "I cannot help with that.", "differ"),
        ("```python\ndef f():\n    return 1\n```", "```python\ndef f():\n    return 2\n```", "differ"),
    ],
)
def test_answers_differ_by_value_where_both_mark_one_else_in_wording(one: str, other: str, said: Likeness) -> None:
    assert likeness(one, other) == likeness(other, one) == said
