"""The readers of OpenAI's and Anthropic's events: whatever a server sends, they read it or say why not."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conductor_core.chat.messages import ReasoningDelta, TextDelta, ToolCall, Usage, WorkerSpec
from conductor_core.privacy.masking import Mask
from conductor_core.providers import client
from conductor_core.providers.anthropic import AnthropicDialect, MessageReader
from conductor_core.providers.client import MaskedChunks, Reader
from conductor_core.providers.openai import ChatReader, OpenAIDialect
from conductor_core.text import Pieces
from tests.support.provider import delta

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def some(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(keys), _json)


_chat_events = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.sampled_from([0, 1, None]) | _json,
                    "delta": some("content", "reasoning", "reasoning_content") | _json,
                    "message": some("content") | _json,
                    "finish_reason": st.sampled_from(["stop", "length", "", None]) | _json,
                },
            )
            | _json
        )
        | _json,
        "usage": some("prompt_tokens", "completion_tokens", "cost") | _json,
        "model": _json,
    },
)
_kinds = ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "message"]
_message_events = st.fixed_dictionaries(
    {"type": st.sampled_from(_kinds) | _json},
    optional={
        "message": some("model", "usage") | _json,
        "content_block": some("text", "thinking") | _json,
        "delta": some("text", "thinking", "stop_reason") | _json,
        "content": st.lists(some("text") | _json) | _json,
        "usage": some("input_tokens", "output_tokens", "cache_read_input_tokens") | _json,
        "stop_reason": _json,
    },
)


def read_all(reader: Reader, events: list[dict[str, Any]]) -> None:
    for event in events:
        try:
            chunks = reader.feed(event)
        except ValueError:
            continue
        for chunk in chunks:
            assert chunk.text
            chunk.text.encode()
    finished = reader.finished()
    finished.model_dump_json()


@given(st.lists(_chat_events, max_size=5))
def test_any_chat_events_are_read_or_refused(events: list[dict[str, Any]]) -> None:
    read_all(ChatReader(), events)


@given(st.lists(_message_events, max_size=5))
@example([{"type": "message", "message": {}, "content": 1}])
@example([{"type": "message", "content": True}])
def test_any_message_events_are_read_or_refused(events: list[dict[str, Any]]) -> None:
    read_all(MessageReader(), events)


@given(st.text(), st.data())
def test_text_split_anywhere_even_inside_a_character_is_whole_again(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(units) // 2), max_size=4)))
    bounds = [0, *cuts, len(units) // 2]
    pieces = Pieces()
    parts = [units[2 * low : 2 * high].decode("utf-16-le", "surrogatepass") for low, high in pairwise(bounds)]
    assert "".join(pieces.feed(part) for part in parts) == text


def test_half_a_character_becomes_a_replacement_mark() -> None:
    pieces = Pieces()
    assert [pieces.feed("a\udc00"), pieces.feed("\ud83d"), pieces.feed("b")] == ["a\ufffd", "", "\ufffdb"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_under_either_name(field: str) -> None:
    assert ChatReader().feed({"choices": [{"delta": {field: "hm"}}]}) == [ReasoningDelta(text="hm")]


def test_content_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    event = {"choices": [{"delta": {"content": parts}}]}
    assert ChatReader().feed(event) == [TextDelta(text="a"), TextDelta(text="b")]


def test_usage_in_every_event_counts_once_and_the_last_stands() -> None:
    reader = ChatReader()
    for made in (1, 2, 3):
        reader.feed(delta("x") | {"usage": {"prompt_tokens": 5, "completion_tokens": made}})
    reader.feed(delta(finish="stop"))
    assert reader.finished().usage == Usage(input_tokens=5, output_tokens=3)


@pytest.mark.parametrize(("made", "total", "counted"), [(3, 105, 96), (96, 105, 96), (3, None, 3), (3, 5, 3)])
def test_thinking_that_is_in_the_total_alone_was_written_too(made: int, total: int | None, counted: int) -> None:
    reader = ChatReader()
    reader.feed(delta("x") | {"usage": {"prompt_tokens": 9, "completion_tokens": made, "total_tokens": total}})
    assert reader.finished().usage == Usage(input_tokens=9, output_tokens=counted)


@pytest.mark.parametrize("count", [-1, True, 2**60, int("9" * 400), "many", 1.5, None, [5]])
def test_what_is_no_count_is_not_counted(count: object) -> None:
    reader = ChatReader()
    for cost in (float("nan"), float("inf"), -1, True, "0.1", int("9" * 400), 1e300):
        usage = {"prompt_tokens": count, "completion_tokens": count, "cost": cost}
        reader.feed({"choices": [], "usage": usage})
    assert (reader.finished().usage, reader.finished().cost_usd) == (None, None)
    reader.feed(delta("four") | {"usage": {"prompt_tokens": count, "completion_tokens": 2}})
    assert reader.finished(9).usage == Usage(input_tokens=9, output_tokens=2, estimated=True)


def test_calls_of_tools_that_come_in_pieces_are_told_apart() -> None:
    chat, messages = ChatReader(), MessageReader()
    for index, function in (
        (0, {"name": "look", "arguments": '{"at"'}),
        (1, {"name": "zoom"}),
        (0, {"arguments": ": 1}"}),
    ):
        chat.feed(delta(tool_calls=[{"index": index, "function": function}]))
    for name, pieces in (("look", ['{"at"', ": 1}"]), ("zoom", [])):
        messages.feed({"type": "content_block_start", "content_block": {"type": "tool_use", "name": name}})
        for piece in pieces:
            said = {"type": "input_json_delta", "partial_json": piece}
            messages.feed({"type": "content_block_delta", "delta": said})
    two = (ToolCall(name="look", arguments='{"at": 1}'), ToolCall(name="zoom", arguments=""))
    assert (chat.finished().tool_calls, messages.finished().tool_calls) == (two, two)


def test_where_the_two_dialects_are_spoken() -> None:
    spec = WorkerSpec(name="a", provider="openai", model="a/b")
    chat, messages = OpenAIDialect(), AnthropicDialect()
    for base_url, root in (
        ("http://h/v1/", "http://h/v1"),
        ("http://h/x", "http://h/x"),
        (None, "https://api.openai.com/v1"),
    ):
        at = spec.model_copy(update={"base_url": base_url})
        assert (chat.url(at), chat.models_url(at)) == (f"{root}/chat/completions", f"{root}/models")
    for base_url, root in (
        ("http://h", "http://h/v1"),
        ("http://h/v1/", "http://h/v1"),
        (None, "https://api.anthropic.com/v1"),
    ):
        at = spec.model_copy(update={"base_url": base_url})
        assert (messages.url(at), messages.models_url(at)) == (f"{root}/messages", f"{root}/models/a%2Fb")


def test_what_the_program_sets_wins_over_params() -> None:
    params = {"stream": False, "model": "other", "temperature": 0}
    spec = WorkerSpec(name="alpha", provider="openai", model="alpha", params=params)
    body = OpenAIDialect().body(spec, ())
    assert (body["stream"], body["model"], body["temperature"]) == (True, "alpha", 0)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"type": "message_start"}, "message_start without a message"),
        ({"type": "content_block_start", "content_block": "text"}, "a block without content"),
        ({"type": "content_block_delta", "delta": ["text"]}, "a block without a delta"),
        ({"type": "message_delta", "delta": 1}, "message_delta without a delta"),
    ],
)
def test_an_event_of_anthropics_that_lacks_its_part_says_which(event: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MessageReader().feed(event)


def test_a_long_chunk_comes_out_once_and_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server that does not stream sends one: it is looked through in parts."""
    monkeypatch.setattr(client, "MOST_AT_ONCE", 10)
    chunks = MaskedChunks(Mask())
    text = "".join(map(str, range(100)))
    parts = [*chunks.feed(TextDelta(text=text)), *chunks.end()]
    assert "".join(part.text for part in parts if part is not None) == text
    assert parts.count(None) == 19
