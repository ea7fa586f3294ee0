"""What each shape says of tokens equals the run's own totals, whatever the workflow."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.clients.endpoint import Endpoint, Used, plan, used, used_by_message

WORKFLOWS = 200
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


def body(shape: str, given: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    turns = [{"role": "user", "content": "Go on."}]
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
