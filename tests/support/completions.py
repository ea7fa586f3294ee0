"""Every way in which a provider ends an answer that we have met, and what becomes of a step that ends so."""

from dataclasses import dataclass
from typing import Any

from conductor_core.chat.messages import Ending, Provider
from tests.support.provider import Reply, delta, error, sse

TOOL = {"index": 0, "id": "t1", "type": "function", "function": {"name": "search", "arguments": ""}}


@dataclass(frozen=True)
class Completion:
    """One kind of completion.

    Attributes:
        said: what comes, in words.
        becomes: the step's status.
        output, refusal, tool_calls: what is kept, the last as (name, arguments).
    """

    said: str
    reply: Reply
    becomes: Ending | str
    provider: Provider = "openai"
    output: str = ""
    refusal: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()


def chat(*chunks: dict[str, Any]) -> Reply:
    return Reply([sse(*chunks, "[DONE]")])


def message(stop_reason: str, *blocks: dict[str, Any], **more: Any) -> Reply:
    """Anthropic's message: each block a start with all it holds, or a list of deltas under ``deltas``."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}}]
    for index, block in enumerate(blocks):
        deltas = block.pop("deltas", [])
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {"stop_reason": stop_reason} | more, "usage": {"output_tokens": 2}}
    return Reply([sse(*events, end, {"type": "message_stop"})])


def whole(content: Any = None, finish: str | None = "stop", **more: Any) -> Reply:
    """A server that does not stream: the whole message in one JSON document."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content} | more, "finish_reason": finish}
    return error(200, {"object": "chat.completion", "choices": [choice]})


def _tool(**function: Any) -> dict[str, Any]:
    return TOOL | {"function": function}


COMPLETIONS = (
    Completion("text, then `stop`", chat(delta("4"), delta(finish="stop")), "completed", output="4"),
    Completion(
        "text, then a stop under another name: `end_turn`, `eos`, `eos_token`, `stop_sequence`, `COMPLETE`",
        chat(delta("4"), delta(finish="COMPLETE")),
        "completed",
        output="4",
    ),
    Completion("one JSON document, no stream", whole("4"), "completed", output="4"),
    Completion(
        "content as a list of parts",
        chat(delta(content=[{"type": "text", "text": "4"}]), delta(finish="stop")),
        "completed",
        output="4",
    ),
    Completion(
        "text and a tool call, then `stop`",
        chat(delta("4", tool_calls=[_tool(name="save", arguments='{"n": 4}')]), delta(finish="stop")),
        "completed",
        output="4",
        tool_calls=(("save", '{"n": 4}'),),
    ),
    Completion("nothing, then `stop`", chat(delta(finish="stop")), "empty"),
    Completion("white space alone, then `stop`", chat(delta(" \n"), delta(finish="stop")), "empty", output=" \n"),
    Completion("`content: null` in one document", whole(None), "empty"),
    Completion("reasoning alone, then `stop`", chat(delta(reasoning_content="hm"), delta(finish="stop")), "empty"),
    Completion(
        "a tool call and no text, then `tool_calls`",
        chat(
            delta(tool_calls=[_tool(name="search", arguments="")]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": '{"q": '}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": '"42"}'}}]),
            delta(finish="tool_calls"),
        ),
        "empty",
        tool_calls=(("search", '{"q": "42"}'),),
    ),
    Completion(
        "a tool call and no text, then `stop` (as Ollama ends it)",
        chat(delta(tool_calls=[_tool(name="search", arguments="{}")]), delta(finish="stop")),
        "empty",
        tool_calls=(("search", "{}"),),
    ),
    Completion(
        "the older `function_call`",
        chat(
            delta(function_call={"name": "search", "arguments": '{"q"'}),
            delta(function_call={"arguments": ": 1}"}),
            delta(finish="function_call"),
        ),
        "empty",
        tool_calls=(("search", '{"q": 1}'),),
    ),
    Completion(
        "text, then a tool call and `tool_calls`",
        chat(
            delta("Let me look."), delta(tool_calls=[_tool(name="search", arguments="{}")]), delta(finish="tool_calls")
        ),
        "cut",
        output="Let me look.",
        tool_calls=(("search", "{}"),),
    ),
    Completion(
        "text, then `length`", chat(delta("The legs are"), delta(finish="length")), "cut", output="The legs are"
    ),
    Completion("reasoning alone, then `length`", chat(delta(reasoning_content="hm"), delta(finish="length")), "cut"),
    Completion(
        "text, then an end whose name is unknown",
        chat(delta("The legs"), delta(finish="out_of_ink")),
        "cut",
        output="The legs",
    ),
    Completion(
        "`delta.refusal`, then `stop`",
        chat(delta(refusal="I cannot "), delta(refusal="help with that."), delta(finish="stop")),
        "refused",
        refusal="I cannot help with that.",
    ),
    Completion(
        "`message.refusal` in one document",
        whole(None, refusal="I cannot help with that."),
        "refused",
        refusal="I cannot help with that.",
    ),
    Completion(
        "a part of the type `refusal`",
        chat(delta(content=[{"type": "refusal", "refusal": "No."}]), delta(finish="stop")),
        "refused",
        refusal="No.",
    ),
    Completion(
        "text, then a refusal",
        chat(delta("First, "), delta(refusal="I must stop."), delta(finish="stop")),
        "refused",
        output="First, ",
        refusal="I must stop.",
    ),
    Completion("the end `refusal`", chat(delta(finish="refusal")), "refused"),
    Completion(
        "text, then `content_filter`",
        chat(delta("The way to"), delta(finish="content_filter")),
        "filtered",
        output="The way to",
    ),
    Completion("`SAFETY` or `RECITATION` as the end", chat(delta(finish="SAFETY")), "filtered"),
    Completion(
        "400 with the code `content_filter` (Azure)",
        error(400, {"error": {"code": "content_filter", "message": "The prompt was filtered."}}),
        "filtered",
        refusal="filtered",
    ),
    Completion(
        "403 with the code `content_policy_violation`",
        error(403, {"error": {"code": "content_policy_violation", "message": "flagged"}}),
        "filtered",
        refusal="flagged",
    ),
    Completion(
        "Anthropic: text, then `end_turn`",
        message("end_turn", {"type": "text", "text": "4"}),
        "completed",
        "anthropic",
        output="4",
    ),
    Completion("Anthropic: nothing, then `end_turn`", message("end_turn"), "empty", "anthropic"),
    Completion(
        "Anthropic: text, then `max_tokens`",
        message("max_tokens", {"type": "text", "text": "The legs"}),
        "cut",
        "anthropic",
        output="The legs",
    ),
    Completion(
        "Anthropic: text, then `refusal`",
        message("refusal", {"type": "text", "text": "I "}),
        "refused",
        "anthropic",
        output="I ",
    ),
    Completion(
        "Anthropic: `tool_use`",
        message(
            "tool_use",
            {
                "type": "tool_use",
                "name": "search",
                "input": {},
                "deltas": [
                    {"type": "input_json_delta", "partial_json": '{"q": '},
                    {"type": "input_json_delta", "partial_json": "42}"},
                ],
            },
        ),
        "empty",
        "anthropic",
        tool_calls=(("search", '{"q": 42}'),),
    ),
    Completion("text and no end", Reply([sse(delta("The legs"))]), "failed", output="The legs"),
    Completion("no event at all", Reply([sse("[DONE]")]), "failed"),
    Completion("an error object under 200", chat({"error": {"message": "broken", "code": 500}}), "failed"),
    Completion("a 5xx, again and again", error(500), "failed"),
)
