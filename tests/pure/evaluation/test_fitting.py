"""Learned routers from runs of the single workers."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from conductor_core.engine.pool import open_pool
from conductor_core.engine.runner import Engine
from conductor_core.errors import BadInput
from conductor_core.evaluation import fitting
from conductor_core.evaluation.orchestrators.protocol import Asked
from conductor_core.evaluation.orchestrators.routed import Routed
from conductor_core.evaluation.orchestrators.workflows import single
from conductor_core.evaluation.outcome import outcome
from conductor_core.evaluation.rewards import TeamReward
from conductor_core.evaluation.routers import router_dc
from conductor_core.evaluation.routers.rows import TrainingRow
from conductor_core.evaluation.runner import Caps
from conductor_core.evaluation.suites import load_suite
from conductor_core.events import Limits
from conductor_core.rehearsal import recognise
from conductor_core.rehearsal.exact import success_chance
from conductor_core.trace import RunTrace, fold
from conductor_core.workflow.model import Workflow
from tests.support.evaluations import task
from tests.support.fakes import MemorySink, ScriptedWorker, pool_of, quick_settings, workflow_of

SETTINGS = quick_settings(rehearsal_tokens_per_s=0.0)


def reader(sink: MemorySink) -> fitting.ReadTrace:
    def read(run_id: str) -> RunTrace:
        return fold(event for event in sink.events if event.run_id == run_id)

    return read


def fit(folder: Path, *names: str) -> fitting.Fit:
    return fitting.Fit(
        names=names,
        suite=load_suite("rehearsal", "train", limit=12, seed=0),
        seed=0,
        concurrency=8,
        pool=open_pool("rehearsal", SETTINGS),
        limits=Limits(),
        database="",
        folder=folder,
        settings=SETTINGS,
    )


async def test_routers_are_fitted_on_runs_that_are_made_once(tmp_path: Path) -> None:
    sink = MemorySink()
    engine = Engine(sink, SETTINGS)
    heard: list[tuple[int, int]] = []
    (smoothie,) = await fitting.fitted(
        fit(tmp_path, "smoothie"), engine, reader(sink), lambda done, total: heard.append((done, total))
    )
    assert smoothie.name == "smoothie"
    assert heard[-1] == (84, 84)
    runs = sink.kinds().count("run.created")
    assert runs == 84
    await fitting.fitted(fit(tmp_path, "smoothie-dependent"), engine, reader(sink), lambda done, total: None)
    assert sink.kinds().count("run.created") == runs, "the runs of the single workers were there"

    pool = open_pool("rehearsal", SETTINGS)
    asked = Asked(load_suite("rehearsal", "test", limit=1, seed=0).tasks[0], pool, Limits(), 0, ("coder", "writer"))
    smoothed = await smoothie.attempt(asked, engine.run)
    row = outcome("smoothie", asked, smoothed, 1.0, subset=True)
    assert (row.steps, row.fault, len(row.present)) == (5, None, 5)
    assert smoothed.trace.steps[0].reused_from is not None
    assert smoothed.trace.answer in [step.output for step in smoothed.also[0].steps]
    assert row.tokens == smoothed.also[0].usage.total_tokens


async def test_a_fitted_router_is_kept_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MemorySink()
    engine = Engine(sink, SETTINGS)

    async def routed() -> list[Workflow]:
        (router,) = await fitting.fitted(fit(tmp_path, "router-dc"), engine, reader(sink), lambda done, total: None)
        pool, tasks = open_pool("rehearsal", SETTINGS), load_suite("rehearsal", "test", limit=6, seed=0).tasks
        attempts = [await router.attempt(Asked(each, pool, Limits(), 0, ()), engine.run) for each in tasks]
        return [attempt.trace.root.workflow for attempt in attempts if attempt.trace.root.workflow is not None]

    first = await routed()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("fitted twice")

    monkeypatch.setattr(router_dc, "fit", never)
    assert await routed() == first
    assert len(first) == 6


class _ToTheLast:
    """A router that always takes the last worker present."""

    agents = ("alpha", "beta")

    def route(self, question: str, present: Sequence[str]) -> Workflow:
        return single(present[-1])


async def test_a_router_sees_only_who_is_present() -> None:
    pool = pool_of(*map(ScriptedWorker, ("alpha", "beta")))
    attempt = await Routed("last", _ToTheLast()).attempt(
        Asked(task(1), pool, Limits(), 0, ("beta",)), Engine(MemorySink(), SETTINGS).run
    )
    assert [step.agent for step in attempt.trace.steps] == ["alpha"]


async def test_a_fit_that_is_cancelled_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def long_fit(*_: object) -> None:
        begun.set()
        go_on.wait(30)

    monkeypatch.setattr(fitting, "_fit_one", long_fit)
    sink = MemorySink()
    fitted = asyncio.create_task(
        fitting.fitted(fit(tmp_path, "smoothie"), Engine(sink, SETTINGS), reader(sink), lambda done, total: None)
    )
    await asyncio.to_thread(begun.wait, 30)
    fitted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(fitted, timeout=5)
    go_on.set()


def test_training_and_test_tasks_must_not_be_the_same(tmp_path: Path) -> None:
    file = tmp_path / "sums.jsonl"
    file.write_text(
        "".join(
            f'{{"question": "What is {n} and 1?", "reference": "{n + 1}", "grader": "numeric"}}\n' for n in range(40)
        )
    )
    with pytest.raises(BadInput, match="--split held-out"):
        fitting.training_suite(str(file), 5, 0, load_suite(str(file), "test"))
    held_out = load_suite(str(file), "held-out")
    training = fitting.training_suite(str(file), 5, 0, held_out)
    assert not {each.task_id for each in training.tasks} & {each.task_id for each in held_out.tasks}
    with pytest.raises(BadInput, match="--fit-suite"):
        fitting.training_suite("nothing-there", 5, 0, held_out)


def test_teams_are_not_tried_with_real_money_without_a_cap() -> None:
    pool = pool_of(ScriptedWorker("alpha"))
    with pytest.raises(BadInput, match="mas-router"):
        fitting.check(["mas-router"], pool, Caps())
    fitting.check(["mas-router"], pool, Caps(max_usd=1.0))
    fitting.check(["router-dc", "smoothie"], pool, Caps())


def test_in_the_rehearsal_world_a_team_is_worth_its_exact_chance() -> None:
    tasks = load_suite("rehearsal", "train", limit=1, seed=0).tasks
    pool = open_pool("rehearsal", SETTINGS)
    row = TrainingRow(tasks[0].question, tokens=dict.fromkeys(pool.workers, 100))
    reward = TeamReward(tasks, [row], pool, Limits(), SETTINGS, 0, Caps())
    workflow = workflow_of(("reasoner", "Solve it: {question}", ()), ("verifier", "Check it: {question}", (0,)))
    score, tokens = reward(0, workflow)
    known = recognise(tasks[0].question)
    assert known is not None
    assert score == success_chance(known, workflow)
    asked = -(-len(tasks[0].question) // 4)
    assert tokens == 2 * asked + 3 * (100 - asked), "both read the task, one reads the other's answer, both write"
