"""Random workflows and edits, and what a re-run of one must call: worked out apart from the engine."""

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from conductor_core.chat.messages import Message
from conductor_core.workflow.edits import add_step, move_step, remove_step, replace_step
from conductor_core.workflow.model import AccessList, Step, Workflow

AGENTS = ("a", "b", "c")
INSTRUCTIONS = ("plan it", "solve {question}", "check it", "once more: {question}")

Question = tuple[str, tuple[tuple[str, str], ...]]
"""An agent's name, and role and content of each message."""


def access_lists(index: int) -> st.SearchStrategy[AccessList]:
    """Valid access lists of step ``index``."""
    if index == 0:
        return st.sampled_from([(), "all"])
    some: st.SearchStrategy[AccessList] = st.lists(st.integers(0, index - 1), max_size=3).map(tuple)
    return st.one_of(some, some, st.just("all"))


@st.composite
def steps_at(draw: st.DrawFn, index: int) -> Step:
    """Few instructions and agents, so that identical steps are common."""
    return Step(
        instruction=draw(st.sampled_from(INSTRUCTIONS)),
        agent=draw(st.sampled_from(AGENTS)),
        access_list=draw(access_lists(index)),
    )


@st.composite
def workflows(draw: st.DrawFn, most_steps: int = 6) -> Workflow:
    return Workflow(steps=tuple(draw(steps_at(index)) for index in range(draw(st.integers(1, most_steps)))))


@st.composite
def edits(draw: st.DrawFn, workflow: Workflow) -> Workflow:
    """``workflow`` after zero to three edits of any kind that a person can make."""
    for _ in range(draw(st.integers(0, 3))):
        count = len(workflow.steps)
        index = draw(st.integers(0, count - 1))
        step = workflow.steps[index]
        match draw(st.sampled_from(["instruction", "agent", "access", "add", "remove", "move"])):
            case "instruction":
                changed = step.model_copy(update={"instruction": draw(st.sampled_from([*INSTRUCTIONS, "be brief"]))})
                workflow = replace_step(workflow, index, changed)
            case "agent":
                workflow = replace_step(
                    workflow, index, step.model_copy(update={"agent": draw(st.sampled_from(AGENTS))})
                )
            case "access":
                access = draw(access_lists(index))
                workflow = replace_step(workflow, index, step.model_copy(update={"access_list": access}))
            case "add" if count < 8:
                workflow = add_step(workflow, index, draw(steps_at(index)))
            case "remove" if count > 1:
                workflow, _ = remove_step(workflow, index)
            case "move":
                workflow, _ = move_step(workflow, index, draw(st.integers(0, count - 1)))
    return workflow


def questions(
    workflow: Workflow, task: str, answer: Callable[[str, Sequence[Message]], str]
) -> tuple[list[Question], list[str]]:
    """The question of each step and its answer, when everything is asked anew, one step after the other."""
    asked: list[Question] = []
    outputs: list[str] = []
    for step in workflow.steps:
        turns: list[tuple[str, str]] = []
        earlier = range(len(outputs)) if step.access_list == "all" else sorted(set(step.access_list))
        for read in earlier:
            turns.append(("user", workflow.steps[read].instruction.replace("{question}", task)))
            turns.append(("assistant", outputs[read]))
        turns.append(("user", step.instruction.replace("{question}", task)))
        asked.append((step.agent, tuple(turns)))
        outputs.append(answer(step.agent, [Message.model_validate({"role": r, "content": c}) for r, c in turns]))
    return asked, outputs
