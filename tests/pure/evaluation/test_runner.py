"""Every outcome once: resumed, capped, cancelled, failed."""

import asyncio
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from conductor_core.chat import ConductorInfo
from conductor_core.engine.runner import Engine
from conductor_core.errors import BadInput, ConductorUnavailable, WorkerRefused
from conductor_core.evaluation.orchestrators.conducted import Conducted
from conductor_core.evaluation.runner import Caps, open_record, subsets
from conductor_core.records.evaluation import OUTCOMES, PLAN, append, read_record
from conductor_core.records.in_use import in_use
from tests.support.evaluations import Counted, alone, evaluation, plan, row, spent, task
from tests.support.fakes import MemorySink, Reply, ScriptedConductor, ScriptedWorker, pool_of, quick_settings
from tests.support.holding import another_process

TASKS = tuple(task(number) for number in range(4))


def engine() -> Engine:
    return Engine(MemorySink(), quick_settings(step_attempts=1))


async def test_every_task_goes_to_every_orchestrator(tmp_path: Path) -> None:
    right, wrong = ScriptedWorker("right", lambda messages: messages[-1].content[-2]), ScriptedWorker("wrong")
    open_record(tmp_path, plan("single:right", "single:wrong"), resume=False)
    heard: list[str] = []
    outcomes, stopped = await evaluation(
        tmp_path,
        TASKS,
        [alone("right"), alone("wrong")],
        right,
        wrong,
        heard=lambda done: heard.append(done.run_id),
    ).carry_out(engine().run)
    assert stopped is None
    assert Counter((each.orchestrator, each.score) for each in outcomes) == {
        ("single:right", 1.0): 4,
        ("single:wrong", 0.0): 4,
    }
    assert set(read_record(tmp_path).outcomes) == set(outcomes)
    assert len(set(heard)) == 8
    assert {(each.tokens, each.steps, each.fault) for each in outcomes} == {(15, 1, None)}


async def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    first = Counted(alone("alpha"))
    kept = (row("single:alpha", "task-1"), row("single:alpha", "task-3"))
    done, _ = await evaluation(tmp_path, TASKS, [first], ScriptedWorker("alpha")).carry_out(engine().run, kept)
    assert sorted(first.asked) == ["task-0", "task-2"]
    assert len(done) == 4


async def test_concurrency_is_bounded(tmp_path: Path) -> None:
    worker = ScriptedWorker("alpha", lambda messages: Reply(text="1", wait_s=0.01))
    await evaluation(
        tmp_path, [task(number) for number in range(12)], [alone("alpha")], worker, concurrency=3
    ).carry_out(engine().run)
    assert len(worker.calls) == 12
    assert worker.most_at_once == 3


async def test_a_failed_run_scores_nothing_and_says_why(tmp_path: Path) -> None:
    worker = ScriptedWorker("alpha").then(WorkerRefused("no key"))
    done, stopped = await evaluation(tmp_path, TASKS[:2], [alone("alpha")], worker, concurrency=1).carry_out(
        engine().run
    )
    assert stopped is None
    failed = done[0]
    assert (failed.score, failed.steps) == (0.0, 1)
    assert failed.fault is not None
    assert "no key" in failed.fault
    assert done[1].fault is None


async def test_a_conductor_that_is_not_there_stops_it_all(tmp_path: Path) -> None:
    conductor = ScriptedConductor(ConductorUnavailable("no such server"))
    with pytest.raises(ConductorUnavailable, match="gone: no such server"):
        await evaluation(tmp_path, TASKS, [Conducted("gone", conductor)], ScriptedWorker("alpha")).carry_out(
            engine().run
        )
    assert not (tmp_path / OUTCOMES).exists()


async def test_the_cost_cap_stops_cleanly_and_can_be_raised(tmp_path: Path) -> None:
    """Each run costs 10 input and 5 output tokens at 1 and 10 USD a million: 60 millionths."""
    plan_ = plan("single:alpha")
    open_record(tmp_path, plan_, resume=False)
    first = Counted(alone("alpha"))
    done, stopped = await evaluation(
        tmp_path, TASKS, [first], ScriptedWorker("alpha"), concurrency=1, spending=spent(Caps(max_usd=150e-6))
    ).carry_out(engine().run)
    assert stopped == "the cost cap is reached: 0.000120 of 0.00015 USD (raise --max-usd)"
    assert len(done) == 2
    there = open_record(tmp_path, plan_, resume=True)
    assert there == done
    done, stopped = await evaluation(
        tmp_path, TASKS, [first], ScriptedWorker("alpha"), spending=spent(Caps(max_usd=1.0), *there)
    ).carry_out(engine().run, there)
    assert stopped is None
    assert sorted(first.asked) == [each.task_id for each in TASKS]
    assert len(read_record(tmp_path).outcomes) == 4


async def test_the_token_cap_counts_what_was_spent_before(tmp_path: Path) -> None:
    there = row("single:alpha", "task-0", tokens=15, conductor_tokens=5)
    spending = spent(Caps(max_tokens=40), there)
    _, stopped = await evaluation(
        tmp_path, TASKS, [alone("alpha")], ScriptedWorker("alpha"), concurrency=1, spending=spending
    ).carry_out(engine().run, [there])
    assert stopped == "the token cap is reached: 35 of 40 tokens (raise --max-tokens)"


async def test_runs_that_are_on_count_against_the_cap(tmp_path: Path) -> None:
    """With the price of a run known, as many are begun as the cap has room for, however many may run at once."""
    worker = ScriptedWorker("alpha", lambda messages: Reply(text="1", wait_s=0.01))
    many = [task(number) for number in range(20)]
    there = row("single:alpha", "task-0", tokens=15)
    done, stopped = await evaluation(
        tmp_path, many, [alone("alpha")], worker, concurrency=8, spending=spent(Caps(max_tokens=100), there)
    ).carry_out(engine().run, [there])
    assert stopped is not None
    assert sum(each.tokens for each in done) <= 100


def test_usd_cannot_be_capped_where_a_price_is_unknown() -> None:
    pool = pool_of(ScriptedWorker("alpha"), ScriptedWorker("beta", usd_per_mtok=None))
    with pytest.raises(BadInput, match="no price for beta"):
        Caps(max_usd=1.0).check(pool)
    Caps(max_tokens=1).check(pool)


def test_usd_cannot_be_capped_with_a_conductor_on_a_server() -> None:
    pool = pool_of(ScriptedWorker("alpha"))
    here = ConductorInfo(name="tiny", kind="local", model="tiny")
    server = ConductorInfo(name="https://host/v1#m", kind="remote", model="m")
    with pytest.raises(BadInput, match=r"the Conductor https://host/v1#m, a server; cap tokens with --max-tokens"):
        Caps(max_usd=1.0).check(pool, [here, server])
    Caps(max_usd=1.0).check(pool, [here])
    Caps(max_tokens=1).check(pool, [server])


async def test_cancelled_it_keeps_what_is_done_and_ends_its_runs(tmp_path: Path) -> None:
    hanging = ScriptedWorker("alpha", lambda messages: Reply(hang="Say 2" in messages[-1].content, text="1"))
    sink = MemorySink()
    open_record(tmp_path, plan("single:alpha"), resume=False)
    going = asyncio.create_task(
        evaluation(tmp_path, TASKS, [alone("alpha")], hanging, concurrency=1).carry_out(
            Engine(sink, quick_settings()).run
        )
    )
    while len(hanging.calls) < 3:  # noqa: ASYNC110 - the worker has no event to wait for
        await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert [each.task_id for each in read_record(tmp_path).outcomes] == ["task-0", "task-1"]
    assert sink.kinds()[-1] == "run.cancelled"


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
