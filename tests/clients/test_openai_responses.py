"""OpenAI's SDK asks for responses."""

import json
from collections.abc import Iterable
from typing import Any

import openai
import pytest

from tests.clients.endpoint import ANY_KEY, Endpoint, plan, trace_of, used
from tests.clients.test_openai_chat import DRAFTED, DRAFTED_USED, PACED, City, png

ASKED = "How many legs has a cat?"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture
def client(endpoint: Endpoint) -> Any:
    return openai.OpenAI(base_url=endpoint.url, api_key=ANY_KEY)


def streamed(client: Any, **request: Any) -> tuple[list[Any], dict[str, Any]]:
    """Returns the events of a stream, and its final response."""
    with client.responses.stream(model="fugu", **request) as stream:
        events = list(stream)
        final: dict[str, Any] = stream.get_final_response().to_dict()
    return events, final


def kinds(events: Iterable[Any]) -> list[str]:
    """Returns the types of events; those of one kind that follow each other once."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event.type:
            found.append(event.type)
    return found


def text_in(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def calls_in(response: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in response["output"] if item["type"] == "function_call"]


def test_a_response_says_what_it_cost_and_where_its_trace_is(client: Any, endpoint: Endpoint) -> None:
    raw = client.responses.with_raw_response.create(model="fugu", input=ASKED, extra_body=plan(*DRAFTED))
    response = raw.parse()
    assert (response.output_text, response.status, response.model) == ("The legs are four.", "completed", "fugu")
    answer = response.to_dict()
    assert used(answer) == DRAFTED_USED
    assert "cache_write_tokens" in answer["usage"]["input_tokens_details"]
    trace = trace_of(endpoint, answer)
    assert raw.headers["x-conductor-trace-id"] == trace["run_id"]
    assert raw.headers["x-request-id"]
    assert trace["task"] == ASKED


def test_a_stream_is_the_response_in_pieces(client: Any, endpoint: Endpoint) -> None:
    events, final = streamed(
        client, input=ASKED, reasoning={"effort": "medium", "summary": "auto"}, extra_body=plan(*PACED)
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = kinds(events)
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] == "response.completed"
    assert "response.reasoning_summary_text.delta" in names
    assert text_in(final) == "The legs are four."
    message = final["output"][-1]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1
    assert "".join(event.delta for event in deltas) == "The legs are four."
    assert {event.item_id for event in deltas} == {message["id"]}
    assert used(final) == DRAFTED_USED
    trace_of(endpoint, final)
    reasoning = [item for item in final["output"] if item["type"] == "reasoning"]
    assert all(item["summary"] for item in reasoning)
    stored = client.responses.retrieve(final["id"]).to_dict()
    assert _without_parsed(stored["output"]) == _without_parsed(final["output"])


def _without_parsed(output: list[dict[str, Any]]) -> Any:
    """Leaves out what the SDK adds to a response that it put together."""
    return json.loads(
        json.dumps(output), object_hook=lambda each: {k: v for k, v in each.items() if not k.startswith("parsed")}
    )


def test_a_response_is_kept_until_it_is_deleted(client: Any, endpoint: Endpoint) -> None:
    answer = client.responses.create(
        model="fugu", input=ASKED, metadata={"of": "tests"}, extra_body=plan(*DRAFTED)
    ).to_dict()
    stored = client.responses.retrieve(answer["id"])
    assert stored.to_dict() == answer
    assert stored.metadata == {"of": "tests"}
    (item,) = client.responses.input_items.list(answer["id"]).data
    assert item.to_dict()["content"][0]["text"] == ASKED
    client.responses.delete(answer["id"])
    for call in (client.responses.retrieve, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(answer["id"])
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="fugu", input="And a dog?", previous_response_id=answer["id"])
    assert caught.value.param == "previous_response_id"
    trace_of(endpoint, answer)


def test_what_is_not_to_be_stored_has_a_trace_and_no_response(client: Any, endpoint: Endpoint) -> None:
    answer = client.responses.create(model="fugu", input=ASKED, store=False, extra_body=plan(*DRAFTED)).to_dict()
    assert answer["store"] is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer["id"])
    trace_of(endpoint, answer)


def test_a_conversation_goes_on_from_a_response(client: Any, endpoint: Endpoint) -> None:
    first = client.responses.create(
        model="fugu",
        input="My cat is Tom.",
        instructions="Be brief, says the first.",
        extra_body=plan(("alpha", "{question} [[say Hello Tom.]]")),
    ).to_dict()
    second = client.responses.create(
        model="fugu",
        input="response-goes-on: who is my cat?",
        previous_response_id=first["id"],
        extra_body=plan(("alpha", "{question} [[say Tom]]")),
    ).to_dict()
    assert text_in(second) == "Tom"
    assert second["previous_response_id"] == first["id"]
    (call,) = endpoint.asked("response-goes-on")
    sent = json.dumps(call.messages)
    assert "My cat is Tom." in sent
    assert "Hello Tom." in sent
    # Instructions are of one response alone.
    assert "says the first" not in sent
    assert trace_of(endpoint, first)["run_id"] != trace_of(endpoint, second)["run_id"]


def test_a_running_response_is_cancelled(client: Any, endpoint: Endpoint) -> None:
    stream = client.responses.create(
        model="fugu", input=ASKED, stream=True, extra_body=plan(("alpha", "to-be-cancelled [[hang]]"))
    )
    events = iter(stream)
    created = next(events)
    endpoint.workers.wait_until(lambda _: bool(endpoint.asked("to-be-cancelled")))
    client.responses.cancel(created.response.id)
    for _ in events:
        pass
    stored = client.responses.retrieve(created.response.id)
    assert stored.status == "cancelled"
    assert endpoint.show(stored.to_dict()["conductor"]["trace_id"])["status"] == "cancelled"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["previous", "whole", "unstored"])
def test_calls_wait_for_their_results_and_go_on_in_the_same_run(
    client: Any, endpoint: Endpoint, stream: bool, how: str
) -> None:
    marker = f"called-{stream}-{how}"

    def ask(**request: Any) -> dict[str, Any]:
        if stream:
            return streamed(client, tools=[WEATHER], **request)[1]
        whole: dict[str, Any] = client.responses.create(model="fugu", tools=[WEATHER], **request).to_dict()
        return whole

    kept: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]} if how == "unstored" else {}
    rules = '[[call weather {"city": "Rome"}]] [[call weather {"city": "Oslo"}]] [[usage 50 9]]'
    first = ask(input=ASKED, extra_body=plan(("alpha", f"{marker} {rules}")), **kept)
    calls = calls_in(first)
    assert [json.loads(call["arguments"]) for call in calls] == [{"city": "Rome"}, {"city": "Oslo"}]
    assert len({call["call_id"] for call in calls} | {call["id"] for call in calls}) == 4
    assert first["status"] == "completed"
    given = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": said}
        for call, said in zip(calls, ("sun", "rain"), strict=True)
    ]
    asked: dict[str, Any] = {"previous_response_id": first["id"], "input": given}
    if how != "previous":
        asked = kept | {"input": [{"role": "user", "content": ASKED}, *_without_parsed(first["output"]), *given]}
    with pytest.raises(openai.BadRequestError) as half:
        ask(**asked | {"input": asked["input"][:-1]})
    assert half.value.param == "input"
    second = ask(**asked)
    assert text_in(second) == "sun and rain"
    assert second["id"] != first["id"]
    trace_of(endpoint, first, second)
    assert len(endpoint.asked(marker)) == 2
    if how == "unstored":
        return
    for made in (first, second):
        assert client.responses.retrieve(made["id"]).to_dict()["output"] == _without_parsed(made["output"])
    brought = client.responses.input_items.list(second["id"], order="asc").data
    assert [(item.call_id, item.output) for item in brought if item.type == "function_call_output"] == [
        (call["call_id"], said) for call, said in zip(calls, ("sun", "rain"), strict=True)
    ]


def test_a_conversation_as_codex_holds_it(client: Any, endpoint: Endpoint) -> None:
    patch = {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edits files",
        "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin"'},
    }
    shell = {
        "type": "function",
        "name": "shell",
        "description": "Runs it",
        "strict": False,
        "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}},
    }
    settings: dict[str, Any] = {
        "instructions": "You are a coding agent.",
        "tools": [shell, patch, {"type": "web_search"}],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "a-thread",
    }
    said: list[dict[str, Any]] = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Ask before you delete."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context/>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "as-codex: mend it"}]},
    ]
    rules = '[[call shell {"command": ["ls"]}]] [[call apply_patch {"input": "*** Begin"}]] [[say Mended.]]'
    _, first = streamed(client, input=said, extra_body=plan(("alpha", f"{{question}} {rules}")), **settings)
    (called,), (edited,) = calls_in(first), [item for item in first["output"] if item["type"] == "custom_tool_call"]
    assert json.loads(called["arguments"]) == {"command": ["ls"]}
    said += [
        *_without_parsed(first["output"]),
        {"type": "function_call_output", "call_id": called["call_id"], "output": "a b"},
        {"type": "custom_tool_call_output", "call_id": edited["call_id"], "output": "done"},
    ]
    _, second = streamed(client, input=said, **settings)
    assert text_in(second) == "Mended."
    trace_of(endpoint, first, second)
    asked, _ = endpoint.asked("as-codex")
    assert {tool["function"]["name"] for tool in asked.body["tools"]} == {"shell", "apply_patch"}
    # The next turn of the conversation is a run of its own, which is told what was said.
    said += [*_without_parsed(second["output"]), {"type": "message", "role": "user", "content": "codex-again: thanks"}]
    _, third = streamed(client, input=said, extra_body=plan(("alpha", "{question} [[say Gladly.]]")), **settings)
    assert text_in(third) == "Gladly."
    (again,) = endpoint.asked("codex-again")
    assert "Mended." in json.dumps(again.messages)
    trace_of(endpoint, third)


def test_a_custom_tools_input_is_a_text(client: Any, endpoint: Endpoint) -> None:
    patch = {"type": "custom", "name": "patch", "description": "Takes a patch"}
    rules = 'custom-tool [[call patch {"input": "*** Begin"}]]'
    events, first = streamed(client, input=ASKED, tools=[patch], extra_body=plan(("alpha", rules)))
    (call,) = [item for item in first["output"] if item["type"] == "custom_tool_call"]
    assert (call["name"], call["input"]) == ("patch", "*** Begin")
    assert "response.custom_tool_call_input.done" in kinds(events)
    second = client.responses.create(
        model="fugu",
        tools=[patch],
        previous_response_id=first["id"],
        input=[{"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "applied"}],
    ).to_dict()
    assert text_in(second) == "applied"
    trace_of(endpoint, first, second)


def test_a_schema_is_parsed(client: Any, endpoint: Endpoint) -> None:
    rules = '[[once nothing]] [[say {"name": "Rome", "people": 2800000}]]'
    parsed = client.responses.parse(
        model="fugu", input="schema-of-responses", text_format=City, extra_body=plan(("alpha", f"{{question}} {rules}"))
    )
    assert parsed.output_parsed == City(name="Rome", people=2_800_000)
    answer = parsed.to_dict()
    assert answer["text"]["format"]["type"] == "json_schema"
    assert len(endpoint.asked("schema-of-responses")) == 2
    trace_of(endpoint, answer)


def test_an_image_reaches_the_worker_that_gets_the_task(client: Any, endpoint: Endpoint) -> None:
    content = [{"type": "input_text", "text": "image-of-responses"}, {"type": "input_image", "image_url": png(90)}]
    answer = client.responses.create(
        model="fugu",
        input=[{"role": "user", "content": content}],
        extra_body=plan(("beta", "{question} [[say a square]]")),
    ).to_dict()
    assert text_in(answer) == "a square"
    (call,) = endpoint.asked("image-of-responses")
    assert "data:image/" in json.dumps(call.body)
    trace_of(endpoint, answer)


def test_a_failed_run_ends_the_stream_with_its_error(client: Any, endpoint: Endpoint) -> None:
    given = plan(("alpha", "[[say paid]]"), ("alpha", "[[fail 500]]"))
    events = list(client.responses.create(model="fugu", input=ASKED, stream=True, extra_body=given))
    assert events[-1].type == "response.failed"
    failed = events[-1].response
    assert failed.error.message
    assert failed.error.code
    assert endpoint.show(failed.to_dict()["conductor"]["trace_id"])["status"] == "failed"


@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_answer_is_incomplete(client: Any, endpoint: Endpoint, stream: bool) -> None:
    request = {"model": "fugu", "input": ASKED, "max_output_tokens": 40}
    given = plan(("alpha", "[[say one two]] [[cut]]"))
    if stream:
        events = list(client.responses.create(stream=True, extra_body=given, **request))
        assert events[-1].type == "response.incomplete"
        answer = events[-1].response.to_dict()
    else:
        answer = client.responses.create(extra_body=given, **request).to_dict()
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert text_in(answer) == "one two"
    assert answer["max_output_tokens"] == 40
    trace_of(endpoint, answer)


def test_items_are_referred_to_by_their_ids(client: Any, endpoint: Endpoint) -> None:
    first = client.responses.create(
        model="fugu", input="My cat is Tom.", extra_body=plan(("alpha", "{question} [[say Hello Tom.]]"))
    ).to_dict()
    said = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    asked = [{"role": "user", "content": "My cat is Tom."}, *said, {"role": "user", "content": "refers: who?"}]
    second = client.responses.create(
        model="fugu", input=asked, extra_body=plan(("alpha", "{question} [[say Tom]]"))
    ).to_dict()
    (call,) = endpoint.asked("refers: who?")
    assert "Hello Tom." in json.dumps(call.messages)
    trace_of(endpoint, second)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="fugu", input=[{"type": "item_reference", "id": "msg_unknown"}, *asked])


def test_compacted_input_is_taken_back(client: Any) -> None:
    first = client.responses.create(model="fugu", input="My cat is Tom.", extra_body=plan(("alpha", "[[say Hello]]")))
    compacted = client.responses.compact(model="fugu", previous_response_id=first.id).to_dict()
    assert compacted["object"] == "response.compaction"
    answer = client.responses.create(
        model="fugu",
        input=[*compacted["output"], {"role": "user", "content": "Who is my cat?"}],
        extra_body=plan(("alpha", "{question} [[say Tom]]")),
    )
    assert answer.output_text == "Tom"


def test_background_is_refused_by_name(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="fugu", input=ASKED, background=True)
    assert caught.value.param == "background"
