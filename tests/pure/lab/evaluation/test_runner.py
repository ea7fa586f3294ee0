"""Every outcome once: resumed, capped, cancelled, failed."""

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import ConductorInfo, Message, Price
from conductor_core.engine.runner import Engine
from conductor_core.errors import (
    BadInput,
    ConductorUnavailable,
    UnknownRun,
    WorkerError,
    WorkerFailed,
    WorkerOutputTooLarge,
    WorkerRateLimited,
    WorkerRefused,
    WorkerUnreachable,
)
from conductor_core.grading.tasks import Graded, Task
from conductor_core.lab.evaluation import runner
from conductor_core.lab.evaluation.orchestrators import Orchestrator, conducted, mixture, planned
from conductor_core.lab.evaluation.runner import Caps, Stopped, open_record, subsets, unfinished_costs
from conductor_core.lab.records import append_lines, in_use
from conductor_core.lab.records.evaluation import BEGUN, OUTCOMES, PLAN, Begun, Outcome, append, read_record
from conductor_core.run.events import StepDelta
from conductor_core.run.trace import RunTrace, fold
from tests.support.evaluations import alone, evaluation, noted, plan, row, spent, task
from tests.support.fakes import MemorySink, Reply, Script, ScriptedConductor, ScriptedWorker, pool_of, quick_settings
from tests.support.holding import another_process

TASKS = tuple(task(number) for number in range(4))


def engine() -> Engine:
    return Engine(MemorySink(), quick_settings(step_attempts=1))


async def run(
    folder: Path,
    *workers: ScriptedWorker,
    tasks: Sequence[Task] = TASKS,
    asked: Sequence[Orchestrator] = (),
    caps: Caps = Caps(),  # noqa: B008
    recorded: Sequence[Outcome] = (),
    **how: Any,
) -> tuple[tuple[Outcome, ...], str | None]:
    """Asks each worker alone if nothing else is ``asked``."""
    asked = asked or [alone(worker.spec.name) for worker in workers]
    trial = evaluation(folder, tasks, asked, *workers, spending=spent(caps, *recorded), **how)
    return await trial.run(engine().run, recorded)


async def test_every_task_goes_to_every_orchestrator(tmp_path: Path) -> None:
    right, wrong = ScriptedWorker("right", lambda messages: messages[-1].text[-2]), ScriptedWorker("wrong")
    open_record(tmp_path, plan("single:right", "single:wrong"), resume=False)
    seen: list[str] = []
    outcomes, stopped = await run(tmp_path, right, wrong, on_outcome=lambda done: seen.append(done.run_id))
    assert stopped is None
    assert Counter((each.orchestrator, each.score) for each in outcomes) == {
        ("single:right", 1.0): 4,
        ("single:wrong", 0.0): 4,
    }
    assert set(read_record(tmp_path).outcomes) == set(outcomes)
    assert len(set(seen)) == 8
    assert {(each.tokens, each.steps, each.fault) for each in outcomes} == {(15, 1, None)}


async def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    first, tasks = noted(alone("alpha"))
    kept = (row("single:alpha", "task-1"), row("single:alpha", "task-3"))
    done, _ = await run(tmp_path, ScriptedWorker("alpha"), asked=[first], recorded=kept)
    assert sorted(tasks) == ["task-0", "task-2"]
    assert len(done) == 4


async def test_concurrency_is_bounded(tmp_path: Path) -> None:
    worker = ScriptedWorker("alpha", lambda messages: Reply(text="1", meets=3))
    await run(tmp_path, worker, tasks=[task(number) for number in range(12)], concurrency=3)
    assert len(worker.calls) == 12
    assert worker.most_at_once == 3


async def test_a_run_that_fails_by_its_own_doing_scores_nothing_and_says_why(tmp_path: Path) -> None:
    worker = ScriptedWorker("alpha").then(WorkerOutputTooLarge("too much"))
    done, stopped = await run(tmp_path, worker, tasks=TASKS[:2], concurrency=1)
    assert stopped is None
    failed = done[0]
    assert (failed.score, failed.steps) == (0.0, 1)
    assert failed.fault is not None
    assert "too much" in failed.fault
    assert done[1].fault is None


@pytest.mark.parametrize("error", [WorkerUnreachable, WorkerRateLimited, WorkerFailed, WorkerRefused])
async def test_a_worker_s_failure_is_no_outcome_and_is_asked_again(tmp_path: Path, error: type[WorkerError]) -> None:
    worker = ScriptedWorker("alpha").then(error("away"))
    open_record(tmp_path, plan("single:alpha"), resume=False)
    trial = evaluation(tmp_path, TASKS, [alone("alpha")], worker, concurrency=1)
    done, stopped = await trial.run(engine().run)
    assert [each.task_id for each in done] == ["task-1", "task-2", "task-3"]
    assert stopped is not None
    assert "away), 1 answers are missing" in stopped
    recorded = open_record(tmp_path, plan("single:alpha"), resume=True)
    done, stopped = await trial.run(engine().run, recorded)
    assert (stopped, len(done), {each.fault for each in done}) == (None, 4, {None})


async def test_a_worker_that_is_down_stops_it_all(tmp_path: Path) -> None:
    """Whichever orchestrator needs it: tasks in a row are counted, not runs."""
    up, down = ScriptedWorker("up"), ScriptedWorker("down", lambda messages: WorkerFailed("no luck at :80, wait"))
    orchestrators = [alone("up"), alone("down"), planned("both", lambda asked: mixture(asked.specs, "up"))]
    many = [task(number) for number in range(9)]
    done, stopped = await run(tmp_path, up, down, tasks=many, asked=orchestrators, concurrency=1)
    assert [each.orchestrator for each in done] == ["single:up"] * 3
    assert stopped is not None
    assert stopped.startswith("worker down failed 3 tasks in a row (no luck at :80, wait)")


async def test_a_worker_that_answers_between_failures_is_not_down(tmp_path: Path) -> None:
    by_turns: list[Script] = [WorkerFailed("busy"), "1"]
    worker = ScriptedWorker("alpha").then(*by_turns * 4)
    done, stopped = await run(tmp_path, worker, tasks=[task(number) for number in range(8)], concurrency=1)
    assert len(done) == 4
    assert stopped is not None
    assert stopped.startswith("a worker failed (WorkerFailed: step 0 (alpha) failed: busy), 4 answers are missing")


async def test_failures_count_as_wrong_where_that_is_asked_for(tmp_path: Path) -> None:
    worker = ScriptedWorker("alpha", lambda messages: WorkerRefused("not that"))
    done, stopped = await run(tmp_path, worker, concurrency=1, count_failures=True)
    assert (stopped, len(done), {each.score for each in done}) == (None, 4, {0.0})
    assert all(each.fault is not None and each.fault.startswith("WorkerRefused: ") for each in done)


async def test_an_answer_at_which_its_grader_breaks_is_an_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(asked: Task, answer: str) -> Graded:
        if asked.task_id == "task-1":
            raise RecursionError("too deep")
        return Graded(1.0, "")

    monkeypatch.setattr(runner, "grade", broken)
    done, stopped = await run(tmp_path, ScriptedWorker("alpha"))
    assert stopped is None
    assert {each.task_id: (each.score, each.fault) for each in done if each.fault} == {
        "task-1": (0.0, "RecursionError: the answer could not be graded: too deep")
    }
    assert "the grader exact broke at an answer to task task-1" in caplog.text


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), RuntimeError("it does not start")])
async def test_a_machine_on_which_nothing_can_be_graded_is_no_wrong_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(asked: Task, answer: str) -> Graded:
        raise error

    monkeypatch.setattr(runner, "grade", broken)
    with pytest.raises(Stopped, match=r"the answer to task task-\d could not be graded"):
        await run(tmp_path, ScriptedWorker("alpha"))
    assert not (tmp_path / OUTCOMES).exists()


async def test_grading_keeps_no_other_run_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is graded for as long as it takes the others to be answered."""
    others_asked = threading.Event()

    def slow(asked: Task, answer: str) -> Graded:
        assert asked.task_id != "task-0" or others_asked.wait(30)
        return Graded(1.0, "")

    def answer(messages: Sequence[Message]) -> str:
        if "Say 3" in messages[-1].content:
            others_asked.set()
        return "1"

    monkeypatch.setattr(runner, "grade", slow)
    done, _ = await run(tmp_path, ScriptedWorker("alpha", answer), concurrency=2)
    assert {each.fault for each in done} == {None}


async def test_a_conductor_that_is_not_there_stops_it_all(tmp_path: Path) -> None:
    conductor = ScriptedConductor(ConductorUnavailable("no such server"))
    with pytest.raises(ConductorUnavailable, match="gone: no such server"):
        await run(tmp_path, ScriptedWorker("alpha"), asked=[conducted("gone", conductor)])
    assert not (tmp_path / OUTCOMES).exists()


async def test_the_cost_cap_stops_cleanly_and_can_be_raised(tmp_path: Path) -> None:
    """Each run costs 10 input and 5 output tokens at 1 and 10 USD a million: 60 millionths."""
    plan_ = plan("single:alpha")
    open_record(tmp_path, plan_, resume=False)
    first, tasks = noted(alone("alpha"))
    done, stopped = await run(
        tmp_path, ScriptedWorker("alpha"), asked=[first], concurrency=1, caps=Caps(max_usd=150e-6)
    )
    assert stopped == "the cost cap is reached: 0.000120 of 0.00015 USD (raise --max-usd)"
    assert len(done) == 2
    recorded = open_record(tmp_path, plan_, resume=True)
    assert recorded == done
    done, stopped = await run(
        tmp_path, ScriptedWorker("alpha"), asked=[first], caps=Caps(max_usd=1.0), recorded=recorded
    )
    assert stopped is None
    assert sorted(tasks) == [each.task_id for each in TASKS]
    assert len(read_record(tmp_path).outcomes) == 4


async def test_the_token_cap_counts_what_was_spent_before(tmp_path: Path) -> None:
    recorded = row("single:alpha", "task-0", tokens=15, conductor_tokens=5)
    _, stopped = await run(
        tmp_path, ScriptedWorker("alpha"), concurrency=1, caps=Caps(max_tokens=40), recorded=[recorded]
    )
    assert stopped == "the token cap is reached: 35 of 40 tokens (raise --max-tokens)"


async def test_runs_that_are_on_count_against_the_cap(tmp_path: Path) -> None:
    """With the price of a run known, as many are begun as the cap has room for, however many may run at once."""
    worker = ScriptedWorker("alpha", lambda messages: Reply(text="1", wait_s=0.01))
    many = [task(number) for number in range(20)]
    recorded = row("single:alpha", "task-0", tokens=15)
    done, stopped = await run(
        tmp_path, worker, tasks=many, concurrency=8, caps=Caps(max_tokens=100), recorded=[recorded]
    )
    assert stopped is not None
    assert sum(each.tokens for each in done) <= 100


async def test_with_a_cap_the_first_run_of_each_is_alone(tmp_path: Path) -> None:
    """Else as many as may run at once would begin before one is known to be over the cap by itself."""
    alpha, beta = (ScriptedWorker(name, lambda messages: Reply(text="1", wait_s=0.01)) for name in ("alpha", "beta"))
    many = [task(number) for number in range(20)]
    _, stopped = await run(tmp_path, alpha, beta, tasks=many, concurrency=8, caps=Caps(max_tokens=10))
    assert stopped is not None
    assert (len(alpha.calls), len(beta.calls)) == (1, 1)


async def test_with_the_first_known_the_others_run_at_once(tmp_path: Path) -> None:
    # The first call is alone.
    worker = ScriptedWorker("alpha", lambda messages: Reply(text="1", meets=8 if len(worker.calls) > 1 else 0))
    many = [task(number) for number in range(20)]
    done, stopped = await run(tmp_path, worker, tasks=many, concurrency=8, caps=Caps(max_tokens=10_000))
    assert (stopped, len(done)) == (None, 20)
    assert worker.most_at_once == 8


def test_usd_cannot_be_capped_where_a_price_is_unknown() -> None:
    pool = pool_of(ScriptedWorker("alpha"), ScriptedWorker("beta", usd_per_mtok=None))
    with pytest.raises(BadInput, match="no price for beta"):
        Caps(max_usd=1.0).check(pool)
    Caps(max_tokens=1).check(pool)


def test_usd_cannot_be_capped_with_a_conductor_on_a_server() -> None:
    pool = pool_of(ScriptedWorker("alpha"))
    here = ConductorInfo(name="tiny", kind="local", model="tiny")
    server = ConductorInfo(name="https://host/v1#m", kind="remote", model="m")
    with pytest.raises(BadInput, match=r"the Conductor https://host/v1#m; cap tokens with --max-tokens"):
        Caps(max_usd=1.0).check(pool, [here, server])
    priced = server.model_copy(update={"usd_per_mtok": Price(input=1, output=2)})
    Caps(max_usd=1.0).check(pool, [here, priced])
    Caps(max_usd=1.0).check(pool, [here])
    Caps(max_tokens=1).check(pool, [server])


async def test_cancelled_it_keeps_what_is_done_and_ends_its_runs(tmp_path: Path) -> None:
    hanging = ScriptedWorker("alpha", lambda messages: Reply(hang="Say 2" in messages[-1].content, text="1"))
    sink = MemorySink()
    open_record(tmp_path, plan("single:alpha"), resume=False)
    going = asyncio.create_task(
        evaluation(tmp_path, TASKS, [alone("alpha")], hanging, concurrency=1).run(Engine(sink, quick_settings()).run)
    )
    while len(hanging.calls) < 3:  # noqa: ASYNC110 - the worker has no event to wait for
        await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert [each.task_id for each in read_record(tmp_path).outcomes] == ["task-0", "task-1"]
    assert sink.kinds()[-1] == "run.cancelled"


@pytest.mark.parametrize("how", ["cancelled", "killed"])
async def test_what_a_run_cost_that_brought_no_outcome_counts(tmp_path: Path, how: str) -> None:
    """One that is cancelled says so itself; of one that is killed what is there is reckoned."""
    hanging = ScriptedWorker("alpha", lambda messages: Reply(hang=True, text="1" * 400))
    sink = MemorySink()
    open_record(tmp_path, plan("single:alpha"), resume=False)
    going = asyncio.create_task(
        evaluation(tmp_path, TASKS, [alone("alpha")], hanging, concurrency=4).run(Engine(sink, quick_settings()).run)
    )
    while sum(len(each.text) for each in sink.events if isinstance(each, StepDelta)) < 4 * 400:  # noqa: ASYNC110
        await asyncio.sleep(0)
    killed = list(sink.events)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    events = sink.events if how == "cancelled" else killed
    costs = unfinished_costs(tmp_path, (), lambda run_id: fold(each for each in events if each.run_id == run_id))
    assert len(costs) == 4
    for usd, tokens in costs:
        assert tokens > 100, "a hundred that were written, and the question"
        assert usd is not None
        assert usd > 100 * 10e-6


async def test_runs_of_outcomes_are_not_counted_twice(tmp_path: Path) -> None:
    append_lines(tmp_path / BEGUN, *(Begun(run_id=each) for each in ("one", "two", "three")))

    def gone(run_id: str) -> RunTrace:
        assert run_id == "three"
        raise UnknownRun("it was not begun")

    assert unfinished_costs(tmp_path, [row(run_id="one", also=("two",))], gone) == []


def test_a_line_that_a_killed_process_left_unfinished_is_dropped(tmp_path: Path) -> None:
    open_record(tmp_path, plan(), resume=False)
    append(tmp_path, row())
    with (tmp_path / OUTCOMES).open("a") as file:
        file.write('{"orchestrator": "fir')
    assert open_record(tmp_path, plan(at="later"), resume=True) == (row(),)
    append(tmp_path, row(task_id="task-1"))
    assert len(read_record(tmp_path).outcomes) == 2


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    open_record(tmp_path, plan("first", settings={"limits": 1}), resume=False)
    with pytest.raises(BadInput, match=r"add --resume"):
        open_record(tmp_path, plan("first", settings={"limits": 1}), resume=False)
    with pytest.raises(BadInput, match="seed was 0 and is 1"):
        open_record(tmp_path, plan("first", seed=1, settings={"limits": 1}), resume=True)
    with pytest.raises(BadInput, match="limits was 1 and is 2"):
        open_record(tmp_path, plan("first", settings={"limits": 2}), resume=True)


def test_every_part_of_the_pool_is_present_equally_often() -> None:
    agents = ("a", "b", "c", "d")
    many = [task(number) for number in range(24)]
    missing = subsets(many, agents, 2, seed=1)
    assert Counter(missing.values()) == dict.fromkeys(combinations(agents, 2), 4)
    assert missing == subsets(many, agents, 2, seed=1)
    assert missing != subsets(many, agents, 2, seed=2)
    with pytest.raises(BadInput, match="--present"):
        subsets(many, agents, 5, seed=1)


def test_two_processes_do_not_carry_out_one_evaluation(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    with another_process(folder):
        with pytest.raises(BadInput, match="is in use by another process"):
            open_record(folder, plan(), resume=False)
        (folder / PLAN).write_text(plan().model_dump_json())
        with pytest.raises(BadInput, match="is in use by another process"):
            open_record(folder, plan(), resume=True)
    assert open_record(folder, plan(), resume=True) == ()
    assert in_use(folder) is True
