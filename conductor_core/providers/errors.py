"""Reads the error replies of servers, for workers and Conductors alike."""

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from conductor_core.privacy.masking import one_line

_HTML = re.compile(r"<(?:!doctype|html|head|body|script|style|title|meta|div|h1|p)\b", re.IGNORECASE)
_NO_QUOTA = frozenset(
    {"insufficient_quota", "insufficient_credits", "billing_hard_limit_reached", "billing_not_active"}
)
_NO_CREDIT = re.compile(r"\bcredit balance\b|\binsufficient (?:credits?|balance|funds|quota)", re.IGNORECASE)
"""Words for an account without credit: Anthropic uses them with status 400, others with 403 or 429."""
_FLAGGED = frozenset({"content_policy_violation", "content_filter", "refusal", "data_inspection_failed"})
"""Codes of a filter that refused what was asked: OpenRouter's with status 403 (https://openrouter.ai/docs/errors), and
those of Azure, OpenAI and Alibaba with 400."""
_LOADING = re.compile(
    r"\bloading\b.{0,40}\bmodel|\bmodel\b.{0,120}\b(?:loading|being loaded|not (?:yet )?(?:loaded|ready))\b"
    r"|\bwarming up\b|\bstarting up\b",
    re.IGNORECASE | re.DOTALL,
)
"""Words of llama.cpp ("Loading model"), Ollama ("llm server loading model"), TGI and the hub ("Model X is currently
loading") and vLLM's front ends, with status 503."""
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:number of tokens|input|context)|too many (?:input )?tokens"
    r"|prompt is too long|input is too long|exceeds? the (?:model's )?(?:maximum|available) (?:context|length|tokens)",
    re.IGNORECASE,
)
"""Words of vLLM, SGLang, llama.cpp, Ollama, OpenAI and Anthropic."""


class ErrorReply(NamedTuple):
    """An error reply: its message, fit to be quoted, and the provider's code for it; each empty if unknown."""

    text: str = ""
    code: str = ""


def read_error_reply(body: bytes, content_type: str = "") -> ErrorReply:
    """Reads an error body: an error object or plain text. Quotes nothing of a page of HTML or of broken JSON."""
    text = body.decode("utf-8", "replace").strip()
    if "html" in content_type.lower():
        return ErrorReply()
    try:
        return error_reply_of(json.loads(text))
    except (ValueError, RecursionError):
        return ErrorReply() if text.startswith(("{", "[")) else ErrorReply(_quotable(text))


def error_reply_of(document: Any) -> ErrorReply:
    """Returns the error reply in an error object that was already parsed."""
    return ErrorReply(_quotable(_message_of(document) or ""), _code_of(document))


def _quotable(text: str) -> str:
    return "" if _HTML.search(text) else one_line(text)


def _code_of(document: Any) -> str:
    found = document.get("error", document) if isinstance(document, dict) else None
    if not isinstance(found, dict):
        return ""
    if isinstance(more := found.get("metadata"), dict) and "flagged_input" in more:
        return "content_policy_violation"
    return next((word for key in ("code", "type") if isinstance(word := found.get(key), str)), "")


def _message_of(document: Any, levels: int = 8) -> str | None:
    """Returns the message for people in error objects of OpenAI, Anthropic, FastAPI, Ollama and llama.cpp."""
    if isinstance(document, str):
        return document
    inside: list[Any] = []
    if isinstance(document, list):
        inside = document[:3]
    elif isinstance(document, dict):
        inside = [document.get(key) for key in ("error", "message", "detail", "msg", "error_description")]
    return next((found for item in inside if levels and (found := _message_of(item, levels - 1))), None)


def filtered(status: int, code: str) -> bool:
    """Whether a filter refused what was asked."""
    return status in (400, 403) and code in _FLAGGED


def unpaid(status: int, code: str, text: str) -> bool:
    """Whether the account has no credit or quota left. Providers use several statuses for that."""
    return status == 402 or code in _NO_QUOTA or (status in (400, 403, 429) and bool(_NO_CREDIT.search(text)))


def loading(status: int, text: str) -> bool:
    """Whether the server is loading its model and will answer then."""
    return status == 503 and bool(_LOADING.search(text))


def too_long(status: int, code: str, text: str) -> bool:
    """Whether the request is longer than the model's context."""
    return status in (400, 413, 422) and (code == "context_length_exceeded" or bool(_TOO_LONG.search(text)))


def retry_after_s(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """Returns the seconds that the provider asks us to wait: a number or an HTTP date (RFC 9110, 10.2.3)."""
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        at_s = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return max(0.0, at_s - (time.time() if now_s is None else now_s))


def _number(text: str) -> float | None:
    with suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) and number >= 0 else None
    return None
