"""What the Responses API answers, whole and streamed: as OpenAI's package reads it, and the same to the letter."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai._streaming import SSEDecoder
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from conductor_core.run.request import ClientRequest
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import (
    Beat,
    Began,
    Called,
    Ended,
    Outcome,
    Part,
    Row,
    Spending,
    Status,
    Summary,
    Text,
    named,
)
from conductor_core.serving.responses import Stream, whole

RUN = "0193a4b5c6d7-0123456789abcdef"
AT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
BEGUN = Outcome(
    run_id=RUN,
    number=2,
    client=ClientRequest(api="responses", model="fugu"),
    created_at=AT,
    status="in_progress",
    trace_url="http://127.0.0.1:8501/run?id=x",
    simulated=False,
)
# fmt: off
NEVER_NULL = (
    "id", "object", "created_at", "status", "model", "output", "tools", "tool_choice", "truncation",
    "parallel_tool_calls", "text", "top_p", "temperature", "presence_penalty", "frequency_penalty", "top_logprobs",
    "store", "background", "service_tier", "metadata",
)
MAY_BE_NULL = (
    "completed_at", "incomplete_details", "instructions", "previous_response_id", "error", "reasoning", "usage",
    "max_output_tokens", "max_tool_calls", "safety_identifier", "prompt_cache_key", "user",
)
# fmt: on
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def fed(stream: Stream, parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [_event(raw) for part in parts for raw in stream.feed(part)]


def _event(raw: bytes) -> dict[str, Any]:
    kind, data, *rest = raw.decode().split("\n")
    assert rest == ["", ""]
    event: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert kind == f"event: {event['type']}"
    return event


class Replayed:
    """Adds a response up from its events alone, and raises where a client would."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.open: dict[str, Any] | None = None
        self.last: dict[str, Any] | None = None
        self.id: str | None = None
        self.count = 0

    def take(self, event: dict[str, Any]) -> None:
        assert event["sequence_number"] == self.count
        assert self.last is None, "an event after the last"
        self.count += 1
        kind = event["type"].removeprefix("response.")
        if response := event.get("response"):
            assert (self.id is None) == (kind == "created")
            self.id = self.id or response["id"]
            assert response["id"] == self.id
            if kind in ("completed", "incomplete", "failed"):
                assert self.open is None, "an item is not closed"
                self.last = response
            else:
                assert response["status"] == "in_progress"
            return
        assert self.id is not None
        if kind == "output_item.added":
            assert self.open is None
            assert event["output_index"] == len(self.items)
            self.open = event["item"]
            self.items.append(self.open)
            return
        assert self.open is not None, "a piece before its item"
        assert event["output_index"] == len(self.items) - 1
        if kind == "output_item.done":
            done = event["item"]
            assert self.open | {"status": done.get("status")} == done | {"status": done.get("status")}
            self.items[-1] = done
            self.open = None
            return
        assert event["item_id"] == self.open["id"]
        self._piece(kind, event, self.open)

    def _piece(self, kind: str, event: dict[str, Any], item: dict[str, Any]) -> None:
        what, _, how = kind.rpartition(".")
        if what in ("content_part", "reasoning_summary_part"):
            parts = item["content" if what == "content_part" else "summary"]
            number = event["content_index" if what == "content_part" else "summary_index"]
            if how == "added":
                assert number == len(parts)
                parts.append(event["part"])
            else:
                assert number == len(parts) - 1
                assert parts[number] == event["part"]
            return
        holder, field = item, "arguments"
        if what == "custom_tool_call_input":
            field = "input"
        elif what in ("output_text", "refusal"):
            holder, field = item["content"][event["content_index"]], "refusal" if what == "refusal" else "text"
        elif what == "reasoning_summary_text":
            holder, field = item["summary"][event["summary_index"]], "text"
        else:
            assert what == "function_call_arguments"
        if how == "delta":
            assert event["delta"]
            holder[field] += event["delta"]
        else:
            assert holder[field] == event[field]


TEXTS = st.text(max_size=12) | st.sampled_from(["😀", "\u2028", "\x85", "a\n\nevent: x\ndata: {}\n\n", "é", "\x00"])
PIECES = st.lists(TEXTS, max_size=4)
CALLS = st.lists(st.builds(Called, st.just(0), st.just(""), TEXTS, TEXTS, st.booleans()), max_size=3)


@st.composite
def told(draw: st.DrawFn) -> list[Part]:
    """Any response in its parts."""
    summaries = draw(st.lists(PIECES.filter(bool), max_size=3))
    text = draw(PIECES)
    parts: list[Part] = [Summary(number, piece) for number, pieces in enumerate(summaries) for piece in pieces]
    parts += [Text(piece) for piece in text]
    for place in draw(st.lists(st.integers(0, len(parts)), max_size=3)):
        parts.insert(place, Beat())
    ends: tuple[Status, ...] = ("completed", "incomplete", "failed", "cancelled")
    status = draw(st.sampled_from(ends))
    refusal = draw(TEXTS)
    calls = [replace(each, number=7 + at, call_id=f"call_{at}", name=f"f{at}") for at, each in enumerate(draw(CALLS))]
    error = ApiError(draw(st.sampled_from([400, 429, 500])), "It failed.") if status == "failed" else None
    ended = replace(
        BEGUN,
        status=status,
        completed_at=AT,
        summaries=tuple("".join(pieces) for pieces in summaries),
        text="".join(text) or draw(st.sampled_from([None, ""])),
        refusal=refusal,
        calls=tuple(calls),
        error=error,
        finish=draw(st.sampled_from(["stop", "length", "tool_calls", "content_filter", None])),
    )
    return [Began(BEGUN), *parts, Ended(ended)]


def outcome_of(parts: Sequence[Part]) -> Outcome:
    end = parts[-1]
    assert isinstance(end, Ended)
    return end.outcome


@given(told())
def test_a_stream_adds_up_to_the_whole_response_to_the_letter(parts: list[Part]) -> None:
    replayed = Replayed()
    for event in fed(Stream(), parts):
        replayed.take(event)
    expected = json.loads(json.dumps(whole(outcome_of(parts))))
    assert replayed.last == expected
    assert replayed.items == expected["output"]


@given(told())
def test_openais_package_reads_each_event_and_ends_with_the_same_output(parts: list[Part]) -> None:
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    response = whole(outcome_of(parts))
    Response.model_validate(response)
    stream = Stream()
    raw = [event for part in parts for event in stream.feed(part)]
    decoded = list(SSEDecoder().iter_bytes(iter(raw)))
    assert len(decoded) == len(raw)
    for event in decoded:
        assert event.event == event.json()["type"]
        state.handle_event(EVENTS.validate_python(event.json()))
    completed = state._completed_response
    if response["status"] != "completed":
        assert completed is None
        return
    assert completed is not None
    assert completed.output_text == (outcome_of(parts).text or "")


@given(told())
def test_a_heartbeat_repeats_the_response_as_far_as_it_is(parts: list[Part]) -> None:
    stream = Stream()
    for at, part in enumerate(parts):
        events = fed(stream, [part])
        if isinstance(part, Beat):
            (beat,) = events
            assert beat["type"] == "response.in_progress"
            texts = [each.text for each in parts[:at] if isinstance(each, Text)]
            messages = [item for item in beat["response"]["output"] if item["type"] == "message"]
            shown = "".join(piece["text"] for item in messages for piece in item["content"])
            assert shown == "".join(texts)


@given(told(), st.data())
def test_a_stream_that_cannot_go_on_ends_failed_with_what_it_had(parts: list[Part], data: st.DataObject) -> None:
    kept = parts[: data.draw(st.integers(1, len(parts) - 1))]
    stream, replayed = Stream(), Replayed()
    for event in fed(stream, kept) + [_event(raw) for raw in stream.fault(ApiError(500, "Broken."))]:
        replayed.take(event)
    assert replayed.last is not None
    assert replayed.last["status"] == "failed"
    assert replayed.last["error"] == {"code": "server_error", "message": "Broken."}
    assert replayed.last["output"] == replayed.items


def test_a_fault_before_the_beginning_is_one_error_event() -> None:
    (raw,) = Stream().fault(ApiError(422, "No JSON.", code="schema_mismatch", param="text.format"))
    event = _event(raw)
    fields = {"code": "schema_mismatch", "message": "No JSON.", "param": "text.format"}
    assert event["error"] == {"type": "invalid_request_error", **fields}
    assert event | fields == event
    EVENTS.validate_python(event)


def test_an_end_that_is_not_what_was_streamed_is_refused() -> None:
    stream = Stream()
    fed(stream, [Began(BEGUN), Text("one")])
    with pytest.raises(ValueError, match="not what was streamed"):
        stream.feed(Ended(replace(BEGUN, status="completed", text="two")))


def test_the_events_of_reasoning_a_message_and_two_calls_come_in_their_order() -> None:
    calls = (Called(0, "call_a", "f", '{"a": 1}'), Called(1, "call_b", "apply_patch", "*** Begin", custom=True))
    end = replace(BEGUN, status="completed", summaries=("ab", "c"), text="hi", calls=calls, finish="tool_calls")
    parts: list[Part] = [
        Began(BEGUN),
        Summary(0, "a"),
        Summary(0, "b"),
        Summary(1, "c"),
        Text("h"),
        Text("i"),
        Ended(end),
    ]
    assert [event["type"].removeprefix("response.") for event in fed(Stream(), parts)] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]


# The whole response.


@given(told())
def test_every_key_is_there_and_null_only_where_it_may_be(parts: list[Part]) -> None:
    for response in (whole(BEGUN), whole(outcome_of(parts))):
        assert set(response) == {*NEVER_NULL, *MAY_BE_NULL, "conductor"}
        assert [name for name in NEVER_NULL if response[name] is None] == []


def test_what_a_damaged_record_echoes_as_null_is_openais_default() -> None:
    client = ClientRequest(api="responses", model="fugu", echoed={"tools": None, "temperature": None, "id": "forged"})
    response = whole(replace(BEGUN, client=client))
    assert response["tools"] == []
    assert response["temperature"] == 1.0
    assert response["id"] == "resp_0193a4b5c6d70123456789abcdef_2"


def test_tokens_of_the_answer_and_of_all_else_are_told_apart() -> None:
    spent = Spending(
        input_tokens=150,
        output_tokens=60,
        cached_tokens=20,
        reasoning_tokens=15,
        orchestration_input_tokens=46 + 34,
        orchestration_cached_tokens=10,
        orchestration_output_tokens=49 + 76,
    )
    rows = (
        Row("plan", "", "c", 46, 49, 0.1),
        Row("step 0", "w", "m", 34, 76, None),
        Row("step 1", "w", "m", 150, 60, 0.2),
    )
    response = whole(replace(BEGUN, status="completed", text="hi", spending=spent, rows=rows))
    assert response["usage"] == {
        "input_tokens": 150,
        "input_tokens_details": {
            "cached_tokens": 20,
            "cache_write_tokens": 0,
            "orchestration_input_tokens": 80,
            "orchestration_input_cached_tokens": 10,
        },
        "output_tokens": 60,
        "output_tokens_details": {"reasoning_tokens": 15, "orchestration_output_tokens": 125},
        "total_tokens": 415,
    }
    ours = response["conductor"]
    assert ours["usage"] == {"input_tokens": 230, "output_tokens": 185, "total_tokens": 415}
    assert sum(row["input_tokens"] + row["output_tokens"] for row in ours["steps"]) == 415


def test_each_id_leads_back_to_the_run_and_a_call_has_two() -> None:
    end = replace(
        BEGUN, status="completed", summaries=("s",), text="hi", calls=(Called(5, "call_x", "f", "{}"),), completed_at=AT
    )
    response = whole(end)
    reasoning, message, call = response["output"]
    assert [each["type"] for each in response["output"]] == ["reasoning", "message", "function_call"]
    for identity, number in ((response["id"], 2), (reasoning["id"], 2), (message["id"], 2), (call["id"], 5)):
        assert named(identity) == (RUN, number)
    assert call["id"].startswith("fc_")
    assert call["call_id"] == "call_x"
    assert response["completed_at"] == response["created_at"] == int(AT.timestamp())


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_incomplete_response_says_why(finish: Any, reason: str) -> None:
    response = whole(replace(BEGUN, status="incomplete", text="hi", finish=finish, completed_at=AT))
    assert response["incomplete_details"] == {"reason": reason}
    assert response["output"][0]["status"] == "incomplete"
    assert response["completed_at"] is None


def test_a_refusal_stands_alone_where_nothing_was_written() -> None:
    refused = replace(BEGUN, status="completed", text="", refusal="No.", finish="stop")
    (message,) = whole(refused)["output"]
    assert message["content"] == [{"type": "refusal", "refusal": "No."}]


def test_a_failed_response_has_a_code_and_a_message() -> None:
    failed = replace(BEGUN, status="failed", error=ApiError(422, "No JSON.", code="schema_mismatch"))
    assert whole(failed)["error"] == {"code": "schema_mismatch", "message": "No JSON."}
    assert whole(replace(failed, error=None))["error"]["code"] == "server_error"
