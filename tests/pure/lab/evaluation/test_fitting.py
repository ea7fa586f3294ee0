"""Learned routers from runs of the single workers."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.pools import Pool, open_pool, open_worker
from conductor_core.engine.runner import Engine
from conductor_core.errors import BadInput, UnknownRun, WorkerRefused
from conductor_core.grading.tasks import Suite
from conductor_core.lab.evaluation import fitting
from conductor_core.lab.evaluation.fitting import TRIES, TeamReward, Tries, routed
from conductor_core.lab.evaluation.orchestrators import GivenTask, Orchestrator, single
from conductor_core.lab.evaluation.routers import mas_router, router_dc
from conductor_core.lab.evaluation.routers.mas_router import MasRouterConfig
from conductor_core.lab.evaluation.routers.workflows import TrainingRow
from conductor_core.lab.evaluation.runner import Caps, Spending, Stopped, outcome
from conductor_core.lab.evaluation.suites import BENCHMARKS, load_suite
from conductor_core.lab.records.evaluation import OUTCOMES, LearnedFrom
from conductor_core.rehearsal import recognise
from conductor_core.rehearsal.exact import success_chance
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.workflow.model import Workflow
from tests.support.evaluations import task
from tests.support.fakes import MemorySink, ScriptedWorker, pool_of, quick_settings, workflow_of

SETTINGS = quick_settings(rehearsal_tokens_per_s=0.0)


def engine_of(sink: MemorySink) -> Engine:
    return Engine(sink, SETTINGS, sink.read)


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


def fits(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def the_fit(folder: Path) -> Path:
    (found,) = fits(folder)
    return found


async def test_routers_are_fitted_on_runs_that_are_made_once(tmp_path: Path) -> None:
    sink = MemorySink()
    engine = engine_of(sink)
    told: list[tuple[int, int]] = []
    (smoothie,) = await fitting.fitted(
        fit(tmp_path, "smoothie"), engine, sink.read, lambda done, total: told.append((done, total))
    )
    assert smoothie.name == "smoothie"
    assert told[-1] == (84, 84)
    runs = sink.kinds().count("run.created")
    assert runs == 84
    await fitting.fitted(fit(tmp_path, "smoothie-dependent"), engine, sink.read, lambda done, total: None)
    assert sink.kinds().count("run.created") == runs, "the runs of the single workers were there"

    pool = open_pool("rehearsal", SETTINGS)
    asked = GivenTask(load_suite("rehearsal", "test", limit=1, seed=0).tasks[0], pool, Limits(), 0, ("coder", "writer"))
    smoothed = await smoothie.attempt(asked, engine.run)
    row = outcome("smoothie", asked, smoothed, 1.0, subset=True)
    assert (row.steps, row.fault, len(row.present)) == (5, None, 5)
    assert smoothed.trace.steps[0].reused_from is not None
    assert smoothed.trace.answer in [step.output for step in smoothed.also[0].steps]
    assert row.tokens == smoothed.also[0].usage.total_tokens


async def test_a_fitted_router_is_kept_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MemorySink()
    engine = engine_of(sink)

    async def routed() -> list[Workflow]:
        (router,) = await fitting.fitted(fit(tmp_path, "router-dc"), engine, sink.read, lambda done, total: None)
        pool, tasks = open_pool("rehearsal", SETTINGS), load_suite("rehearsal", "test", limit=6, seed=0).tasks
        attempts = [await router.attempt(GivenTask(each, pool, Limits(), 0, ()), engine.run) for each in tasks]
        return [attempt.trace.root.workflow for attempt in attempts if attempt.trace.root.workflow is not None]

    first = await routed()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("fitted twice")

    monkeypatch.setattr(router_dc, "fit", never)
    assert await routed() == first
    assert len(first) == 6


async def test_routers_that_are_kept_need_no_runs(tmp_path: Path) -> None:
    sink = MemorySink()
    engine = engine_of(sink)
    await fitting.fitted(fit(tmp_path, "router-dc"), engine, sink.read, lambda done, total: None)
    folder = the_fit(tmp_path)

    def gone(run_id: str) -> RunTrace:
        raise UnknownRun(f"unknown run {run_id!r}")

    (kept,) = await fitting.fitted(fit(tmp_path, "router-dc"), engine, gone, lambda done, total: None)
    assert kept.name == "router-dc"
    runs = sink.kinds().count("run.created")
    outcomes_file = folder / OUTCOMES
    outcomes_file.write_text("".join(outcomes_file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(BadInput, match=f"unknown run .* remove {folder} to fit again"):
        await fitting.fitted(fit(tmp_path, "router-dc", "smoothie"), engine, gone, lambda done, total: None)
    assert sink.kinds().count("run.created") == runs, "no further run was paid for"


async def test_one_cap_holds_for_a_fit_and_all_that_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of the single workers, then tries of teams: 15 tokens a call."""
    worker, sink = ScriptedWorker("alpha"), MemorySink()
    monkeypatch.setattr(fitting, "open_worker", lambda spec, settings, seed: worker)
    monkeypatch.setattr(mas_router, "MasRouterConfig", partial(MasRouterConfig, epochs=2))
    # In other words: questions that are all the same to the encoder are nothing to route by.
    questions = ("Name the number of a week's days.", "Count to three aloud.", "Which year came before this one?")
    tasks = tuple(replace(task(number), question=question) for number, question in enumerate(questions))
    suite = Suite("said", "train", tasks, simulated=False)
    asked = replace(fit(tmp_path, "mas-router"), suite=suite, pool=pool_of(worker), concurrency=1)

    async def again(caps: Caps, before: int = 0) -> Spending:
        """``before``: tokens of an earlier part of the evaluation."""
        spending = Spending(caps, tokens=before)
        with pytest.raises(Stopped, match="--max-tokens"):
            await fitting.fitted(
                replace(asked, spending=spending),
                engine_of(sink),
                sink.read,
                lambda done, total: None,
            )
        return spending

    spent = await again(Caps(max_tokens=40))
    assert (spent.tokens, len(worker.calls)) == (30, 2), "the third run of the worker alone is over the cap"
    spent = await again(Caps(max_tokens=1000), before=960)
    assert (spent.tokens, len(worker.calls)) == (990, 2), "what was spent elsewhere counts"
    spent = await again(Caps(max_tokens=60))
    tokens, calls = spent.tokens, len(worker.calls)
    assert calls > 3, "a team was tried"
    assert tokens == 15 * calls, "all that this fit ever took"
    assert ((await again(Caps(max_tokens=60))).tokens, len(worker.calls)) == (tokens, calls), "not a call more"

    spending = Spending(Caps(max_tokens=10**6))
    await fitting.fitted(replace(asked, spending=spending), engine_of(sink), sink.read, lambda done, total: None)
    assert spending.tokens == 15 * len(worker.calls)
    folder = the_fit(tmp_path)
    lines = (folder / TRIES).read_text().splitlines()
    assert len(lines) == len(list(Tries(folder / TRIES))) > 1, "none was tried twice"


async def test_no_router_learns_from_a_task_at_which_a_worker_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[tuple[TrainingRow, ...]] = []

    def fit_one(name: str, kept: Path, rows: tuple[TrainingRow, ...], *_: object) -> Orchestrator:
        learned.append(rows)
        return routed(name, _ToTheLast())

    monkeypatch.setattr(fitting, "_fit_one", fit_one)
    worker, sink = ScriptedWorker("alpha").then(WorkerRefused("not that"), "1", WorkerRefused("not that")), MemorySink()
    suite = Suite("said", "train", tuple(task(number) for number in range(3)), simulated=False)
    asked = replace(fit(tmp_path, "router-dc"), suite=suite, pool=pool_of(worker), concurrency=1)
    engine = engine_of(sink)
    with pytest.raises(Stopped, match=r"2 answers are missing\. Fix the worker"):
        await fitting.fitted(asked, engine, sink.read, lambda done, total: None)
    assert not learned, "a fit waits for its workers"
    worker.then(WorkerRefused("not that"), "2")
    await fitting.fitted(replace(asked, count_failures=True), engine, sink.read, lambda done, total: None)
    assert [[row.question for row in rows] for rows in learned] == [["Say 1.", "Say 2."]]


async def test_a_fit_is_of_one_way_of_marking(tmp_path: Path) -> None:
    sink = MemorySink()
    asked = fit(tmp_path, "smoothie")
    loosely = tuple(replace(each, extra={**each.extra, "tolerance": 1}) for each in asked.suite.tasks)
    other = replace(asked, suite=replace(asked.suite, tasks=loosely))
    for each in (asked, other, asked):
        await fitting.fitted(each, engine_of(sink), sink.read, lambda done, total: None)
    assert len(fits(tmp_path)) == 2
    assert sink.kinds().count("run.created") == 2 * 84


class _ToTheLast:
    """A router that always takes the last worker present."""

    agents = ("alpha", "beta")

    def route(self, question: str, present: Sequence[str]) -> Workflow:
        return single(present[-1])


async def test_a_router_sees_only_who_is_present() -> None:
    pool = pool_of(*map(ScriptedWorker, ("alpha", "beta")))
    attempt = await routed("last", _ToTheLast()).attempt(
        GivenTask(task(1), pool, Limits(), 0, ("beta",)), Engine(MemorySink(), SETTINGS).run
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
        fitting.fitted(fit(tmp_path, "smoothie"), engine_of(sink), sink.read, lambda done, total: None)
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


def test_a_benchmark_s_own_training_tasks_are_fitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(ref: str, split: str, *, limit: int | None, seed: int) -> Suite:
        asked.append(f"{ref}/{split}")
        return load_suite("rehearsal", "train", limit=limit, seed=seed)

    tested = load_suite("rehearsal", "test", limit=5)
    with pytest.raises(BadInput, match=r"aime25 has the split test, not 'train'.*--fit-suite"):
        fitting.training_suite("aime25", 5, 0, tested)
    monkeypatch.setattr("conductor_core.lab.evaluation.fitting.load_suite", load)
    for benchmark in ("math500", "mmlu", "rlpr", "livecodebench"):
        assert "train" in BENCHMARKS[benchmark].splits
        fitting.training_suite(benchmark, 5, 0, tested)
    assert asked == ["math500/train", "mmlu/train", "rlpr/train", "livecodebench/train"]


def test_teams_are_not_tried_with_real_money_without_a_cap() -> None:
    pool = pool_of(ScriptedWorker("alpha"))
    with pytest.raises(BadInput, match="mas-router"):
        fitting.check(["mas-router"], pool, Caps())
    fitting.check(["mas-router"], pool, Caps(max_usd=1.0))
    fitting.check(["router-dc", "smoothie"], pool, Caps())
    mixed = Pool("mixed", {**open_pool("rehearsal", SETTINGS).workers, **pool.workers})
    with pytest.raises(BadInput, match="mas-router"):
        fitting.check(["mas-router"], mixed, Caps())


def test_in_the_rehearsal_world_a_team_is_worth_its_exact_chance(tmp_path: Path) -> None:
    suite = load_suite("rehearsal", "train", limit=1, seed=0)
    tasks, pool = suite.tasks, open_pool("rehearsal", SETTINGS)
    row = TrainingRow(tasks[0].question, tokens=dict.fromkeys(pool.workers, 100))
    asked = replace(fit(tmp_path), suite=suite, pool=pool)
    reward = TeamReward(asked, {tasks[0].task_id: row}, Tries(tmp_path / TRIES))
    workflow = workflow_of(("reasoner", "Solve it: {question}", ()), ("verifier", "Check it: {question}", (0,)))
    score, tokens = reward(0, workflow)
    known = recognise(tasks[0].question)
    assert known is not None
    assert score == success_chance(known, workflow)
    read = -(-len(tasks[0].question) // 4)
    assert tokens == 2 * read + 3 * (100 - read), "both read the task, one reads the other's answer, both write"


def test_a_simulated_worker_with_the_name_of_another_profile_is_tried(tmp_path: Path) -> None:
    suite = load_suite("rehearsal", "train", limit=1, seed=0)
    tasks = suite.tasks
    spec = WorkerSpec(name="coder", provider="rehearsal", model="rehearsal/writer")
    pool = Pool("one", {"coder": open_worker(spec, SETTINGS, 0)})
    rows = {tasks[0].task_id: TrainingRow(tasks[0].question, tokens={"coder": 100})}
    asked = replace(fit(tmp_path), suite=suite, pool=pool)
    tries = Tries(tmp_path / TRIES)
    workflow = workflow_of(("coder", "Solve it: {question}", ()))
    score, _ = TeamReward(asked, rows, tries)(0, workflow)
    assert [(each.workflow, each.score) for each in tries] == [(workflow, score)]


async def test_a_kept_router_says_what_it_learned_from(tmp_path: Path) -> None:
    sink, asked = MemorySink(), fit(tmp_path, "router-dc", "kind-table")
    engine = engine_of(sink)
    for _ in range(2):  # made, then kept: it says the same
        _, table = await fitting.fitted(asked, engine, sink.read, lambda done, total: None)
        told = fitting.learned_from(asked)
        assert told["router-dc"] == LearnedFrom(tasks=12, answers=84)
        assert (told["kind-table"].tasks, told["kind-table"].exact) == (12, True)
        assert told["kind-table"].tried > 12 * 7, "every worker alone, and more"
    attempt = await table.attempt(
        GivenTask(load_suite("rehearsal", "test", limit=1, seed=0).tasks[0], asked.pool, Limits(), 0, ()),
        engine.run,
    )
    assert attempt.trace.answer


def test_a_kind_table_is_not_fitted_with_real_money_without_a_cap() -> None:
    pool = pool_of(ScriptedWorker("alpha"))
    with pytest.raises(BadInput, match="kind-table"):
        fitting.check(["kind-table"], pool, Caps())
    fitting.check(["kind-table"], pool, Caps(max_tokens=1000))
