"""Servers that depart from their protocol: what a model wrote reaches step and plan alike, whole and nothing else.

Each case is what a public report about another tool describes, or what such a server was seen to send.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from conductor_core.chat.messages import Departure, Message
from conductor_core.errors import ConductorError, ConductorStreamCut, WorkerError, WorkerStreamCut
from conductor_core.privacy import masking
from conductor_core.providers import client
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from conductor_core.workflow.parser import parse_completion
from tests.support.asking_both import Who, ask, both, parts
from tests.support.provider import Call, Cut, Hang, Pause, Reply, ScriptedProvider, delta, error, sse

PLAN = '{"steps": [{"agent": 0, "instruction": "{question} one", "access_list": []}]}'


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


WORDS = ("One ", "two ", "three ", "four ", "five ", "six.")


@both
@pytest.mark.parametrize("finish", ["stop", "", "null", "None", None])
async def test_a_finish_reason_in_every_event_ends_nothing(who: Who, finish: Any, provider: ScriptedProvider) -> None:
    spread = [part for event in parts(*WORDS, finish=finish) for part in (sse(event), Pause(0.05))]
    provider.then(Reply([*spread, sse(delta(finish="stop"), "[DONE]")]))
    got = await ask(who, provider)
    assert (got.text, got.finish_reason) == ("".join(WORDS), "stop")


@both
async def test_text_that_still_comes_renews_the_wait(
    who: Who, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TAIL_S", 0.4)
    monkeypatch.setattr(client, "DOUBTED_TAIL_S", 0.4)
    spread = [part for event in parts(*WORDS, finish="stop") for part in (sse(event), Pause(0.2))]
    provider.then(Reply([*spread, sse("[DONE]")]))
    assert (await ask(who, provider)).text == "".join(WORDS)


@both
async def test_an_answer_is_not_whole_where_reading_stopped_in_the_middle(
    who: Who, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DOUBTED_TAIL_S", 0.2)
    provider.then(Reply([sse(*parts("One ", "two ", finish="stop")), Hang()]))
    with pytest.raises((WorkerStreamCut, ConductorStreamCut)):
        await ask(who, provider)


THOUGHTS = [
    {"reasoning_content": "hm"},
    {"reasoning": "hm"},
    {"reasoning": {"text": "hm"}},
    {"reasoning": {"content": [{"text": "hm"}]}},
    {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
    {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    {"thinking": "hm"},
    {"thinking": {"thinking": "hm"}},
    {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    {"content": [{"type": "reasoning", "text": "hm"}]},
]


@both
@pytest.mark.parametrize("thought", THOUGHTS, ids=json.dumps)
async def test_reasoning_in_any_field_is_no_part_of_the_text(
    who: Who, thought: dict[str, Any], provider: ScriptedProvider
) -> None:
    provider.then(Reply([sse({"choices": [{"delta": thought}]}, delta("42"), delta(finish="stop"), "[DONE]")]))
    got = await ask(who, provider)
    assert (got.text, got.reasoning) == ("42", "hm")


@pytest.mark.parametrize(
    "text",
    [
        "<think>hm</think>42",
        "<thinking>hm</thinking>\n42",
        "[THINK]hm[/THINK]42",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>42",
        "hm</think>\n\n42",
        "hm\n[/THINK]\n42",
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_reasoning_in_the_text_is_no_part_of_the_answer(text: str, size: int, provider: ScriptedProvider) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    provider.then(Reply([sse(*parts(*pieces), delta(finish="stop"), "[DONE]")]))
    got = await ask("worker", provider)
    assert (got.text, got.reasoning.strip()) == ("42", "hm")


@pytest.mark.parametrize(
    "before",
    ["I could say {}.\n</think>\n", "<think>{}</think>\n", "[THINK]{}[/THINK]", "<|START_THINKING|>{}<|END_THINKING|>"],
)
async def test_a_plan_is_read_from_behind_the_reasoning(before: str, provider: ScriptedProvider) -> None:
    other = PLAN.replace("one", "other")
    provider.then(Reply([sse(delta(before.format(other) + PLAN), delta(finish="stop"), "[DONE]")]))
    (step,) = parse_completion((await ask("conductor", provider)).text).steps or ()
    assert step.instruction == "{question} one"


@both
async def test_a_field_that_is_not_known_is_kept(who: Who, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("42", annotations=[{"url": "x"}]), delta(finish="stop"), "[DONE]")]))
    got = await ask(who, provider)
    assert got.departures == (Departure(kind="unknown_field", what="annotations", text='[{"url": "x"}]'),)


@both
async def test_a_whole_message_at_the_end_repeats_nothing(who: Who, provider: ScriptedProvider) -> None:
    whole = {"choices": [{"message": {"role": "assistant", "content": "One two"}, "finish_reason": "stop"}]}
    provider.then(Reply([sse(*parts("One ", "two"), whole, "[DONE]")]))
    assert (await ask(who, provider)).text == "One two"
    provider.then(Reply([sse(*parts("One "), whole, "[DONE]")]))
    assert (await ask(who, provider)).text == "One two"


@both
async def test_what_is_no_part_of_an_answer_is_passed_over(who: Who, provider: ScriptedProvider) -> None:
    pings = [b": ping\n\n", b"event: ping\ndata: {}\n\n", sse("ping"), sse({"type": "ping"}), sse("null")]
    provider.then(Reply([b"\xef\xbb\xbf" + sse(delta("4")), *pings, sse(delta("2"), delta(finish="stop"), "[DONE]")]))
    assert (await ask(who, provider)).text == "42"


@both
@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"detail": "CUDA out of memory"}\n\n',
        b'event: error\ndata: {"message": "CUDA out of memory"}\n\n',
        b'event: error\ndata: "CUDA out of memory"\n\n',
        sse({"detail": "CUDA out of memory"}),
        sse({"error": "CUDA out of memory"}),
        sse({"error": {"message": "CUDA out of memory"}}),
        sse({"object": "error", "message": "CUDA out of memory"}),
    ],
)
async def test_an_errors_own_words_are_shown(who: Who, event: bytes, provider: ScriptedProvider) -> None:
    provider.then(Reply([event]))
    with pytest.raises((WorkerError, ConductorError), match="CUDA out of memory"):
        await ask(who, provider)


@pytest.mark.parametrize("token", ["<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<|end|>"])
async def test_an_answer_ends_where_the_model_begins_to_talk_to_itself(token: str, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta(f"It is 42.{token}\n<|im_start|>user\nAnd?"), delta(finish="stop"), "[DONE]")]))
    got = await ask("worker", provider)
    assert got.text == "It is 42."
    (departure,) = got.departures
    assert (departure.kind, departure.what, departure.text) == ("turn_token", token, "\n<|im_start|>user\nAnd?")
    assert "chat template" in departure.in_words


async def test_a_plan_ends_where_the_model_begins_to_talk_to_itself(provider: ScriptedProvider) -> None:
    other = f"\n<|im_start|>user\nAnother task\n<|im_start|>assistant\n{PLAN.replace('one', 'other')}"
    provider.then(Reply([sse(delta(f"{PLAN}<|im_end|>{other}"), delta(finish="stop"), "[DONE]")]))
    got = await ask("conductor", provider)
    assert got.text == PLAN
    assert got.departures == (Departure(kind="turn_token", what="<|im_end|>", text=other),)


@pytest.mark.parametrize("tag", ["<think>{}</think>", "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"])
async def test_what_a_conductor_thinks_in_its_text_is_told_apart_from_its_plan(
    tag: str, provider: ScriptedProvider
) -> None:
    final = "<|channel|>final<|message|>" if "channel" in tag else ""
    provider.then(Reply([sse(*parts(tag.format("hm"), final, PLAN), delta(finish="stop"), "[DONE]")]))
    got = await ask("conductor", provider)
    assert (got.text, got.reasoning.partition("<|")[0]) == (PLAN, "hm")


def picky(*refused: str, named: bool = True) -> Any:
    """A server that refuses parameters, one at a time."""

    def script(call: Call) -> Reply:
        for name in refused:
            if name in call.body and not (name == "temperature" and call.body[name] == 1):
                said = f"Unsupported parameter: '{name}' is not supported with this model." if named else "Bad request"
                return error(400, {"error": {"message": said, "param": name if named else None}})
        return Reply([sse(delta("42"), delta(finish="stop"), "[DONE]")])

    return script


@both
async def test_a_server_that_refuses_parameters_is_asked_without_them_and_the_record_says_so(
    who: Who, provider: ScriptedProvider
) -> None:
    params = {"temperature": 0.2, "max_tokens": 100, "seed": 3}
    provider.always(picky("seed", "max_tokens", "temperature"))
    for calls in (4, 1):
        before = len(provider.completions)
        got = await ask(who, provider, params=params)
        assert got.text == "42"
        assert len(provider.completions) - before == calls, "what a server refuses is remembered"
        told = {(each.kind, each.what, each.text) for each in got.departures}
        assert told == {
            ("left_out", "seed", ""),
            ("renamed", "max_tokens", "max_completion_tokens"),
            ("left_out", "temperature", ""),
        }
    assert provider.completions[-1].body["max_completion_tokens"] > 0


@both
async def test_without_a_system_role_its_text_begins_the_users(who: Who, provider: ScriptedProvider) -> None:
    def script(call: Call) -> Reply:
        if any(turn["role"] == "system" for turn in call.messages):
            return error(400, {"error": {"message": "System role not supported"}})
        return Reply([sse(delta("42"), delta(finish="stop"), "[DONE]")])

    provider.always(script)
    got = await ask(who, provider)
    assert (got.text, [each.kind for each in got.departures]) == ("42", ["system_in_user"])
    first, *others = provider.completions[-1].messages
    assert first["role"] == "user"
    assert "6 x 7" in first["content"]
    system = provider.completions[0].messages[0]["content"]
    assert first["content"].startswith(system)
    assert not others


ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
GOOD = {"prompt_tokens": 100, "completion_tokens": 150, "total_tokens": 250}


@both
@pytest.mark.parametrize("usages", [(GOOD, ZEROS), (ZEROS, GOOD), (GOOD,)])
async def test_good_counts_stand_whatever_else_is_sent(
    who: Who, usages: Sequence[dict[str, int]], provider: ScriptedProvider
) -> None:
    said = [{**delta("a long answer"), "usage": usage} for usage in usages]
    provider.then(Reply([sse(*said, delta(finish="stop"), "[DONE]")]))
    usage = (await ask(who, provider)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (100, 150, False)


@both
async def test_zero_tokens_beside_a_text_are_estimated(who: Who, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse({**delta("a long answer " * 50), "usage": ZEROS}, delta(finish="stop"), "[DONE]")]))
    usage = (await ask(who, provider)).usage
    assert usage is not None
    assert usage.input_tokens > 0
    assert usage.output_tokens > 100
    assert usage.estimated


@both
async def test_a_connection_that_breaks_is_no_end(who: Who, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(*parts("One ", "two ", finish="")), Cut()]))
    with pytest.raises((WorkerStreamCut, ConductorStreamCut)):
        await ask(who, provider)


async def test_of_what_is_not_known_only_so_much_is_kept(provider: ScriptedProvider) -> None:
    odd = [delta("", odd="x" * 100_000), delta("4", odd="y"), delta("2", other="z")]
    provider.then(Reply([sse(*odd, delta(finish="stop"), "[DONE]")]))
    got = await ask("worker", provider)
    assert got.text == "42"
    assert sum(len(each.text) for each in got.departures) <= 65_536


@both
async def test_a_key_is_hidden_in_what_is_kept_beside_the_text(who: Who, provider: ScriptedProvider) -> None:
    key = "sk-Zq81bTtW0pLx7cVn2Rj5Ke9s"
    masking.remember(key)
    odd = {"choices": [{"index": 0, "delta": {"content": "42", key: f"it is {key}"}}]}
    provider.then(Reply([sse(odd, delta(finish="stop"), "[DONE]")]))
    got = await ask(who, provider)
    assert got.text == "42"
    assert [each.kind for each in got.departures] == ["unknown_field"]
    assert key not in str(got.departures)


async def test_white_space_without_an_end_is_an_answer_like_any(provider: ScriptedProvider) -> None:
    blank = " " * 5_000
    provider.then(Reply([sse(*parts(*blank, "<think>42"), delta(finish="stop"), "[DONE]")]))
    assert (await ask("worker", provider)).text == f"{blank}<think>42"


@both
async def test_words_of_a_server_that_breaks_refuse_no_parameter(who: Who, provider: ScriptedProvider) -> None:
    provider.then(error(500, {"error": {"message": "The GPU's temperature is too high, stop"}}))
    with pytest.raises((WorkerError, ConductorError), match="temperature is too high"):
        await ask(who, provider, params={"temperature": 0.2})
    assert len(provider.completions) == 1


async def test_a_document_that_is_nested_too_deeply_is_a_fault_of_the_server(provider: ScriptedProvider) -> None:
    worker = open_worker(provider.spec(provider="anthropic"), Settings())
    for depth in range(300, 1_000, 20):
        deep = "[" * depth + "]" * depth
        block = f'{{"type": "tool_use", "id": "a", "name": "b", "input": [{deep}]}}'
        said = f'{{"type": "message", "role": "assistant", "content": [{block}], "stop_reason": "tool_use"}}'
        provider.then(Reply([said.encode()], content_type="application/json"))
        with suppress(WorkerError):
            assert [chunk async for chunk in worker.answer((Message(role="user", content="Hi"),))]
    await worker.aclose()
