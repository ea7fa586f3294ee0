from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import ConductorInfo, Ending, Message, ParentPlan, Price, Usage, WorkerSpec
from conductor_core.engine.estimates import preview
from conductor_core.engine.prompts import (
    Answer,
    Asked,
    StepInputs,
    build,
    digest_text,
    expand,
    recursion_identity,
    worker_identity,
)
from conductor_core.run.values import Limits
from conductor_core.workflow.model import AccessList, Step, Workflow
from conductor_core.workflow.validation import UNTOLD
from tests.support.fakes import ScriptedWorker, pool_of, run, workflow_of


def answers_of(workflow: Workflow, task: str, *outputs: str) -> dict[int, Answer]:
    return {
        index: Answer.of((index,), workflow.steps[index], task, output, digest_text(output), Usage(output_tokens=3))
        for index, output in enumerate(outputs)
    }


def test_accessed_steps_are_past_turns_and_the_own_instruction_comes_last() -> None:
    workflow = workflow_of(("a", "plan {question}", ()), ("b", "try", ()), ("c", "check {question}", (0, 1)))
    context = build(Asked("2+2?"), workflow, 2, answers_of(workflow, "2+2?", "a plan", "4"))
    assert context.messages == (
        Message(role="user", content="plan 2+2?"),
        Message(role="assistant", content="a plan"),
        Message(role="user", content="try"),
        Message(role="assistant", content="4"),
        Message(role="user", content="check 2+2?"),
    )
    assert [shared.path for shared in context.granted] == [(0,), (1,)]
    assert context.withheld == ()


def test_what_is_not_in_the_list_is_withheld_and_named() -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", ()), ("c", "z", (1,)))
    context = build(Asked("t"), workflow, 2, answers_of(workflow, "t", "secret", "shown"), round_path=(4,))
    (withheld,) = context.withheld
    assert (withheld.path, withheld.agent, withheld.sha256) == ((0,), "a", digest_text("secret"))
    assert (withheld.characters, withheld.tokens) == (6, 3)
    assert [shared.sha256 for shared in context.granted] == [digest_text("shown")]


def test_a_withheld_step_without_an_output_has_no_digest() -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", ()))
    (withheld,) = build(Asked("t"), workflow, 1, {}, round_path=(2,)).withheld
    assert (withheld.path, withheld.sha256, withheld.characters) == ((2, 0), "", 0)


@pytest.mark.parametrize(
    ("output", "ending", "turn"),
    [
        ("", "empty", "[This step brought no output: its answer was empty.]"),
        (" \n", "cut", "[This step brought no output: it was cut off before it wrote any.]"),
        ("", "refused", "[This step brought no output: the model refused to answer.]"),
        ("", "filtered", "[This step brought no output: its answer was filtered.]"),
        ("half an", "cut", "half an"),
    ],
)
def test_an_empty_output_is_said_to_be_empty_to_who_reads_it(output: str, ending: Ending, turn: str) -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", (0,)))
    answer = Answer.of((0,), workflow.steps[0], "t", output, digest_text(output), Usage(), ending=ending)
    context = build(Asked("t"), workflow, 1, {0: answer})
    assert context.messages[1] == Message(role="assistant", content=turn)
    (granted,) = context.granted
    assert (granted.sha256, granted.characters) == (digest_text(output), len(output)), "of the output, as it was"


def test_an_unanswered_read_is_refused() -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", (0,)))
    with pytest.raises(KeyError):
        build(Asked("t"), workflow, 1, {})


def test_the_macro_is_filled_in_once() -> None:
    assert expand("{question} and {question}", "what is {question}?") == "what is {question}? and what is {question}?"


def test_a_macro_in_an_output_stays_as_it_is() -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", (0,)))
    context = build(Asked("the task"), workflow, 1, answers_of(workflow, "the task", "say {question}"))
    assert context.messages[1].content == "say {question}"


def test_tokens_are_the_providers_count_and_estimated_without_one() -> None:
    step = Step(instruction="x", agent="a")
    counted = Answer.of((0,), step, "t", "12345678", "d", Usage(output_tokens=9))
    estimated = Answer.of((0,), step, "t", "12345678", "d", Usage(output_tokens=9, estimated=True))
    assert (counted.tokens, estimated.tokens) == (9, 2)


async def test_what_a_record_passes_on_is_what_was_passed_on_when_it_was_fresh() -> None:
    workflow = workflow_of(("a", "x", ()), ("b", "y", (0,)))
    trace, _ = await run(ScriptedWorker("a"), ScriptedWorker("b"), workflow=workflow)
    again = Answer.recorded(trace.steps[0], trace.task).shared()
    assert trace.steps[1].granted == (again,)
    assert again.tokens == trace.steps[0].usage.output_tokens == 5


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    steps = []
    for index in range(draw(st.integers(1, 7))):
        reads = st.lists(st.integers(0, max(0, index - 1)), max_size=4).map(tuple) if index else st.just(())
        access = draw(st.one_of(st.just("all"), reads))
        steps.append(Step(instruction=f"do {index}", agent="a", access_list=access))
    return Workflow(steps=tuple(steps))


@given(workflows())
def test_no_text_outside_the_access_list_is_ever_in_the_messages(workflow: Workflow) -> None:
    outputs = [f"<<output-{index}>>" for index in range(len(workflow.steps))]
    for index in range(len(workflow.steps)):
        context = build(Asked("t"), workflow, index, answers_of(workflow, "t", *outputs))
        text = "\n".join(message.text for message in context.messages)
        shown = {earlier for earlier, output in enumerate(outputs) if output in text}
        assert shown == set(workflow.reads(index))
        assert {shared.path[0] for shared in context.granted} == shown
        assert {shared.path[0] for shared in context.withheld} == set(range(index)) - shown


def test_an_access_list_of_all_reads_every_earlier_step() -> None:
    access: AccessList = "all"
    workflow = workflow_of(("a", "x", ()), ("a", "y", ()), ("a", "z", access))
    assert len(build(Asked("t"), workflow, 2, answers_of(workflow, "t", "1", "2")).granted) == 2


SPEC = WorkerSpec(name="a", provider="openai", model="m", base_url="http://x/v1", params={"temperature": 0.2, "n": 1})
MESSAGES = (Message(role="user", content="hello"),)


@pytest.mark.parametrize(
    "changed",
    [{"name": "b"}, {"model": "n"}, {"provider": "anthropic"}, {"base_url": "http://y/v1"}, {"params": {}}],
)
def test_what_determines_the_answer_changes_the_identity(changed: dict[str, Any]) -> None:
    other = SPEC.model_copy(update=changed)
    assert worker_identity(other, MESSAGES, 0) != worker_identity(SPEC, MESSAGES, 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"usd_per_mtok": Price(input=1, output=1)},
        {"timeout_s": 1.0},
        {"max_concurrency": 1},
        {"api_key_env": "X"},
        {"description": "better"},
        {"params": {"n": 1, "temperature": 0.2}},
    ],
)
def test_what_does_not_determine_it_leaves_the_identity(changed: dict[str, Any]) -> None:
    assert worker_identity(SPEC.model_copy(update=changed), MESSAGES, 0) == worker_identity(SPEC, MESSAGES, 0)


@pytest.mark.parametrize(
    "messages",
    [
        (Message(role="user", content="hello "),),
        (Message(role="system", content="hello"),),
        (*MESSAGES, *MESSAGES),
        (),
    ],
)
def test_the_exact_messages_are_part_of_it(messages: tuple[Message, ...]) -> None:
    assert worker_identity(SPEC, messages, 0) != worker_identity(SPEC, MESSAGES, 0)


def test_parts_cannot_be_shifted_between_messages() -> None:
    one = (Message(role="user", content="ab"), Message(role="user", content="c"))
    two = (Message(role="user", content="a"), Message(role="user", content="bc"))
    assert worker_identity(SPEC, one, 0) != worker_identity(SPEC, two, 0)


def test_the_seed_counts_for_simulated_workers_alone() -> None:
    simulated = SPEC.model_copy(update={"provider": "rehearsal"})
    assert worker_identity(simulated, MESSAGES, 0) != worker_identity(simulated, MESSAGES, 1)
    assert worker_identity(SPEC, MESSAGES, 0) == worker_identity(SPEC, MESSAGES, 1)


@pytest.mark.parametrize(("provider", "same"), [("rehearsal", False), ("openai", True)])
def test_the_answer_of_a_simulated_worker_is_that_of_its_pools_seed_alone(provider: Any, same: bool) -> None:
    worker = ScriptedWorker("a", provider=provider, base_url=None if provider == "rehearsal" else "http://x/v1")
    plan, workers = workflow_of(("a", "x", ())), {"a": worker.spec}
    asked = [
        StepInputs(Asked("t"), workers, None, Limits(), seed=7, pool_seed=seed).of(plan, 0, {}) for seed in (1, 2, 2)
    ]
    assert asked[1].identity == asked[2].identity
    assert (asked[0].identity == asked[1].identity) == same


def recursion(**changed: Any) -> str:
    known: dict[str, Any] = {
        "conductor": ConductorInfo(name="tiny", kind="local", model="m"),
        "parent": ParentPlan(plan="lists", last_response="answer"),
        "asked": Asked("t"),
        "agents": (SPEC,),
        "instruction": "again",
        "bounds": (5, 0, 0),
    }
    return recursion_identity(**(known | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"conductor": ConductorInfo(name="tiny", kind="local", model="n")},
        {"conductor": ConductorInfo(name="tiny", kind="remote", model="m")},
        {"conductor": ConductorInfo(name="other", kind="local", model="m")},
        {"conductor": ConductorInfo(name="tiny", kind="local", model="m", constrained=True)},
        {"conductor": ConductorInfo(name="tiny", kind="local", model="m", prompt_sha256="0" * 64)},
        {"parent": ParentPlan(plan="other", last_response="answer")},
        {"parent": ParentPlan(plan="lists", last_response="other")},
        {"asked": Asked("u")},
        {"agents": ()},
        {"agents": (SPEC.model_copy(update={"description": "good at maths"}),)},
        {"instruction": "once"},
        {"bounds": (4, 0, 0)},
        {"bounds": (5, 1, 0)},
        {"bounds": (5, 0, 1)},
    ],
)
def test_all_that_an_inner_call_is_told_is_part_of_a_recursions_identity(changed: dict[str, Any]) -> None:
    assert recursion(**changed) != recursion()


def test_where_the_conductor_runs_is_not() -> None:
    loaded = ConductorInfo(name="tiny", kind="local", model="m", device="cpu", dtype="float32")
    assert recursion(conductor=loaded) == recursion()


# A run may tell every step the task: then it stands before an instruction that does not name it.


PLAN = workflow_of(("a", "Find the numbers.", ()), ("b", "Answer {question}", (0,)), ("b", "Check it.", (0, 1)))
UNTOLD_PLAN = workflow_of(("a", "Find the numbers.", ()))


async def test_every_step_is_told_once() -> None:
    a, b = ScriptedWorker("a").then("1"), ScriptedWorker("b").then("2", "3")
    trace, _ = await run(a, b, workflow=PLAN, give_question=True)
    assert trace.give_question
    assert [step.messages[-1].content for step in trace.steps] == [
        "The task:\nthe task\n\nYour part:\nFind the numbers.",
        "Answer the task",
        "The task:\nthe task\n\nYour part:\nCheck it.",
    ]
    assert [message.content for message in trace.steps[2].messages[:4]] == [
        "Find the numbers.",
        "1",
        "Answer the task",
        "2",
    ]


async def test_what_a_step_is_told_is_its_identity() -> None:
    a = ScriptedWorker("a")
    first, _ = await run(a, workflow=UNTOLD_PLAN)
    told, _ = await run(a, workflow=UNTOLD_PLAN, give_question=True, reuse_from=first)
    assert (told.steps[0].status, len(a.calls)) == ("completed", 2)
    assert told.steps[0].identity != first.steps[0].identity
    again, _ = await run(a, workflow=UNTOLD_PLAN, give_question=True, reuse_from=told)
    assert (again.steps[0].status, len(a.calls)) == ("reused", 2)
    forecast = preview(told, UNTOLD_PLAN, pool_of(a).specs)
    assert [each.index for each in forecast.will_reuse] == [0], "the preview asks as the run would"


@pytest.mark.parametrize(("given", "warned"), [(False, [UNTOLD]), (True, [])])
async def test_the_warning_is_on_record_unless_every_step_is_told(given: bool, warned: list[str]) -> None:
    trace, _ = await run(ScriptedWorker("a"), workflow=UNTOLD_PLAN, give_question=given)
    assert [warning.code for warning in trace.root.warnings] == warned
