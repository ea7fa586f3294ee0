"""What a page plays again is what the live page was sent."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.trace import begin, fold
from pages.components.live_workflow.messages import LiveView
from pages.components.live_workflow.shared_page import recording
from storage import StoredEvent
from tests.support.run_events import whole_run

BEGAN = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)


def _stored(events: list[Event], waited_s: float = 0.0) -> list[StoredEvent]:
    """Events with the times of a wall clock that waited before the last one."""
    return [
        StoredEvent(
            10 + number,
            event.model_copy(
                update={
                    "at_utc": BEGAN
                    + timedelta(milliseconds=event.at_ms, seconds=waited_s if number == len(events) - 1 else 0)
                }
            ),
        )
        for number, event in enumerate(events)
    ]


def test_a_recording_has_the_messages_of_the_live_view_one_event_after_another() -> None:
    stored = _stored(whole_run("r"))
    found = recording(stored)
    view = LiveView(begin(stored[0].event), stored[0].sequence)
    live = [view.snapshot(BEGAN)]
    for each in stored[1:]:
        live += view.messages([each])
    assert found["messages"] == live


def test_each_message_has_its_moment_by_the_clock_of_the_run_and_by_that_on_the_wall() -> None:
    stored = _stored(whole_run("r"), waited_s=60)
    found = recording(stored)
    assert len(found["moments"]) == len(found["messages"]) == len(stored)
    assert [run_ms for run_ms, _ in found["moments"]] == [each.event.at_ms for each in stored]
    assert found["moments"][0] == [0.0, 0.0]
    assert found["moments"][-1] == [100.0, 60_100.0]


def test_the_last_state_is_the_finished_run_and_the_first_is_not() -> None:
    stored = _stored(whole_run("r"))
    messages: list[dict[str, Any]] = recording(stored)["messages"]
    trace = fold(each.event for each in stored)
    assert messages[0]["run"]["status"] == "running"
    assert messages[0]["run"]["root"]["steps"] == []
    assert messages[0]["elapsed_ms"] == 0
    assert messages[-1]["run"]["status"] == trace.status == "completed"
    assert messages[-1]["run"]["answer"] == trace.answer
    done = {
        tuple(step["path"]): step for message in messages if message["type"] == "patch" for step in message["steps"]
    }
    assert {path: step["output"] for path, step in done.items()} == {step.path: step.output for step in trace.steps}


def test_what_does_not_begin_with_its_creation_is_no_recording() -> None:
    with pytest.raises(ValueError, match=r"run\.created"):
        recording([])
    with pytest.raises(ValueError, match=r"run\.created"):
        recording([StoredEvent(1, ev.RunTaken(run_id="r"))])
