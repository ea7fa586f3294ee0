"""JSON of any shape, with the names and words of real answers among it, and a client that is answered with it."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import httpx2
from hypothesis import strategies as st

HUGE = int("9" * 400)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(HUGE) | st.just(-HUGE) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def either(*likely: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(likely) | ANY


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A table with some of ``fields``, or anything else."""
    return st.fixed_dictionaries({}, optional=fields) | ANY


_FIGURE = either(0, 7, HUGE, 2**63, -1, 1e308, True, "7")
_USAGE = some(
    prompt_tokens=_FIGURE, completion_tokens=_FIGURE, total_tokens=_FIGURE, input_tokens=_FIGURE, output_tokens=_FIGURE,
    cache_read_input_tokens=_FIGURE, cost=_FIGURE,
)  # fmt: skip
_ERROR = some(
    message=either("no", {"message": "no"}, ["no"]), code=either(429, "429", "rate_limit_exceeded", "٤٢٩"),
    type=either("overloaded_error"), metadata=some(flagged_input=ANY), status=ANY, detail=ANY,
)  # fmt: skip
_TEXT = either("a", "\ud83d", "\ude00", [{"text": "a"}], [1])
_CHOICE = some(
    index=either(0, 1, None), finish_reason=either("stop", "error", None, ["stop"]),
    delta=some(content=_TEXT, reasoning=_TEXT, reasoning_content=_TEXT), message=some(content=_TEXT),
)  # fmt: skip
CHAT_EVENTS = some(choices=st.lists(_CHOICE, max_size=2) | ANY, usage=_USAGE, model=ANY, error=_ERROR, object=ANY)
_BLOCK = some(text=_TEXT, thinking=_TEXT, stop_reason=either("end_turn"))
_KINDS = ("message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "message")
MESSAGE_EVENTS = some(
    type=either(*_KINDS, "error"),
    message=some(model=ANY, usage=_USAGE), content_block=_BLOCK, delta=_BLOCK, usage=_USAGE, model=ANY, error=_ERROR,
    content=st.lists(_BLOCK, max_size=2) | either(1, True, {"a": 1}), stop_reason=either("end_turn", "max_tokens"),
)  # fmt: skip
FAILURES = some(error=_ERROR, message=ANY, detail=ANY)
MODEL_LISTS = some(data=st.lists(some(id=either("m"), owned_by=either("vllm", ["vllm"])), max_size=2) | ANY)
VERSIONS = some(version=either("0.11.0", "1" * 5000 + ".0", 1.0), default_generation_settings=ANY)

Answering = Callable[[httpx2.Request], httpx2.Response]


def answered(answer: Answering) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def response(body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> httpx2.Response:
    """Underscores in the names of headers become hyphens."""
    told = {"content-type": kind} | {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=told, stream=httpx2.ByteStream(body))


def events(documents: Iterable[Any]) -> httpx2.Response:
    body = "".join(f"data: {json.dumps(document)}\n\n" for document in documents)
    return response(body.encode(), kind="text/event-stream")


def document(found: Any, status: int = 200, **headers: str) -> httpx2.Response:
    return response(json.dumps(found).encode(), status, **headers)
