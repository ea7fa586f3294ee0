import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import Ending, Message, Usage
from conductor_core.engine.prompts import Answer, Asked, build, digest_text, expand
from conductor_core.workflow.model import AccessList, Step, Workflow
from tests.support.fakes import ScriptedWorker, run, workflow_of


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
