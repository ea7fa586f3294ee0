"""A Conductor's server that sends 1.9 MB of commas: its run ends with one clear error, and no other run waits."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine import planner
from conductor_core.engine.pools import reopen_pool
from conductor_core.engine.runner import Engine
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.source import Parsed
from storage import Store
from tests.support.fakes import lists_of, workflow_of
from tests.support.provider import Answer, Call, Hang, Reply, ScriptedProvider, delta, deterministic_answer, sse

PLAN = workflow_of(("a", "plan {question}", ()), ("b", "solve", (0,)))
COMMAS = "model_id = [" + "," * 1_900_000
PAST_LIMIT = (
    "The completion reached its limit of tokens before the plan was whole: raise max_tokens of the Conductor if the "
    "conductors file gives one, else CONDUCTOR_PLAN_MAX_TOKENS (now 1,024), or choose a Conductor that writes less "
    "before its plan."
)
MUCH = 10_000
"""Characters of a completion. No real plan is so long."""


def reply(call: Call) -> Answer | Reply:
    match call.model:
        case "planner":
            return Answer(lists_of(PLAN, ("a", "b")), pieces=20, pause_s=0.02)
        case "commas":
            return Answer(COMMAS, pieces=2000)
        case "at once":
            return Answer(2 * COMMAS, pieces=1)
        case "singly":
            return Reply([sse(delta("model_id = [")), *([sse(*[delta(",")] * 1000)] * 100), sse(delta(finish="stop"))])
        case "endless":
            return Reply([sse(*[delta(COMMAS[at : at + 5000]) for at in range(0, 100_000, 5000)]), Hang()])
        case "much":
            return Answer("model_id = [" + "," * 60_000)
    return deterministic_answer(call)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider.always(reply)


@pytest.fixture
def folder_bytes(tmp_path: Path) -> Callable[[], int]:
    """What the database and its files take on disk."""
    return lambda: sum(file.stat().st_size for file in tmp_path.rglob("runs.sqlite3*") if file.is_file())


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the completions were that this thread read, which has the loop of all runs."""
    lengths: list[int] = []
    loops = threading.get_ident()

    def noted(text: str) -> Parsed:
        if threading.get_ident() == loops:
            lengths.append(len(text))
        return parse_completion(text)

    monkeypatch.setattr(planner, "parse_completion", noted)
    return lengths


async def run_workflow(store: Store, provider: ScriptedProvider, *models: str) -> list[RunTrace]:
    """One run for each Conductor, all at once."""
    settings = Settings(retry_initial_s=0)
    workers = tuple(
        WorkerSpec(name=name, provider="openai", model=name, base_url=provider.url, max_concurrency=8) for name in "ab"
    )
    pool = reopen_pool(PoolInfo(name="loopback", workers=workers), settings)
    conductors = [open_conductor(f"{provider.url}#{model}", settings) for model in models]
    engine = Engine(store.log, settings)
    try:
        runs = [engine.run(RunRequest(task="the task"), conductor, pool) for conductor in conductors]
        return await asyncio.gather(*runs)
    finally:
        for conductor in conductors:
            await conductor.aclose()
        await pool.aclose()


@pytest.mark.parametrize(
    ("model", "told", "attempts"),
    [
        ("commas", PAST_LIMIT, 2),
        ("singly", PAST_LIMIT, 2),
        ("at once", "in one event; no plan needs that: choose another Conductor, or lower its max_tokens", 0),
        ("much", PAST_LIMIT, 2),
    ],
)
async def test_an_overlong_plan_ends_its_run_alone(
    model: str,
    told: str,
    attempts: int,
    provider: ScriptedProvider,
    store: Store,
    folder_bytes: Callable[[], int],
    read_here: list[int],
) -> None:
    bad, *good = await run_workflow(store, provider, model, "planner", "planner")
    assert [trace.status for trace in good] == ["completed", "completed"]
    assert max(read_here) < MUCH, "other runs wait for none but short ones"
    assert bad.status == "failed"
    assert bad.error is not None
    assert bad.error.endswith(told)
    assert len(bad.root.rejected) == attempts
    assert all(len(plan.raw.encode()) <= 6 * 1024 for plan in bad.root.rejected)
    assert store.trace(bad.run_id)[0] == bad
    assert folder_bytes() < 3_000_000


async def test_an_overlong_plan_is_broken_off_and_what_it_took_is_counted(
    provider: ScriptedProvider, store: Store
) -> None:
    (trace,) = await run_workflow(store, provider, "endless")
    assert trace.usage.estimated
    assert trace.usage.output_tokens == 2 * 1024
    assert trace.root.rejected[0].faults[0].line == 1
    assert trace.root.rejected[0].faults[0].column == 6 * 1024 + 1
    assert provider.wait_until(lambda it: it.disconnects >= 2)


async def test_a_completion_that_its_server_cut_at_the_limit_says_so_in_one_line(
    provider: ScriptedProvider, store: Store
) -> None:
    provider.always(lambda call: Answer("First I think about the parts of the task, and", finish_reason="length"))
    (trace,) = await run_workflow(store, provider, "prose")
    assert [fault.message for plan in trace.root.rejected for fault in plan.faults] == [PAST_LIMIT, PAST_LIMIT]
    assert trace.error is not None
    assert trace.error.endswith(PAST_LIMIT)


async def test_prose_without_an_end_is_broken_off_at_the_limit_and_thoughts_do_not_count(
    provider: ScriptedProvider, store: Store
) -> None:
    prose = [delta("word " * 100) for _ in range(1000)]
    thoughts = [sse(delta(reasoning_content="hm " * 5000))]
    provider.always(lambda call: Reply([*thoughts, sse(*prose), Hang()]))
    (trace,) = await run_workflow(store, provider, "prose")
    assert [len(plan.raw) for plan in trace.root.rejected] == [6 * 1024] * 2
    assert {fault.message for plan in trace.root.rejected for fault in plan.faults} == {PAST_LIMIT}
