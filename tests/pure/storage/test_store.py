"""What is appended is what is read: as events, as a trace, as a row of the list."""

import asyncio
import json
import random
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Usage
from conductor_core.errors import BadInput, EventOutOfOrder, StoreError, UnknownRun
from conductor_core.run import events as ev
from conductor_core.run.actor import Caller, local_actor
from conductor_core.run.costs import Cost
from conductor_core.run.events import now_utc
from conductor_core.run.request import UNLISTED_PURPOSES
from conductor_core.run.trace import fold
from conductor_core.run.values import BatchRow, Imported
from conductor_core.workflow.model import Step, Workflow
from storage import Store, open_store
from storage.encoding import SnapshotRow
from tests.support.run_events import (
    answered,
    created,
    planned,
    run_completed,
    step_completed,
    step_started,
    whole_run,
)


async def test_a_run_comes_back_as_it_was_appended(store: Store) -> None:
    events = whole_run("r1")
    for event in events:
        await store.log.append(event)
    stored = store.events("r1")
    assert [item.event for item in stored] == events
    assert [item.sequence for item in stored] == list(range(1, len(events) + 1))
    assert store.events("r1", 3, limit=2) == stored[3:5]
    trace, sequence = store.trace("r1")
    assert trace == fold(events)
    assert sequence == len(events)


@pytest.mark.parametrize("kept", range(1, 13))
async def test_the_trace_is_right_after_every_event(store: Store, kept: int) -> None:
    events = whole_run("r1")[:kept]
    await store.log.append(*events)
    assert store.trace("r1") == (fold(events), kept)


async def test_the_summary_follows_the_events(store: Store) -> None:
    await store.log.append(created("r1"), *planned("r1"))
    running = store.runs()[0]
    assert (running.status, running.topology, running.steps, running.agents) == (
        "running",
        "chain",
        2,
        ("solver", "checker"),
    )
    assert (running.steps_completed, running.duration_ms, running.simulated) == (0, None, True)
    await store.log.append(*answered("r1", 0), *answered("r1", 1))
    await store.log.append(run_completed("r1"))
    done = store.runs()[0]
    assert (done.status, done.steps_completed, done.duration_ms, done.cost_usd) == ("completed", 2, 100.0, 1.0)
    assert (done.usage.input_tokens, done.usage.output_tokens) == (24, 11)
    assert (done.conductor, done.pool, done.error) == ("tiny", "rehearsal", None)
    assert done.caller == Caller(actor=local_actor().account, door="page"), "the account, whatever process it was"


def step_reused(run_id: str, index: int) -> ev.StepReused:
    return ev.StepReused(
        run_id=run_id,
        at_ms=30,
        path=(index,),
        agent="solver",
        identity="i",
        messages=(),
        source_run_id="earlier",
        source_path=(index,),
        output="42",
        output_sha256="ab",
        finish_reason="stop",
        usage=Usage(input_tokens=70, output_tokens=30),
        cost_usd=5.0,
        duration_ms=10,
    )


async def test_the_summary_counts_each_step_as_what_became_of_it(store: Store) -> None:
    workflow = Workflow(steps=tuple(Step(instruction=str(index), agent="solver") for index in range(7)))
    failed = ev.StepFailed(run_id="r1", path=(5,), error_code="WorkerRefused", error="401", partial="", duration_ms=5)
    await store.log.append(
        created("r1"),
        *planned("r1", workflow),
        *(event for index in range(3) for event in answered("r1", index)),
        *(step_reused("r1", index) for index in (3, 4)),
        step_started("r1", 5, 60),
        failed,
    )
    row = store.runs()[0]
    assert (row.steps, row.steps_completed, row.steps_reused, row.steps_failed) == (7, 3, 2, 1)
    assert row.agents == ("solver",)
    # Of what is reused nothing is paid here: the plan took 15 tokens, each of three steps 10.
    assert (row.usage.total_tokens, row.cost_usd) == (15 + 3 * 10, 1.5)


def filed(store: Store) -> dict[str, object]:
    """The only run's row as it lies in the database; a list of runs checks each unfinished one against its events."""
    with store._database.reading() as connection:
        cursor = connection.execute("SELECT * FROM runs")
        (row,) = cursor
        return dict(zip([column for column, *_ in cursor.description], row, strict=True))


async def test_text_that_comes_with_a_change_of_status_does_not_hide_it(store: Store) -> None:
    delta = ev.StepDelta(run_id="r1", at_ms=31, path=(1,), text="more")
    await store.log.append(created("r1"), ev.PlanDelta(run_id="r1", text="plan"))
    assert filed(store)["status"] == "running"
    await store.log.append(*planned("r1"), *answered("r1", 0))
    # In one append: a step ends, the next begins to stream.
    await store.log.append(step_started("r1", 1, 30), delta, step_completed("r1", 1, "more", 40), delta)
    assert filed(store)["steps_completed"] == 2
    await store.log.append(run_completed("r1"))
    assert filed(store)["status"] == "completed"


async def test_the_row_of_a_run_is_what_its_events_say(store: Store) -> None:
    for events in (whole_run("r1")[:5], whole_run("r1")[5:9], whole_run("r1")[9:]):
        await store.log.append(*events)
        row, (listed,) = filed(store), store.runs()
        assert (row["status"], row["topology"], row["error"]) == (listed.status, listed.topology, listed.error)
        assert [row[name] for name in ("steps", "steps_completed", "steps_reused", "steps_failed")] == [
            listed.steps,
            listed.steps_completed,
            listed.steps_reused,
            listed.steps_failed,
        ]
        assert (row["input_tokens"], row["output_tokens"]) == (listed.usage.input_tokens, listed.usage.output_tokens)
        assert (row["cost_usd"], row["duration_ms"]) == (listed.cost_usd, listed.duration_ms)
        assert row["agents"] == json.dumps(list(listed.agents))
        assert [row[name] for name in ("run_id", "sequence", "task", "door", "conductor", "pool", "parent_run_id")] == [
            listed.run_id,
            listed.sequence,
            listed.task,
            listed.caller.door,
            listed.conductor,
            listed.pool,
            listed.parent_run_id,
        ]
        assert (row["simulated"], row["plan_only"]) == (listed.simulated, listed.plan_only)
        assert row["created_at_utc"] == (listed.created_at_utc and listed.created_at_utc.isoformat())


async def test_an_unknown_price_makes_the_cost_unknown(store: Store) -> None:
    await store.log.append(
        created("r1"), *planned("r1"), step_started("r1", 0, 30), step_completed("r1", 0, "x", 40, None)
    )
    assert store.runs()[0].cost_usd is None


async def test_of_a_cost_with_an_unknown_part_what_is_known_is_kept_by_row_batch_and_totals(store: Store) -> None:
    place = BatchRow(id="b", row="1", name="tasks.jsonl", size=2)
    for run_id, last_usd in (("part", None), ("all", 0.25)):
        first = created(run_id, batch=place)
        steps = (step_started(run_id, 0, 30), step_completed(run_id, 0, "x", 40, 0.5))
        last = (step_started(run_id, 1, 50), step_completed(run_id, 1, "x", 60, last_usd))
        await store.log.append(first, *planned(run_id), *steps, *last)
    whole, part = store.runs()
    assert (whole.cost, part.cost) == (Cost(0.75, 0.75), Cost(None, 0.5))
    assert store.batches()[0].cost == Cost(None, 1.25)
    totals = store.totals()
    assert (totals.cost, totals.unpriced) == (Cost(None, 1.25), 1)


async def test_imported_runs_are_in_no_sum(store: Store) -> None:
    imported = Imported(run_id="x", written_by="0", written_at_utc=now_utc(), imported_at_utc=now_utc())
    for run_id, came in (("own", None), ("file", imported)):
        first = created(run_id, imported=came)
        steps = (step_started(run_id, 0, 30), step_completed(run_id, 0, "x", 40, None if came else 0.5))
        await store.log.append(first, *planned(run_id), *steps)
    totals = store.totals()
    assert (totals.runs, totals.imported, totals.cost, totals.unpriced, totals.tokens) == (2, 1, Cost(0.5, 0.5), 0, 25)


async def test_a_cost_of_estimated_tokens_is_marked_in_row_and_batch(store: Store) -> None:
    place = BatchRow(id="b", row="1", name="tasks.jsonl", size=3)
    guessed, exact = Usage(output_tokens=3, estimated=True), Usage(output_tokens=3)
    for run_id, usage, at_list_price in (("listed", exact, True), ("said", guessed, False), ("guess", guessed, True)):
        first = created(run_id, batch=place)
        call = {"usage": usage, "cost_estimated": at_list_price}
        ended = step_completed(run_id, 0, "x", 40, 0.5).model_copy(update=call)
        await store.log.append(first, *planned(run_id), step_started(run_id, 0, 30), ended)
        marked = [run.cost_estimated for run in store.runs(limit=1)]
        assert marked == [store.batches()[0].cost_estimated] == [run_id == "guess"], run_id


async def test_an_estimated_cost_with_an_unknown_part_is_unknown(store: Store) -> None:
    place = BatchRow(id="b", row="1", name="tasks.jsonl", size=2)
    call = {"usage": Usage(output_tokens=3, estimated=True), "cost_estimated": True}
    for run_id, last_usd in (("guess", 0.25), ("part", None)):
        first = created(run_id, batch=place)
        ended = step_completed(run_id, 0, "x", 40, 0.5).model_copy(update=call)
        last = (step_started(run_id, 1, 50), step_completed(run_id, 1, "x", 60, last_usd))
        await store.log.append(first, *planned(run_id), step_started(run_id, 0, 30), ended, *last)
    assert [run.cost_estimated for run in store.runs()] == [False, True]
    assert store.batches()[0].cost_estimated is False


async def test_runs_are_listed_newest_first_in_pages(store: Store) -> None:
    for index in range(7):
        await store.log.append(created(f"r{index}"))
    first = store.runs(limit=3)
    assert [run.run_id for run in first] == ["r6", "r5", "r4"]
    second = store.runs(limit=3, before=first[-1].sequence)
    third = store.runs(limit=3, before=second[-1].sequence)
    assert [run.run_id for run in second + third] == ["r3", "r2", "r1", "r0"]
    assert store.runs(limit=3, before=third[-1].sequence) == []


async def test_a_run_names_its_reruns(store: Store) -> None:
    for run_id, parent in (("r1", None), ("r2", "r1"), ("r3", "r2"), ("r4", "r1")):
        await store.log.append(created(run_id, parent_run_id=parent))
    assert [run.run_id for run in store.runs(parent="r1")] == ["r4", "r2"]
    assert [run.run_id for run in store.runs(parent="r1", limit=1)] == ["r4"]
    assert store.runs(parent="nobody") == []


async def test_runs_of_one_purpose_can_be_left_out(store: Store) -> None:
    await store.log.append(created("asked"), created("replay", purpose="blame"), created("other", purpose="evaluate"))
    assert [run.run_id for run in store.runs(without=("blame",))] == ["other", "asked"]
    assert [run.run_id for run in store.runs(without=("blame", "evaluate"))] == ["asked"]
    assert len(store.runs()) == 3


async def test_runs_of_clients_traffic_are_in_no_total_unless_they_are_asked_for(store: Store) -> None:
    purposes = ("pass-through", "shadow", "judge")
    await store.log.append(created("asked"), *(created(each, purpose=each) for each in purposes))
    assert store.totals().runs == 1
    assert [run.run_id for run in store.runs(without=UNLISTED_PURPOSES)] == ["asked"]
    for purpose in purposes:
        assert [run.run_id for run in store.runs(purpose=purpose)] == [purpose]
        assert store.totals(purpose=purpose).runs == 1
    assert store.spent_since(purposes, datetime.now(UTC) - timedelta(hours=1)) == (0.0, 0)


async def test_a_run_names_all_runs_of_its_tree(store: Store) -> None:
    family = (("r1", None), ("r2", "r1"), ("r3", "r2"), ("r4", "r1"), ("x1", None), ("x2", "x1"), ("y", "gone"))
    for run_id, parent in family:
        await store.log.append(created(run_id, parent_run_id=parent))
    for run_id in ("r1", "r3", "r4"):
        assert [run.run_id for run in store.runs(tree=run_id)] == ["r4", "r3", "r2", "r1"]
    assert [run.run_id for run in store.runs(tree="x2", limit=1)] == ["x2"]
    assert [run.run_id for run in store.runs(tree="y")] == ["y"]
    assert store.runs(tree="nobody") == []


async def test_runs_are_found_by_their_text_and_status(store: Store) -> None:
    await store.log.append(created("r1", "100% of 5_000"), created("r2", "100 of 5x000"), created("r3", "Plan A TRIP"))
    await store.log.append(run_completed("r3"))
    assert [run.run_id for run in store.runs(search="100%")] == ["r1"]
    assert [run.run_id for run in store.runs(search="5_0")] == ["r1"]
    assert [run.run_id for run in store.runs(search="a trip")] == ["r3"]
    assert [run.run_id for run in store.runs(status="completed")] == ["r3"]
    assert [run.run_id for run in store.runs(status="running", search="100")] == ["r2", "r1"]


async def test_a_run_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    await store.log.append(created("ab1"), created("ab12"), created("xy%"), created("xyz"))
    assert store.resolve("ab12") == "ab12"
    assert store.resolve("ab1") == "ab1", "a whole id wins over longer ones"
    assert store.resolve("xy%") == "xy%"
    with pytest.raises(BadInput, match=r"several runs begin with 'a': ab12, ab1; give more"):
        store.resolve("a")
    for unknown in ("", "b", "%", "_"):
        with pytest.raises(UnknownRun):
            store.resolve(unknown)


def test_an_unknown_run_is_said_to_be_unknown(store: Store) -> None:
    with pytest.raises(UnknownRun, match="unknown run 'nope'"):
        store.trace("nope")
    assert store.events("nope") == []


async def test_many_producers_get_what_they_sent_in_their_own_order(store: Store, url: str) -> None:
    async def produce(run_id: str) -> None:
        await store.log.append(created(run_id))
        for index in range(30):
            await store.log.append(ev.PlanStarted(run_id=run_id, attempt=index + 1, messages=()))

    await asyncio.gather(*(produce(f"r{index}") for index in range(20)))
    sequences = []
    for index in range(20):
        stored = store.events(f"r{index}")
        sequences += [item.sequence for item in stored]
        attempts = [item.event.attempt for item in stored if isinstance(item.event, ev.PlanStarted)]
        assert attempts == list(range(1, 31))
    assert sorted(sequences) == list(range(1, 20 * 31 + 1))


async def test_an_event_that_cannot_follow_is_refused_and_nothing_else(store: Store) -> None:
    await store.log.append(created("r1"), *planned("r1"))
    before = store.trace("r1")
    misplaced = r"run r1: step\.started cannot follow the events before it"
    wrong: list[tuple[list[ev.Event], str]] = [
        ([step_started("r1", 7, 30)], misplaced),
        ([*answered("r1", 0), step_started("r1", 7, 60)], misplaced),
        ([created("r1")], "run r1 exists already: every run needs an id of its own"),
        (
            [step_started("unknown", 0, 30)],
            r"run unknown is not in this database: its first event must be run\.created",
        ),
    ]
    for events, why in wrong:
        with pytest.raises(EventOutOfOrder, match=why):
            await store.log.append(*events)
        assert store.trace("r1") == before
    await store.log.append(*answered("r1", 0))
    assert store.trace("r1")[0].steps[0].status == "completed"


async def test_nothing_follows_the_end_of_a_run(store: Store) -> None:
    await store.log.append(*whole_run("r1"))
    with pytest.raises(EventOutOfOrder, match="run r1 has ended"):
        await store.log.append(step_started("r1", 0, 200))


async def test_one_refused_request_fails_no_other_of_its_group(store: Store) -> None:
    requests = [store.log.append(created(f"r{index}")) for index in range(5)]
    requests.insert(2, store.log.append(created("r0")))
    requests.insert(3, store.log.append(step_started("unknown", 0, 1)))
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(result, EventOutOfOrder) for result in results] == [
        False,
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    assert len(store.runs()) == 5


async def test_a_cancelled_wait_takes_nothing_back(store: Store) -> None:
    await store.log.append(created("r1"))
    waiting = store.log.append(*planned("r1"))
    await asyncio.sleep(0)
    waiting.cancel()
    await store.log.append(run_completed("r1"))
    assert store.trace("r1")[0].root.topology == "chain"


async def test_a_closed_store_says_so(url: str) -> None:
    store = open_store(url)
    await store.log.append(created("r1"))
    store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.log.append(run_completed("r1"))
    with pytest.raises(StoreError, match="closed"):
        store.runs()
    store.close()


async def test_a_long_run_opens_from_its_snapshot(store: Store) -> None:
    await store.log.append(created("r1"), *planned("r1"), step_started("r1", 0, 30))
    for _ in range(30):
        await store.log.append(*(ev.StepDelta(run_id="r1", path=(0,), text="word " * 10) for _ in range(100)))
    with store._database.reading() as connection:
        ((at,),) = connection.execute("SELECT sequence FROM snapshots WHERE run_id = 'r1'")
    trace, sequence = store.trace("r1")
    assert sequence == 3006
    assert at is not None
    assert sequence - at < 1500, "a snapshot is never more than a quarter behind"
    assert trace.steps[0].output == "word " * 30_000


async def test_a_snapshot_of_other_code_is_not_believed(store: Store) -> None:
    events = whole_run("r1")
    await store.log.append(*events)
    with store._database.writing(), store._database.transaction() as cursor:
        cursor.execute("UPDATE snapshots SET fold_digest = 'old', trace = '{}'")
    assert store.trace("r1") == (fold(events), len(events))


async def test_a_snapshot_is_made_anew_once_however_often_the_run_is_opened(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.log.append(*whole_run("r1"))
    with store._database.writing(), store._database.transaction() as cursor:
        cursor.execute("DELETE FROM snapshots")
    made: list[SnapshotRow] = []
    monkeypatch.setattr(store.log, "keep_snapshot", made.append)
    assert store.trace("r1") == store.trace("r1")
    assert [row.run_id for row in made] == ["r1"]


async def test_a_feed_may_be_ended_twice(store: Store) -> None:
    feed, _ = store.log.subscribe("r1")
    store.log.unsubscribe("r1", feed)
    store.log.unsubscribe("r1", feed)


TEXTS = [
    "NUL \x00 in the middle",
    "\x1b[31mred\x1b[0m\x07\x9b2J",
    "line\u2028separators\u2029\r\n\t",
    "</script><img src=x onerror=alert(1)>",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff \ufeff \ufffe",
    "' OR 1=1; DROP TABLE events; -- %s ? :x",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
async def test_any_text_survives(store: Store, text: str) -> None:
    await store.log.append(created("r1", text), *planned("r1"), *answered("r1", 0, text))
    trace, _ = store.trace("r1")
    assert (trace.task, trace.steps[0].output) == (text, text)
    assert store.runs()[0].task == text


async def test_a_lone_surrogate_becomes_the_replacement_character_for_every_reader(store: Store) -> None:
    await store.log.append(created("r1"), *planned("r1"), step_started("r1", 0, 30))
    follower = store.follow("r1", after=6)
    pending = anext(follower)
    await store.log.append(ev.StepDelta(run_id="r1", path=(0,), text="a\ud800b, a pair \ud83d\ude00"))
    [live] = await pending
    assert isinstance(live.event, ev.StepDelta)
    assert live.event.text == "a\ufffdb, a pair 😀"
    assert store.trace("r1")[0].steps[0].output == live.event.text
    await follower.aclose()


async def test_a_50_mb_answer_survives(store: Store) -> None:
    output = "0123456789" * 5_000_000
    await store.log.append(created("r1"), *planned("r1"), *answered("r1", 0, output))
    trace, _ = store.trace("r1")
    assert trace.steps[0].output == output


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.text())
async def test_however_it_is_cut_into_appends_the_trace_is_the_fold(
    store: Store, rng: random.Random, text: str
) -> None:
    run_id = uuid.uuid4().hex
    events = [created(run_id, text), *planned(run_id), *answered(run_id, 0, text), *answered(run_id, 1, text)]
    rest = list(events)
    while rest:
        count = rng.randint(1, len(rest))
        await store.log.append(*rest[:count])
        rest = rest[count:]
        assert store.trace(run_id)[0] == fold(events[: len(events) - len(rest)])


async def test_a_run_of_which_something_waits_is_listed_as_waiting_though_another_step_runs(store: Store) -> None:
    asked = ev.ApprovalRequested(run_id="r", at_ms=30, number=1, of="step", path=(1,), rules=("steps",), identity="i")
    await store.log.append(created("r"), *planned("r"), step_started("r", 0, 25), asked, created("s"))
    (listed,) = store.runs(status="waiting")
    assert (listed.run_id, listed.status, listed.asked_for) == ("r", "running", "step 1, by the gate steps")
    assert store.totals().statuses == {"waiting": 1, "running": 1}
    assert [trace.run_id for trace in store.waiting()] == ["r"]
