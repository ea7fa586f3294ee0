"""The scripted workers keep their own promises: what the other tests of this folder hold is measured by them."""

from typing import Any

import openai
import pytest

from tests.support.provider import ScriptedProvider

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def ask(workers: ScriptedProvider, messages: list[Any], **more: Any) -> Any:
    client: Any = openai.OpenAI(base_url=workers.url, api_key="any", max_retries=0)
    options = {"include_usage": True}
    with client.chat.completions.stream(model="alpha", messages=messages, stream_options=options, **more) as stream:
        return stream.get_final_completion()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_it_says_what_it_is_told_with_the_usage_that_it_is_told(workers: ScriptedProvider) -> None:
    whole = ask(workers, [user("An earlier turn [[say no]]"), user("[[say yes and no]] [[usage 46 49 10 15]]")])
    assert whole.choices[0].message.content == "yes and no"
    usage = whole.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (46, 49, 95)
    assert usage.prompt_tokens_details.cached_tokens == 10
    assert usage.completion_tokens_details.reasoning_tokens == 15
    assert ask(workers, [user("hello")]).choices[0].message.content == "alpha heard: hello"


def test_it_calls_tools_once_and_answers_with_their_results(workers: ScriptedProvider) -> None:
    asked = user('[[call weather {"city": "Rome"}]] [[call weather {"city": "Oslo"}]]')
    message = ask(workers, [asked], tools=TOOLS).choices[0].message
    arguments = [call.function.arguments for call in message.tool_calls]
    assert arguments == ['{"city": "Rome"}', '{"city": "Oslo"}']
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": said}
        for call, said in zip(message.tool_calls, ("sun", "rain"), strict=True)
    ]
    sent = {"role": "assistant", "content": None, "tool_calls": [each.to_dict() for each in message.tool_calls]}
    assert ask(workers, [asked, sent, *results], tools=TOOLS).choices[0].message.content == "sun and rain"
    assert not ask(workers, [asked]).choices[0].message.tool_calls


def test_it_answers_wrongly_once_and_fails_when_told(workers: ScriptedProvider) -> None:
    asked = user("[[once first]] [[say then]]")
    assert ask(workers, [asked]).choices[0].message.content == "first"
    corrected = [asked, {"role": "assistant", "content": "first"}, user("Once more.")]
    assert ask(workers, corrected).choices[0].message.content == "then"
    with pytest.raises(openai.InternalServerError):
        ask(workers, [user("[[fail 500]]")])
