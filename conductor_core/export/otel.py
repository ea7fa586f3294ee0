"""Reads the spans of a run from its events: the run, its plans, its steps, and the calls of models within them.

Ids come from the run's id and the place in it, so that the same span always has the same id, and a re-run can name the
step that it reuses.

The names follow OpenTelemetry's GenAI conventions, which are in development and change. These are those of the commit
``COMMIT`` of https://github.com/open-telemetry/semantic-conventions-genai (docs/gen-ai/gen-ai-spans.md and
gen-ai-agent-spans.md).

| ours | span | kind |
|---|---|---|
| run | ``invoke_workflow {gen_ai.workflow.name}`` | INTERNAL |
| the Conductor writes the plan of a round | ``plan {gen_ai.agent.name}`` | INTERNAL |
| step | ``invoke_agent {gen_ai.agent.name}`` | INTERNAL |
| call of a model, with its retries | ``chat {gen_ai.request.model}`` | CLIENT; INTERNAL for a model in this process |

There is no ``execute_tool``: a tool that a model calls is recorded and never run. What the conventions have no word
for begins with ``conductor.``. The forms of the SDK and of collectors' JSON (``sdk_spans``, ``otlp_json``) need the
extra ``otlp``.
"""

import asyncio
import hashlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote, urlsplit

from conductor_core import __version__
from conductor_core.chat.messages import ImagePart, Message, TextPart, Usage, WorkerSpec, parts_of
from conductor_core.chat.servers import UNKNOWN_HOST, host_of, server_of
from conductor_core.chat.tools import NOT_SENT
from conductor_core.errors import BadInput, InspectorError
from conductor_core.privacy import masking
from conductor_core.run import events as ev
from conductor_core.run.events import FINAL_KINDS, Event, EventSink, FinalEvent, RunCreated, RunTaken, TracesTo
from conductor_core.run.redaction import Redactor
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace, fold
from conductor_core.run.values import ToolTurn, label
from conductor_core.settings import Settings
from conductor_core.workflow.model import CONDUCTOR_AGENT

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter


COMMIT: Final = "002c8a6ea1c8a42b14a4527db83b3cabcded610a"
SCHEMA: Final = f"https://github.com/open-telemetry/semantic-conventions-genai/tree/{COMMIT}"

OPERATION: Final = "gen_ai.operation.name"
WORKFLOW: Final = "gen_ai.workflow.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT: Final = "gen_ai.agent.name"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
STREAM: Final = "gen_ai.request.stream"
MODEL_ANSWERED: Final = "gen_ai.response.model"
FINISH: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
TOKENS_IN: Final = "gen_ai.usage.input_tokens"
TOKENS_OUT: Final = "gen_ai.usage.output_tokens"
ERROR: Final = "error.type"
HOST: Final = "server.address"
PORT: Final = "server.port"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
CONTENTS: Final = frozenset({INPUT, OUTPUT})
"""Attributes that hold what people and models wrote. They are left out unless somebody asks for them."""

PARAMS: Final = {
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "max_tokens": ("gen_ai.request.max_tokens", int),
    "max_completion_tokens": ("gen_ai.request.max_tokens", int),
    "seed": ("gen_ai.request.seed", int),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
}
"""By the name of a pool file's parameter: the attribute and its type."""

WORKFLOW_NAME: Final = "conductor"
"""The conventions want a name of few values, so that it cannot be the task."""


Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]
Kind = Literal["internal", "client"]


@dataclass(slots=True)
class Span:
    """A span, as OpenTelemetry has it.

    Attributes:
        trace_id: 128 bits. span_id, parent_id: 64 bits; None: it is the root.
        end_utc: None while it goes on.
        error: its class; None: it ended well, or goes on. failed: attempts within it, and when they did.
        links: trace and span ids of what it builds on.
    """

    name: str
    kind: Kind
    trace_id: int
    span_id: int
    parent_id: int | None
    start_utc: datetime
    end_utc: datetime | None = None
    attributes: Attributes = field(default_factory=dict)
    error: str | None = None
    failed: list[tuple[datetime, Attributes]] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)


def spans_of(events: Sequence[Event], *, contents: bool = False) -> list[Span]:
    """Returns the spans of a run, the root first.

    ``contents``: whether they hold what people and models wrote: task, messages, outputs.

    Raises: ValueError if ``events`` are not a run.
    """
    spans = _Reading(events).spans()
    if not contents:
        for span in spans:
            span.attributes = {name: value for name, value in span.attributes.items() if name not in CONTENTS}
    return spans


def trace_id(run_id: str) -> int:
    return int.from_bytes(hashlib.sha256(f"trace\n{run_id}".encode()).digest()[:16], "big")


def span_id(run_id: str, place: str) -> int:
    """Returns the id of the span at ``place`` of a run: ``run``, ``plan 2``, ``step 2.0``, ``call 2.0 1``."""
    return int.from_bytes(hashlib.sha256(f"span\n{run_id}\n{place}".encode()).digest()[:8], "big")


class _Reading:
    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._trace: RunTrace = fold(events)
        self._specs = {spec.name: spec for spec in self._trace.pool.workers}

    def spans(self) -> list[Span]:
        trace, last = self._trace, self._events[-1]
        root = self._span("run", f"invoke_workflow {WORKFLOW_NAME}", None, trace.created_at_utc)
        root.end_utc = last.at_utc if last.kind in FINAL_KINDS else None
        root.attributes |= _present(
            {
                OPERATION: "invoke_workflow",
                WORKFLOW: WORKFLOW_NAME,
                CONVERSATION: trace.run_id,
                "conductor.run.id": trace.run_id,
                "conductor.run.status": trace.status,
                "conductor.run.purpose": trace.purpose or None,
                "conductor.run.door": trace.door,
                "conductor.run.parent_id": trace.parent_run_id,
                "conductor.run.cost_usd": trace.cost_usd,
                "conductor.topology": trace.root.topology,
                "conductor.plan.edited": trace.root.before_edit is not None or None,
                "conductor.simulated": trace.simulated,
                "conductor.imported": trace.imported is not None or None,
                INPUT: _input(trace.conversation),
                OUTPUT: None if trace.answer is None else _output(trace.answer, "", "stop"),
            }
        )
        if trace.status in ("failed", "denied", "interrupted", "cancelled"):
            root.error = trace.error_code or trace.status
        if trace.parent_run_id is not None:
            root.links.append((trace_id(trace.parent_run_id), span_id(trace.parent_run_id, "run")))
        return [root, *self._round(trace.root, root.span_id)]

    def _round(self, round_: RoundTrace, parent: int) -> Iterator[Span]:
        yield from self._plan(round_, parent)
        for step in round_.steps:
            yield from self._step(step, parent)

    def _plan(self, round_: RoundTrace, parent: int) -> Iterator[Span]:
        events = [event for event in self._events if isinstance(event, ev.PlanEvent) and event.round == round_.path]
        begun = next((event for event in events if isinstance(event, ev.PlanStarted)), None)
        if begun is None:
            return  # the plan was given
        conductor = self._trace.conductor
        name = CONDUCTOR_AGENT if conductor is None else conductor.name
        plan = self._span(f"plan {label(round_.path)}".strip(), f"plan {name}", parent, begun.at_utc)
        plan.attributes |= {OPERATION: "plan", AGENT: name, "conductor.plan.steps": len(round_.steps)}
        calls = list(self._plan_calls(round_, events, plan.span_id))
        ends = [call.end_utc for call in calls if call.end_utc is not None]
        plan.end_utc = ends[-1] if len(ends) == len(calls) else self._run_end()
        if round_.workflow is None and plan.end_utc is not None:
            plan.error = "PlanRejected" if round_.rejected else self._trace.error_code or self._trace.status
        yield plan
        yield from calls

    def _plan_calls(self, round_: RoundTrace, events: Sequence[ev.PlanEvent], parent: int) -> Iterator[Span]:
        """Yields a call for each attempt: those that fail and are repeated are one."""
        call: Span | None = None
        asked: tuple[Message, ...] = ()
        number, thought = 0, ""
        for event in events:
            match event:
                case ev.PlanStarted():
                    asked = event.messages
                    if call is None:
                        call = self._call(f"{label(round_.path)} plan {number}", CONDUCTOR_AGENT, parent, event.at_utc)
                        number += 1
                case ev.PlanDelta() if event.reasoning:
                    thought += event.text
                case ev.PlanRetried() if call is not None:
                    call.failed.append(_failed(event.at_utc, event.attempt, event.error_code))
                case ev.PlanRejected() | ev.PlanCompleted() if call is not None:
                    call.end_utc = event.at_utc
                    call.attributes |= _used(event.usage, event.cost_usd)
                    call.attributes |= {INPUT: _input(asked), OUTPUT: _output(event.raw, thought, "stop")}
                    if isinstance(event, ev.PlanRejected):
                        call.attributes["conductor.plan.rejected"] = True
                    yield call
                    call, thought = None, ""
        if call is not None:
            call.end_utc = self._run_end()
            call.error = None if call.end_utc is None else self._trace.error_code or self._trace.status
            call.attributes[INPUT] = _input(asked)
            yield call

    def _step(self, step: StepTrace, parent: int) -> Iterator[Span]:
        events = [event for event in self._events if isinstance(event, ev.StepEvent) and event.path == step.path]
        first = next((e for e in events if isinstance(e, ev.StepStarted | ev.StepReused | ev.StepGiven)), None)
        if first is None:
            return  # it did not begin
        span = self._span(f"step {label(step.path)}", f"invoke_agent {step.agent}", parent, first.at_utc)
        ended = next((e for e in events if isinstance(e, ev.StepCompleted | ev.StepFailed)), None)
        if not isinstance(first, ev.StepStarted):
            span.end_utc = first.at_utc
        else:
            span.end_utc = self._run_end() if ended is None else ended.at_utc
        given = step.given
        span.attributes |= _present(
            {
                OPERATION: "invoke_agent",
                AGENT: step.agent,
                "conductor.step": label(step.path),
                "conductor.step.status": step.status,
                "conductor.step.identity": step.identity,
                "conductor.access_list": "all" if step.access_list == "all" else tuple(map(str, step.access_list)),
                "conductor.granted": tuple(label(shared.path) for shared in step.granted),
                "conductor.withheld": tuple(label(shared.path) for shared in step.withheld if shared.there),
                "conductor.simulated": step.simulated,
                "conductor.step.given": None if given is None else given.how,
                "conductor.step.reused": step.reused_from is not None or None,
                INPUT: _input(step.messages),
                OUTPUT: _output(step.output, "", step.finish_reason or "stop") if step.output else None,
            }
        )
        if step.status in ("failed", "cancelled"):
            span.error = step.error_code or step.status
        if (source := step.reused_from) is not None:
            span.links.append((trace_id(source.run_id), span_id(source.run_id, f"step {label(source.path)}")))
        yield span
        if isinstance(first, ev.StepStarted) and step.agent != CONDUCTOR_AGENT:
            yield from self._calls(step, first, events, span)
        if step.round is not None:
            yield from self._round(step.round, span.span_id)

    def _calls(
        self, step: StepTrace, first: ev.StepStarted, events: Sequence[ev.StepEvent], within: Span
    ) -> Iterator[Span]:
        """Yields the calls of a step. A retry belongs to its call; a fallback is a call of another model."""
        call = self._call(f"{label(step.path)} 0", step.agent, within.span_id, first.at_utc)
        call.attributes[INPUT] = _input(first.messages)
        number, turns = 0, 0
        for event in events:
            if isinstance(event, ev.StepRetried):
                call.failed.append(_failed(event.at_utc, event.attempt, event.error_code))
                call.attributes |= _used(event.usage, event.cost_usd) if event.usage.total_tokens else {}
                if event.then == "fallback":
                    call.end_utc, call.error = event.at_utc, event.error_code
                    yield call
                    number += 1
                    agent = event.then_agent or step.agent
                    call = self._call(f"{label(step.path)} {number}", agent, within.span_id, event.at_utc)
                    call.attributes[INPUT] = _input(first.messages)
            elif isinstance(event, ev.ToolCalled):
                call.end_utc = event.at_utc
                call.attributes |= _used(event.usage, event.cost_usd)
                names = tuple(tool.name for tool in event.calls)
                call.attributes |= _present(
                    {MODEL_ANSWERED: event.model, FINISH: ("tool_calls",), "conductor.tools_called": names}
                )
                turn, turns = step.turns[turns], turns + 1
                yield from self._tools(turn, within)
                if turn.results is None or turn.returned_at_utc is None:
                    break
                yield call
                number += 1
                agent = event.agent or step.agent
                call = self._call(f"{label(step.path)} {number}", agent, within.span_id, turn.returned_at_utc)
                told = tuple(message for turn in step.turns[:turns] for message in turn.messages)
                call.attributes[INPUT] = _input((*first.messages, *told))
            elif isinstance(event, ev.StepCompleted):
                call.end_utc = event.at_utc
                call.attributes |= _used(event.usage, event.cost_usd)
                call.attributes |= _present(
                    {
                        MODEL_ANSWERED: event.model,
                        FINISH: (event.finish_reason,),
                        FIRST_CHUNK: None if event.first_token_ms is None else event.first_token_ms / 1000,
                        "conductor.ending": None if event.ending == "completed" else event.ending,
                        "conductor.tools_called": tuple(tool.name for tool in event.tool_calls) or None,
                        OUTPUT: _output(event.output, step.reasoning, event.finish_reason),
                    }
                )
            elif isinstance(event, ev.StepFailed):
                call.end_utc, call.error = event.at_utc, event.error_code
                call.attributes |= _used(event.usage, event.cost_usd) if event.usage.total_tokens else {}
        if call.end_utc is None and within.end_utc is not None:
            call.end_utc, call.error = within.end_utc, within.error or step.status
        yield call

    def _tools(self, turn: ToolTurn, within: Span) -> Iterator[Span]:
        """Yields the calls of a turn that left for tool servers of the pool."""
        for ran in turn.ran:
            if ran.sent_at_utc is None or ran.outcome in NOT_SENT:
                continue
            span = self._span(f"tool {ran.call_id}", f"execute_tool {ran.tool}", within.span_id, ran.sent_at_utc)
            if ran.outcome is None:
                span.end_utc, span.error = within.end_utc, within.error
            else:
                span.end_utc = ran.sent_at_utc + timedelta(milliseconds=ran.duration_ms or 0.0)
                span.error = None if ran.outcome == "returned" else ran.outcome
            span.attributes |= _present(
                {
                    OPERATION: "execute_tool",
                    TOOL: ran.tool,
                    TOOL_CALL: ran.call_id,
                    "conductor.tool.server": ran.server,
                    "conductor.tool.effects": ran.effects,
                    "conductor.tool.outcome": ran.outcome,
                }
            )
            yield span

    def _call(self, place: str, agent: str, parent: int, at_utc: datetime) -> Span:
        trace = self._trace
        attributes: Mapping[str, Value | None]
        if agent == CONDUCTOR_AGENT:
            info = trace.conductor
            model, host = ("", "") if info is None else (info.model, server_of(info))
            provider = "openai" if info is not None and info.kind == "remote" else "local"
            attributes = {STREAM: True if host else None}
        else:
            spec = self._specs.get(agent)
            model, host = ("", "") if spec is None else (spec.model, server_of(spec))
            provider = "unknown" if spec is None else spec.provider
            attributes = {} if spec is None else _asked(spec, host)
        span = self._span(f"call {place}", f"chat {model}".strip(), parent, at_utc)
        span.kind = "client" if host else "internal"
        name, _, port = host.rpartition(":") if host.rpartition(":")[2].isdigit() else (host, "", "")
        span.attributes |= _present(
            {
                OPERATION: "chat",
                PROVIDER: provider,
                MODEL: model or None,
                CONVERSATION: trace.run_id,
                HOST: name or None,
                PORT: int(port) if port else 443 if name else None,
                **attributes,
            }
        )
        return span

    def _span(self, place: str, name: str, parent: int | None, at_utc: datetime) -> Span:
        run_id = self._trace.run_id
        return Span(name, "internal", trace_id(run_id), span_id(run_id, place), parent, at_utc)

    def _run_end(self) -> datetime | None:
        return self._events[-1].at_utc if self._events[-1].kind in FINAL_KINDS else None


def _asked(spec: WorkerSpec, host: str) -> dict[str, Value | None]:
    """Returns what the pool file says of each request. A parameter of another type is not a number, and left out."""
    found: dict[str, Value | None] = {STREAM: True if host else None, "conductor.simulated": spec.simulated}
    for name, (attribute, kind) in PARAMS.items():
        value = spec.params.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[attribute] = kind(value)
    return found


def _used(usage: Usage, cost_usd: float | None) -> Attributes:
    return _present(
        {
            TOKENS_IN: usage.input_tokens,
            TOKENS_OUT: usage.output_tokens,
            "conductor.usage.estimated": usage.estimated or None,
            "conductor.cost_usd": cost_usd,
        }
    )


def _failed(at_utc: datetime, attempt: int, code: str) -> tuple[datetime, Attributes]:
    return at_utc, {ERROR: code, "conductor.attempt": attempt}


def _present(attributes: Mapping[str, Value | None]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _input(messages: Iterable[Message]) -> str:
    """Returns messages as the conventions' JSON schema has them. An image is named by its digest."""
    return json.dumps(
        [{"role": each.role, "parts": [_part(part) for part in parts_of(each.content)]} for each in messages],
        ensure_ascii=False,
    )


def _part(part: object) -> dict[str, str]:
    if isinstance(part, TextPart):
        return {"type": "text", "content": part.text}
    if isinstance(part, ImagePart):
        digest = f"sha256:{part.sha256}"
        return {"type": "file", "modality": "image", "mime_type": part.media_type, "file_id": digest}
    return {"type": "conductor.tool_message"}


def _output(text: str, reasoning: str, finish_reason: str) -> str:
    parts = [{"type": "reasoning", "content": reasoning}] if reasoning else []
    parts.append({"type": "text", "content": text})
    return json.dumps([{"role": "assistant", "parts": parts, "finish_reason": finish_reason}], ensure_ascii=False)


# The SDK's form, and JSON.

SERVICE = "conductor-inspector"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def otlp_json(spans: Iterable[Span], *, at_utc: datetime) -> str:
    """Returns one request of OTLP/JSON with these spans. Those that go on end at ``at_utc``, and say that they do."""
    from opentelemetry.exporter.otlp.json.common.trace_encoder import encode_spans

    request = encode_spans(sdk_spans(spans, at_utc))
    return json.dumps(request.to_dict(), indent=1) + "\n"


def sdk_spans(spans: Iterable[Span], at_utc: datetime | None = None) -> "Sequence[ReadableSpan]":
    """Returns the spans as the SDK has them. Those that go on are left out, or end at ``at_utc``."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    resource = Resource({"service.name": SERVICE, "service.version": __version__})
    scope = InstrumentationScope(SERVICE, __version__, SCHEMA)

    def context(trace_id: int, span_id: int) -> SpanContext:
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    found = []
    for span in spans:
        end_utc = span.end_utc or at_utc
        if end_utc is None:
            continue
        attributes = dict(span.attributes)
        if span.end_utc is None:
            attributes["conductor.goes_on"] = True
        if span.error is not None:
            attributes[ERROR] = span.error
        found.append(
            ReadableSpan(
                name=span.name,
                context=context(span.trace_id, span.span_id),
                parent=None if span.parent_id is None else context(span.trace_id, span.parent_id),
                resource=resource,
                attributes=attributes,
                events=[Event("conductor.attempt_failed", said, _ns(at_utc)) for at_utc, said in span.failed],
                links=[Link(context(*link)) for link in span.links],
                kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
                # No description: an error's words can hold what people and models wrote.
                status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR),
                start_time=_ns(span.start_utc),
                end_time=max(_ns(span.start_utc), _ns(end_utc)),
                instrumentation_scope=scope,
            )
        )
    return found


def _ns(moment: datetime) -> int:
    passed = moment - _EPOCH
    return ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1000


# Sending. Sends each run as an OpenTelemetry trace while it goes on, off the path of its events.
#
# ``Watched`` hands events on to the log and only notes which runs have news. A thread of its own reads those runs from
# the store, sends the spans that have ended and were not sent, and holds no text between. What it cannot keep up with,
# or what the receiver does not take, is dropped, counted and said, also in the record of the run that has ended: the
# log is the record, and a trace a copy. Nobody waits for it but a command that ends, for a second.

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
        events = tuple(map(self._with_traces, events))
        future = self._sink.append(*events)

        def written(done: "asyncio.Future[None]") -> None:
            if not done.cancelled() and done.exception() is None:
                self._traces.note(events)

        future.add_done_callback(written)
        return future

    def append_and_wait(self, *events: Event) -> None:
        events = tuple(map(self._with_traces, events))
        self._sink.append_and_wait(*events)
        self._traces.note(events)

    def _with_traces(self, event: Event) -> Event:
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
    return sink if traces is None else Watched(sink, traces)
