"""Spans of runs in OpenTelemetry's own form: as its SDK has them, and as the JSON that collectors read.

It needs the extra ``otlp``.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from conductor_core import __version__
from conductor_core.telemetry import conventions as c
from conductor_core.telemetry.spans import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

SERVICE = "conductor-inspector"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def otlp_json(spans: Iterable[Span], *, at_utc: datetime) -> str:
    """Returns one request of OTLP/JSON with these spans. Those that go on end at ``at_utc``, and say that they do."""
    from opentelemetry.exporter.otlp.json.common.trace_encoder import encode_spans

    request = encode_spans(sdk_spans(spans, at_utc))
    return json.dumps(request.to_dict(), ensure_ascii=False, indent=1) + "\n"


def sdk_spans(spans: Iterable[Span], at_utc: datetime | None = None) -> "Sequence[ReadableSpan]":
    """Returns the spans as the SDK has them. Those that go on are left out, or end at ``at_utc``."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    resource = Resource({"service.name": SERVICE, "service.version": __version__})
    scope = InstrumentationScope(SERVICE, __version__, c.SCHEMA)

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
            attributes[c.ERROR] = span.error
        found.append(
            ReadableSpan(
                name=span.name,
                context=context(span.trace_id, span.span_id),
                parent=None if span.parent_id is None else context(span.trace_id, span.parent_id),
                resource=resource,
                attributes=attributes,
                events=[Event(each.name, each.attributes, _ns(each.at_utc)) for each in span.events],
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
