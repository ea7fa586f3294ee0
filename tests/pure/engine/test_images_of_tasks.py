"""Images and earlier turns come with a task, and go to the steps that are told it, and to no other."""

from typing import Any

import pytest

from conductor_core.chat.messages import ConductorInfo, ImagePart, LoadedImage, Message, content_of, images_in
from conductor_core.engine.approvals import most_of_plan
from conductor_core.engine.estimates import preview
from conductor_core.engine.prompts import Asked, StepInputs
from conductor_core.engine.request import rerun_of, resume_of
from conductor_core.errors import BadInput
from conductor_core.run.events import StepStarted
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.workflow.model import CONDUCTOR_AGENT
from conductor_core.workflow.validation import WorkflowInvalid
from tests.support.fakes import MemorySink, ScriptedConductor, ScriptedWorker, lists_of, run, workflow_of
from tests.support.pictures import part, picture

RED = picture()
BOTH = ("text", "image")
LOOK = workflow_of(("eye", "Describe it: {question}", ()), ("pen", "Say it shorter.", (0,)))


def sink_with(*images: LoadedImage) -> MemorySink:
    sink = MemorySink()
    sink.keep_images(*images)
    return sink


def eye(name: str = "eye", **fields: Any) -> ScriptedWorker:
    return ScriptedWorker(name, accepts=BOTH, **fields)


def sent(worker: ScriptedWorker, call: int = 0) -> tuple[ImagePart, ...]:
    return tuple(image for message in worker.calls[call] for image in images_in(message.content))


async def looked(*workers: ScriptedWorker, **request: Any) -> tuple[RunTrace, MemorySink]:
    asked: dict[str, Any] = {"workflow": LOOK, "images": (part(RED),), "sink": sink_with(RED)}
    return await run(*workers, **(asked | request))


async def test_the_step_that_is_told_the_task_sees_the_image_and_no_other_does() -> None:
    sees, writes = eye(), eye("pen")
    trace, sink = await looked(sees, writes)
    assert trace.status == "completed"
    assert sent(sees) == (RED,), "with its bytes"
    assert sent(writes) == ()
    started = [event for event in sink.events if isinstance(event, StepStarted)]
    assert started[0].messages == (Message(role="user", content=content_of("Describe it: the task", [part(RED)])),)
    assert "data" not in started[0].model_dump_json()
    assert trace.images == (part(RED),)


async def test_if_every_step_is_told_the_task_every_step_sees_the_image() -> None:
    sees, writes = eye(), eye("pen")
    await looked(sees, writes, give_question=True)
    assert (sent(sees), sent(writes)) == ((RED,), (RED,))


async def test_the_turns_before_the_task_go_with_it() -> None:
    earlier = (Message(role="user", content="Hello"), Message(role="assistant", content="Good day"))
    sees, writes = eye(), eye("pen")
    trace, _ = await looked(sees, writes, turns_before=earlier)
    assert sees.calls[0][:2] == earlier
    assert earlier[0] not in writes.calls[0]
    request = RunRequest(task="the task", images=(part(RED),), turns_before=earlier)
    assert trace.conversation == request.conversation == (*earlier, Message(role="user", content=(part(RED), *TASK)))


TASK = content_of("the task", [part(RED)])[1:]


async def test_a_step_is_asked_again_when_its_image_changes_and_only_then() -> None:
    sees, writes = eye(), ScriptedWorker("pen")
    first, sink = await looked(sees, writes)
    again, _ = await looked(sees, writes, sink=sink, reuse_from=first)
    assert [step.status for step in again.steps] == ["reused", "reused"]
    blue = picture((0, 0, 255))
    sink.keep_images(blue)
    other, _ = await looked(sees, writes, sink=sink, reuse_from=first, images=(part(blue),))
    assert [step.status for step in other.steps] == ["completed", "completed"]


async def test_a_re_run_and_a_resume_bring_the_images_and_the_turns() -> None:
    earlier = (Message(role="user", content="Hello"),)
    trace, _ = await looked(eye(), ScriptedWorker("pen"), turns_before=earlier)
    for request in (rerun_of(trace, door="cli"), resume_of(trace, door="page")):
        assert (request.images, request.turns_before) == ((part(RED),), earlier)
    forecast = preview(trace, LOOK, trace.pool.workers)
    assert [step.index for step in forecast.will_reuse] == [0, 1]


async def test_a_worker_that_accepts_no_image_is_a_fault_before_any_call() -> None:
    blind, sees = ScriptedWorker("pen"), eye()
    plan = workflow_of(("pen", "Describe it: {question}", ()), ("eye", "Say it.", (0,)))
    with pytest.raises(WorkflowInvalid, match="Step 0 is given the task's image, which pen does not accept; eye would"):
        await looked(blind, sees, workflow=plan)
    assert not blind.calls


async def test_a_workflow_that_gives_the_image_to_no_step_is_a_fault() -> None:
    plan = workflow_of(
        ("eye", "Describe it.", ()),
    )
    with pytest.raises(WorkflowInvalid, match=r"No step is given the task's image: write \{question\}"):
        await looked(eye(), workflow=plan)


@pytest.mark.parametrize("workflow", [LOOK, None], ids=["given", "to be written"])
async def test_a_pool_that_accepts_no_image_is_refused_before_anything_is_planned(workflow: Any) -> None:
    conductor = ScriptedConductor("")
    with pytest.raises(BadInput, match="no worker of the pool scripted accepts images; give accepts = "):
        await looked(ScriptedWorker("eye"), ScriptedWorker("pen"), workflow=workflow, conductor=conductor)
    assert not conductor.requests


async def test_a_fallback_that_accepts_no_image_does_not_get_one() -> None:
    with pytest.raises(BadInput, match="the fallback of eye accepts none: name one that does"):
        await looked(eye(fallback="pen"), ScriptedWorker("pen"))


async def test_a_conductor_is_told_what_was_wrong_with_its_plan() -> None:
    workers = (eye(), ScriptedWorker("pen"))
    bad = lists_of(workflow_of(("pen", "Describe it: {question}", ())), ["eye", "pen"])
    conductor = ScriptedConductor(bad, lists_of(LOOK, ["eye", "pen"]))
    trace, _ = await looked(*workers, workflow=None, conductor=conductor)
    assert trace.status == "completed"
    assert [fault.code for fault in trace.root.rejected[0].faults] == ["image_not_accepted"]
    assert conductor.requests[0].images == 1
    assert conductor.requests[1].rejected == (
        "Step 0 is given the task's image, which pen does not accept; eye would.",
    )


@pytest.mark.parametrize(("images", "offered"), [((part(RED),), ["eye"]), ((), ["pen", "eye"])])
async def test_a_conductor_that_chooses_roles_is_offered_who_accepts_images(
    images: tuple[ImagePart, ...], offered: list[str]
) -> None:
    """Such a Conductor does not read what was wrong with its plan."""
    plan = 'model_id = ["eye"]\nsubtasks = ["Describe it: {question}"]\naccess_list = [[]]'
    conductor = ScriptedConductor(plan, seated=True)
    workers = (ScriptedWorker("pen"), eye())
    trace, _ = await looked(*workers, workflow=None, conductor=conductor, images=images)
    assert trace.status == "completed"
    assert [worker.name for worker in conductor.requests[0].agents] == offered


async def test_an_image_that_is_not_kept_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^\[image: PNG, 40 x 30 pixels, .*\] cannot be used: no content"):
        await looked(eye(), ScriptedWorker("pen"), sink=MemorySink())


async def test_an_image_that_is_gone_when_it_is_needed_fails_its_step() -> None:
    sink = sink_with(RED)
    first = eye().then("A red square.")
    plan = workflow_of(("pen", "Wait.", ()), ("eye", "Describe it: {question}", (0,)))

    def lose(messages: object) -> str:
        sink.contents.clear()
        return "done"

    trace, _ = await looked(first, ScriptedWorker("pen", lose), workflow=plan, sink=sink)
    assert trace.status == "failed"
    assert trace.steps[1].error is not None
    assert trace.steps[1].error.startswith("worker eye was not asked: no content")
    assert not first.calls


async def test_an_inner_round_sees_the_image_too() -> None:
    outer = workflow_of(("eye", "Look: {question}", ()), ("conductor", "Do better.", (0,)))
    inner = workflow_of(("eye", "Look closer: {question}", ()))
    names = ["eye", "conductor"]
    conductor = ScriptedConductor(lists_of(outer, names), lists_of(inner, names))
    sees = eye()
    trace, _ = await looked(sees, workflow=None, conductor=conductor)
    assert trace.status == "completed"
    assert [sent(sees, call) for call in range(2)] == [(RED,), (RED,)]


def test_an_inner_plan_for_another_image_is_another_one() -> None:
    planner = ConductorInfo(name="tiny", kind="local", model="m")

    def identity(*images: ImagePart) -> str:
        workers = {"eye": eye().spec}
        inputs = StepInputs(Asked("t", images=images), workers, planner, Limits(), seed=0, pool_seed=0)
        return inputs.of(workflow_of((CONDUCTOR_AGENT, "Do it.", ())), 0, {}).identity

    assert len({identity(), identity(part(RED)), identity(part(RED), part(RED))}) == 3


def test_the_request_through_json_is_the_same() -> None:
    request = RunRequest(
        task="t", images=(part(RED),), turns_before=(Message(role="user", content=content_of("Hello", [part(RED)])),)
    )
    assert RunRequest.model_validate_json(request.model_dump_json()) == request
    assert request.all_images == (part(RED),), "each once"


def test_the_highest_cost_of_a_plan_counts_the_images_of_each_step_that_is_told_the_task() -> None:
    def most(*images: ImagePart) -> int:
        workers = {worker.spec.name: worker.spec for worker in (eye(), ScriptedWorker("pen"))}
        inputs = StepInputs(Asked("t", images=images), workers, None, Limits(), seed=0, pool_seed=0)
        return most_of_plan(LOOK, inputs, plan_max_tokens=100)[0].input_tokens

    large = part(RED).model_copy(update={"width": 1500, "height": 500})
    assert most(large) == most() + 1000
