"""Replays carried out by the real engine on a real store, with simulated workers: calls, resuming, stopping."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.blame.experiments import PURPOSE, Experiments, effects
from conductor_core.blame.runs import Blame, CarryingOut, Verdicts, recorded
from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.host import EngineHost
from conductor_core.engine.pools import who_may_be_called
from conductor_core.errors import BadInput
from conductor_core.rehearsal import generate
from conductor_core.run.actor import local_caller
from conductor_core.run.events import RunInterrupted, StepCompleted
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from storage import Store, open_store
from tests.support.fakes import workflow_of

TASK = generate("arithmetic", "medium", 3).question
PLAN = workflow_of(
    ("reasoner", "Solve it on your own as one of two: {question}", ()),
    ("calculator", "Compute the answer of this task: {question}", ()),
    ("verifier", "Check the solutions above and correct any mistake: {question}", (0, 1)),
    ("writer", "State the final answer above", (2,)),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    yield opened
    opened.close()


@pytest.fixture
def host(store: Store) -> Iterator[EngineHost]:
    opened = EngineHost(store.log, Settings(rehearsal_tokens_per_s=0), store)
    yield opened
    opened.close()


@pytest.fixture
def source(host: EngineHost) -> RunTrace:
    return host.wait(host.start(RunRequest(task=TASK, workflow=PLAN, pool="rehearsal", seed=5)), 30)


def blame_of(store: Store, source: RunTrace, count: int) -> Blame:
    children = store.runs(limit=10_000, parent=source.run_id)
    return Blame(Experiments(source), Verdicts(source), count, recorded(children, store.read))


def calls_of(store: Store, source: RunTrace) -> int:
    """The answers that workers gave in the runs below ``source``, by the log itself."""
    children = store.runs(limit=10_000, parent=source.run_id)
    events = (stored.event for child in children for stored in store.events(child.run_id))
    return sum(isinstance(event, StepCompleted) for event in events)


def carry_out(blame: Blame, host: EngineHost, **options: object) -> CarryingOut:
    work = CarryingOut(blame, host, local_caller("cli"), **options)  # type: ignore[arg-type]
    work.run()
    return work


def test_the_calls_made_are_those_that_the_estimate_named(store: Store, host: EngineHost, source: RunTrace) -> None:
    blame = blame_of(store, source, 3)
    estimate = blame.estimate
    assert estimate == blame.estimate_left
    assert estimate.replays == len(blame.experiments.arms) * 3
    work = carry_out(blame, host)
    assert (work.ended, work.failed, work.total) == (estimate.replays, 0, estimate.replays)
    assert calls_of(store, source) == estimate.calls
    for child in store.runs(limit=10_000, parent=source.run_id):
        trace = store.read(child.run_id)
        asked = {step.index for step in trace.steps if step.status == "completed"}
        assert child.batch_row is not None
        named = child.batch_row.rpartition("fresh ")[2].partition(" #")[0]
        assert asked == {int(index) for index in named.split(",")}
        assert trace.purpose == PURPOSE
        assert {step.status for step in trace.steps} <= {"completed", "reused"}


def test_what_is_recorded_is_not_run_again_and_more_replays_build_on_it(
    store: Store, host: EngineHost, source: RunTrace
) -> None:
    carry_out(blame_of(store, source, 2), host)
    before, again = calls_of(store, source), blame_of(store, source, 2)
    assert again.left == []
    assert again.estimate_left.calls == 0
    assert carry_out(again, host).total == 0
    more = blame_of(store, source, 5)
    left = more.estimate_left.calls
    carry_out(more, host)
    assert calls_of(store, source) == before + left == more.estimate.calls
    fresh = blame_of(store, source, 5)
    assert effects(fresh.experiments, fresh.answers(), 5) == effects(more.experiments, more.answers(), 5)


def test_a_replay_that_was_killed_goes_on_from_its_finished_steps(
    store: Store, host: EngineHost, source: RunTrace
) -> None:
    blame = blame_of(store, source, 1)
    replay = next(each for each in blame.replays if each.arm.key == "fresh 2,3")
    ((_, request),) = [each for each in blame.requests(door="cli", max_usd=None) if each[0] == replay]
    whole = host.wait(host.start(request), 30)
    # The same run once more, as a process leaves it that was killed after step 2.
    events = [stored.event for stored in store.events(whole.run_id)]
    last = next(place for place, event in enumerate(events) if isinstance(event, StepCompleted))
    store.delete([whole.run_id], local_caller("cli"))
    for event in (*events[: last + 1], RunInterrupted(run_id=whole.run_id, at_ms=events[last].at_ms)):
        store.log.append_and_wait(event.model_copy(update={"run_id": "killed"}))
    blame = blame_of(store, source, 1)
    assert [trace.run_id for trace in blame.known.begun[replay.key]] == ["killed"]
    assert blame.estimate_left.calls == blame.estimate.calls - 1
    carry_out(blame, host)
    gone_on = blame.known.done[replay.key]
    assert [step.status for step in gone_on.steps] == ["reused", "reused", "reused", "completed"]
    assert gone_on.answer == whole.answer, "the same seeds, so the same answer"
    assert calls_of(store, source) == blame.estimate.calls


def test_stopped_it_keeps_what_ended_and_goes_on_later(store: Store, host: EngineHost, source: RunTrace) -> None:
    blame = blame_of(store, source, 4)
    work = CarryingOut(
        blame, host, local_caller("cli"), concurrency=2, notify=lambda at: at.stop() if at.ended == 5 else None
    )
    work.run()
    assert 5 <= work.ended < work.total
    again = blame_of(store, source, 4)
    assert len(again.left) < len(again.replays)
    carry_out(again, host)
    assert blame_of(store, source, 4).left == []
    assert calls_of(store, source) == again.estimate.calls


def test_a_run_with_a_seed_of_its_own_and_a_plan_that_goes_on_beyond_its_answer_can_be_blamed(
    store: Store, host: EngineHost, source: RunTrace
) -> None:
    overrides = source.overrides.with_seeds({0: 77}).model_copy(update={"last_step": 2})
    request = RunRequest(task=TASK, workflow=PLAN, pool="rehearsal", seed=5, overrides=overrides)
    other = host.wait(host.start(request), 30)
    blame = blame_of(store, other, 2)
    assert blame.experiments.out_of_reach == (3,)
    carry_out(blame, host)
    assert blame.left == []
    assert calls_of(store, other) == blame.estimate.calls


def test_a_failed_replay_is_missing_and_tried_again(
    store: Store, host: EngineHost, source: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    blame = blame_of(store, source, 1)
    bounded = source.limits.model_copy(update={"max_tokens": 1})
    requests = [
        (replay, request.model_copy(update={"limits": bounded}) if replay.arm.key == "fresh 3" else request)
        for replay, request in blame.requests(door="cli", max_usd=None)
    ]
    monkeypatch.setattr(blame, "requests", lambda **_: requests)
    work = carry_out(blame, host)
    assert work.failed == 1
    assert [replay.arm.key for replay in blame.left] == ["fresh 3"]
    last = next(e for e in effects(blame.experiments, blame.answers(), 1) if e.change.key == "step 3")
    assert (last.finding, last.missing) == ("not measured", 1)
    again = blame_of(store, source, 1)
    carry_out(again, host)
    assert again.left == []


@pytest.mark.parametrize("count", [0, 201])
def test_too_few_and_too_many_replays_are_refused(store: Store, source: RunTrace, count: int) -> None:
    with pytest.raises(BadInput, match=f"not {count}"):
        blame_of(store, source, count)


def test_a_budget_is_refused_if_a_fallback_has_no_price(store: Store, host: EngineHost, source: RunTrace) -> None:
    unpriced = {"name": "spare", "provider": "openai", "model": "m", "params": {"max_tokens": 9}}
    workers = [each.model_copy(update={"fallback": "spare"}) for each in source.pool.workers]
    pool = source.pool.model_copy(update={"workers": (*workers, WorkerSpec.model_validate(unpriced))})
    blame = blame_of(store, source.model_copy(update={"pool": pool}), 1)
    with pytest.raises(BadInput, match="no price is known of spare"):
        CarryingOut(blame, host, local_caller("cli"), max_usd=1.0)
    assert who_may_be_called(["conductor"], pool.workers) == list(pool.workers), "its plan may name any of them"
