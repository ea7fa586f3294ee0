"""What else a Conductor behind a server considered: ``logprobs`` in OpenAI's form, and in forms that tell nothing."""

import json
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, fold
from conductor_core.settings import Settings
from tests.support.fakes import MemorySink, ScriptedWorker, quick_settings
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, delta, error, sse

TOKENS: tuple[str | bytes, ...] = (
    "Zo", b"\xc3", b"\xab", " plans.\n", "model_id", " = [", "0", ",", " ", "1", "]\nsubtasks = [",
    '"Do it: {question}", "Check it."', "]\naccess_list", " = [", "[]", ", ", "[0", "]", "]"
)  # fmt: skip
"""A plan as a tokenizer cuts it: one character is cut in two."""
FIRST, SECOND, ACCESS = 6, 9, 16
OTHERS = {
    FIRST: {" 0": 0.1, "1": 0.2, "2": 0.05, "\u00bd": 0.04},
    SECOND: {"0": 0.25},
    ACCESS: {"[]": 0.3, '"all': 0.1, "]": 0.02},
}
SAID = [
    (0, "agent", {"alpha": 0.6875, "beta": 0.25, "conductor": 0.0625}, 0.2),
    (1, "agent", {"beta": 0.75, "alpha": 0.25}, 0.0),
    (1, "access_list", {"some": 0.5918, "none": 0.3061, "all": 0.102}, 0.02),
]


def raw(token: str | bytes) -> bytes:
    return token.encode() if isinstance(token, str) else token


def entry(token: str | bytes, probability: float) -> dict[str, Any]:
    text = raw(token).decode(errors="backslashreplace")
    return {"token": text, "logprob": math.log(probability), "bytes": list(raw(token))}


def told(number: int, *, rest: float = 0.0) -> dict[str, Any]:
    """The token ``number`` in OpenAI's form."""
    token, others = TOKENS[number], OTHERS.get(number, {})
    picked = entry(token, 1.0 - sum(others.values()) - rest)
    listed = sorted([picked, *(entry(*other) for other in others.items())], key=lambda each: -each["logprob"])
    return {**picked, "top_logprobs": [dict(each) for each in listed]}


def chunks(rows: Sequence[Any], *, before: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
    """A stream in which a chunk has the whole characters that there are, and the tokens that were written for it."""
    if before:
        yield {"choices": [{"index": 0, "delta": {"reasoning": "Hm."}, "logprobs": {"content": list(before)}}]}
    text, waiting = b"", list[Any]()
    for token, row in zip(TOKENS, rows, strict=True):
        text, waiting = text + raw(token), [*waiting, row]
        try:
            said = text.decode()
        except UnicodeDecodeError:
            continue
        chunk = delta(said)
        chunk["choices"][0]["logprobs"] = {"content": waiting, "refusal": None}
        yield chunk
        text, waiting = b"", []
    yield delta(finish="stop")


def rows() -> list[Any]:
    return [told(number, rest=0.16 if number == FIRST else 0.0) for number in range(len(TOKENS))]


class Server(ScriptedProvider):
    def _script(self, call: Call) -> Reply:
        return super()._script(call) if call.is_completion else error(404)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    with Server() as running:
        yield running


async def planned(server: Server, **settings: Any) -> RunTrace:
    """The run of a plan that the server wrote. Recursion is offered, as ordinal 2."""
    writer = open_conductor(f"{server.url}#scripted", Settings(**settings))
    pool = Pool(name="p", workers={name: ScriptedWorker(name) for name in ("alpha", "beta")})
    sink = MemorySink()
    await Engine(sink, quick_settings()).run(RunRequest(task="?", plan_only=True), writer, pool)
    await writer.aclose()
    return fold(sink.events)


def said(trace: RunTrace) -> list[tuple[object, ...]]:
    return [
        (each.step, each.field, {option.value: option.probability for option in each.options}, each.rest)
        for each in trace.root.considered
    ]


async def test_the_choices_of_agents_and_of_access_are_told_with_what_is_not_known(server: Server) -> None:
    server.always(Reply([sse(*chunks(rows()), "[DONE]")]))
    trace = await planned(server)
    assert trace.root.raw.startswith("Zo\u00eb plans.")
    assert said(trace) == SAID
    (call,) = server.completions
    assert (call.body["logprobs"], call.body["top_logprobs"]) == (True, 8)


async def test_tokens_beside_the_text_do_not_shift_it(server: Server) -> None:
    """A reasoning that is sent apart, and the mark at the end, are tokens as well."""
    thought = [{**entry("Hm.", 0.5), "top_logprobs": []}, {**entry("1", 0.5), "top_logprobs": [entry("0", 0.5)]}]
    end = delta()
    end["choices"][0]["logprobs"] = {"content": [{**entry("<|im_end|>", 1.0), "top_logprobs": []}]}
    server.always(Reply([sse(*chunks(rows(), before=thought), end, "[DONE]")]))
    assert said(await planned(server)) == SAID


async def test_one_document_without_a_stream_tells_the_same(server: Server) -> None:
    text = b"".join(map(raw, TOKENS)).decode()
    choice = {"index": 0, "message": {"content": text}, "logprobs": {"content": rows()}, "finish_reason": "stop"}
    server.always(Reply([json.dumps({"choices": [choice]}).encode()], content_type="application/json"))
    assert said(await planned(server)) == SAID


def _changed(number: int, **change: Any) -> list[Any]:
    return [{**row, **change} if at == number else row for at, row in enumerate(rows())]


HOSTILE: dict[str, Any] = {
    "no object": "logprobs",
    "an object without content": {"tokens": ["a"]},
    "content that is no list": {"content": {"token": "0"}},
    "the older form of completions": {"tokens": ["Zo"], "token_logprobs": [-0.1], "top_logprobs": [{"Zo": -0.1}]},
}
HOSTILE_ROWS: dict[str, list[Any]] = {
    "tokens of another text": [{**entry("x", 0.5), "top_logprobs": [entry("y", 0.5)]}] * len(TOKENS),
    "a token that is no text": _changed(3, token=7, bytes=None),
    "a token that is no object": [*rows()[:3], ["0"], *rows()[4:]],
    "a token missing": [*rows()[:4], {"logprob": -1}, *rows()[5:]],
    "a logprob that is text": _changed(FIRST, logprob="-0.1"),
    "a logprob that is true": _changed(FIRST, logprob=True),
    "an alternative that is null": _changed(FIRST, top_logprobs=[None]),
    "ids in the place of tokens": _changed(FIRST, token="token_id:15", bytes=None),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_in_another_form_tells_nothing_and_harms_nothing(server: Server, name: str) -> None:
    sent = list(chunks(rows()))
    for chunk in sent:
        chunk["choices"][0]["logprobs"] = HOSTILE[name]
    server.always(Reply([sse(*sent, "[DONE]")]))
    trace = await planned(server)
    assert (trace.status, len(trace.steps), said(trace)) == ("planned", 2, [])


@pytest.mark.parametrize("name", HOSTILE_ROWS)
async def test_tokens_that_cannot_be_read_or_found_tell_nothing(server: Server, name: str) -> None:
    server.always(Reply([sse(*chunks(HOSTILE_ROWS[name]), "[DONE]")]))
    trace = await planned(server)
    assert (trace.status, len(trace.steps), said(trace)) == ("planned", 2, [])


@pytest.mark.parametrize(
    "change",
    [
        {"top_logprobs": [entry(str(at), 0.9) for at in range(5)]},
        {"logprob": 1e308},
        {"top_logprobs": [{"token": "1", "logprob": None, "bytes": None}]},
        {"top_logprobs": [{"token": "1", "logprob": -1e308, "bytes": [300]}]},
        {"top_logprobs": "none"},
    ],
)
async def test_figures_that_are_no_probabilities_are_left_out_and_the_rest_stays(
    server: Server, change: dict[str, Any]
) -> None:
    server.always(Reply([sse(*chunks(_changed(FIRST, **change)), "[DONE]")]))
    assert said(await planned(server)) == SAID[1:]


async def test_half_characters_in_a_token_break_nothing(server: Server) -> None:
    broken = [json.dumps(each) for each in chunks(rows())]
    broken[4] = broken[4].replace('"token": "0"', '"token": "\\ud800"')
    server.always(Reply([sse(*broken, "[DONE]")]))
    assert said(await planned(server)) == SAID


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Unsupported parameter: 'logprobs' is not supported with this model."),
        (403, "You are not allowed to request logprobs from this model"),
        (422, "extra fields not permitted"),
        (500, "logprobs is not supported with tools"),
    ],
)
async def test_a_server_that_refuses_them_is_asked_once_more_without(server: Server, status: int, words: str) -> None:
    server.then(error(status, {"error": {"message": words}}))
    server.always(Answer(b"".join(map(raw, TOKENS)).decode()))
    trace = await planned(server)
    assert (trace.status, said(trace)) == ("planned", [])
    assert [{"logprobs", "response_format"} <= call.body.keys() for call in server.completions] == [True, False]
    assert "response_format" in server.completions[-1].body, "the form was not refused"
    assert "top_logprobs" not in server.completions[-1].body


async def test_a_key_in_the_plan_leaves_no_place_where_it_would_be(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_API_KEY", "Do it: {question}")
    server.always(Reply([sse(*chunks(rows()), "[DONE]")]))
    assert said(await planned(server)) == []
