"""OpenAI's SDK asks for chat completions."""

import base64
import json
import struct
import zlib
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.clients.endpoint import ANY_KEY, Endpoint, Used, plan, trace_of, used

DRAFTED = (
    ("alpha", "Draft it. [[say a draft]] [[usage 34 76 10]]"),
    ("beta", "Answer. [[say The legs are four.]] [[usage 150 60 20 15]] [[think hm]]"),
)
# Its pieces come apart, or they are told in one.
PACED = (DRAFTED[0], ("beta", f"{DRAFTED[1][1]} [[pause 0.15]]"))
DRAFTED_USED = Used(150, 60, 20, 15, orchestration_input=34, orchestration_cached=10, orchestration_output=76)
ASKED = [{"role": "user", "content": "How many legs has a cat?"}]


def tool(name: str, *fields: str) -> dict[str, Any]:
    properties = {each: {"type": "string"} for each in fields}
    parameters = {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": False}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Tells the {name}", "parameters": parameters, "strict": True},
    }


TOOLS = [tool("weather", "city"), tool("time", "zone")]


class City(BaseModel):
    name: str
    people: int


@pytest.fixture
def client(endpoint: Endpoint) -> Any:
    return openai.OpenAI(base_url=endpoint.url, api_key=ANY_KEY)


def told_in(chunks: list[Any]) -> dict[str, Any]:
    """Returns a stream's last data; all chunks have one id."""
    assert len({chunk.id for chunk in chunks}) == 1
    last: dict[str, Any] = chunks[-1].to_dict()
    return last


def test_a_whole_answer_says_what_it_cost_and_where_its_trace_is(client: Any, endpoint: Endpoint) -> None:
    raw = client.chat.completions.with_raw_response.create(model="fugu", messages=ASKED, extra_body=plan(*DRAFTED))
    whole = raw.parse()
    (choice,) = whole.choices
    assert (choice.message.content, choice.finish_reason, whole.model) == ("The legs are four.", "stop", "fugu")
    assert (choice.message.role, choice.message.refusal, choice.message.tool_calls) == ("assistant", None, None)
    answer = whole.to_dict()
    assert used(answer) == DRAFTED_USED
    trace = trace_of(endpoint, answer)
    assert [step["output"] for step in trace["steps"]] == ["a draft", "The legs are four."]
    assert raw.headers["x-request-id"]
    assert raw.headers["x-conductor-trace-id"] == trace["run_id"]
    assert raw.headers["x-conductor-trace-url"] == answer["conductor"]["trace_url"]
    assert trace["task"] == ASKED[0]["content"]


def test_without_a_given_plan_the_conductor_plans_and_its_tokens_are_orchestration(
    client: Any, endpoint: Endpoint
) -> None:
    answer = client.chat.completions.create(
        model="fugu", messages=[{"role": "user", "content": "What is 6 times 7? [[say 42]] [[usage 20 2]]"}]
    ).to_dict()
    trace = trace_of(endpoint, answer)
    assert answer["choices"][0]["message"]["content"] == "42"
    planned, spent = trace["conductor"]["usage"], used(answer)
    assert (spent.input, spent.output) == (20, 2)
    before = len(trace["steps"]) - 1
    assert spent.orchestration_input == planned["input_tokens"] + 20 * before
    assert spent.orchestration_output == planned["output_tokens"] + 2 * before


def test_a_stream_brings_the_same_answer_in_pieces(client: Any, endpoint: Endpoint) -> None:
    chunks = list(client.chat.completions.create(model="fugu", messages=ASKED, stream=True, extra_body=plan(*PACED)))
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert len(pieces) > 1
    assert "".join(pieces) == "The legs are four."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    last = told_in(chunks)
    assert not last.get("usage")
    assert trace_of(endpoint, last)["answer"] == "The legs are four."


def test_a_streams_usage_comes_in_a_chunk_of_its_own_if_it_is_asked_for(client: Any, endpoint: Endpoint) -> None:
    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model="fugu", messages=ASKED, stream=True, stream_options=options, extra_body=plan(*DRAFTED)
        )
    )
    last = told_in(chunks)
    assert last["choices"] == []
    assert used(last) == DRAFTED_USED
    assert not any(chunk.usage for chunk in chunks[:-1])
    trace_of(endpoint, last)


def test_the_stream_helper_puts_the_answer_together(client: Any, endpoint: Endpoint) -> None:
    with client.chat.completions.stream(
        model="fugu", messages=ASKED, stream_options={"include_usage": True}, extra_body=plan(*DRAFTED)
    ) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "The legs are four."
    assert used(final.to_dict()) == DRAFTED_USED
    trace_of(endpoint, told_in(chunks))


def parallel(marker: str) -> dict[str, Any]:
    rules = '[[call weather {"city": "Rome"}]] [[call time {"zone": "CET"}]] [[usage 50 9]]'
    return plan(("alpha", f"{marker} {rules}"))


def results(message: dict[str, Any], *texts: str) -> list[dict[str, Any]]:
    """Returns the turn with the calls, and results of the first of them."""
    answered = zip(message["tool_calls"], texts, strict=False)
    return [message, *({"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in answered)]


@pytest.mark.parametrize("stream", [False, True])
def test_parallel_calls_wait_for_their_results_and_go_on_in_the_same_run(
    client: Any, endpoint: Endpoint, stream: bool
) -> None:
    marker = f"parallel-{stream}"

    def ask(messages: list[Any], **more: Any) -> dict[str, Any]:
        if not stream:
            whole: dict[str, Any] = client.chat.completions.create(
                model="fugu", messages=messages, tools=TOOLS, **more
            ).to_dict()
            return whole
        options = {"include_usage": True}
        with client.chat.completions.stream(
            model="fugu", messages=messages, tools=TOOLS, stream_options=options, **more
        ) as events:
            chunks = [event.chunk for event in events if event.type == "chunk"]
            final: dict[str, Any] = events.get_final_completion().to_dict()
        return final | {"conductor": told_in(chunks)["conductor"]}

    first = ask(ASKED, extra_body=parallel(marker))
    message = first["choices"][0]["message"]
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert message.get("content") is None
    called = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message["tool_calls"]]
    assert called == [("weather", {"city": "Rome"}), ("time", {"zone": "CET"})]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    said = {"role": "assistant", "content": None, "tool_calls": [_sent(call) for call in message["tool_calls"]]}
    second = ask([*ASKED, *results(said, "sunny", "noon")])
    assert second["choices"][0]["message"]["content"] == "sunny and noon"
    assert second["choices"][0]["finish_reason"] == "stop"
    assert first["id"] != second["id"]
    trace = trace_of(endpoint, first, second)
    assert len(trace["steps"]) == 1
    assert len(endpoint.asked(marker)) == 2


def _sent(call: dict[str, Any]) -> dict[str, Any]:
    """Returns a call as a client sends it back."""
    function = {name: call["function"][name] for name in ("name", "arguments")}
    return {"id": call["id"], "type": "function", "function": function}


def test_calls_of_two_steps_that_wait_come_in_one_answer_and_each_step_gets_its_own_result(
    client: Any, endpoint: Endpoint
) -> None:
    given = plan(
        ("alpha", 'two-1 [[call weather {"city": "Rome"}]]', []),
        ("beta", 'two-2 [[call weather {"city": "Oslo"}]]', []),
        ("alpha", "two-3 [[say both]]", [0, 1]),
    )
    first = client.chat.completions.create(model="fugu", messages=ASKED, tools=TOOLS[:1], extra_body=given).to_dict()
    message = first["choices"][0]["message"]
    cities = [json.loads(call["function"]["arguments"])["city"] for call in message["tool_calls"]]
    assert sorted(cities) == ["Oslo", "Rome"]
    second = client.chat.completions.create(
        model="fugu", messages=[*ASKED, *results(message, *(f"sun in {city}" for city in cities))], tools=TOOLS[:1]
    ).to_dict()
    assert second["choices"][0]["message"]["content"] == "both"
    trace = trace_of(endpoint, first, second)
    assert [step["output"] for step in trace["steps"]] == ["sun in Rome", "sun in Oslo", "both"]


def test_results_are_taken_whole_and_once(client: Any, endpoint: Endpoint) -> None:
    first = client.chat.completions.create(model="fugu", messages=ASKED, tools=TOOLS, extra_body=parallel("once-only"))
    message = first.to_dict()["choices"][0]["message"]
    with pytest.raises(openai.BadRequestError) as half:
        client.chat.completions.create(model="fugu", messages=[*ASKED, *results(message, "sunny")], tools=TOOLS)
    assert half.value.param == "messages"
    asked = [*ASKED, *results(message, "sunny", "noon")]
    second = client.chat.completions.create(model="fugu", messages=asked, tools=TOOLS).to_dict()
    again = client.chat.completions.create(model="fugu", messages=asked, tools=TOOLS).to_dict()
    assert again == second
    assert len(endpoint.asked("once-only")) == 2
    trace_of(endpoint, first.to_dict(), second)
    # Other results: another run, which says that it came of the first.
    other = client.chat.completions.create(
        model="fugu", messages=[*ASKED, *results(message, "rain", "night")], tools=TOOLS
    ).to_dict()
    assert other["conductor"]["trace_id"] != second["conductor"]["trace_id"]
    parent = endpoint.show(other["conductor"]["trace_id"])["parent_run_id"]
    assert parent == second["conductor"]["trace_id"]


def test_calls_that_another_server_made_are_history(client: Any, endpoint: Endpoint) -> None:
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    calls = [{"id": "call_elsewhere", "type": "function", "function": function}]
    history = [*ASKED, *results({"role": "assistant", "content": None, "tool_calls": calls}, "sunny")]
    answer = client.chat.completions.create(
        model="fugu", messages=history, tools=TOOLS, extra_body=plan(("alpha", "{question} [[say It is sunny.]]"))
    ).to_dict()
    assert answer["choices"][0]["message"]["content"] == "It is sunny."
    trace_of(endpoint, answer)


def png(red: int) -> str:
    """Returns a data URL of an image of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes((red, 30, 30)) * 8) * 8)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(whole).decode()}"


def test_an_image_reaches_the_worker_that_gets_the_task(client: Any, endpoint: Endpoint) -> None:
    content = [
        {"type": "text", "text": "What colour?"},
        {"type": "image_url", "image_url": {"url": png(200), "detail": "auto"}},
    ]
    answer = client.chat.completions.create(
        model="fugu",
        messages=[{"role": "user", "content": content}],
        extra_body=plan(("beta", "image-seen {question} [[say red]]")),
    ).to_dict()
    assert answer["choices"][0]["message"]["content"] == "red"
    (call,) = endpoint.asked("image-seen")
    kinds = [part["type"] for part in call.messages[-1]["content"]]
    assert "image_url" in kinds
    trace_of(endpoint, answer)


def test_a_remote_image_is_refused(client: Any) -> None:
    content = [{"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="fugu", messages=[{"role": "user", "content": content}])
    assert caught.value.param


@pytest.mark.parametrize("first", ["", '[[once {"name": "Rome"}]] '])
def test_a_schema_is_parsed_after_one_correction_at_most(client: Any, endpoint: Endpoint, first: str) -> None:
    marker = f"schema-{bool(first)}"
    rules = f'{marker} {first}[[say {{"name": "Rome", "people": 2800000}}]]'
    parsed = client.chat.completions.parse(
        model="fugu", messages=ASKED, response_format=City, extra_body=plan(("alpha", rules))
    )
    assert parsed.choices[0].message.parsed == City(name="Rome", people=2_800_000)
    calls = endpoint.asked(marker)
    assert len(calls) == (2 if first else 1)
    spent = used(parsed.to_dict())
    # The attempt that is not the answer is orchestration.
    assert (spent.input, spent.orchestration_input) == (7, 7 if first else 0)
    trace_of(endpoint, parsed.to_dict())


def test_an_answer_that_never_fits_the_schema_is_an_error_that_no_sdk_repeats(client: Any, endpoint: Endpoint) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.chat.completions.parse(
            model="fugu", messages=ASKED, response_format=City, extra_body=plan(("alpha", "unfit [[say no JSON]]"))
        )
    assert caught.value.code == "schema_mismatch"
    assert len(endpoint.asked("unfit")) == 2
    trace = endpoint.show(caught.value.response.headers["x-conductor-trace-id"])
    assert trace["status"] == "failed"


def test_no_sdk_repeats_a_run_of_which_a_worker_was_paid(client: Any, endpoint: Endpoint) -> None:
    given = plan(("alpha", "paid-once [[say done]]"), ("beta", "then-fails [[fail 500]]"))
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="fugu", messages=ASKED, extra_body=given)
    assert caught.value.status_code >= 500
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len([call for call in endpoint.asked("paid-once") if "then-fails" not in json.dumps(call.body)]) == 1


def test_a_request_that_an_sdk_repeats_after_its_timeout_pays_no_worker_twice(endpoint: Endpoint) -> None:
    hasty: Any = openai.OpenAI(base_url=endpoint.url, api_key=ANY_KEY, timeout=5, max_retries=2)
    given = plan(("alpha", "paid-before-the-timeout [[say draft]]"), ("beta", "late-once [[late 8]] [[say done]]"))
    asked = [{"role": "user", "content": "repeated after a timeout"}]
    answer = hasty.chat.completions.create(model="fugu", messages=asked, extra_body=given).to_dict()
    assert answer["choices"][0]["message"]["content"] == "done"
    drafts = [call for call in endpoint.asked("paid-before-the-timeout") if "late-once" not in json.dumps(call.body)]
    assert len(drafts) == 1
    trace_of(endpoint, answer)


def test_a_stream_that_fails_raises_in_the_sdk(client: Any) -> None:
    given = plan(("alpha", "[[fail 500]]"))
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="fugu", messages=ASKED, stream=True, extra_body=given))


def test_a_client_that_leaves_cancels_its_run(client: Any, endpoint: Endpoint) -> None:
    given = plan(("alpha", "left-early [[say one two three four five six]] [[pieces 6]] [[pause 0.3]]"))
    raw = client.chat.completions.with_raw_response.create(model="fugu", messages=ASKED, stream=True, extra_body=given)
    stream = raw.parse()
    next(chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
    stream.close()
    endpoint.workers.wait_until(lambda workers: any("left-early" in json.dumps(call.body) for call in workers.left))
    run_id = raw.headers["x-conductor-trace-id"]
    while (status := endpoint.show(run_id)["status"]) == "running":
        pass
    assert status == "cancelled"


def test_stop_ends_the_answer_before_the_text(client: Any, endpoint: Endpoint) -> None:
    answer = client.chat.completions.create(
        model="fugu", messages=ASKED, stop=["three"], extra_body=plan(("alpha", "[[say one two three four]]"))
    ).to_dict()
    assert answer["choices"][0]["message"]["content"].strip() == "one two"
    assert answer["choices"][0]["finish_reason"] == "stop"
    trace_of(endpoint, answer)


def test_an_answer_that_is_cut_ends_by_its_length(client: Any, endpoint: Endpoint) -> None:
    given = plan(("beta", "cut-draft [[say a draft]]"), ("alpha", "cut-answer [[say one two]] [[cut]]"))
    answer = client.chat.completions.create(
        model="fugu", messages=ASKED, max_completion_tokens=17, extra_body=given
    ).to_dict()
    assert answer["choices"][0]["message"]["content"] == "one two"
    assert answer["choices"][0]["finish_reason"] == "length"
    drafted, answered = endpoint.asked("cut-draft")
    # The limit is that of the answer alone.
    assert 17 not in drafted.body.values()
    assert 17 in answered.body.values()
    trace_of(endpoint, answer)


def test_workers_are_offered_what_the_client_chose(client: Any, endpoint: Endpoint) -> None:
    for choice, marker in (
        ("none", "choice-none"),
        ("required", "choice-required"),
        ({"type": "function", "function": {"name": "time"}}, "choice-named"),
    ):
        client.chat.completions.create(
            model="fugu",
            messages=ASKED,
            tools=TOOLS,
            tool_choice=choice,
            extra_body=plan(("alpha", f"{marker} [[say hello]]")),
        )
        (call,) = endpoint.asked(marker)
        if choice == "none":
            assert not call.body.get("tools") or call.body["tool_choice"] == "none"
        else:
            assert [each["function"]["name"] for each in call.body["tools"]] == ["weather", "time"]
            assert call.body["tool_choice"] == choice
            assert call.body["tools"][0]["function"]["parameters"] == TOOLS[0]["function"]["parameters"]


def test_little_effort_is_one_step(client: Any, endpoint: Endpoint) -> None:
    task = "Write a poem, translate it into French, and check the translation. [[say done]]"
    answer = client.chat.completions.create(
        model="fugu-ultra", reasoning_effort="low", messages=[{"role": "user", "content": task}]
    ).to_dict()
    assert len(trace_of(endpoint, answer)["steps"]) == 1


ODD = "Gr\u00f6\u00dfe \U0001f469\u200d\U0001f680 \u2028\u0085\x0b <b>&amp;</b> data: [DONE]\n\nevent: x \u202e"


def test_whatever_a_worker_writes_arrives_as_it_is(client: Any, endpoint: Endpoint) -> None:
    given = plan(("alpha", f"[[say {ODD}]] [[pieces 40]] [[pause 0.02]]"))
    whole = client.chat.completions.create(model="fugu", messages=ASKED, extra_body=given).to_dict()
    with client.chat.completions.stream(model="fugu", messages=ASKED, extra_body=given) as stream:
        streamed = stream.get_final_completion()
    said = whole["choices"][0]["message"]["content"]
    assert streamed.choices[0].message.content == said
    assert trace_of(endpoint, whole)["answer"] == said
    assert said.startswith("Gr\u00f6\u00dfe \U0001f469\u200d\U0001f680 \u2028\u0085")


@pytest.mark.parametrize(("wrong", "param"), [({"n": 2}, "n"), ({"logprobs": True}, "logprobs")])
def test_what_cannot_be_done_is_refused_by_name(client: Any, wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="fugu", messages=ASKED, **wrong)
    assert caught.value.param == param


def test_fields_without_effect_do_no_harm(client: Any, endpoint: Endpoint) -> None:
    answer = client.chat.completions.create(
        model="fugu",
        messages=ASKED,
        temperature=0.3,
        top_p=0.9,
        seed=3,
        presence_penalty=0.1,
        user="someone",
        extra_body=plan(*DRAFTED) | {"a_field_of_tomorrow": {"x": 1}},
    ).to_dict()
    assert used(answer) == DRAFTED_USED
    trace_of(endpoint, answer)


def test_models_are_listed_and_an_unknown_one_is_not_found(client: Any) -> None:
    assert {"fugu", "fugu-ultra"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve("fugu").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-0")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-0", messages=ASKED)
