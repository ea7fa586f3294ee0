"""What of a run is searched: each text at its event, its step and its agent, and how the run ended."""

import pytest

from conductor_core.chat.messages import Message, ToolCall, Usage
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from storage import Store
from storage.search.reading import Place
from tests.support.run_events import (
    PAGE,
    created,
    created_otherwise,
    planned,
    run_completed,
    sha256,
    step_completed,
    step_started,
)

REUSED = ev.StepReused(
    run_id="r", path=(0,), agent="solver", identity="i", messages=(Message(role="user", content="asked"),),
    source_run_id="earlier", source_path=(0,), output="Lisbon", output_sha256=sha256("Lisbon"), finish_reason="stop",
    usage=Usage(),
)  # fmt: skip
CALLED = step_completed("r", 1, "", 60).model_copy(
    update={"ending": "empty", "tool_calls": (ToolCall(name="weather", arguments="Madrid"),)}
)
PLAN_AGAIN = ev.PlanRetried(
    run_id="r", error_code="WorkerTimedOut", error="no answer from Vienna", wait_ms=1, partial="model_id = Prague"
)
STEP_AGAIN = ev.StepRetried(
    run_id="r", path=(1,), attempt=1, error_code="refused", error="it refused in Rome", wait_ms=1, agent="checker",
    partial="half of Athens", refusal="nothing about Dublin",
)  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "event", "place"),
    [
        ("prague", PLAN_AGAIN, Place("partial", 0, agent="conductor")),
        ("vienna", PLAN_AGAIN, Place("error", 0, agent="conductor", detail="WorkerTimedOut")),
        ("lisbon", REUSED, Place("output", 0, "0", "solver", "reused from run earlier")),
        ("athens", STEP_AGAIN, Place("partial", 0, "1", "checker")),
        ("dublin", STEP_AGAIN, Place("refusal", 0, "1", "checker")),
        ("rome", STEP_AGAIN, Place("error", 0, "1", "checker", "refused")),
        ("madrid", CALLED, Place("tool call", 0, "1")),
    ],
)
def test_each_text_is_found_at_its_event(store: Store, typed: str, event: Event, place: Place) -> None:
    plan, started = planned("r"), step_started("r", 1, 50)
    store.log.append_and_wait(created("r", queued=True))
    store.log.append_and_wait(ev.RunTaken(run_id="r"), plan[0], PLAN_AGAIN, *plan)
    store.log.append_and_wait(REUSED, started, STEP_AGAIN, CALLED, run_completed("r"))
    store.search.catch_up()
    (at,) = [stored.sequence for stored in store.events("r") if stored.event.kind == event.kind]
    (hit,) = store.search.texts(typed).hits
    assert hit.places == (Place(place.field, at, place.path, place.agent, place.detail),)


FIRST = created("r")


@pytest.mark.parametrize(
    ("first", "end", "status"),
    [
        (FIRST, run_completed("r"), "completed"),
        (FIRST, run_completed("r").model_copy(update={"ending": "cut"}), "cut"),
        (created_otherwise(FIRST, plan_only=True), run_completed("r", None), "planned"),
        (FIRST, ev.RunFailed(run_id="r", error_code="WorkerTimedOut", error="too late"), "failed"),
        (FIRST, ev.RunCancelled(run_id="r", actor=PAGE.actor, door=PAGE.door), "cancelled"),
        (FIRST, ev.RunInterrupted(run_id="r"), "interrupted"),
        (FIRST, ev.RunDenied(run_id="r", actor=PAGE.actor, door=PAGE.door), "denied"),
    ],
)
def test_a_filter_finds_runs_by_how_they_ended(store: Store, first: Event, end: Event, status: str) -> None:
    store.log.append_and_wait(first, *planned("r"), end)
    store.search.catch_up()
    assert [(each.value, each.runs) for each in store.search.facets() if each.kind == "status"] == [(status, 1)]
