"""Whatever style a server reports its tokens in, what is recorded is what the style means, and costs no less.

Each style is written out here from an example of its wire, which is cited; nothing of the reader's tables is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import LongPrompts, Price, TextDelta, Usage
from conductor_core.providers.anthropic import MessageReader
from conductor_core.providers.openai import ChatReader
from conductor_core.run.costs import basis
from conductor_core.run.trace import Paid

Events = list[dict[str, Any]]
ANSWER = "It is 42, which is 6 times 7."


@dataclass(frozen=True)
class Truth:
    """What a call used: ``cached`` and ``written`` of what was read, ``reasoning`` of what was written."""

    read: int
    cached: int
    written: int
    wrote: int
    reasoning: int

    @property
    def plain(self) -> int:
        return self.read - self.cached - self.written


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    cached, written, plain = (draw(st.integers(0, 200_000)) for _ in range(3))
    reasoning, answer = draw(st.integers(0, 50_000)), draw(st.integers(1, 50_000))
    return Truth(cached + written + plain + 1, cached, written, reasoning + answer, reasoning)


@dataclass(frozen=True)
class Stream:
    """One answer on its way.

    Attributes:
        texts: the answer in pieces, one an event. made: the output tokens so far, beside each.
        repeats: how often a usage is told that may be told more than once.
    """

    true: Truth
    texts: list[str]
    made: list[int]
    repeats: int

    def chunks(self) -> Events:
        return [chunk(text=text) for text in self.texts]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    true = draw(truths())
    cuts = sorted(draw(st.sets(st.integers(1, len(ANSWER) - 1), max_size=6)))
    bounds = [0, *cuts, len(ANSWER)]
    texts = [ANSWER[low:high] for low, high in pairwise(bounds)]
    made = sorted(draw(st.lists(st.integers(1, true.wrote), min_size=len(texts), max_size=len(texts))))
    return Stream(true, texts, made, draw(st.integers(1, 3)))


def chunk(usage: dict[str, Any] | None = None, text: str | None = None, finish: str | None = None) -> dict[str, Any]:
    choices = (
        [] if text is None and finish is None else [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]
    )
    return {"object": "chat.completion.chunk", "choices": choices, "usage": usage}


def openai(stream: Stream) -> Events:
    """https://platform.openai.com/docs/api-reference/chat-streaming/streaming: a last event without choices."""
    true = stream.true
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "prompt_tokens_details": {"cached_tokens": true.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": true.reasoning, "accepted_prediction_tokens": 0},
    }
    return [*stream.chunks(), chunk(finish="stop"), chunk(usage)]


def vllm_continuous(stream: Stream) -> Events:
    """https://github.com/vllm-project/vllm/pull/9357: ``continuous_usage_stats``, counts that grow, in every event."""

    def told(made: int) -> dict[str, int]:
        return {
            "prompt_tokens": stream.true.read,
            "completion_tokens": made,
            "total_tokens": stream.true.read + made,
        }

    last = told(stream.true.wrote)
    grown = [chunk(told(made), text) for made, text in zip(stream.made, stream.texts, strict=True)]
    return [*grown, chunk(last, "", "stop"), *[chunk(last)] * stream.repeats]


def deepseek(stream: Stream) -> Events:
    """https://api-docs.deepseek.com/guides/kv_cache: hits and misses of the cache, both within the prompt."""
    true = stream.true
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "prompt_cache_hit_tokens": true.cached,
        "prompt_cache_miss_tokens": true.read - true.cached,
        "completion_tokens_details": {"reasoning_tokens": true.reasoning},
    }
    return [*stream.chunks(), chunk(usage, "", "stop")]


def google(stream: Stream) -> Events:
    """https://github.com/mozilla-ai/any-llm/issues/1290: 20 of the prompt, 198 of the answer, 623 in the total, which
    holds the thoughts, too. It comes with every event."""
    true = stream.true
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote - true.reasoning,
        "total_tokens": true.read + true.wrote,
    }
    return [*(chunk(usage, text) for text in stream.texts), chunk(usage, "", "stop")]


def xai(stream: Stream) -> Events:
    """https://github.com/vercel/ai/pull/12425, which quotes https://docs.x.ai/docs/key-information: reasoning tokens
    beside the completion's, and in the total. An empty event may follow:
    https://github.com/BerriAI/litellm/issues/17136."""
    true = stream.true
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote - true.reasoning,
        "total_tokens": true.read + true.wrote,
        "prompt_tokens_details": {"cached_tokens": true.cached, "text_tokens": true.read},
        "completion_tokens_details": {"reasoning_tokens": true.reasoning},
    }
    return [*stream.chunks(), chunk(usage, None, "stop"), *[chunk()] * (stream.repeats - 1)]


def openrouter(stream: Stream) -> Events:
    """https://openrouter.ai/docs/use-cases/usage-accounting: counts, details and the cost, in the last event."""
    true = stream.true
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "cost": 0.0123,
        "prompt_tokens_details": {"cached_tokens": true.cached, "cache_write_tokens": true.written},
        "completion_tokens_details": {"reasoning_tokens": true.reasoning},
    }
    return [*stream.chunks(), chunk(finish="stop"), chunk(usage)]


def litellm(stream: Stream) -> Events:
    """https://docs.litellm.ai/docs/completion/prompt_caching: OpenAI's details, and Anthropic's writes beside them."""
    true = stream.true
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "prompt_tokens_details": {"cached_tokens": true.cached},
        "completion_tokens_details": {"reasoning_tokens": true.reasoning},
        "cache_creation_input_tokens": true.written,
    }
    return [*stream.chunks(), chunk(finish="stop"), *[chunk(usage)] * stream.repeats]


def apart(stream: Stream) -> Events:
    """https://github.com/Portkey-AI/gateway/pull/1211, Claude on Bedrock: 368 of the prompt, 19 of the answer, 10,536
    cached and 10,923 in the total."""
    true = stream.true
    usage = {
        "prompt_tokens": true.plain,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "cache_read_input_tokens": true.cached,
        "cache_creation_input_tokens": true.written,
    }
    return [*stream.chunks(), *[chunk(usage, "", "stop")] * stream.repeats]


def zeros_before(stream: Stream) -> Events:
    """https://github.com/router-for-me/CLIProxyAPI/issues/4053: all zero in earlier events, the counts at the end."""
    true = stream.true
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "prompt_tokens_details": {"cached_tokens": true.cached},
    }
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return [*(chunk(zeros, text) for text in stream.texts), chunk(zeros, "", "stop"), chunk(usage)]


def in_the_choice(stream: Stream) -> Events:
    """https://github.com/earendil-works/pi/issues/2017: Moonshot's usage is a part of the last choice."""
    true = stream.true
    usage = {
        "prompt_tokens": true.read,
        "completion_tokens": true.wrote,
        "total_tokens": true.read + true.wrote,
        "cached_tokens": true.cached,
    }
    last = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}
    return [*stream.chunks(), {"object": "chat.completion.chunk", "choices": [last]}]


def anthropic(stream: Stream) -> Events:
    """https://docs.anthropic.com/en/api/messages-streaming: what a cache read or took is beside ``input_tokens``."""
    begin = {
        "input_tokens": stream.true.plain,
        "cache_read_input_tokens": stream.true.cached,
        "cache_creation_input_tokens": stream.true.written,
        "output_tokens": 1,
    }
    return _message(stream, begin, [{"output_tokens": stream.true.wrote}])


def anthropic_repeated(stream: Stream) -> Events:
    """https://github.com/envoyproxy/ai-gateway/issues/2279: every ``message_delta`` has all counts, and is cumulative;
    https://github.com/api7/aisix/pull/712: the first event may have none."""
    true = stream.true
    counts = {
        "input_tokens": true.plain,
        "cache_read_input_tokens": true.cached,
        "cache_creation_input_tokens": true.written,
    }
    begin = None if stream.repeats == 1 else counts | {"output_tokens": 1}
    ends = [counts | {"output_tokens": made} for made in (*stream.made, true.wrote)]
    return _message(stream, begin, ends)


def _message(stream: Stream, begin: dict[str, int] | None, ends: list[dict[str, int]]) -> Events:
    texts = [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}} for text in stream.texts]
    return [
        {"type": "message_start", "message": {"usage": begin}},
        *texts,
        *({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage} for usage in ends),
        {"type": "message_stop"},
    ]


CACHE, WRITES, REASONING = "cached_input_tokens", "cache_write_tokens", "reasoning_tokens"
STYLES: list[tuple[Callable[[Stream], Events], frozenset[str]]] = [
    (openai, frozenset({CACHE, REASONING})),
    (vllm_continuous, frozenset()),
    (deepseek, frozenset({CACHE, REASONING})),
    (google, frozenset()),
    (xai, frozenset({CACHE, REASONING})),
    (openrouter, frozenset({CACHE, WRITES, REASONING})),
    (litellm, frozenset({CACHE, WRITES, REASONING})),
    (apart, frozenset({CACHE, WRITES})),
    (zeros_before, frozenset({CACHE})),
    (in_the_choice, frozenset({CACHE})),
    (anthropic, frozenset({CACHE, WRITES})),
    (anthropic_repeated, frozenset({CACHE, WRITES})),
]
in_any_style = pytest.mark.parametrize(("style", "told"), STYLES, ids=[style.__name__ for style, _ in STYLES])


def read(style: Callable[[Stream], Events], stream: Stream) -> tuple[str, Usage | None]:
    """The text and the usage of a stream."""
    reader = MessageReader() if style in (anthropic, anthropic_repeated) else ChatReader()
    chunks = [piece for event in style(stream) for piece in reader.feed(event)]
    return "".join(piece.text for piece in chunks if isinstance(piece, TextDelta)), reader.finished(7).usage


@in_any_style
@given(stream=streams())
@settings(max_examples=25)
def test_what_is_recorded_is_what_the_style_means(
    style: Callable[[Stream], Events], told: frozenset[str], stream: Stream
) -> None:
    true = stream.true
    parts = {CACHE: true.cached, WRITES: true.written, REASONING: true.reasoning}
    usage = Usage(input_tokens=true.read, output_tokens=true.wrote, **{name: parts[name] for name in told})
    assert read(style, stream) == (ANSWER, usage)


@dataclass(frozen=True)
class PriceList:
    """The true prices, in USD per million tokens; ``known``: those of a cache that the user has written down."""

    input: float
    cached: float
    written: float
    output: float
    known: frozenset[str]

    def cost_usd(self, true: Truth, *, writes: bool) -> float:
        """``writes``: whether the provider has a price for them. It reports them, then."""
        reading = true.plain * self.input + true.cached * self.cached
        reading += true.written * (self.written if writes else self.input)
        return (reading + true.wrote * self.output) / 1e6

    def written_down(self) -> dict[str, Any]:
        prices = {"cached_input": self.cached, "cache_write": self.written}
        return {"input": self.input, "output": self.output, **{name: prices[name] for name in self.known}}


@st.composite
def price_lists(draw: st.DrawFn) -> PriceList:
    """Reading from a cache costs at most as much as reading, writing into one up to twice as much (Anthropic)."""
    plain = draw(st.integers(1, 10_000)) / 100
    share, more = draw(st.integers(0, 100)) / 100, draw(st.integers(100, 200)) / 100
    known = draw(st.sets(st.sampled_from(["cached_input", "cache_write"])))
    return PriceList(plain, plain * share, plain * more, draw(st.integers(0, 10_000)) / 100, frozenset(known))


@in_any_style
@given(stream=streams(), prices=price_lists(), long=st.booleans())
@settings(max_examples=25)
def test_a_cost_is_at_most_so_much_wherever_a_cache_has_no_price(
    style: Callable[[Stream], Events], told: frozenset[str], stream: Stream, prices: PriceList, long: bool
) -> None:
    _, usage = read(style, stream)
    assert usage is not None
    if long:  # the same prices, but for long prompts, as all of these are
        price = Price(input=0, output=0, long=LongPrompts(above=1, **prices.written_down()))
        price = price if stream.true.read > 1 else Price(**prices.written_down())
    else:
        price = Price(**prices.written_down())
    cost = price.cost_usd(usage)
    bound = price.is_bound(usage)
    kind = basis(Paid(usage=usage, cost_usd=cost, known_usd=cost, at_list_price=True, cost_at_most=bound))
    truth = prices.cost_usd(stream.true, writes=WRITES in told)
    unpriced = {
        name
        for name, count in (("cached_input", usage.cached_input_tokens), ("cache_write", usage.cache_write_tokens))
        if count and name not in prices.known
    }
    assert kind == ("at_most" if unpriced else "list_price")
    assert cost >= truth * (1 - 1e-9)
    if not unpriced and (CACHE in told or not stream.true.cached):
        assert cost == pytest.approx(truth)
