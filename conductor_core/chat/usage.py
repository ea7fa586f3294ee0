"""Tokens and USD: checks figures that servers report, of any type and size, and estimates what nobody has counted."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from conductor_core.chat.messages import Content, ImagePart, Message, Usage, images_in, in_words

MOST_TOKENS = 10**12
MOST_USD = 1e9
"""The most of one call. A higher figure is a mistake, and sums of it would not fit into the database."""


def is_count(value: Any) -> TypeGuard[int]:
    """Whether ``value`` is a number of tokens: no bool, no fraction, not negative and not absurdly large."""
    return type(value) is int and 0 <= value <= MOST_TOKENS


def usd(value: Any) -> float | None:
    """Returns ``value`` as an amount of USD, or None if it is none."""
    return float(value) if type(value) in (int, float) and 0 <= value <= MOST_USD else None


def read_count(value: Any) -> int | None:
    """Returns a number of tokens, also one that is written as text; None if it is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(MOST_TOKENS)):
        value = int(value)
    if type(value) is float and value.is_integer() and abs(value) <= MOST_TOKENS:
        value = int(value)
    return value if is_count(value) else None


class ReportedUsage:
    """Reconciles what a server reports of one call, which may come several times and contradict itself.

    Of each figure the largest is taken: counts grow while an answer is written, and some servers end with zeros.
    """

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def read_chat(self, usage: Mapping[str, Any]) -> None:
        """Reads the ``usage`` of a chat completion, or of servers that call input and output tokens so.

        Source: https://platform.openai.com/docs/api-reference/chat/object and the servers' own departures from it.
        """
        given, made = _details(usage, "prompt", "input"), _details(usage, "completion", "output")
        self._read("input", usage, "prompt_tokens", "input_tokens")
        self._read("output", usage, "completion_tokens", "output_tokens")
        self._read("total", usage, "total_tokens")
        # DeepSeek, Moonshot and Anthropic's names beside OpenAI's.
        self._read("cached", {**given, **usage}, "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
        writes = "cache_write_tokens", "prompt_cache_write_tokens", "cache_creation_input_tokens"
        self._read("written", {**given, **usage}, *writes)
        self._read("reasoning", {**made, **usage}, "reasoning_tokens")
        self._read("orchestration_input", given, "orchestration_input_tokens")
        self._read("orchestration_cached", given, "orchestration_input_cached_tokens")
        self._read("orchestration_output", made, "orchestration_output_tokens")

    def read_message(self, usage: Mapping[str, Any]) -> None:
        """Reads the ``usage`` of an Anthropic message, whose ``input_tokens`` leave out what a cache read or took.

        Source: https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
        """
        self._read("apart", usage, "input_tokens")
        self._read("output", usage, "output_tokens")
        self._read("cached", usage, "cache_read_input_tokens")
        self._read("written", usage, "cache_creation_input_tokens")

    def of(self, text: str, prompt_tokens: int) -> Usage | None:
        """Returns the call's usage; None if nothing of it is known.

        Args:
            text: all that was written. prompt_tokens: an estimate of what was read, where no server says it.
        """
        most = self._most
        if not most.keys() & {"input", "apart", "output", "total"}:
            return None
        cached, written = most.get("cached"), most.get("written")
        if "apart" in most:
            read, wrote = most["apart"] + (cached or 0) + (written or 0), most.get("output", 0)
        else:
            read = self._input(cached, written)
            # A total that comes alone holds the input, too.
            wrote = self._output(read or min(prompt_tokens, most.get("total", 0)))
            if (more := self._on_top()) is not None:
                read, wrote = read + more[0], wrote + more[1]
                cached = cached if not more[2] else (cached or 0) + more[2]
        estimated = False
        if not wrote and text.strip():
            wrote, estimated = estimate_tokens(text), True
        if not read:
            read, estimated = prompt_tokens, True
        return Usage(
            input_tokens=read,
            output_tokens=wrote,
            estimated=estimated,
            cached_input_tokens=cached if cached is None else min(cached, read),
            cache_write_tokens=written if written is None else min(written, read - min(cached or 0, read)),
            reasoning_tokens=None if "reasoning" not in most else min(most["reasoning"], wrote),
            orchestration_input_tokens=most.get("orchestration_input"),
            orchestration_cached_input_tokens=most.get("orchestration_cached"),
            orchestration_output_tokens=most.get("orchestration_output"),
        )

    def _input(self, cached: int | None, written: int | None) -> int:
        """Returns the input of a chat completion, with what a cache holds where a server counts that apart."""
        read, wrote, total = (self._most.get(name, 0) for name in ("input", "output", "total"))
        apart = (cached or 0) + (written or 0)
        beside = total == read + wrote + apart and apart != self._most.get("reasoning")
        return read + apart if apart > read or (apart and beside) else read

    def _output(self, read: int) -> int:
        """Returns the output. What only the total holds, as reasoning at Google and xAI, counts as written."""
        wrote = self._most.get("output", 0)
        if self._on_top() is not None:
            return wrote
        return max(wrote, self._most.get("total", 0) - read)

    def _on_top(self) -> tuple[int, int, int] | None:
        """Returns what a server's own workflow read, wrote and read from a cache, if the other figures lack it."""
        most = self._most
        read, wrote = most.get("orchestration_input", 0), most.get("orchestration_output", 0)
        within = "total" in most and most["total"] <= most.get("input", 0) + most.get("output", 0)
        return None if within or not read + wrote else (read, wrote, most.get("orchestration_cached", 0))

    def _read(self, name: str, found: Mapping[str, Any], *keys: str) -> None:
        counts = [count for key in keys if (count := read_count(found.get(key))) is not None]
        if counts:
            self._most[name] = max(self._most.get(name, 0), *counts)


def _details(usage: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Returns the details of input or of output tokens, under either name."""
    found = (usage.get(f"{name}_tokens_details") for name in names)
    return next((each for each in found if isinstance(each, dict)), {})


def estimate_tokens(text: str) -> int:
    """Estimates the tokens of ``text`` as one per four characters; 0 only for an empty text."""
    return tokens_of(len(text))


def estimate_input_tokens(messages: tuple[Message, ...]) -> int:
    """Estimates the tokens of a prompt, with four per message for its role and separators."""
    return sum(_content_tokens(message.content) + 4 for message in messages)


def _content_tokens(content: Content) -> int:
    if isinstance(content, str):
        return estimate_tokens(content)
    words = tuple(part for part in content if not isinstance(part, ImagePart))
    return estimate_tokens(in_words(words)) + sum(image.tokens for image in images_in(content))


def tokens_of(characters: int) -> int:
    return -(-characters // 4)
