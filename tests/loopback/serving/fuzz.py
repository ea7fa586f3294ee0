"""Sends a running endpoint thousands of requests that are nearly right, and says which it answered in a wrong way.

    python -m tests.loopback.serving.fuzz --port 8600 --count 20000 --seed 1

Each must be answered below 500, in the shape of its API. Whoever runs it looks at the server's log and memory, too. It
asks the models of ``--models``, which are to answer at once.
"""

import argparse
import asyncio
import copy
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.serving_cases import PNG, PNG_URL, deep

_TOOL = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
_CALL = "call_0193a5b2c3d40123456789abcdef_0"
BODIES: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "text", "text": "it"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": _CALL, "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": _CALL, "content": "4"},
                {"role": "user", "content": "What?"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": _TOOL}}],
            "tool_choice": "auto",
            "stop": ["END"],
            "max_completion_tokens": 50,
            "metadata": {"a": "b"},
            "reasoning_effort": "low",
            "stream_options": {"include_usage": True},
            "conductor": {"exclude": ["nobody"]},
            "temperature": 0.5,
            "n": 1,
        },
        {
            "messages": [{"role": "user", "content": "n?"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _SCHEMA, "strict": True}},
        },
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG_URL}}]}]},
    ],
    "/v1/responses": [
        {
            "instructions": "Be brief.",
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}]},
                {"type": "function_call", "call_id": _CALL, "id": "fc_1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": _CALL, "output": "4"},
                {"role": "user", "content": "What?"},
            ],
            "tools": [
                {"type": "function", "name": "f", "parameters": _TOOL, "strict": True},
                {
                    "type": "custom",
                    "name": "g",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "s: /a/"},
                },
                {"type": "web_search"},
            ],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"format": {"type": "text"}, "verbosity": "low"},
            "metadata": {"a": "b"},
            "store": True,
            "max_output_tokens": 50,
            "include": ["reasoning.encrypted_content"],
        },
        {"input": "n?", "text": {"format": {"type": "json_schema", "name": "x", "schema": _SCHEMA}}},
        {"input": [{"type": "item_reference", "id": "msg_0193a5b2c3d40123456789abcdef_0"}]},
        {"input": "And?", "previous_response_id": "resp_0193a5b2c3d40123456789abcdef_0"},
    ],
    "/v1/messages": [
        {
            "max_tokens": 50,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "One"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": _CALL, "name": "f", "input": {"at": "x"}}],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": _CALL, "content": "4", "is_error": True},
                        {"type": "text", "text": "What?"},
                    ],
                },
            ],
            "tools": [{"name": "f", "description": "d", "input_schema": _TOOL}],
            "tool_choice": {"type": "auto"},
            "stop_sequences": ["END"],
            "metadata": {"user_id": "u"},
            "output_config": {"effort": "low"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
        {
            "max_tokens": 50,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                        {"type": "text", "text": "What?"},
                    ],
                }
            ],
        },
    ],
}
BODIES["/v1/responses/compact"] = BODIES["/v1/responses"]
BODIES["/v1/messages/count_tokens"] = BODIES["/v1/messages"]

_WORDS: list[Any] = [
    None, True, False, 0, 1, -1, 0.5, 1e308, 10**30, 10**400, -(10**400), 2**31, 2**53 + 1, float("nan"),
    float("inf"), "", " ", "x", "\ud800", "a\udfffb", "\x00", "\u2028", "\u202eabc", "\x1b[31m",
    "<script>alert(1)</script>", "../../x", "{question}", "é" * 300, "x" * 70_000, [], {}, [[]], [None], [{}],
    {"": ""}, {"type": "text"}, {"type": None}, "text", "auto", "required", "function", "user", "assistant",
    "system", "message", "item_reference", "compaction", _CALL, {"$ref": "#"}, {"allOf": [{"$ref": "#"}]},
    {"type": "object", "pattern": "("}, "data:image/png;base64,AAAA", "fugu", {"steps": []},
    {"steps": [{"instruction": "a", "agent": "conductor", "access_list": []}]},
]  # fmt: skip


def _places(document: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [place] if place else []
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, value in inner:
        found += _places(value, (*place, name))
    return found


def changed(rng: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the request with one to three of its nodes gone, doubled, or anything else."""
    made = copy.deepcopy(body)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        places = _places(made)
        if not places:
            break
        *outer, last = rng.choice(places)
        holder: Any = made
        for name in outer:
            holder = holder[name]
        how = rng.random()
        if how < 0.2 and isinstance(holder, dict):
            del holder[last]
        elif how < 0.25 and isinstance(holder, list):
            holder.extend(copy.deepcopy(holder) * rng.choice((1, 3)))
        elif how < 0.3:
            holder[last] = deep()
        elif how < 0.35 and isinstance(holder, dict):
            holder[rng.choice(("type", "role", "content", "id", "x", "\ud800"))] = rng.choice(_WORDS)
        else:
            holder[last] = copy.deepcopy(rng.choice(_WORDS))
    return made


def _bytes_of(rng: random.Random, body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")
    how = rng.random()
    if how < 0.03:
        return rng.randbytes(rng.randrange(300))
    if how < 0.06:
        return text[: rng.randrange(len(text))]
    if how < 0.09:  # a key twice
        return text[:-1] + b', "model": ' + json.dumps(rng.choice(_WORDS)).encode() + b"}"
    if how < 0.11:
        at = rng.randrange(len(text))
        return text[:at] + rng.randbytes(3) + text[at:]
    if how < 0.12:
        return b"\xef\xbb\xbf" + text
    if how < 0.125:
        return b"[" * 100_000
    return text


def request(rng: random.Random, models: list[str], ids: list[str]) -> bytes:
    """Returns one request as bytes on the wire, with ``connection: close``."""
    method, path = "POST", rng.choice(list(BODIES))
    body = changed(rng, rng.choice(BODIES[path]))
    body.setdefault("model", rng.choice(models) if rng.random() < 0.97 else rng.choice(_WORDS))
    if rng.random() < 0.4:
        body.setdefault("stream", rng.random() < 0.9)
    if ids and rng.random() < 0.1 and path == "/v1/responses":
        body["previous_response_id"] = rng.choice(ids)
    raw = _bytes_of(rng, body)
    if rng.random() < 0.1:
        method = rng.choice(("GET", "DELETE", "POST", "HEAD", "OPTIONS", "PUT", "PATCH"))
        one = rng.choice(ids) if ids and rng.random() < 0.7 else "resp_0193a5b2c3d40123456789abcdef_0"
        path = rng.choice(
            (f"/v1/responses/{one}", f"/v1/responses/{one}/input_items", f"/v1/responses/{one}/cancel", "/v1/models",
             "/v1/models/fugu", f"/v1/responses/{one}/input_items?limit=0&order=x", "/v1/none", "/v1", "/v1/")
        )  # fmt: skip
    kinds = (
        "application/json",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "\t",
    )
    kind = "application/json" if rng.random() < 0.9 else rng.choice(kinds)
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: {kind}\r\n"
    if rng.random() < 0.1:
        head += rng.choice(
            ("anthropic-version: 2023-06-01\r\n", "content-encoding: gzip\r\n", "expect: 100-continue\r\n")
        )
    if rng.random() < 0.1:
        size = rng.choice((1, 100, 5000)) if len(raw) < 5000 else 50_000
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        chunked = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        whole = f"{head}transfer-encoding: chunked\r\n\r\n".encode() + chunked
    else:
        whole = f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw
    return whole


def fault_of(head: bytes, body: bytes, sent: bytes) -> str | None:
    """Returns what is wrong with an answer; None: nothing is."""
    first, *lines = head.decode("latin-1").split("\r\n")
    status = int(first.split(" ")[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, path = sent[:300].decode("latin-1").split(" ")[:2]
    if status >= 500:
        return f"{status}"
    if "x-request-id" not in headers:
        return f"{status} without an id"
    if method == "HEAD":
        return None
    kind = headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        if b"internal_error" in body or b"api_error" in body or b"server_error" in body:
            return f"a fault in the stream: {body[-300:]!r}"
        ends = (b"data: [DONE]\n\n", b'"type":"message_stop"}\n\n')
        last = b"event: response.completed", b"event: response.incomplete", b"event: response.failed", b"event: error"
        whole = body.endswith(ends) or any(each in body for each in last)
        return None if whole else f"a stream without an end: {body[-300:]!r}"
    if kind != "application/json":
        return f"{status} as {kind!r}"
    document = json.loads(body)
    if status >= 400:
        if path.startswith("/v1/messages"):
            return (
                None if document["type"] == "error" and set(document["error"]) == {"type", "message"} else "its shape"
            )
        return None if set(document["error"]) == {"message", "type", "param", "code"} else "its shape"
    return None


async def _asked(port: int, sent: bytes, cut: int | None) -> tuple[bytes, bytes] | None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
    try:
        writer.write(sent if cut is None else sent[:cut])
        if cut is not None:
            return None
        await writer.drain()
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 100"):
                break
        raw = await reader.read()
    finally:
        writer.close()
    if b"transfer-encoding: chunked" in head.lower():
        body, at = b"", 0
        while size := int(raw[at : (end := raw.index(b"\r\n", at))], 16):
            body, at = body + raw[end + 2 : end + 2 + size], end + 4 + size
        return head[:-4], body
    return head[:-4], raw


async def fuzz(port: int, count: int, seed: int, models: list[str], tell: Callable[[str], None]) -> Counter[str]:
    """Returns how often each status came. ``tell``: is told each fault, with the number of its request."""
    seen: Counter[str] = Counter()
    ids: list[str] = []
    left = iter(range(count))

    async def work() -> None:
        for number in left:
            rng = random.Random(f"{seed} {number}")
            sent = request(rng, models, ids[-50:])
            cut = rng.randrange(len(sent)) if rng.random() < 0.03 else None
            try:
                answer = await asyncio.wait_for(_asked(port, sent, cut), 120)
            except (OSError, EOFError, ValueError, TimeoutError) as error:
                tell(f"{number}: {error!r} to {sent[:400]!r}")
                seen[type(error).__name__] += 1
                continue
            if answer is None:
                seen["cut"] += 1
                continue
            seen[answer[0].split(b" ", 2)[1].decode()] += 1
            if (fault := fault_of(*answer, sent)) is not None:
                tell(f"{number}: {fault} {answer[1][:300]!r} to {sent[:3000]!r}")
                seen["fault"] += 1
            elif answer[1].startswith(b'{"id":"resp_'):
                ids.append(json.loads(answer[1])["id"])

    await asyncio.gather(*(work() for _ in range(12)))
    return seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8600)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["fugu"])
    given = parser.parse_args()
    seen = asyncio.run(fuzz(given.port, given.count, given.seed, given.models, lambda line: print(line, flush=True)))
    print(dict(seen))
    sys.exit(bool(seen["fault"]))


if __name__ == "__main__":
    main()
