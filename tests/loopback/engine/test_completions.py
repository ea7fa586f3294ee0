"""Every kind of completion over a real wire: what becomes of the step and of the run, and what is kept."""

from collections.abc import Iterator

import pytest

from conductor_core.engine.pool import Pool
from conductor_core.engine.request import RunRequest
from conductor_core.engine.runner import Engine
from conductor_core.settings import Settings
from conductor_core.trace import RunTrace, fold
from conductor_core.workers.pool import open_worker
from tests.support.completions import COMPLETIONS, Completion
from tests.support.fakes import MemorySink, quick_settings, workflow_of
from tests.support.provider import ScriptedProvider


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


async def run_one(provider: ScriptedProvider, kind: Completion) -> RunTrace:
    provider.reset()
    provider.always(kind.reply)
    worker = open_worker(provider.spec(provider=kind.provider), Settings())
    sink = MemorySink()
    request = RunRequest(task="the task", workflow=workflow_of(("alpha", "Answer {question}", ())))
    try:
        trace = await Engine(sink, quick_settings()).run(request, None, Pool("loopback", {"alpha": worker}))
    finally:
        await worker.aclose()
    assert fold(sink.events) == trace
    return trace


@pytest.mark.parametrize("kind", COMPLETIONS, ids=lambda kind: kind.said)
async def test_what_becomes_of_a_completion(provider: ScriptedProvider, kind: Completion) -> None:
    trace = await run_one(provider, kind)
    (step,) = trace.steps
    assert (step.status, trace.status) == (kind.becomes, kind.becomes)
    assert step.output == kind.output
    assert kind.refusal in step.refusal
    assert bool(kind.refusal) == bool(step.refusal)
    assert tuple((call.name, call.arguments) for call in step.tool_calls) == kind.tool_calls
    assert trace.answer == (None if kind.becomes == "failed" else kind.output)
    assert step.incomplete == (kind.becomes != "completed")


def test_there_are_enough_kinds() -> None:
    assert len(COMPLETIONS) >= 25
    assert len({kind.said for kind in COMPLETIONS}) == len(COMPLETIONS)
