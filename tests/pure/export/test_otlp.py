"""Runs as OpenTelemetry traces: against a kept file, against the protobuf encoder, and what they must not hold.

python -m tests.pure.export.test_otlp     writes the kept file anew, after a change that is meant
"""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from conductor_core import __version__
from conductor_core.chat.messages import Message, Usage
from conductor_core.export import otel as c
from conductor_core.export.otel import Span, otlp_json, sdk_spans, span_id, spans_of, trace_id
from conductor_core.run import events as ev
from conductor_core.run.egress import calls
from conductor_core.run.events import Event, TracesTo
from conductor_core.run.redaction import Redactor
from conductor_core.workflow.model import Step, Workflow
from tests.pure.analysis.test_reading import PLAN, POOL, edited_run
from tests.support.canaries import CANARIES, forms, found
from tests.support.run_events import TWO_STEPS, created, planned, recursive_run, step_completed

GOLDEN = Path(__file__).with_name("trace.json")
BEGAN = datetime(2026, 11, 24, 12, tzinfo=UTC)
AT_THE_END = Workflow(steps=(*TWO_STEPS.steps, Step(instruction="Again?", agent="conductor", access_list="all")))


def timed(events: list[Event]) -> list[Event]:
    """Returns the events at fixed times."""
    return [each.model_copy(update={"at_utc": BEGAN + timedelta(milliseconds=each.at_ms)}) for each in events]


def written(events: list[Event]) -> str:
    return otlp_json(spans_of(events), at_utc=events[-1].at_utc).replace(f'"{__version__}"', '"VERSION"')


def golden() -> str:
    return written(timed(edited_run("golden")))


def fallback_run() -> list[Event]:
    """A run whose first step is asked of two workers, and whose second fails."""
    sent = (Message(role="user", content="Solve it."),)
    common: dict[str, Any] = {"run_id": "f", "path": (0,)}
    return timed(
        [
            created("f", pool=POOL),
            *planned("f", Workflow(steps=PLAN.steps[:2])),
            ev.StepStarted(**common, at_ms=30, agent="solver", identity="i", messages=sent),
            ev.StepRetried(**common, at_ms=40, attempt=1, error_code="Overloaded", error="text", wait_ms=1),
            ev.StepRetried(
                **common,
                at_ms=50,
                attempt=2,
                error_code="AnswerCut",
                error="text",
                wait_ms=1,
                then="fallback",
                then_agent="writer",
            ),
            step_completed("f", 0, "42", 60),
            ev.StepStarted(run_id="f", path=(1,), at_ms=70, agent="solver", identity="j", messages=sent),
            ev.StepFailed(run_id="f", path=(1,), at_ms=80, error_code="WorkerGone", error="text"),
            ev.RunFailed(run_id="f", at_ms=90, error_code="StepFailed", error="text"),
        ]
    )


def _named(spans: list[Span]) -> list[tuple[str, str | None]]:
    names = {span.span_id: span.name for span in spans}
    return [(span.name, None if span.parent_id is None else names[span.parent_id]) for span in spans]


def test_a_trace_is_as_the_kept_file_has_it() -> None:
    assert golden() == GOLDEN.read_text(encoding="utf-8")


def test_the_json_says_what_the_protobuf_says() -> None:
    for events in (timed(edited_run("r")), timed(recursive_run("r", AT_THE_END, TWO_STEPS)), fallback_run()):
        spans = spans_of(events, contents=True)
        told = json.loads(otlp_json(spans, at_utc=events[-1].at_utc))
        for each in told["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for place in [each, *each.get("links", ())]:
                for name in {"traceId", "spanId", "parentSpanId"} & set(place):
                    place[name] = base64.b64encode(bytes.fromhex(place[name])).decode()
        parsed = ParseDict(told, ExportTraceServiceRequest())  # refuses what the protocol does not know
        assert parsed == encode_spans(sdk_spans(spans))


def test_steps_hang_below_the_run_and_calls_below_their_steps() -> None:
    assert _named(spans_of(edited_run("r"))) == [
        ("invoke_workflow conductor", None),
        ("plan https://planner.example/v1#seven", "invoke_workflow conductor"),
        ("chat seven", "plan https://planner.example/v1#seven"),
        ("invoke_agent solver", "invoke_workflow conductor"),
        ("chat solver", "invoke_agent solver"),
        ("invoke_agent solver", "invoke_workflow conductor"),
        ("chat solver", "invoke_agent solver"),
        ("invoke_agent writer", "invoke_workflow conductor"),
        ("chat gpt-9", "invoke_agent writer"),
    ]
    recursive = _named(spans_of(recursive_run("r", AT_THE_END, TWO_STEPS)))
    assert ("plan tiny", "invoke_agent conductor") in recursive
    assert recursive.count(("invoke_agent solver", "invoke_agent conductor")) == 1


def test_a_call_says_to_whom_it_went_and_what_it_used() -> None:
    call = spans_of(edited_run("r"))[-1]
    assert (call.kind, call.attributes[c.HOST], call.attributes[c.PORT]) == ("client", "models.example", 8443)
    assert (call.attributes[c.TOKENS_IN], call.attributes[c.TOKENS_OUT]) == (7, 3)
    assert [said[c.ERROR] for _, said in call.failed] == ["WorkerOverloaded"]
    assert call.error is None
    step = spans_of(edited_run("r"))[-2]
    assert (step.attributes["conductor.granted"], step.attributes["conductor.withheld"]) == (("0",), ("1",))


def test_a_fallback_is_a_call_of_its_own_and_a_failure_has_its_class() -> None:
    spans = spans_of(fallback_run())
    calls = [span for span in spans if span.name.startswith("chat") and span.parent_id == span_id("f", "step 0")]
    assert [(call.name, call.error) for call in calls] == [("chat solver", "AnswerCut"), ("chat gpt-9", None)]
    assert [len(call.failed) for call in calls] == [2, 0]
    assert spans[0].error == "StepFailed"
    assert [span.error for span in spans[-2:]] == ["WorkerGone", "WorkerGone"]


def test_a_reused_answer_links_to_the_step_that_gave_it() -> None:
    reused = ev.StepReused(
        run_id="r",
        path=(0,),
        agent="solver",
        identity="i",
        messages=(),
        source_run_id="before",
        source_path=(2, 0),
        output="42",
        output_sha256="",
        finish_reason="stop",
        usage=Usage(),
    )
    step = spans_of([created("r"), *planned("r"), reused])[-1]
    assert step.links == [(trace_id("before"), span_id("before", "step 2.0"))]
    assert step.end_utc == step.start_utc


def test_texts_are_in_it_only_if_asked_for() -> None:
    events = edited_run("r")
    texts = ("6 times 7", "Solve it", "It is 42", "secret thought", "model_id =", "Now it is right", "busy")
    without = otlp_json(spans_of(edited_run("r")), at_utc=events[-1].at_utc)
    assert [text for text in texts if text in without] == []
    with_texts = otlp_json(spans_of(edited_run("r"), contents=True), at_utc=events[-1].at_utc)
    assert [text for text in texts[:5] if text not in with_texts] == []


@pytest.mark.parametrize("contents", [True, False])
@pytest.mark.parametrize("run", [edited_run("r"), fallback_run(), recursive_run("r", AT_THE_END, TWO_STEPS)])
def test_the_record_says_all_that_traces_hold(run: list[Event], contents: bool) -> None:
    """Who asks whether a text was ever received is told of each text in a trace."""
    thought = ev.PlanDelta(run_id=run[0].run_id, text="a thought", reasoning=True)
    traced = run[0].model_copy(update={"traces": (TracesTo(host="h.example", contents=contents),)})
    run = [traced, *run[1:3], thought, *run[3:]]
    (call,) = [call for call in calls(run) if call.of == "traces"]
    told = "\n".join(call.texts)
    texts = [
        part["content"]
        for span in spans_of(run, contents=contents)
        for name in c.CONTENTS
        for message in json.loads(str(span.attributes.get(name, "[]")))
        for part in message["parts"]
    ]
    assert bool(texts) == contents
    assert [text for text in texts if text not in told] == []
    names = [
        str(span.attributes[name]) for span in spans_of(run) for name in (c.AGENT, c.MODEL) if name in span.attributes
    ]
    assert [name for name in names if name not in told] == []


def test_a_run_that_goes_on_has_the_spans_that_ended() -> None:
    events = edited_run("r")[:-3]
    spans = spans_of(events)
    assert [span.end_utc is None for span in spans[-2:]] == [True, True]
    assert len(sdk_spans(spans)) == len(spans) - 3
    assert otlp_json(spans, at_utc=events[-1].at_utc).count("conductor.goes_on") == 3


def test_no_key_is_in_it_in_whatever_form(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in CANARIES.items():
        monkeypatch.setenv(f"CANARY_{name}_KEY", key)
    said = "\n".join(map(forms, CANARIES.values()))
    hostile = [
        created("r", said, pool=POOL),
        *planned("r", PLAN),
        ev.StepStarted(
            run_id="r", path=(0,), agent="solver", identity="i", messages=(Message(role="user", content=said),)
        ),
        ev.StepRetried(run_id="r", path=(0,), attempt=1, error_code="Overloaded", error=said, wait_ms=0),
        step_completed("r", 0, said, 9).model_copy(update={"model": said}),
        ev.RunFailed(run_id="r", error_code="StepFailed", error=said),
    ]
    assert set(CANARIES.values()) <= set(found(otlp_json(spans_of(hostile, contents=True), at_utc=BEGAN)))
    hidden = otlp_json(spans_of(Redactor().events(hostile), contents=True), at_utc=BEGAN)
    assert found(hidden) == {}


if __name__ == "__main__":
    GOLDEN.write_text(golden(), encoding="utf-8")
