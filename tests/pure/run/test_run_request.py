"""A request travels: through JSON and back it is equal, and what it asks for comes out equal."""

import asyncio
import re
from typing import Any
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import images_in
from conductor_core.engine.request import resume_of
from conductor_core.run.actor import Actor
from conductor_core.run.events import RunCreated
from conductor_core.run.request import (
    MOST_IMAGES,
    MOST_SEED,
    Given,
    GivenOutput,
    Overrides,
    RunRequest,
    StepSeed,
    new_run_id,
    read_gate,
)
from conductor_core.run.trace import fold
from conductor_core.run.values import BatchRow, Limits, PoolInfo
from conductor_core.workflow.model import Workflow
from tests.support.any_messages import image_parts, messages
from tests.support.fakes import MemorySink, ScriptedWorker, run, workflow_of
from tests.support.pictures import part, picture
from tests.support.run_events import POOL, TWO_STEPS, created, created_otherwise

PICTURES = (picture(), picture((0, 0, 255)))
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
NUMBERS = st.none() | st.integers(0, 10**9)
ACTORS = st.builds(Actor, kind=st.sampled_from(["local", "person", "service", "program"]), id=TEXT, name=TEXT)
GIVEN = st.builds(
    Given, how=st.sampled_from(["written", "pinned"]), actor=st.none() | ACTORS, source_run_id=st.none() | TEXT
)
OVERRIDES = st.builds(
    Overrides,
    seeds=st.dictionaries(st.integers(0, 9), st.integers(0, MOST_SEED), max_size=3).map(
        lambda each: tuple(StepSeed(step=step, seed=seed) for step, seed in each.items())
    ),
    outputs=st.dictionaries(st.integers(0, 9), st.tuples(TEXT.filter(bool), GIVEN), max_size=3).map(
        lambda each: tuple(GivenOutput(step=step, text=text, given=given) for step, (text, given) in each.items())
    ),
    last_step=st.none() | st.integers(0, 9),
)
REQUESTS = st.builds(
    RunRequest,
    task=TEXT,
    conductor=st.none() | TEXT,
    pool=st.sampled_from([None, "rehearsal", "./pool.toml", POOL, PoolInfo(name="p", workers=(), excluded=("x",))]),
    workflow=st.sampled_from([None, TWO_STEPS, Workflow(steps=())]),
    limits=st.builds(Limits, max_steps=st.integers(1, 20), max_tokens=NUMBERS, max_usd=st.none() | st.floats(0, 1e6)),
    seed=st.integers(),
    plan_only=st.booleans(),
    parent_run_id=st.none() | TEXT,
    taken_up=st.lists(TEXT, max_size=3).map(tuple),
    resumed=st.booleans(),
    origins=st.sampled_from([None, (0, None, 1)]),
    excluded=st.lists(TEXT, max_size=3).map(tuple),
    batch=st.none() | st.builds(BatchRow, id=TEXT, row=TEXT, name=TEXT, size=st.integers(0, 9)),
    on_incomplete=st.sampled_from([None, "allow", "stop", "fallback"]),
    give_question=st.sampled_from([None, True, False]),
    actor=st.none() | ACTORS,
    door=st.sampled_from([None, "page", "cli", "api"]),
    purpose=TEXT,
    gates=st.lists(st.sampled_from(list(map(read_gate, ("plan", "steps", "step:2", "usd:0.5"))))).map(tuple),
    images=st.lists(image_parts, max_size=MOST_IMAGES).map(tuple),
    turns_before=st.lists(messages, max_size=3).map(tuple),
    overrides=OVERRIDES,
)


@given(request=REQUESTS)
def test_a_request_through_json_and_back_is_equal(request: RunRequest) -> None:
    assert RunRequest.model_validate_json(request.model_dump_json()) == request


@given(request=REQUESTS)
def test_it_stands_whole_in_the_first_event_of_its_run(request: RunRequest) -> None:
    event = RunCreated(
        run_id=request.run_id, request=request, conductor=None, pool=POOL, simulated=True, app_version="0"
    )
    assert RunCreated.model_validate_json(event.model_dump_json()).request == request


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 9),
    give_question=st.booleans(),
    max_steps=st.integers(2, 5),
    images=st.lists(st.sampled_from(list(map(part, PICTURES))), max_size=3).map(tuple),
    turns_before=st.lists(messages.filter(lambda turn: not images_in(turn.content)), max_size=2).map(tuple),
)
def test_it_runs_equal(**asked: Any) -> None:
    max_steps = asked.pop("max_steps")
    plan = workflow_of(("a", "first {question}", ()), ("a", "second", (0,)))
    request = RunRequest(task="the task", workflow=plan, limits=Limits(max_steps=max_steps), **asked)
    travelled = RunRequest.model_validate_json(request.model_dump_json())

    async def twice() -> list[list[tuple[str, str | None, str]]]:
        sink = MemorySink()
        sink.keep_images(*PICTURES)
        again = travelled.model_copy(update={"run_id": "again"})
        worker = ScriptedWorker("a", accepts=("text", "image"))
        traces = [(await run(worker, sink=sink, **dict(each)))[0] for each in (request, again)]
        return [[(step.status, step.identity, step.output) for step in trace.steps] for trace in traces]

    first, second = asyncio.run(twice())
    assert first == second


def test_a_run_that_was_killed_before_it_recorded_its_given_plan_is_resumed_with_it() -> None:
    plan = workflow_of(("a", "Do it.", ()))
    event = created_otherwise(created("r"), workflow=plan)
    assert resume_of(fold([event]), door="cli").workflow == plan


def test_ids_sort_in_the_order_they_were_made_and_never_repeat() -> None:
    ids = [new_run_id() for _ in range(5000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_are_safe_in_urls_and_file_names() -> None:
    run_id = new_run_id()
    assert quote(run_id, safe="") == run_id
    assert re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]{16}", run_id)
