"""Fifty keys, a provider that echoes each in eight forms wherever it can, and what finds them in anything."""

import base64
import random
import re
import string
from collections.abc import Iterable
from typing import Any

from tests.support.provider import SSE, Answer, Call, Cut, Reply, delta, error, sse

_SOME = random.Random(20260)
_BASE62 = string.ascii_letters + string.digits


def _canary(number: int) -> str:
    def some(alphabet: str, length: int) -> str:
        return "".join(_SOME.choices(alphabet, k=length))

    match number % 5:
        case 0:
            return f"sk-proj-{some(_BASE62, 40)}"
        case 1:
            return some("0123456789abcdef", 32)
        case 2:
            return "-".join(some("0123456789abcdef", length) for length in (8, 4, 4, 4, 12))
        case 3:
            return f"{some(_BASE62 + '+/', 43)}="
        case _:
            return f"gsk_{some(_BASE62, 26)}_{some(string.ascii_lowercase + string.digits, 26)}"


CANARIES = {f"w{number:02}": _canary(number) for number in range(50)}
"""A key for each worker, by its name; each is in the variable ``variable(name)``."""
PLANNERS = _canary(50)
EVERY = (*CANARIES.values(), PLANNERS)


def variable(name: str) -> str:
    return f"CANARY_{name.upper()}_KEY"


def forms(key: str) -> str:
    """The eight forms but one: that a key is split over events is seen to by ``hostile``."""
    raw = key.encode()
    said = {
        "raw": key,
        "base64": base64.b64encode(raw).decode(),
        "hex": raw.hex(),
        "url": "".join(f"%{byte:02X}" for byte in raw),
        "case": key.swapcase(),
        "cut": f"{key[:-5]} and {key[7:]}",
        "zero-width": "\u200b".join(key),
    }
    return "; ".join(f"{name} <{form}>" for name, form in said.items())


def hostile(call: Call) -> Answer | Reply:
    """Echoes the key of a call in a plan or an answer, or, asked to fail, wherever a failure or a header lets it."""
    key = call.headers.get("x-api-key") or call.headers.get("authorization", "").removeprefix("Bearer ")
    said = f"Before. {forms(key)}. After."
    if call.model == "planner":
        subtasks = f'["Ask {key} of {{question}}", "Join \u200b{key}"]'
        plan = f"model_id = [0, 1]\nsubtasks = {subtasks}\naccess_list = [[], [0]]\n"
        return Answer(f"{forms(key)}\n{plan}", reasoning=said, pieces=200)
    if "fail" in str(call.messages):
        return _failure(int(call.model.removeprefix("w")) % 10, key, said)
    return Answer(said, reasoning=said, pieces=100 if int(call.model.removeprefix("w")) % 3 else 7)


def _failure(kind: int, key: str, said: str) -> Reply:
    named = {"id": key, "model": key, "system_fingerprint": key}
    told = [sse(delta(said[at : at + 5]) | named) for at in range(0, len(said), 5)]
    whole: dict[str, Any] = named | {"choices": [{"message": {"content": said}, "finish_reason": key}]}
    replies = [
        error(401, {"error": {"message": f"Incorrect API key provided: {said}", "code": key}}, x_key=key),
        error(400, f"no: {said}", content_type="text/plain"),
        Reply(told, content_type=f"text/{key}"),
        Reply([*told, sse({"error": {"message": said, "type": key, "code": key}})]),
        Reply([*told, sse(delta(key[: len(key) // 2 + 3])), Cut()]),
        Reply([*told, sse(delta(finish=key) | named), sse("[DONE]")], headers={key[:9]: key}),
        error(429, {"detail": [{"loc": [key], "msg": said}]}, retry_after=key),
        Reply(told, headers={"content-encoding": key}),
        Reply([sse(whole)], content_type=SSE),
        error(500, {"message": said, "type": key}),
    ]
    return replies[kind]


_ZERO_WIDTH = re.compile(r"\\u200b|\u200b")


def folded(text: str) -> str:
    return re.sub("[^0-9a-z]", "", _ZERO_WIDTH.sub("", text).lower())


def _pieces(text: str, size: int) -> set[str]:
    return {text[at : at + size] for at in range(len(text) - size + 1)}


def _encodings(key: str) -> Iterable[str]:
    raw = key.encode()
    yield raw.hex()
    yield folded(base64.b64encode(raw).decode())[:-1]


_RAW = {piece: key for key in EVERY for piece in _pieces(folded(key), 12)}
_ENCODED = {piece: key for key in EVERY for form in _encodings(key) for piece in _pieces(form, 16)}


def found(data: str | bytes) -> dict[str, str]:
    """The keys of which a piece can be read in ``data``, each with one such piece."""
    text = folded(data if isinstance(data, str) else data.decode("utf-8", "ignore"))
    keys = {key: text[at : at + 12] for at in range(len(text)) if (key := _RAW.get(text[at : at + 12]))}
    return keys | {key: text[at : at + 16] for at in range(len(text)) if (key := _ENCODED.get(text[at : at + 16]))}
