"""What a server's error means, and what is quoted of it: one clean line, never a key."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.privacy import masking
from conductor_core.privacy.masking import one_line
from conductor_core.providers.errors import (
    ErrorReply,
    FaultKind,
    ServerFault,
    error_reply_of,
    fault_of_reply,
    read_error_reply,
    retry_after_s,
)
from conductor_core.workers.pool import error_of

KEY = "k3Yw-9f8e7d6c5b4a39281706f5e4"


@given(st.text())
def test_a_quoted_text_is_one_short_line_without_control_characters(text: str) -> None:
    line = one_line(text, limit=50)
    assert len(line) <= 50
    assert all(char.isprintable() for char in line)
    assert line == line.strip()


@pytest.mark.parametrize("before", range(20, 60))
def test_a_key_is_never_quoted_not_even_its_beginning_where_the_line_is_cut(before: int) -> None:
    masking.remember(KEY)
    line = one_line(f"{'word ' * before}{KEY.upper()} and more", limit=150)
    assert KEY.lower()[3:7] not in line.lower()


def test_what_looks_like_a_key_is_never_quoted() -> None:
    for key in ("sk-proj-abcdefghijkl0123", "gsk_0123456789abcdef", "AIzaSyA1b2C3d4E5f6", "Bearer abcdef0123456789"):
        assert one_line(f"no: {key}!") == "no: ***!"
    assert one_line("the skateboard and the Bearer token") == "the skateboard and the Bearer token"


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_error_body_is_read(body: bytes) -> None:
    found = read_error_reply(body, "application/json")
    assert len(found.text) <= 300
    assert read_error_reply(body, "text/html; charset=utf-8") == ErrorReply()


def test_the_error_objects_of_different_servers() -> None:
    for body, text in (
        (b'{"error": {"message": "m", "code": "c"}}', "m"),
        (b'{"type": "error", "error": {"type": "t", "message": "m"}}', "m"),
        (b'{"detail": [{"loc": ["body"], "msg": "m"}]}', "m"),
        (b'{"detail": "m"}', "m"),
        (b'[{"error": {"message": "m"}}]', "m"),
        (b'{"error": "m"}', "m"),
        (b"plain m", "plain m"),
        (b'{"other": 1}', ""),
        (b'{"error": {"mess', ""),
        (b"<p>m</p>", ""),
    ):
        assert read_error_reply(body, "application/json").text == text


def fault(status: int, said: ErrorReply) -> ServerFault:
    return fault_of_reply("worker w: 127.0.0.1:9", status, said, key_hint="check the key")


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({"error": {"message": "slow down"}, "code": 429}, "rate"),
        ({"message": "slow down", "type": "rate_limit_error"}, "rate"),
        ({"message": "slow down", "status": 429}, "rate"),
        ({"message": "slow down", "code": None, "type": "unknown", "status": "429"}, "rate"),
        ({"message": "no", "code": "invalid_api_key"}, "key"),
        ({"message": "hm", "status": True}, "failed"),
        ({"message": "hm", "status": 200}, "failed"),
        ({"message": "hm", "status": 600}, "failed"),
        ("hm", "failed"),
    ],
)
def test_an_error_object_stands_for_the_status_that_it_names(found: object, kind: FaultKind) -> None:
    told = fault(200, error_reply_of(found))
    assert told.kind == kind
    assert str(told).startswith("worker w: 127.0.0.1:9 ")
    assert ("(slow down)" in str(told)) == (kind == "rate")


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (500, True),
        (503, True),
        (409, True),
        (425, True),
        (408, True),
        (429, True),
        (426, False),
        (400, False),
        (302, False),
    ],
)
def test_only_what_may_come_otherwise_is_asked_again(status: int, again: bool) -> None:
    error = error_of(fault(status, ErrorReply()))
    assert error.retryable is again
    assert str(status) in str(error)


# Replies as servers word them: their own forms, from their sources and from public reports about clients.
_CONTEXT = "the request exceeds the available context size. try increasing the context size or enable context shift"
_KEEP = "The number of tokens to keep from the initial prompt is greater than the context length."
_BUDGET = "Budget has been exceeded! Current cost: 0.2, Max budget: 0.1"
_LITELLM = "{'error': '/chat/completions: Invalid model name passed in model=m. Call `/v1/models` to view models'}"
_TPM = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000"
_AZURE = "The response was filtered due to the prompt triggering the content management policy."
_VLLM = "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens in the messages."
_GEMINI = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
REPLIES: list[tuple[int, object, FaultKind]] = [
    (200, {"error": {"code": 400, "message": _CONTEXT, "type": "exceed_context_size_error"}}, "too_long"),
    (200, {"error": "Trying to keep the first 9 tokens when context the overflows. context length of 5"}, "too_long"),
    (200, {"error": {"code": 401, "message": "No auth credentials found"}}, "key"),
    (200, {"error": {"code": 429, "message": "Rate limit exceeded: free-models-per-day"}}, "rate"),
    (500, {"error": {"code": 500, "message": _CONTEXT, "type": "exceed_context_size_error"}}, "too_long"),
    (400, {"object": "error", "message": _VLLM, "type": "BadRequestError", "code": 400}, "too_long"),
    (400, [{"error": {"code": 400, "message": _GEMINI, "status": "INVALID_ARGUMENT"}}], "too_long"),
    (400, {"error": _KEEP}, "too_long"),
    (413, {"error": {"message": _TPM, "type": "tokens", "code": "rate_limit_exceeded"}}, "too_long"),
    (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, "unpaid"),
    (402, {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}, "unpaid"),
    (400, {"error": {"message": _BUDGET, "type": "budget_exceeded", "code": "400"}}, "unpaid"),
    (429, {"error": {"message": _BUDGET, "type": "budget_exceeded", "code": "429"}}, "unpaid"),
    (404, {"error": {"message": 'model "m" not found, try pulling it first', "type": "api_error"}}, "model"),
    (400, {"error": {"message": "foo/bar is not a valid model ID", "code": 400}}, "model"),
    (404, {"object": "error", "message": "The model `m` does not exist.", "type": "NotFoundError"}, "model"),
    (400, {"error": {"message": _LITELLM, "type": "None", "param": "None", "code": "400"}}, "model"),
    (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, "loading"),
    (404, {"error": {"message": "No endpoints found matching your data policy.", "code": 404}}, "refused"),
    (
        400,
        [{"error": {"code": 400, "message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}}],
        "key",
    ),
    (500, {"error": {"code": 500, "message": "image input is not supported - hint: provide the mmproj"}}, "no_images"),
    (400, {"error": {"message": "This model does not support image input."}}, "no_images"),
    (500, "Internal Server Error", "failed"),
    (502, "<html><head><title>502 Bad Gateway</title></head></html>", "failed"),
    (524, "<!DOCTYPE html><title>A timeout occurred</title>", "timeout"),
    (400, {"error": {"message": _AZURE, "code": "content_filter", "innererror": {"code": "x"}}}, "filtered"),
    (429, {"error": {"message": "You exceeded your current quota per minute"}}, "rate"),
    (403, {"error": {"message": "Insufficient credits", "code": 403}}, "unpaid"),
]


def said(message: object, **more: object) -> dict[str, object]:
    return {"error": {"message": message, "type": "invalid_request_error"} | more}


def _behind(message: str) -> dict[str, object]:
    """What OpenRouter makes of another provider's reply."""
    raw = json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": None}}, indent=2)
    return said("Provider returned error", code=400, metadata={"provider_name": "OpenAI", "raw": raw})


_POOLSIDE = "Input length 131393 exceeds the maximum allowed input length of 131040 tokens."
_THROTTLED = "Too many tokens, please wait before trying again."
_MANY = "Too many requests, please wait before trying again."
_EXPIRED = "Your authentication token has expired. Please try signing in again."
_LIMIT = "input length and max_tokens exceed context limit: 170636 + 34048 > 200000, decrease input length"
_CERTAIN = "Invalid content type. image_url is only supported by certain models."
_VARIANT = "Failed to deserialize the JSON body: messages[0]: unknown variant `image_url`, expected `text`"
_MEMORY = "model requires more system memory (7.5 GiB) than is available (5.2 GiB)"
_NEXT = "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your prompt"
_MAX = "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192."
REPORTED: list[tuple[str, int, object, FaultKind]] = [
    ("MiniMax-AI/MiniMax-M2/issues/62", 500, said("insufficient balance (1008)", type="api_error"), "unpaid"),
    ("modelscope/modelscope/issues/1691", 429, said("insufficient balance (1008)", http_code="429"), "unpaid"),
    (
        "Wei-Shaw/sub2api/issues/890",
        403,
        {"code": "INSUFFICIENT_BALANCE", "message": "Insufficient account balance"},
        "unpaid",
    ),
    ("jin-bo/agentao/pull/88", 429, said(_THROTTLED, type="ThrottlingException"), "rate"),
    ("aws/amazon-q-developer-cli/pull/2563", 400, said(_MANY, type="ThrottlingException"), "rate"),
    ("lobehub/lobehub/issues/3994", 429, said(_MANY, type="ThrottlingException"), "rate"),
    ("ztjhz/BetterChatGPT/issues/419", 401, said({"code": "token_expired", "message": _EXPIRED}), "key"),
    ("0xBakeer/inference-atlas/pull/186", 400, said("Prompt too long: 5152 tokens exceeds max_seq_len"), "too_long"),
    ("earendil-works/pi/issues/4943", 400, said(_POOLSIDE), "too_long"),
    ("earendil-works/pi/issues/5677", 400, said("Input length (9) exceeds model's maximum context length"), "too_long"),
    ("earendil-works/pi/pull/5929", 400, said(_NEXT), "too_long"),
    ("openclaw/openclaw/pull/20539", 400, said(_LIMIT), "too_long"),
    ("anomalyco/opencode/pull/45834", 400, said("Range of input length should be [1, 30720]"), "too_long"),
    ("mangowhoiscloud/geode/pull/668", 400, said("Prompt exceeds max length", code="1261"), "too_long"),
    ("algorithmicsuperintelligence/optillm/issues/4", 400, said(_MAX, param="max_tokens"), "refused"),
    ("studio-dots-ai/dots.ocr/issues/61", 400, {"message": "facebook/opt-125m is not a multimodal model"}, "no_images"),
    ("ollama/ollama/issues/17301", 400, said("this model does not support image input (ref: b8)"), "no_images"),
    ("DayuanJiang/next-ai-draw-io/pull/55", 400, said(_VARIANT), "no_images"),
    ("danny-avila/LibreChat/issues/6333", 400, _behind(_CERTAIN), "no_images"),
    ("danny-avila/LibreChat/issues/6333", 400, _behind("Something else"), "refused"),
    ("continuedev/continue/issues/12795", 500, {"error": _MEMORY}, "failed"),
]


@pytest.mark.parametrize(("source", "status", "document", "kind"), REPORTED)
def test_what_servers_were_reported_to_say_is_understood_and_quoted(
    source: str, status: int, document: object, kind: FaultKind
) -> None:
    reply = read_error_reply(json.dumps(document).encode(), "application/json")
    told = fault(status, reply)
    assert told.kind == kind, source
    assert reply.text
    assert reply.text[:40] in str(told)


def test_what_stands_behind_openrouters_words_is_quoted() -> None:
    told = fault(400, error_reply_of(_behind("It has no such option.")))
    assert "(Provider returned error: It has no such option.)" in str(told)
    for raw in ("", "{", "<html><h1>no</h1></html>", None, 5):
        document = said("Provider returned error", metadata={"raw": raw})
        assert "(Provider returned error)" in str(fault(400, error_reply_of(document)))


@pytest.mark.parametrize(("status", "document", "kind"), REPLIES)
def test_what_a_server_says_decides_before_its_status(status: int, document: object, kind: FaultKind) -> None:
    body = document if isinstance(document, str) else json.dumps(document)
    told = fault(status, read_error_reply(body.encode(), "text/html" if body.startswith("<") else "application/json"))
    assert (told.kind, "<" in str(told)) == (kind, False)


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
AT_S = 1792567680.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": DATE}, 60.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, now_s=AT_S - 60) == seconds


def test_a_moment_that_is_past_is_no_wait() -> None:
    assert retry_after_s({"retry-after": DATE}, now_s=AT_S + 60) == 0.0


def test_no_server_makes_anybody_wait_for_more_than_a_year() -> None:
    for headers in ({"retry-after": "1e308"}, {"retry-after-ms": "1e308"}, {"retry-after": DATE}):
        wait_s = retry_after_s(headers, now_s=0.0)
        assert wait_s is not None
        assert wait_s <= 366 * 86_400
