"""A slow model in this process says in the record what it does."""

from pathlib import Path

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.run import events as ev
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import apply, fold
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from tests.support.fakes import MemorySink, quick_settings, workflow_of
from tests.support.tiny_models import random_model


async def test_a_step_says_that_its_model_loads_reads_and_writes(tmp_path: Path) -> None:
    spec = WorkerSpec(
        name="local", provider="local", model=str(random_model(tmp_path, seed=5)), params={"max_tokens": 9}
    )
    pool, sink = Pool(name="p", workers={"local": open_worker(spec, Settings())}), MemorySink()
    request = RunRequest(task="a task", workflow=workflow_of(("local", "Answer: {question}", ())))
    trace = await Engine(sink, quick_settings()).run(request, None, pool)
    told = [event.progress for event in sink.events if isinstance(event, ev.StepProgress)]
    assert list(dict.fromkeys(each.phase for each in told)) == ["loading", "reading", "writing"]
    assert trace.root.steps[0].progress is None, "it is done"
    half = fold(sink.events[:1])
    for event in sink.events[1:]:
        apply(half, event)
        if isinstance(event, ev.StepProgress):
            assert half.root.steps[0].progress == event.progress


async def test_a_conductor_says_so_of_its_plan(tmp_path: Path) -> None:
    worker = WorkerSpec(name="local", provider="local", model=str(tmp_path))
    pool, sink = Pool(name="p", workers={"local": open_worker(worker, Settings())}), MemorySink()
    conductor = open_conductor(str(random_model(tmp_path, seed=6)), Settings(plan_max_tokens=60))
    await Engine(sink, quick_settings()).run(RunRequest(task="a task", plan_only=True), conductor, pool)
    told = [event.progress for event in sink.events if isinstance(event, ev.PlanProgress)]
    assert list(dict.fromkeys(each.phase for each in told))[:3] == ["loading", "reading", "thinking"]
