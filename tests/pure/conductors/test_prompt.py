import re

from conductor_core.chat.messages import Message, ParentPlan, PlanRequest, WorkerSpec
from conductor_core.conductors.prompts import MOST_READ, STATIC_MESSAGES, full_prompt
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import validate

AGENTS = tuple(
    WorkerSpec(name=name, provider="openai", model=name, description=description)
    for name, description in (("gpt-9", "proofs and\nhard sums"), ("claude-x", "code"), ("nobody", ""))
)


def test_workers_are_ordinals_with_a_description_and_never_a_name() -> None:
    system, _ = full_prompt(PlanRequest(task="t", agents=AGENTS, max_steps=4))
    assert "Model 0: proofs and hard sums\nModel 1: code\nModel 2\n" in system.content
    assert "at most 4 steps" in system.content
    assert not any(agent.name in system.content for agent in AGENTS)


def test_what_does_not_depend_on_the_task_comes_first() -> None:
    one, other = (
        full_prompt(PlanRequest(task=task, agents=AGENTS, parent=parent, seed=seed))
        for task, parent, seed in (("one", None, 0), ("other", ParentPlan(plan="p", last_response="r"), 1))
    )
    assert one[:STATIC_MESSAGES] == other[:STATIC_MESSAGES]
    assert "one" in one[-1].content


def test_the_examples_obey_the_rules_they_teach() -> None:
    system, _ = full_prompt(PlanRequest(task="t", agents=AGENTS))
    examples = system.text.split("EXAMPLES")[1].split("YOUR WORKERS")[0].split("\n\nTask: ")[1:]
    assert len(examples) == 4
    shapes = []
    for example in examples:
        parsed = parse_completion(example)
        assert not parsed.faults
        assert not parsed.repairs
        checked = validate(parsed, ["a", "b", "c", "d"], max_steps=5)
        assert not checked.faults
        assert not checked.warnings
        assert checked.workflow is not None
        shapes.append(topology(checked.workflow))
        assert all("{question}" in step.instruction for step in checked.workflow.steps[:1])
    assert len(set(shapes)) >= 3


def test_recursion_offers_the_conductor_and_the_stop() -> None:
    parent = ParentPlan(plan="model_id = [0]", last_response="It is 408.")
    system, user = full_prompt(PlanRequest(task="t", agents=AGENTS, allow_recursion=True, parent=parent))
    assert "Model 3: you yourself" in system.content
    assert re.search(r"Task: t.*model_id = \[0\].*It is 408\..*three empty lists", user.text, re.DOTALL)


def test_faults_of_the_last_attempt_are_told() -> None:
    _, user = full_prompt(PlanRequest(task="t", agents=AGENTS, rejected=("Step 1 reads step 4.",)))
    assert "- Step 1 reads step 4." in user.content


def test_a_conductor_is_told_of_images_and_of_the_conversation_before() -> None:
    workers = tuple(
        WorkerSpec(name=name, provider="openai", model="m", accepts=accepts)
        for name, accepts in (("a", ("text",)), ("b", ("text", "image")), ("c", ("text", "image")))
    )
    earlier = (Message(role="user", content="Hello"), Message(role="assistant", content="Good day"))
    request = PlanRequest(task="What is it?", agents=workers, images=1, turns_before=earlier)
    told = full_prompt(request)[-1].text
    assert "User: Hello\n\nAssistant: Good day\n\nEnd of the conversation.\n\nTask: What is it?" in told
    assert "An image comes with the task." in told
    assert "give no other one {question}: 1, 2." in told
    alone = full_prompt(request.model_copy(update={"images": 0, "turns_before": ()}))
    assert alone[-1].text == "Task: What is it?"
    assert full_prompt(request)[0] == alone[0], "what depends on the task stays out of the cached beginning"


def test_of_a_long_conversation_the_newest_turns_are_read() -> None:
    workers = (WorkerSpec(name="a", provider="rehearsal", model="m"),)
    turns = tuple(
        Message(role="user" if n % 2 else "assistant", content=f"turn {n} " + "x" * 5000 + f" end {n}")
        for n in range(40)
    )
    request = PlanRequest(task="Next?", agents=workers, turns_before=turns, system="Be brief. " + "y" * 9000)
    read = full_prompt(request)[1].text
    assert len(read) < MOST_READ + 6000
    assert "turn 39 " in read
    assert "end 39" in read
    assert "turn 0 " not in read
    assert "earlier turns are left out" in read
    assert "Be brief." in read
