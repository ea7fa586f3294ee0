"""What each shape says of tokens equals the run's own totals, whatever the workflow."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.clients.endpoint import Endpoint, Used, plan, used, used_by_message

WORKFLOWS = 200
WITH_TOOLS = 30
AT_ONCE = 4
PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}


def drawn(rng: random.Random) -> tuple[list[tuple[str, str, list[int]]], Used]:
    """Returns the steps of a workflow, and what its answer costs."""
    steps: list[tuple[str, str, list[int]]] = []
    spent: list[tuple[int, int, int, int]] = []
    for number in range(rng.randint(1, 4)):
        given, made = rng.randint(1, 5000), rng.randint(1, 900)
        spent.append((given, made, rng.choice((0, rng.randint(0, given))), rng.choice((0, rng.randint(0, made)))))
        rule = " ".join(map(str, spent[-1]))
        reads = rng.sample(range(number), rng.randint(0, number))
        steps.append((rng.choice(("alpha", "beta")), f"Step. [[say {number}]] [[usage {rule}]]", sorted(reads)))
    *others, last = spent
    before = [sum(each[place] for each in others) for place in range(3)]
    return steps, Used(*last, before[0], before[2], before[1])


ASKED = [{"role": "user", "content": "Go on."}]
_LOOK: dict[str, Any] = {"name": "look", "parameters": {"type": "object"}}
TOOLS: dict[str, Any] = {
    "chat": {"type": "function", "function": _LOOK},
    "responses": {"type": "function", **_LOOK},
    "messages": {"name": "look", "input_schema": {"type": "object"}},
}


def body(shape: str, given: dict[str, Any], *, stream: bool, turns: list[dict[str, Any]] = ASKED) -> dict[str, Any]:
    own: dict[str, Any] = {"input": turns} if shape == "responses" else {"messages": turns}
    if shape == "messages":
        own["max_tokens"] = 1000
    if shape == "chat" and stream:
        own["stream_options"] = {"include_usage": True}
    return {"model": "fugu", "stream": stream} | own | given


def answer_in(shape: str, response: httpx.Response, *, stream: bool) -> dict[str, Any]:
    """Returns the document that holds the usage, with what is ours in a stream's last data."""
    assert response.status_code == 200, response.text
    if not stream:
        whole: dict[str, Any] = response.json()
        return whole
    data = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    if shape == "chat":
        assert data.pop() == "[DONE]"
    events: list[dict[str, Any]] = list(map(json.loads, data))
    if shape == "chat":
        return events[-1]
    if shape == "responses":
        assert events[-1]["type"] == "response.completed"
        final: dict[str, Any] = events[-1]["response"]
        return final
    (told,) = (event for event in events if event["type"] == "message_delta")
    assert events[-1]["type"] == "message_stop"
    return {"usage": told["usage"], "conductor": events[-1]["conductor"]}


def results_in(shape: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the turns that answer a whole answer's calls; none if it has no calls."""
    if shape == "chat":
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        brought = [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in calls]
        return [message, *brought] * bool(calls)
    if shape == "responses":
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        brought = [{"type": "function_call_output", "call_id": call["call_id"], "output": "seen"} for call in calls]
        return [*answer["output"], *brought] * bool(calls)
    calls = [block for block in answer["content"] if block["type"] == "tool_use"]
    brought = [{"type": "tool_result", "tool_use_id": call["id"], "content": "seen"} for call in calls]
    said = {"role": "assistant", "content": answer["content"]}
    return [said, {"role": "user", "content": brought}] * bool(calls)


@pytest.mark.timeout(600)  # on a busy machine
def test_usage_equals_the_trace_in_every_shape(endpoint: Endpoint) -> None:
    rng = random.Random(20)
    workflows = [drawn(rng) for _ in range(WORKFLOWS)]
    cases = [(each, shape, stream) for each in workflows for shape in PATHS for stream in (False, True)]

    def ask(case: tuple[tuple[list[tuple[str, str, list[int]]], Used], str, bool]) -> tuple[str, Used]:
        (steps, expected), shape, stream = case
        sent = http.post(f"{endpoint.url}/{PATHS[shape]}", json=body(shape, plan(*steps), stream=stream))
        answer = answer_in(shape, sent, stream=stream)
        told = used_by_message(answer) if shape == "messages" else used(answer)
        seen = Used(expected.input, expected.output, expected.cached) if shape == "messages" else expected
        assert told == seen, f"{shape}, stream {stream}: {steps}"
        ours = answer["conductor"]
        total = ours["usage"]
        assert total["total_tokens"] == expected.total
        assert total["input_tokens"] == sum(row["input_tokens"] for row in ours["steps"])
        assert total["output_tokens"] == sum(row["output_tokens"] for row in ours["steps"])
        return ours["trace_id"], expected

    with httpx.Client(timeout=60) as http, ThreadPoolExecutor(AT_ONCE) as threads:
        found = list(threads.map(ask, cases))
    recorded = {run["run_id"]: run["usage"] for run in endpoint.runs()}
    assert len({run_id for run_id, _ in found}) == len(cases)
    for run_id, expected in found:
        usage = recorded[run_id]
        assert usage["input_tokens"] == expected.input + expected.orchestration_input
        assert usage["output_tokens"] == expected.output + expected.orchestration_output
    # The list of runs has no parts of these.
    for run_id, expected in found[::100]:
        usage = endpoint.show(run_id)["usage"]
        assert usage["cached_input_tokens"] == expected.cached + expected.orchestration_cached


@pytest.mark.timeout(600)  # on a busy machine
def test_the_usage_of_all_responses_of_a_run_adds_up_to_its_trace(endpoint: Endpoint) -> None:
    """Steps call tools, some several times over; each round of results is a request and a response of its own."""
    rng = random.Random(21)
    workflows = []
    for _ in range(WITH_TOOLS):
        steps, _ = drawn(rng)
        called = [" ".join(["[[call look {}]]"] * rng.choice((0, 1, 2))) for _ in steps]
        workflows.append(
            [(agent, f"{said} {call}", reads) for (agent, said, reads), call in zip(steps, called, strict=True)]
        )
    cases = [(each, shape) for each in workflows for shape in PATHS]

    def ask(case: tuple[list[tuple[str, str, list[int]]], str]) -> tuple[str, int, int]:
        steps, shape = case
        turns, given, spent, ids = ASKED, plan(*steps), [0, 0], set()
        while True:
            asked = body(shape, given, stream=False, turns=turns) | {"tools": [TOOLS[shape]]}
            answer = answer_in(shape, http.post(f"{endpoint.url}/{PATHS[shape]}", json=asked), stream=False)
            total = answer["conductor"]["usage"]
            spent = [spent[0] + total["input_tokens"], spent[1] + total["output_tokens"]]
            ids.add(answer["conductor"]["trace_id"])
            if shape != "messages":
                assert used(answer).total == total["total_tokens"]
            if not (more := results_in(shape, answer)):
                break
            turns, given = [*turns, *more], {}
        (run_id,) = ids
        return run_id, spent[0], spent[1]

    with httpx.Client(timeout=60) as http, ThreadPoolExecutor(AT_ONCE) as threads:
        found = list(threads.map(ask, cases))
    recorded = {run["run_id"]: run["usage"] for run in endpoint.runs()}
    for run_id, read, written in found:
        assert (recorded[run_id]["input_tokens"], recorded[run_id]["output_tokens"]) == (read, written)
