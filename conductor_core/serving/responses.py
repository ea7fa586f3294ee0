"""OpenAI's Responses API: reads a request, and writes a response whole and as a stream. No HTTP."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import (
    Beat,
    Began,
    Called,
    Ended,
    Outcome,
    Part,
    Spending,
    Summary,
    Text,
    made_id,
)

# What a response is.

_NEVER_NULL: Mapping[str, Any] = {
    "background": False,
    "frequency_penalty": 0.0,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "service_tier": "default",
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
_MAY_BE_NULL = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "user",
)
_ENDS: Mapping[str, str] = {"completed": "response.completed", "failed": "response.failed"}
"""The last event by the response's status; all else ends incomplete."""


def whole(outcome: Outcome) -> dict[str, Any]:
    """Returns the response object as far as the response is. Every key is always there."""
    client = outcome.client
    said = {name: value for name, value in client.echoed.items() if value is not None}
    return {
        "id": made_id("resp", outcome.run_id, outcome.number),
        "object": "response",
        "created_at": int(outcome.created_at.timestamp()),
        "status": outcome.status,
        "completed_at": _completed_at(outcome),
        "error": _error(outcome),
        "incomplete_details": _incomplete_details(outcome),
        "model": client.model,
        "output": _output(outcome),
        "previous_response_id": client.previous_response_id,
        "store": client.store,
        **{name: said.get(name, value) for name, value in _NEVER_NULL.items()},
        **{name: said.get(name) for name in _MAY_BE_NULL},
        "usage": None if outcome.status == "in_progress" else _usage(outcome.spending),
        "conductor": outcome.conductor,
    }


def _completed_at(outcome: Outcome) -> int | None:
    at = outcome.completed_at
    return int(at.timestamp()) if outcome.status == "completed" and at is not None else None


def _error(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.status != "failed":
        return None
    error = outcome.error or ApiError(500, "The run failed.")
    code = error.code or {400: "invalid_prompt", 429: "rate_limit_exceeded"}.get(error.status, "server_error")
    return {"code": code, "message": error.message}


def _incomplete_details(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.status != "incomplete":
        return None
    return {"reason": "max_output_tokens" if outcome.finish == "length" else "content_filter"}


def _usage(spent: Spending) -> dict[str, Any]:
    return {
        "input_tokens": spent.input_tokens,
        "input_tokens_details": {
            "cached_tokens": spent.cached_tokens,
            "cache_write_tokens": spent.cache_write_tokens,
            "orchestration_input_tokens": spent.orchestration_input_tokens,
            "orchestration_input_cached_tokens": spent.orchestration_cached_tokens,
        },
        "output_tokens": spent.output_tokens,
        "output_tokens_details": {
            "reasoning_tokens": spent.reasoning_tokens,
            "orchestration_output_tokens": spent.orchestration_output_tokens,
        },
        "total_tokens": spent.total_tokens,
    }


# Its items: reasoning, the message, the calls.


def _output(outcome: Outcome) -> list[dict[str, Any]]:
    items = [_reasoning(outcome)] if outcome.summaries else []
    if _message_parts(outcome):
        items.append(_message(outcome))
    return [*items, *(_call(outcome, called) for called in outcome.calls)]


def _reasoning(outcome: Outcome) -> dict[str, Any]:
    summary = [_summary_part(text) for text in outcome.summaries]
    return {"id": made_id("rs", outcome.run_id, outcome.number), "type": "reasoning", "summary": summary}


def _message(outcome: Outcome) -> dict[str, Any]:
    status = outcome.status if outcome.status in ("in_progress", "completed") else "incomplete"
    return {
        "id": made_id("msg", outcome.run_id, outcome.number),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": _message_parts(outcome),
    }


def _message_parts(outcome: Outcome) -> list[dict[str, Any]]:
    parts = [] if outcome.text is None else [_text_part(outcome.text)]
    return [*parts, _refusal_part(outcome.refusal)] if outcome.refusal else parts


def _call(outcome: Outcome, called: Called) -> dict[str, Any]:
    kind = _CUSTOM_CALL if called.custom else _FUNCTION_CALL
    return {
        "id": made_id(kind.prefix, outcome.run_id, called.number),
        "type": kind.type,
        "call_id": called.call_id,
        "name": called.name,
        kind.field: called.arguments,
        "status": "completed",
    }


class _CallKind(NamedTuple):
    prefix: str
    type: str
    field: str
    events: str


_FUNCTION_CALL = _CallKind("fc", "function_call", "arguments", "response.function_call_arguments")
_CUSTOM_CALL = _CallKind("ctc", "custom_tool_call", "input", "response.custom_tool_call_input")


def _summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _refusal_part(text: str) -> dict[str, Any]:
    return {"type": "refusal", "refusal": text}


# The same as a stream.

_Event = tuple[str, dict[str, Any]]


class Stream:
    """Writes one response as server-sent events. Its last one has what ``whole`` says of the ended response."""

    def __init__(self) -> None:
        self._sequence_number = 0
        self._began: Outcome | None = None
        self._summaries: list[list[str]] = []
        self._text: list[str] = []
        self._open: Literal["reasoning", "message"] | None = None

    def feed(self, part: Part) -> list[bytes]:
        """Returns complete events. Each is to be written at once.

        Raises: ValueError for parts in another order than they come in, or an end that is not what came before it.
        """
        return [self._numbered(kind, fields) for kind, fields in self._told(part)]

    def fault(self, error: ApiError) -> list[bytes]:
        """Returns the last events of a stream whose parts cannot go on."""
        if self._began is not None:
            return self.feed(Ended(replace(self._now(self._began), status="failed", error=error)))
        flat = {"code": error.code, "message": error.message, "param": error.param}
        return [self._numbered("error", {"error": {"type": error.type, **flat}, **flat})]

    def _numbered(self, kind: str, fields: dict[str, Any]) -> bytes:
        number, self._sequence_number = self._sequence_number, self._sequence_number + 1
        data = json.dumps({"type": kind, "sequence_number": number, **fields}, allow_nan=False)
        return f"event: {kind}\ndata: {data}\n\n".encode()

    def _told(self, part: Part) -> Iterator[_Event]:
        began = self._began
        if isinstance(part, Began):
            yield from self._begun(part.outcome)
        elif began is None:
            raise ValueError("a response has to begin first")
        else:
            match part:
                case Summary():
                    yield from self._summarized(began, part)
                case Text():
                    yield from self._said(began, part.text)
                case Beat():
                    yield "response.in_progress", {"response": whole(self._now(began))}
                case Ended():
                    yield from self._ended(began, part.outcome)

    def _begun(self, outcome: Outcome) -> Iterator[_Event]:
        if self._began is not None:
            raise ValueError("the response has begun already")
        self._began = replace(outcome, status="in_progress", summaries=(), text=None, calls=(), refusal="", error=None)
        for kind in ("response.created", "response.in_progress"):
            yield kind, {"response": whole(self._began)}

    def _now(self, began: Outcome) -> Outcome:
        """The response as far as it was told."""
        text = "".join(self._text) if self._text else None
        return replace(began, summaries=tuple("".join(pieces) for pieces in self._summaries), text=text)

    # Reasoning.

    def _summarized(self, began: Outcome, part: Summary) -> Iterator[_Event]:
        told = len(self._summaries)
        if self._text or part.number not in (told, told - 1):
            raise ValueError(f"summary {part.number} cannot come here")
        item = _reasoning(began)
        at = {"item_id": item["id"], "output_index": 0, "summary_index": part.number}
        if self._open is None:
            self._open = "reasoning"
            yield "response.output_item.added", {"output_index": 0, "item": item}
        if part.number == told:
            yield from self._summary_closed(began)
            self._summaries.append([])
            yield "response.reasoning_summary_part.added", {**at, "part": _summary_part("")}
        if part.text:
            self._summaries[-1].append(part.text)
            yield "response.reasoning_summary_text.delta", {**at, "delta": part.text}

    def _summary_closed(self, began: Outcome) -> Iterator[_Event]:
        if self._summaries:
            number, text = len(self._summaries) - 1, "".join(self._summaries[-1])
            at = {"item_id": _reasoning(began)["id"], "output_index": 0, "summary_index": number}
            yield "response.reasoning_summary_text.done", {**at, "text": text}
            yield "response.reasoning_summary_part.done", {**at, "part": _summary_part(text)}

    def _reasoning_closed(self, began: Outcome) -> Iterator[_Event]:
        if self._open == "reasoning":
            self._open = None
            yield from self._summary_closed(began)
            yield "response.output_item.done", {"output_index": 0, "item": _reasoning(self._now(began))}

    # The message.

    def _said(self, began: Outcome, text: str) -> Iterator[_Event]:
        if not text:  # as the first one it would begin a message that the whole response may not have
            return
        if not self._text:
            yield from self._reasoning_closed(began)
            yield from self._message_opened(began)
            yield from self._part_opened(began, 0, _text_part(""))
        self._text.append(text)
        yield "response.output_text.delta", {**self._in_message(began, 0), "delta": text, "logprobs": []}

    def _message_opened(self, began: Outcome) -> Iterator[_Event]:
        self._open = "message"
        yield "response.output_item.added", {"output_index": self._message_index, "item": _message(began)}

    def _part_opened(self, began: Outcome, number: int, part: dict[str, Any]) -> Iterator[_Event]:
        yield "response.content_part.added", {**self._in_message(began, number), "part": part}

    def _in_message(self, began: Outcome, number: int) -> dict[str, Any]:
        return {"item_id": _message(began)["id"], "output_index": self._message_index, "content_index": number}

    @property
    def _message_index(self) -> int:
        return 1 if self._summaries else 0

    # The end.

    def _ended(self, began: Outcome, outcome: Outcome) -> Iterator[_Event]:
        told = self._now(began)
        text = told.text or ""
        if outcome.run_id != began.run_id or outcome.number != began.number:
            raise ValueError("the end is of another response")
        if outcome.summaries != told.summaries or (outcome.text or "") != text:
            raise ValueError("the whole response is not what was streamed")
        yield from self._reasoning_closed(began)
        yield from self._message_closed(began, outcome)
        first = self._message_index + bool(_message_parts(outcome))
        for index, called in enumerate(outcome.calls, first):
            yield from _called(index, _call(outcome, called))
        yield _ENDS.get(outcome.status, "response.incomplete"), {"response": whole(outcome)}

    def _message_closed(self, began: Outcome, outcome: Outcome) -> Iterator[_Event]:
        parts = _message_parts(outcome)
        if parts and self._open != "message":
            yield from self._message_opened(began)
        for number, part in enumerate(parts):
            at = self._in_message(began, number)
            if part["type"] == "output_text":
                if not self._text:
                    yield from self._part_opened(began, number, _text_part(""))
                yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
            else:
                yield from self._part_opened(began, number, _refusal_part(""))
                yield "response.refusal.delta", {**at, "delta": part["refusal"]}
                yield "response.refusal.done", {**at, "refusal": part["refusal"]}
            yield "response.content_part.done", {**at, "part": part}
        if parts:
            yield "response.output_item.done", {"output_index": self._message_index, "item": _message(outcome)}


def _called(index: int, item: dict[str, Any]) -> Iterator[_Event]:
    kind = _CUSTOM_CALL if item["type"] == _CUSTOM_CALL.type else _FUNCTION_CALL
    text = item[kind.field]
    at = {"item_id": item["id"], "output_index": index}
    yield (
        "response.output_item.added",
        {"output_index": index, "item": {**item, kind.field: "", "status": "in_progress"}},
    )
    if text:
        yield f"{kind.events}.delta", {**at, "delta": text}
    yield f"{kind.events}.done", {**at, kind.field: text}
    yield "response.output_item.done", {"output_index": index, "item": item}
