"""What servers were reported to send: it reaches a step and a plan alike, whole and nothing else.

Each case is imitated from a public report about another tool, its ``source``.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from conductor_core.chat.messages import FinishReason, Usage
from conductor_core.errors import ConductorError, ConductorStreamCut, WorkerError, WorkerStreamCut
from conductor_core.workflow.parser import parse_completion
from tests.support.asking_both import ASKED, Who, ask, both
from tests.support.provider import Call, Reply, ScriptedProvider, delta, error, sse

END = sse(delta(finish="stop"), "[DONE]")
WHOLE = {
    "id": "c1",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@dataclass(frozen=True)
class Case:
    """``source``: after https://github.com/, or a whole address."""

    source: str
    parts: list[bytes]
    finish_reason: FinishReason = "stop"
    reasoning: str = ""
    content_type: str | None = "text/event-stream"


def choice(**fields: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, **fields}]}


def thought(**fields: Any) -> list[bytes]:
    return [sse(choice(delta=fields)), sse(delta("42")), END]


ANSWERS = {
    # The end of an answer.
    "filtered as sensitive": Case(
        "langgenius/dify/issues/7559", [sse(delta("4"), delta("2", finish="sensitive"), "[DONE]")], "content_filter"
    ),
    "no room in the context": Case(
        "anomalyco/opencode/issues/18813",
        [sse(delta("42"), delta("", finish="model_context_window_exceeded"), "[DONE]")],
        "length",
    ),
    "end_turn beside the reason": Case(
        "openai/openai-dotnet/issues/706",
        [
            sse(choice(delta={"content": "42"}, end_turn=False, finish_reason=None)),
            sse(choice(delta={}, end_turn=True, finish_reason="stop"), "[DONE]"),
        ],
    ),
    "a whole message last, roles empty": Case(
        "MiniMax-AI/MiniMax-M2.5/issues/2",
        [
            sse(choice(delta={"role": "", "content": "4"}), choice(delta={"role": "", "content": "2"})),
            sse({**WHOLE, "usage": {"total_tokens": 0, "total_characters": 0}, "base_resp": {"status_code": 0}}),
        ],
    ),
    "words of a parameter that was passed over beside the answer": Case(
        "lobehub/lobehub/issues/4054",
        [sse({**WHOLE, "base_resp": {"status_code": 0, "status_msg": "Invalid parameters detected"}})],
    ),
    "choices null between": Case(
        "RooCodeInc/Roo-Code/pull/9105", [sse({"choices": None}, delta("42"), {"choices": None}), END]
    ),
    # Reasoning in odd fields.
    "thinking_content": Case("nhatbien/copilot-helper/pull/7", thought(thinking_content="hm"), reasoning="hm"),
    "thought": Case("nhatbien/copilot-helper/pull/7", thought(thought="hm"), reasoning="hm"),
    "thinking_blocks": Case(
        "BerriAI/litellm/issues/29428",
        thought(
            reasoning_content="hm",
            thinking_blocks=[{"type": "thinking", "thinking": "hm", "signature": ""}],
        ),
        reasoning="hm",
    ),
    "blocks that are encrypted": Case(
        "openai/openai-agents-python/pull/4177", thought(thinking_blocks=[{"type": "redacted_thinking", "data": "x"}])
    ),
    "only a signature": Case("strands-agents/harness-sdk/pull/1789", thought(thinking={"signature": "x"})),
    # Framing.
    "no empty line at the end": Case(
        "openai/openai-node/issues/2725", [sse(delta("4")), sse(delta("2", finish="stop")).rstrip(b"\n")]
    ),
    "a document with an end marker, called a stream": Case(
        "decolua/9router/issues/3492", [json.dumps(WHOLE).encode(), b"\n\ndata: [DONE]\n\n"]
    ),
    "a document called a stream": Case("decolua/9router/pull/3301", [json.dumps(WHOLE, indent=1).encode()]),
    "a stream called a document": Case(
        "microsoft/foundry-dev-tools/issues/195", [sse(delta("42")), END], content_type="application/json"
    ),
    "a stream without a content type": Case(
        "nearai/private-ml-sdk/pull/20", [sse(delta("42")), END], content_type=None
    ),
    "a stream called plain text": Case(
        "danielmiessler/Fabric/pull/2128", [sse(delta("42")), END], content_type="text/plain; charset=utf-8"
    ),
    "events of another kind between": Case(
        "janhq/jan/pull/8392",
        [sse(delta("4")), sse({"tool": "x"}, event="hermes.tool.progress"), sse(delta("2")), END],
    ),
    "data: null between": Case("NousResearch/hermes-agent/pull/80822", [sse(delta("42")), sse("null"), END]),
    "numbers that JSON lacks": Case(
        "dphnAI/sonar/issues/183",
        [b'data: {"choices":[{"delta":{"content":"42"},"logprobs":{"content":[{"logprob":-Infinity}]}}]}\n\n', END],
    ),
    "usage in Python's words": Case(
        "Gentleman-Programming/gentle-pi/issues/1307",
        [sse(delta("42"), delta(finish="stop"), "{'choices': [], 'usage': {'prompt_tokens': 1, 'billed': False}}")],
    ),
}


@both
@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_arrives_whole_and_alone(who: Who, case: Case, provider: ScriptedProvider) -> None:
    provider.then(Reply(case.parts, content_type=case.content_type))
    got = await ask(who, provider)
    assert (got.text, got.reasoning, got.finish_reason) == ("42", case.reasoning, case.finish_reason)
    assert got.departures == ()


PLAN = '{"steps": [{"agent": 0, "instruction": "{question} one", "access_list": []}]}'


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("odysseus-dev/odysseus/issues/2225", "<|channel>thought\n{}<channel|>"),
        ("NousResearch/hermes-agent/pull/62680", "<mm:think>{}</mm:think>"),
        ("NousResearch/hermes-agent/pull/2118", "<REASONING_SCRATCHPAD>{}</REASONING_SCRATCHPAD>"),
        ("ephraimduncan/opencode-cursor/pull/12", "<think_intent>{}</think_intent>"),
        ("Infinitix-LLC/gpt_markdown/issues/42", "<Thought>{}</Thought>"),
        ("fmaclen/hollama/issues/290", "<|begin_of_thought|>{}<|end_of_thought|>\n<|begin_of_solution|>"),
        ("Augustas11/macprovider/issues/743", "analysisWe could write {}.assistantfinal"),
    ],
)
async def test_a_plan_is_read_from_behind_the_reasoning(source: str, text: str, provider: ScriptedProvider) -> None:
    thought = text.format(PLAN.replace("one", "other"))
    provider.then(Reply([sse(delta(thought + PLAN)), END]), Reply([sse(delta(thought + PLAN[:-20])), END]))
    got = await ask("conductor", provider)
    (step,) = parse_completion(got.text).steps or ()
    assert step.instruction == "{question} one", source
    # What may have no end is told apart by the plan's reader, not taken back.
    assert text.startswith("analysis") or (got.text, "other" in got.reasoning) == (PLAN, True)
    cut = parse_completion((await ask("conductor", provider)).text)
    assert cut.faults, "what was only thought of is no plan where the plan itself is cut off"


@dataclass(frozen=True)
class Told:
    """What a server says of the tokens, and what is recorded of it."""

    source: str
    events: list[dict[str, Any]]
    usage: Usage


def counted(read: int, wrote: int, **parts: Any) -> Usage:
    return Usage(input_tokens=read, output_tokens=wrote, **parts)


def chat(read: int, wrote: int, total: int | None = None, **more: Any) -> dict[str, Any]:
    named = {
        "prompt_tokens": read,
        "completion_tokens": wrote,
        "total_tokens": read + wrote if total is None else total,
    }
    return {"usage": named | more}


USAGES = {
    "in the choice": Told(
        "earendil-works/pi/issues/2017", [choice(delta={}, finish_reason="stop", **chat(100, 50))], counted(100, 50)
    ),
    "in x_groq": Told(
        "vercel/ai/issues/1651",
        [{**delta(finish="stop"), "x_groq": {"id": "r", **chat(23, 19, queue_time=0.07)}}],
        counted(23, 19),
    ),
    "under the names of others": Told(
        "earendil-works/pi/issues/2326",
        [{**delta(finish="stop"), "usage": {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16}}],
        counted(11, 5),
    ),
    "with an empty delta": Told(
        "diegosouzapw/OmniRoute/issues/9750",
        [
            delta(finish="stop"),
            {"choices": [{"index": 0, "delta": {}}], **chat(287, 8, prompt_tokens_details={"cached_tokens": 256})},
        ],
        counted(287, 8, cached_input_tokens=256),
    ),
    "details at the top": Told(
        "diegosouzapw/OmniRoute/issues/9750",
        [{**delta(finish="stop"), **chat(84, 8, cached_tokens=40, reasoning_tokens=8)}],
        counted(84, 8, cached_input_tokens=40, reasoning_tokens=8),
    ),
    "zeros first": Told(
        "router-for-me/CLIProxyAPI/issues/4053",
        [
            {**delta(""), **chat(0, 0)},
            {**delta(finish="stop"), **chat(39320, 26, prompt_tokens_details={"cached_tokens": 33280})},
        ],
        counted(39320, 26, cached_input_tokens=33280),
    ),
    "null until the end": Told(
        "musistudio/claude-code-router/issues/1234",
        [{"code": 0, **delta(finish="stop"), "usage": None}, {"code": 0, "choices": [], **chat(113, 133)}],
        counted(113, 133),
    ),
    "choices null": Told(
        "cline/cline/pull/8527", [delta(finish="stop"), {"choices": None, **chat(12, 5)}], counted(12, 5)
    ),
    "writes under DeepSeek's kind of name": Told(
        "ithtelab/workbuddy-manager/issues/39",
        [
            {
                **delta(finish="stop"),
                **chat(1204, 8, prompt_cache_hit_tokens=1024, prompt_cache_write_tokens=100, cached_tokens=0),
            }
        ],
        counted(1204, 8, cached_input_tokens=1024, cache_write_tokens=100),
    ),
    "a cache beside the prompt": Told(
        "Portkey-AI/gateway/pull/1211",
        [
            {
                **delta(finish="stop"),
                **chat(368, 19, 10923, cache_read_input_tokens=10536, cache_creation_input_tokens=0),
            }
        ],
        counted(10904, 19, cached_input_tokens=10536, cache_write_tokens=0),
    ),
    "thoughts in the total and in the details": Told(
        "Wei-Shaw/sub2api/issues/5771",
        [
            {
                **delta(finish="stop"),
                **chat(
                    10120,
                    1499,
                    14428,
                    prompt_tokens_details={"cached_tokens": 128},
                    completion_tokens_details={"reasoning_tokens": 2809},
                ),
            }
        ],
        counted(10120, 4308, cached_input_tokens=128, reasoning_tokens=2809),
    ),
    "only thoughts": Told(
        "router-for-me/CLIProxyAPI/issues/5733",
        [{**delta(finish="stop"), **chat(21, 0, 81, completion_tokens_details={"reasoning_tokens": 60})}],
        counted(21, 60, reasoning_tokens=60),
    ),
}


@both
@pytest.mark.parametrize("told", USAGES.values(), ids=USAGES)
async def test_the_tokens_are_those_that_the_server_counted(who: Who, told: Told, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("42"), *told.events, "[DONE]")]))
    got = await ask(who, provider)
    assert (got.text, got.usage) == ("42", told.usage)


@both
@pytest.mark.parametrize(
    ("source", "usage", "wrote"),
    [
        ("Portkey-AI/gateway/issues/858", {"completion_tokens": 25}, 25),
        ("huggingface/tau/pull/617", {"prompt_tokens": -5, "completion_tokens": 25, "total_tokens": 20}, 25),
        ("BerriAI/litellm/issues/28024", {"prompt_tokens": 15.92, "completion_tokens": 25}, 25),
    ],
)
async def test_what_is_counted_in_part_is_estimated(
    who: Who, source: str, usage: dict[str, Any], wrote: int, provider: ScriptedProvider
) -> None:
    provider.then(Reply([sse(delta("42"), {**delta(finish="stop"), "usage": usage}, "[DONE]")]))
    got = (await ask(who, provider)).usage
    assert got is not None
    assert got.input_tokens > 0, source
    assert (got.output_tokens, got.estimated) == (wrote, True), source


@both
async def test_a_total_that_comes_alone_holds_the_input_too(who: Who, provider: ScriptedProvider) -> None:
    """https://github.com/lobehub/lobehub/issues/4054: a total and a count of characters, no more."""
    said = {**delta(finish="stop"), "usage": {"total_tokens": 12680, "total_characters": 0}}
    provider.then(Reply([sse(delta("42"), said, "[DONE]")]))
    got = (await ask(who, provider)).usage
    assert got is not None
    assert got.input_tokens + got.output_tokens == 12680
    assert got.estimated


# What it is: its source, its event.
ERRORS = {
    "in a field of its own": (
        "ggml-org/llama.cpp/pull/16109",
        b'error: {"code":500,"message":"CUDA out of memory","type":"server_error"}\n\n',
    ),
    "beside choices": (
        "damianvtran/local-operator/pull/223",
        sse({**delta("", finish="error"), "error": {"code": 502, "message": "CUDA out of memory"}}),
    ),
    "beside no choices": (
        "diegosouzapw/OmniRoute/pull/8210",
        sse(
            {"object": "chat.completion.chunk", "choices": [], "error": {"code": 502, "message": "CUDA out of memory"}}
        ),
    ),
    "without the word error": (
        "MinLL/SkyrimNet-GamePlugin/issues/40",
        sse({"code": 400, "reason": "CODEC", "message": "CUDA out of memory", "metadata": {}}),
    ),
    "in base_resp": (
        "edenai/edenai-apis/pull/360",
        sse({"choices": None, "base_resp": {"status_code": 1000, "status_msg": "CUDA out of memory"}}),
    ),
    "a string": ("Blaizzy/nativ/pull/195", sse({"error": "CUDA out of memory"}, "[DONE]")),
}


@both
@pytest.mark.parametrize(
    "event", [event for _, event in ERRORS.values()], ids=[source for source, _ in ERRORS.values()]
)
@pytest.mark.parametrize("begun", [False, True])
async def test_an_errors_own_words_are_shown(who: Who, event: bytes, begun: bool, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("4")), event] if begun else [event]))
    with pytest.raises((WorkerError, ConductorError), match="CUDA out of memory"):
        await ask(who, provider)


@both
@pytest.mark.parametrize(
    "reason",
    [
        pytest.param("network_error", id="promptfoo/promptfoo/pull/9905"),
        pytest.param("insufficient_system_resource", id="https://docs.rs/crate/ds-api/latest"),
    ],
)
async def test_a_server_that_failed_has_not_answered(who: Who, reason: str, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("4"), delta(finish=reason), "[DONE]")]))
    with pytest.raises((WorkerError, ConductorError), match=f"{reason}.*try again"):
        await ask(who, provider)


@both
@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"upstream error: read ECONNRESET\n", id="tetsuo-ai/agenc-core/pull/2492"),
        pytest.param(b"", id="anomalyco/opencode/issues/39968"),
        pytest.param(
            b'data: {"choices": [{"delta": {"content": "2"}, "finish_re', id="google-gemini/gemini-cli/issues/29059"
        ),
    ],
)
async def test_an_answer_that_breaks_off_is_not_whole(who: Who, rest: bytes, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse(delta("4")), rest]))
    with pytest.raises((WorkerStreamCut, ConductorStreamCut)):
        await ask(who, provider)


@both
async def test_words_of_an_event_that_the_answer_follows_explain_no_break(who: Who, provider: ScriptedProvider) -> None:
    provider.then(Reply([sse({"message": "Loading model"}), sse(delta("4"))]))
    with pytest.raises((WorkerStreamCut, ConductorStreamCut)):
        await ask(who, provider)


def extra(name: str) -> dict[str, Any]:
    return {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": 3}


def said(message: Any, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None} | more}


UNKNOWN = 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'
TOO_LARGE = (
    "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 tokens "
    "and your request has 24235 input tokens (64000 > 64001 - 24235)."
)
LIMIT = "max_tokens is too large: 1048576. This model supports at most 131072 completion tokens"
REFUSALS: dict[str, tuple[str, int, Any, str]] = {
    "Mistral": (
        "editor-code-assistant/eca/issues/231",
        422,
        {"object": "error", "message": {"detail": [extra("seed")]}, "type": "invalid_request_error", "param": None},
        "seed",
    ),
    "Mistral, since 2025": (
        "partITech/php-mistral/issues/76",
        422,
        {"object": "Error", "detail": [extra("seed")], "message": [extra("seed")], "code": 3001},
        "seed",
    ),
    "Mistral, as text in a text": (
        "mistralai/platform-docs-public/issues/7",
        422,
        {"object": "error", "message": json.dumps({"detail": [extra("seed")]}), "type": "internal_error_proxy"},
        "seed",
    ),
    "Google": (
        "Vali-98/ChatterUI/issues/227",
        400,
        [{"error": {"code": 400, "message": UNKNOWN, "status": "INVALID_ARGUMENT"}}],
        "seed",
    ),
    "Groq": (
        "fanenr/chatbot/issues/21",
        400,
        {"error": {"message": "property 'seed' is unsupported, did you mean 'stop'?", "type": "invalid_request_error"}},
        "seed",
    ),
    "Bedrock through LiteLLM": (
        "BerriAI/litellm/issues/7416",
        400,
        said("BedrockException - Malformed input request: #: extraneous key [seed] is not permitted, please reformat"),
        "seed",
    ),
    "Azure": (
        "langchain-ai/langchain/pull/23552",
        400,
        said("Unrecognized request argument supplied: stream_options"),
        "stream_options",
    ),
    "DeepSeek": (
        "lollipopkit/flutter_gpt_box/issues/213",
        400,
        said("deepseek-reasoner does not support the parameter `seed`", code="invalid_request_error"),
        "seed",
    ),
    "the words stand in param": (
        "AQBot-Desktop/AQBot/issues/93",
        400,
        said("Param Incorrect", type="upstream_error", param=LIMIT, code="400"),
        "max_tokens",
    ),
    "vLLM": ("claude-code-best/claude-code/issues/272", 400, said(TOO_LARGE, code=400), "max_tokens"),
    "Scaleway": (
        "scaleway/docs-content/pull/4858",
        416,
        {"object": "error", "message": "max_tokens is limited for this model", "code": 416},
        "max_tokens",
    ),
}


@both
@pytest.mark.parametrize(("source", "status", "body", "name"), REFUSALS.values(), ids=REFUSALS)
async def test_what_a_server_refuses_in_its_own_words_is_left_out(
    who: Who, source: str, status: int, body: Any, name: str, provider: ScriptedProvider
) -> None:
    names = {name, "max_completion_tokens"} if name == "max_tokens" else {name}
    refused = json.dumps(body)

    def script(call: Call) -> Reply:
        found = next((each for each in (name, "max_completion_tokens") if each in names & set(call.body)), None)
        if found is None:
            return Reply([sse(delta("42")), END])
        return error(status, json.loads(refused.replace(name, found)))

    provider.always(script)
    got = await ask(who, provider, params={"max_tokens": 64000, "seed": 3, "stop": ["."]})
    assert (got.text, [(each.kind, each.what) for each in got.departures]) == ("42", [("left_out", name)]), source
    assert provider.completions[-1].body["stop"] == ["."]


MUST = "After the optional system message, conversation roles must alternate user and assistant roles except for tool"
NO_SYSTEM = {
    "vLLM": ("microsoft/autogen/issues/1037", 400, said("Conversation roles must alternate user/assistant/user/...")),
    "Ministral": (
        "anomalyco/opencode/issues/5034",
        500,
        said("Only user, assistant and tool roles are supported, got system. at row 3", code=500),
    ),
    "LM Studio": ("Mintplex-Labs/anything-llm/issues/2914", 400, said("Only user and assistant roles are supported!")),
    "a gateway": (
        "QuantumNous/new-api/issues/5330",
        400,
        said("invalid role 'system', must be one of: user, assistant"),
    ),
    "LocalAI, in a stream": (
        "sterlp/eclipse-peon-ai/issues/75",
        200,
        said(f"rpc error: code = InvalidArgument desc = Error: Jinja Exception: {MUST}", code="server_error"),
    ),
}


@both
@pytest.mark.parametrize(("source", "status", "body"), NO_SYSTEM.values(), ids=NO_SYSTEM)
async def test_without_a_system_role_its_text_begins_the_users(
    who: Who, source: str, status: int, body: Any, provider: ScriptedProvider
) -> None:
    def script(call: Call) -> Reply:
        if all(turn["role"] == "user" for turn in call.messages):
            return Reply([sse(delta("42")), END])
        return Reply([sse(body, "[DONE]")]) if status == 200 else error(status, body)

    provider.always(script)
    got = await ask(who, provider)
    assert (got.text, [each.kind for each in got.departures]) == ("42", ["system_in_user"]), source
    (turn,) = provider.completions[-1].messages
    assert turn["content"].startswith(provider.completions[0].messages[0]["content"])
    if who == "worker":
        assert turn["content"] == f"{ASKED[0].text}\n\n{ASKED[1].text}"


@both
async def test_of_two_parameters_that_exclude_each_other_the_first_named_is_left_out(
    who: Who, provider: ScriptedProvider
) -> None:
    """https://github.com/skydiscover-ai/skydiscover/issues/15: Claude on Bedrock, through LiteLLM."""

    def script(call: Call) -> Reply:
        if {"temperature", "top_p"} <= set(call.body):
            return error(400, said("`temperature` and `top_p` cannot both be specified for this model."))
        return Reply([sse(delta("42")), END])

    provider.always(script)
    got = await ask(who, provider, params={"temperature": 0.2, "top_p": 0.9})
    assert (got.text, [(each.kind, each.what) for each in got.departures]) == ("42", [("left_out", "temperature")])
