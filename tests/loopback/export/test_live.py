"""Runs are sent as traces to a receiver on 127.0.0.1 while they go on, and no fault of it touches their record."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from conductor_core.analysis.documents import run_document
from conductor_core.cli.show import run_lines
from conductor_core.export import otel
from conductor_core.export.otel import LiveTraces, Watched, exporter_to, open_traces
from conductor_core.privacy.masking import known
from conductor_core.run import events as ev
from conductor_core.settings import Settings
from storage import Store, open_store
from tests.pure.analysis.test_reading import edited_run
from tests.support.command_line import CommandLine
from tests.support.eventually import eventually
from tests.support.otlp_receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


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
    # Where they went is durable before the first of them leaves.
    first = store.events("r")[0].event
    assert isinstance(first, ev.RunCreated)
    assert first.traces == (ev.TracesTo(host=urlsplit(receiver.url).netloc, contents=False),)


@pytest.mark.parametrize("status", [400, 307])
def test_a_receiver_that_takes_nothing_costs_no_event(
    store: Store, receiver: Receiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = status
    traces = _traces(store, receiver)
    Watched(store.log, traces).append_and_wait(*edited_run("r"))
    traces.close()
    assert traces.dropped == 1
    assert traces.fault == "the receiver did not take them"
    assert "spans were not sent, the receiver did not take them (1 times so far)" in caplog.text
    assert len(store.events("r")) == len(edited_run("r"))


def test_news_that_find_no_room_are_counted_and_said(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel, "MOST_RUNS", 2)
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


def test_an_address_without_a_path_gets_the_usual_one() -> None:
    usual = "http://127.0.0.1:6006/v1/traces"
    for given in ("http://127.0.0.1:6006", "http://127.0.0.1:6006/", usual):
        assert Settings(otlp_endpoint=given).otlp_endpoint == usual
    assert Settings(otlp_endpoint="http://127.0.0.1:6006/mine").otlp_endpoint == "http://127.0.0.1:6006/mine"


def test_a_receiver_that_is_away_is_said_in_the_record_and_at_the_end(
    store: Store, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen
        monkeypatch.setenv("CONDUCTOR_OTLP_ENDPOINT", address := f"http://127.0.0.1:{closed.getsockname()[1]}")
        traces = open_traces(Settings(), lambda run_id: [stored.event for stored in store.events(run_id)])
        assert traces is not None
        eventually(lambda: traces.fault != "")
        Watched(store.log, traces).append_and_wait(*edited_run("r"))
        said = traces.close()
        plan = tmp_path / "plan.json"
        plan.write_text('{"steps": [{"agent": "calculator", "instruction": "{question}", "access_list": []}]}')
        db = ["--db", tmp_path / "more.sqlite3"]
        ran = cli("run", "6 * 7", "--workflow", plan, "--pool", "rehearsal", *db)
    trace, _ = store.trace("r")
    assert trace.traces_fault == "its server cannot be reached (connection refused)"
    assert run_document(trace)["traces_fault"] == trace.traces_fault
    assert f"OpenTelemetry: spans were not sent: {trace.traces_fault}" in "\n".join(run_lines(trace))
    assert said == f"OpenTelemetry: not all spans were sent to {address[7:]}: {trace.traces_fault}"
    assert (ran.code, f"warning: {said}" in ran.err) == (0, True), ran.err


def test_spans_that_were_taken_later_are_not_lost(store: Store, receiver: Receiver) -> None:
    receiver.status = 400
    traces = _traces(store, receiver)
    sink, events = Watched(store.log, traces), edited_run("r")
    sink.append_and_wait(*events[:-1])
    eventually(lambda: traces.dropped == 1)
    receiver.status = 200
    sink.append_and_wait(events[-1])
    assert (traces.close(), traces.fault) == ("", "")
