"""Whatever style a server reports its tokens in, what is recorded is what the style means.

Each style is written out here from an example of its wire, which is cited; nothing of the reader's tables is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Usage
from conductor_core.providers.anthropic import MessageReader
from conductor_core.providers.openai import ChatReader

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Truth:
    """What a call used: ``cached`` and ``written`` of what was read, ``reasoning`` of what was written."""

    read: int
    cached: int
    written: int
    wrote: int
    reasoning: int


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    cached, written, plain = (draw(st.integers(0, 200_000)) for _ in range(3))
    reasoning, answer = draw(st.integers(0, 50_000)), draw(st.integers(1, 50_000))
    return Truth(cached + written + plain + 1, cached, written, reasoning + answer, reasoning)


def chunk(usage: dict[str, Any] | None = None, text: str | None = None, finish: str | None = None) -> dict[str, Any]:
    choices = (
        [] if text is None and finish is None else [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]
    )
    return {"object": "chat.completion.chunk", "choices": choices, "usage": usage}


def openai(true: Truth) -> Events:
    """https://platform.openai.com/docs/api-reference/chat-streaming/streaming: a last event without choices."""
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "prompt_tokens_details": {"cached_tokens": true.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": true.reasoning, "accepted_prediction_tokens": 0},
    }
    return [chunk(text="an answer"), chunk(finish="stop"), chunk(usage)]


def vllm_continuous(true: Truth) -> Events:
    """https://docs.vllm.ai, ``stream_options.continuous_usage_stats``: counts that grow, in every event."""
    told = [
        {"prompt_tokens": true.read, "completion_tokens": made, "total_tokens": true.read + made}
        for made in (1, true.wrote // 2, true.wrote)
    ]
    return [*(chunk(usage, "an answer ") for usage in told), chunk(told[-1], "", "stop")]


def deepseek(true: Truth) -> Events:
    """https://api-docs.deepseek.com/guides/kv_cache: hits and misses of the cache, both within the prompt."""
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "prompt_cache_hit_tokens": true.cached,
        "prompt_cache_miss_tokens": true.read - true.cached,
        "completion_tokens_details": {"reasoning_tokens": true.reasoning},
    }
    return [chunk(text="an answer"), chunk(usage, "", "stop")]


def google(true: Truth) -> Events:
    """https://ai.google.dev/gemini-api/docs/openai: thoughts are in the total alone."""
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote - true.reasoning,
        "total_tokens": true.read + true.wrote,
    }
    return [chunk(usage, "an answer"), chunk(usage, "", "stop")]


def xai(true: Truth) -> Events:
    """https://docs.x.ai/docs/guides/reasoning: reasoning tokens beside the completion's, and in the total."""
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote - true.reasoning,
        "total_tokens": true.read + true.wrote,
        "prompt_tokens_details": {"cached_tokens": true.cached, "text_tokens": true.read},
        "completion_tokens_details": {"reasoning_tokens": true.reasoning},
    }
    return [chunk(text="an answer"), chunk(usage, None, "stop")]


def openrouter(true: Truth) -> Events:
    """https://openrouter.ai/docs/use-cases/usage-accounting: counts, details and the cost, in the last event."""
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "cost": 0.0123,
        "prompt_tokens_details": {"cached_tokens": true.cached, "cache_write_tokens": true.written},
        "completion_tokens_details": {"reasoning_tokens": true.reasoning},
    }
    return [chunk(text="an answer"), chunk(finish="stop"), chunk(usage)]


def litellm(true: Truth) -> Events:
    """https://docs.litellm.ai/docs/completion/prompt_caching: Anthropic's cache counts beside a prompt with them."""
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "cache_read_input_tokens": true.cached,
        "cache_creation_input_tokens": true.written,
        "prompt_tokens_details": {"cached_tokens": true.cached},
    }
    return [chunk(text="an answer"), chunk(finish="stop"), chunk(usage)]


def apart(true: Truth) -> Events:
    """Proxies of Anthropic's models (reported of several): cached tokens beside the prompt, inside the total."""
    usage = {
        "prompt_tokens": true.read - true.cached,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "prompt_tokens_details": {"cached_tokens": true.cached},
    }
    return [chunk(text="an answer"), chunk(usage, "", "stop")]


def zeros_at_the_end(true: Truth) -> Events:
    """Reported of gateways that close with an empty usage: good counts, then zeros."""
    good = {"prompt_tokens": true.read, "completion_tokens": true.wrote, "total_tokens": true.read + true.wrote}
    return [chunk(good, "an answer"), chunk(dict.fromkeys(good, 0), "", "stop")]


def as_text(true: Truth) -> Events:
    """Reported of a gateway whose numbers are strings."""
    usage = {"prompt_tokens": str(true.read), "completion_tokens": str(true.wrote)}
    return [chunk(text="an answer"), chunk(usage, "", "stop")]


def anthropic(true: Truth) -> Events:
    """https://docs.anthropic.com/en/api/messages-streaming: what a cache read or took is beside ``input_tokens``."""
    begin = {
        "input_tokens": true.read - true.cached - true.written,
        "cache_read_input_tokens": true.cached,
        "cache_creation_input_tokens": true.written,
        "output_tokens": 1,
    }
    return _message(begin, {"output_tokens": true.wrote})


def anthropic_repeated(true: Truth) -> Events:
    """Reported of servers with Anthropic's protocol: the last usage repeats the input without the cache."""
    begin = {
        "input_tokens": true.read - true.cached - true.written,
        "cache_read_input_tokens": true.cached,
        "cache_creation_input_tokens": true.written,
        "output_tokens": 1,
    }
    return _message(begin, {"input_tokens": begin["input_tokens"], "output_tokens": true.wrote})


def _message(begin: dict[str, int], end: dict[str, int]) -> Events:
    text = {"type": "text_delta", "text": "an answer"}
    return [
        {"type": "message_start", "message": {"usage": begin}},
        {"type": "content_block_delta", "delta": text},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end},
        {"type": "message_stop"},
    ]


CACHE, WRITES, REASONING = "cached_input_tokens", "cache_write_tokens", "reasoning_tokens"
STYLES: list[tuple[Callable[[Truth], Events], frozenset[str]]] = [
    (openai, frozenset({CACHE, REASONING})),
    (vllm_continuous, frozenset()),
    (deepseek, frozenset({CACHE, REASONING})),
    (google, frozenset()),
    (xai, frozenset({CACHE, REASONING})),
    (openrouter, frozenset({CACHE, WRITES, REASONING})),
    (litellm, frozenset({CACHE, WRITES})),
    (apart, frozenset({CACHE})),
    (zeros_at_the_end, frozenset()),
    (as_text, frozenset()),
    (anthropic, frozenset({CACHE, WRITES})),
    (anthropic_repeated, frozenset({CACHE, WRITES})),
]


@pytest.mark.parametrize(("style", "told"), STYLES, ids=[style.__name__ for style, _ in STYLES])
@given(true=truths())
@settings(max_examples=25)
def test_what_is_recorded_is_what_the_style_means(
    style: Callable[[Truth], Events], told: frozenset[str], true: Truth
) -> None:
    reader = MessageReader() if style in (anthropic, anthropic_repeated) else ChatReader()
    for event in style(true):
        reader.feed(event)
    parts = {CACHE: true.cached, WRITES: true.written, REASONING: true.reasoning}
    assert reader.finished(7).usage == Usage(
        input_tokens=true.read, output_tokens=true.wrote, **{name: parts[name] for name in told}
    )
