"""Events of small runs, for tests of whatever reads or keeps them."""

import hashlib
from datetime import UTC, datetime, timedelta

from conductor_core.chat.messages import ConductorInfo, Message, Usage, WorkerSpec
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.run import events as ev
from conductor_core.run.actor import local_caller
from conductor_core.run.events import Event
from conductor_core.run.request import new_run_id
from conductor_core.run.values import Limits, PoolInfo
from conductor_core.workflow.model import Step, Workflow

PAGE = local_caller("page")
POOL = PoolInfo(
    name="rehearsal",
    workers=(
        WorkerSpec(name="solver", provider="rehearsal", model="solver"),
        WorkerSpec(name="checker", provider="rehearsal", model="checker"),
    ),
)
TWO_STEPS = Workflow(
    steps=(
        Step(instruction="Solve it.", agent="solver"),
        Step(instruction="Check it.", agent="checker", access_list=(0,)),
    )
)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def created(run_id: str, task: str = "What is 6 times 7?", **fields: object) -> ev.RunCreated:
    values: dict[str, object] = {
        "run_id": run_id,
        "task": task,
        "conductor": ConductorInfo(name="tiny", kind="local", model="tiny"),
        "pool": POOL,
        "limits": Limits(),
        "simulated": True,
        "actor": PAGE.actor,
        "door": PAGE.door,
        "app_version": "0",
    }
    values |= fields
    own = {name: value for name, value in values.items() if name in ev.RunCreated.model_fields}
    asked = {name: value for name, value in values.items() if name not in own or name == "run_id"}
    return ev.RunCreated.model_validate({"request": asked} | own)


def created_otherwise(event: Event, **changed: object) -> ev.RunCreated:
    """A run's first event with other fields, or with another request in it."""
    assert isinstance(event, ev.RunCreated)
    own = {name: value for name, value in changed.items() if name in ev.RunCreated.model_fields}
    asked = {name: value for name, value in changed.items() if name not in own}
    return event.model_copy(update={**own, "request": event.request.model_copy(update=asked)})


def planned(run_id: str, workflow: Workflow = TWO_STEPS, at_ms: float = 20.0) -> list[Event]:
    """The plan as a Conductor writes it, in two deltas."""
    return [
        ev.PlanStarted(run_id=run_id, at_ms=5, messages=(Message(role="user", content="plan"),)),
        ev.PlanDelta(run_id=run_id, at_ms=10, text="model_id = "),
        ev.PlanDelta(run_id=run_id, at_ms=15, text="[0, 1]"),
        ev.PlanCompleted(
            run_id=run_id,
            at_ms=at_ms,
            source="conductor",
            raw="model_id = [0, 1]",
            workflow=workflow,
            topology="chain",
            usage=Usage(input_tokens=10, output_tokens=5),
            first_token_ms=5,
            duration_ms=15,
        ),
    ]


def step_started(run_id: str, index: int, at_ms: float) -> ev.StepStarted:
    return ev.StepStarted(
        run_id=run_id,
        at_ms=at_ms,
        path=(index,),
        agent="solver",
        identity=f"identity {index}",
        messages=(Message(role="user", content=f"step {index}"),),
    )


def step_completed(
    run_id: str, index: int, output: str, at_ms: float, cost_usd: float | None = 0.5
) -> ev.StepCompleted:
    return ev.StepCompleted(
        run_id=run_id,
        at_ms=at_ms,
        path=(index,),
        output=output,
        output_sha256=sha256(output),
        finish_reason="stop",
        usage=Usage(input_tokens=7, output_tokens=3),
        cost_usd=cost_usd,
        first_token_ms=1,
        duration_ms=10,
    )


def answered(run_id: str, index: int, output: str = "42", at_ms: float = 30.0) -> list[Event]:
    """A step that starts, streams its output in one delta and completes 10 ms later."""
    return [
        step_started(run_id, index, at_ms),
        ev.StepDelta(run_id=run_id, at_ms=at_ms + 1, path=(index,), text=output, output_tokens=3),
        step_completed(run_id, index, output, at_ms + 10),
    ]


def run_completed(run_id: str, answer: str | None = "42", at_ms: float = 100.0) -> ev.RunCompleted:
    return ev.RunCompleted(run_id=run_id, at_ms=at_ms, answer=answer, usage=Usage(), cost_usd=1.0, duration_ms=at_ms)


def whole_run(run_id: str, task: str = "What is 6 times 7?", answer: str = "42, checked") -> list[Event]:
    """A run of two steps from its creation to its answer."""
    return [
        created(run_id, task),
        *planned(run_id),
        *answered(run_id, 0, at_ms=30),
        *answered(run_id, 1, answer, at_ms=50),
        run_completed(run_id, answer),
    ]


def recursive_run(run_id: str, first: Workflow, second: Workflow) -> list[Event]:
    """A run of two rounds. The last step of ``first`` asks the Conductor again; answers count from 41."""
    last = len(first.steps) - 1
    answers = [f"Answer: {number}" for number in range(41, 41 + last + len(second.steps))]
    events: list[Event] = [created(run_id), *planned(run_id, first)]
    for index in range(last):
        events += answered(run_id, index, answers[index], at_ms=30 + 20 * index)
    events += [
        step_started(run_id, last, 200),
        ev.RecursionEntered(run_id=run_id, at_ms=200, path=(last,), depth=1),
        ev.PlanStarted(run_id=run_id, at_ms=200, round=(last,), messages=()),
        ev.PlanCompleted(
            run_id=run_id, at_ms=205, round=(last,), source="conductor", raw="", workflow=second, topology="chain"
        ),
    ]
    for index in range(len(second.steps)):
        own = answered(run_id, index, answers[last + index], at_ms=210 + 20 * index)
        events += [event.model_copy(update={"path": (last, index)}) for event in own]
    done = step_completed(run_id, last, answers[-1], 400, cost_usd=0.0).model_copy(update={"usage": Usage()})
    left = ev.RecursionLeft(run_id=run_id, at_ms=400, path=(last,), how="answered")
    return [*events, left, done, run_completed(run_id, answers[-1], at_ms=410)]


REAL_WORKER = WorkerSpec(name="real", provider="openai", model="some-model", base_url="http://127.0.0.1:9/v1")


def one_step(
    answer: str,
    *,
    task: str = "What is asked?",
    instruction: str = "Answer this: {question}",
    agent: str = "scientist",
    **completed: object,
) -> list[Event]:
    """A run of one step; the answer is whatever a test wants to see."""
    run_id = new_run_id()
    workflow = Workflow(steps=(Step(agent=agent, instruction=instruction),))
    pool = PoolInfo(name="mine", workers=(REAL_WORKER, *rehearsal_specs()))
    return [
        created(run_id, task, pool=pool, simulated=agent != REAL_WORKER.name),
        *planned(run_id, workflow),
        step_started(run_id, 0, 30).model_copy(update={"messages": (Message(role="user", content=instruction),)}),
        step_completed(run_id, 0, answer, 2000, cost_usd=None).model_copy(update=completed),
        run_completed(run_id, answer, 2010),
    ]


_BEGAN = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
_BOTH_WAYS = Workflow(
    steps=(
        Step(instruction="Solve it.", agent="solver"),
        Step(instruction="Solve it otherwise.", agent="solver"),
        Step(instruction="Compare both.", agent="checker", access_list=(0, 1)),
    )
)


def run_of_seven_seconds(run_id: str, waited_s: float = 0.0) -> list[Event]:
    """Steps begin after 2, 4.5 and 6.5 s and take 0.4 s; the run takes 7 s, and it can wait before the third."""

    def step(index: int, output: str, at_ms: float) -> list[Event]:
        delta = ev.StepDelta(run_id=run_id, at_ms=at_ms + 200, path=(index,), text=output, output_tokens=3)
        return [step_started(run_id, index, at_ms), delta, step_completed(run_id, index, output, at_ms + 400)]

    events = [
        created(run_id),
        *planned(run_id, _BOTH_WAYS, at_ms=1_500),
        *step(0, "forty-two", 2_000),
        *step(1, "42", 4_500),
        *step(2, "42, both ways", 6_500),
        run_completed(run_id, "42, both ways", at_ms=7_000),
    ]
    return [
        event.model_copy(
            update={
                "at_utc": _BEGAN + timedelta(milliseconds=event.at_ms, seconds=waited_s if event.at_ms >= 6_500 else 0)
            }
        )
        for event in events
    ]
