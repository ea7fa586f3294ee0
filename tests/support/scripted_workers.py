"""Workers that do what their prompt says, for tests of many runs at once: a script for ``ScriptedProvider``.

Rules stand in the last user's turn that has any, which is a step's own instruction:

    [[say TEXT]]            the answer; without it the turn itself, or what the tools gave
    [[once TEXT]]           says TEXT instead to the first request with this turn
    [[think TEXT]]          reasoning before the answer
    [[call NAME ARGUMENTS]] a call of a tool if one is offered and this turn has no results yet; several are parallel
    [[usage IN OUT CACHED REASONING]]   tokens of each request; later ones may be left out
    [[cut]]                 the answer ends at a limit of tokens
    [[pieces N]]            events of the answer
    [[pause SECONDS]]       before each event
    [[fail STATUS]]         an error of the server
    [[wait SECONDS]]        before the first event
    [[late SECONDS]]        before the first event of the first request with this turn
    [[hang]]                says nothing until the client leaves
"""

import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.support.provider import Answer, Call, Hang, Part, Pause, Reply, delta, error, sse

RULE = re.compile(r"\[\[(\w+)(?: (.*?))?\]\]", re.DOTALL)
USAGE = (7, 3)
"""Of a request whose prompt says nothing of usage."""


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("type") == "text")


@dataclass(frozen=True)
class Told:
    """What a request's prompt demands. ``results``: of tools, since the turn with the rules."""

    turn: str
    rules: tuple[tuple[str, str], ...]
    results: tuple[str, ...]

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.rules if each == name]

    def one(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)


def told(call: Call) -> Told:
    results: list[str] = []
    last = ""
    for message in reversed(call.messages):
        text = text_of(message)
        if message["role"] == "tool":
            results.insert(0, text)
        elif message["role"] == "user":
            if rules := RULE.findall(text):
                return Told(text, tuple(rules), tuple(results))
            last = last or text
    return Told(last, (), tuple(results))


@dataclass
class Obedient:
    """The script. Safe to use from any thread."""

    _seen: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, call: Call) -> Reply | Answer:
        asked = told(call)
        if (status := asked.one("fail")) is not None:
            return error(int(status))
        if asked.one("hang") is not None:
            return Reply([Hang()])
        first = self._is_first(call, asked)
        events = [sse(delta(role="assistant"))]
        if (thought := asked.one("think")) is not None:
            events.append(sse(delta(reasoning_content=thought)))
        if call.body.get("tools") and asked.all("call") and not asked.results:
            calls = [each.partition(" ") for each in asked.all("call")]
            events += [_call(index, name, arguments) for index, (name, _, arguments) in enumerate(calls)]
            events.append(sse(delta(finish="tool_calls")))
        else:
            said = self._answer(call, asked, first=first)
            events += [sse(delta(piece)) for piece in _pieces(said, int(asked.one("pieces") or 3))]
            events.append(sse(delta(finish="stop" if asked.one("cut") is None else "length")))
        events += [sse(delta() | {"choices": [], "usage": usage_told(asked)}), sse("[DONE]")]
        pause = float(asked.one("pause") or 0)
        parts: list[Part] = [part for event in events for part in ((Pause(pause), event) if pause else (event,))]
        wait = asked.one("wait") or (asked.one("late") if first else None)
        return Reply([Pause(float(wait or 0)), *parts])

    def _is_first(self, call: Call, asked: Told) -> bool:
        key = (call.model, asked.turn)
        with self._lock:
            seen = key in self._seen
            self._seen.add(key)
        return not seen

    def _answer(self, call: Call, asked: Told, *, first: bool) -> str:
        if first and (once := asked.one("once")) is not None:
            return once
        said = asked.one("say")
        if said is not None:
            return said
        if asked.results:
            return " and ".join(asked.results)
        return f"{call.model} heard: {RULE.sub('', asked.turn).strip()}"


def usage_told(asked: Told) -> dict[str, Any]:
    """Returns OpenAI's usage of a request with these rules."""
    numbers = [int(number) for number in (asked.one("usage") or "").split()] or list(USAGE)
    given, made, cached, reasoning = [*numbers, *([0] * (4 - len(numbers)))]
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def _call(index: int, name: str, arguments: str) -> bytes:
    """Two events: the call, and its arguments in two pieces."""
    middle = len(arguments) // 2
    begun = {"index": index, "id": f"w{index}", "type": "function", "function": {"name": name, "arguments": ""}}
    pieces = [{"index": index, "function": {"arguments": piece}} for piece in (arguments[:middle], arguments[middle:])]
    return b"".join(sse(delta(tool_calls=[each])) for each in (begun, *pieces))


def _pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]


def pool_toml(url: str) -> str:
    """Returns a pool of two such workers: ``alpha``, and ``beta``, who sees images."""
    tables = [
        f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = {json.dumps(url)}\n'
        f'description = "Answers what it is told"\nusd_per_mtok = {{ input = 1.0, output = 10.0 }}\n'
        f"accepts = {json.dumps(accepts)}\ntimeout_s = 60\nmax_concurrency = 8\n"
        for name, accepts in (("alpha", ["text"]), ("beta", ["text", "image"]))
    ]
    return "\n".join(tables)
