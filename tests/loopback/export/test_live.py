"""Runs are sent as traces to a receiver on 127.0.0.1 while they go on, and no fault of it touches their record."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.export import otel_live
from conductor_core.export.otel_live import LiveTraces, Watched, exporter_to, open_traces
from conductor_core.privacy.masking import known
from conductor_core.settings import Settings
from storage import Store, open_store
from tests.pure.analysis.test_reading import edited_run
from tests.support.otlp_receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    yield opened
    opened.close()


def _traces(store: Store, receiver: Receiver) -> LiveTraces:
    settings = Settings(otlp_endpoint=receiver.url)
    traces = open_traces(settings, lambda run_id: [stored.event for stored in store.events(run_id)])
    assert traces is not None
    return traces


def test_each_span_is_sent_once_and_before_the_run_ends(store: Store, receiver: Receiver) -> None:
    traces = _traces(store, receiver)
    sink, events = Watched(store.log, traces), edited_run("r")
    sink.append_and_wait(*events[:-1])
    assert receiver.came.wait(20)
    sink.append_and_wait(events[-1])
    traces.close()
    assert sorted(receiver.names) == sorted(
        [
            "invoke_workflow conductor",
            "plan https://planner.example/v1#seven",
            "chat seven",
            *["invoke_agent solver", "chat solver"] * 2,
            "invoke_agent writer",
            "chat gpt-9",
        ]
    )
    assert b"6 times 7" not in receiver.raw
    assert traces.dropped == 0


@pytest.mark.parametrize("status", [400, 307])
def test_a_receiver_that_takes_nothing_costs_no_event(
    store: Store, receiver: Receiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = status
    traces = _traces(store, receiver)
    Watched(store.log, traces).append_and_wait(*edited_run("r"))
    traces.close()
    assert traces.dropped == 1
    assert "spans were not sent, the receiver did not take them (1 times so far)" in caplog.text
    assert len(store.events("r")) == len(edited_run("r"))


def test_news_that_find_no_room_are_counted_and_said(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel_live, "MOST_RUNS", 2)
    receiver.wait.clear()
    traces = _traces(store, receiver)
    sink = Watched(store.log, traces)
    sink.append_and_wait(*edited_run("first"))
    assert receiver.came.wait(20)
    for run_id in ("a", "b", "c", "d"):
        sink.append_and_wait(*edited_run(run_id))
    assert traces.dropped == 2
    assert "too many runs have news at once" in caplog.text
    receiver.wait.set()
    traces.close()
    assert receiver.names.count("invoke_workflow conductor") == 3


def test_the_values_of_headers_are_known_as_keys(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "pk9Zr4Tq81LmXw03VbNc"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Basic%20{key}")
    exporter_to(receiver.url).shutdown()
    assert key not in known().text(f"said {key} again")
