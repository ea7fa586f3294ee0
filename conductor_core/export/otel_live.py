"""Sends each run as an OpenTelemetry trace while it goes on, off the path of its events.

``Watched`` hands events on to the log and only notes which runs have news. A thread of its own reads those runs from
the store, sends the spans that have ended and were not sent, and holds no text between. What it cannot keep up with, or
what the receiver does not take, is dropped, counted and said, also in the record of the run that has ended: the log is
the record, and a trace a copy. Nobody waits for it but a command that ends, for a second.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from conductor_core.errors import BadInput, InspectorError
from conductor_core.export.otel import sdk_spans, spans_of
from conductor_core.privacy import masking
from conductor_core.providers.servers import UNKNOWN_HOST, host_of
from conductor_core.run.events import FINAL_KINDS, Event, EventSink, FinalEvent, RunCreated, RunTaken, TracesTo
from conductor_core.run.redaction import Redactor
from conductor_core.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

MOST_RUNS = 1000
"""Runs with news that wait at most. The news of further ones is dropped until their next."""
_NOT_TAKEN = "the receiver did not take them"
_TIMEOUT_S = 10.0
_CLOSE_S = 1.0
_CONNECT_S = 1.0
_ENDS_A_SPAN = FINAL_KINDS | {
    "plan.completed",
    "plan.rejected",
    "step.completed",
    "step.failed",
    "step.retried",
    "step.reused",
    "step.given",
}

ReadEvents = Callable[[str], Sequence[Event]]
"""Returns the events of a run. Raises: InspectorError."""


class LiveTraces:
    """Sends the spans of runs to one address.

    Attributes:
        to: where they are sent, as the record of each run says it.
        dropped: how many times something was not sent: news of a run that found no room, or a batch that nobody took.
    """

    def __init__(
        self, exporter: "SpanExporter", read: ReadEvents, *, address: str = "", contents: bool = False
    ) -> None:
        """``address``: of the receiver, whose server is tried at once. ``contents``: whether spans hold what people
        and models wrote."""
        self._exporter, self._read, self._contents = exporter, read, contents
        self.to = TracesTo(host=host_of(address) or UNKNOWN_HOST, contents=contents)
        self._server = urlsplit(address)
        self._away = self._refused = ""
        self._unsent: set[str] = set()
        self._lock = threading.Condition()
        self._news: dict[str, bool] = {}
        self._sent: dict[str, set[int]] = {}
        self._closing = False
        self._failing = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    @property
    def fault(self) -> str:
        """Why spans are not being taken; empty: they are, or nobody was asked yet."""
        return self._away or self._refused

    def note(self, events: Sequence[Event]) -> None:
        """Notes runs of which a span ended. Any thread may call it; it returns at once."""
        ended = {event.run_id: event.kind in FINAL_KINDS for event in events if event.kind in _ENDS_A_SPAN}
        if not ended:
            return
        with self._lock:
            for run_id, final in ended.items():
                if run_id not in self._news and len(self._news) >= MOST_RUNS:
                    self._drop("too many runs have news at once", run_id)
                    continue
                self._news[run_id] = self._news.get(run_id, False) or final
            self._lock.notify()

    def close(self) -> str:
        """Sends what waits, for a second at most, and stops. Returns what was not sent, in a line; empty: all was."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        self._thread.join(_CLOSE_S)
        late = self._thread.is_alive()
        self._exporter.shutdown()
        if not late and not self._unsent:
            return ""
        why = self.fault or ("they were not taken in time" if late else _NOT_TAKEN)
        said = f"OpenTelemetry: not all spans were sent to {self._server.netloc or 'the receiver'}: {why}"
        log.warning(said)
        return said

    def _run(self) -> None:
        self._try_server()
        while True:
            with self._lock:
                while not self._news and not self._closing:
                    self._lock.wait()
                if not self._news:
                    return
                run_id = next(iter(self._news))
                final = self._news.pop(run_id)
            self._send(run_id, final)

    def _try_server(self) -> None:
        """Finds out whether the server can be reached: the exporter tries again for seconds before it says so."""
        server = self._server
        if not server.hostname:
            return
        try:
            port = server.port or (443 if server.scheme == "https" else 80)
            socket.create_connection((server.hostname, port), _CONNECT_S).close()
        except OSError as error:
            self._away = f"its server cannot be reached ({(error.strerror or type(error).__name__).lower()})"
        else:
            self._away = ""

    def _send(self, run_id: str, final: bool) -> None:
        self._try_server()
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            events = self._read(run_id)
            if not events:  # it was deleted or erased before its turn came
                self._sent.pop(run_id, None)
                return
            spans = spans_of(Redactor().events(events), contents=self._contents)
            sent = self._sent.setdefault(run_id, set())
            new = [span for span in spans if span.end_utc is not None and span.span_id not in sent]
            accepted = not new or self._exporter.export(sdk_spans(new)) is SpanExportResult.SUCCESS
        except InspectorError as error:
            accepted = False
            log.warning("OpenTelemetry: run %s cannot be read: %s", run_id, error)
        except Exception as error:  # noqa: BLE001  a trace is a copy: no fault of it may end this thread
            accepted = False
            log.warning("OpenTelemetry: run %s was not sent: %s", run_id, type(error).__name__)
        else:
            if accepted:
                sent |= {span.span_id for span in new}
        if final:
            self._sent.pop(run_id, None)
        if accepted:
            self._failing, self._refused = False, ""
            self._unsent.discard(run_id)
        else:
            with self._lock:
                self._drop(_NOT_TAKEN, run_id)

    def _drop(self, why: str, run_id: str) -> None:
        """Counts what was not sent, and says so at the first of a row. Call it with the lock held."""
        self.dropped += 1
        self._unsent.add(run_id)
        self._refused = why
        if not self._failing:
            self._failing = True
            log.warning("OpenTelemetry: spans were not sent, %s (%d times so far)", why, self.dropped)


class Watched:
    """An ``EventSink`` before another: it tells ``traces`` what became durable there.

    The event with which a process begins a run says where its spans are sent, so that this is durable before any of
    them is. The last event of the run says why they are not being taken, if they are not.
    """

    def __init__(self, sink: EventSink, traces: LiveTraces) -> None:
        self._sink, self._traces = sink, traces

    def append(self, *events: Event) -> "asyncio.Future[None]":
        events = self._with_traces(events)
        future = self._sink.append(*events)

        def written(done: "asyncio.Future[None]") -> None:
            if not done.cancelled() and done.exception() is None:
                self._traces.note(events)

        future.add_done_callback(written)
        return future

    def append_and_wait(self, *events: Event) -> None:
        events = self._with_traces(events)
        self._sink.append_and_wait(*events)
        self._traces.note(events)

    def _with_traces(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return tuple(map(self._with_trace, events))

    def _with_trace(self, event: Event) -> Event:
        if isinstance(event, RunCreated | RunTaken):
            return event.model_copy(update={"traces": (self._traces.to,)})
        if isinstance(event, FinalEvent) and (fault := self._traces.fault):
            return event.model_copy(update={"traces_fault": fault})
        return event


def exporter_to(endpoint: str) -> "SpanExporter":
    """Returns an exporter of OTLP/HTTP that follows no redirect and no proxy. Its headers' values are known as keys."""
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        for pair in os.environ.get(name, "").split(","):
            value = pair.partition("=")[2].strip()
            masking.remember(value, unquote(value).rpartition(" ")[2])
    session = requests.Session()
    session.max_redirects, session.trust_env = 0, False
    return OTLPSpanExporter(endpoint=endpoint, session=session, timeout=_TIMEOUT_S)


def open_traces(settings: Settings, read: ReadEvents) -> LiveTraces | None:
    """Returns what sends traces, if the settings name an address. Raises: BadInput without the extra ``otlp``."""
    if settings.otlp_endpoint is None:
        return None
    try:
        exporter = exporter_to(settings.otlp_endpoint)
    except ModuleNotFoundError as error:
        raise BadInput(
            f'CONDUCTOR_OTLP_ENDPOINT needs the extra "otlp" ({error.name} not installed). '
            "Run: pip install 'conductor-inspector[otlp]'"
        ) from error
    return LiveTraces(exporter, read, address=settings.otlp_endpoint, contents=settings.otlp_contents)


def watched(sink: EventSink, traces: LiveTraces | None) -> EventSink:
    """Returns ``sink``, watched by ``traces`` if there are any."""
    return sink if traces is None else Watched(sink, traces)
