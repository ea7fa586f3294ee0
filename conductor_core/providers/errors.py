"""What goes wrong at a server, for workers and Conductors alike: its kind, and one clear line about it.

What a server says decides before its status: servers give one fault many statuses. A line names who was asked, what
happened and what to do. It never holds a page of HTML or a control character: a server's words are untrusted, so they
are masked, cleaned and cut before they are quoted.
"""

import email.utils
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import httpx2

from conductor_core.privacy.masking import one_line
from conductor_core.providers.transport import causes

FaultKind = Literal[
    "filtered",
    "unpaid",
    "key",
    "too_long",
    "no_images",
    "model",
    "rate",
    "timeout",
    "loading",
    "failed",
    "refused",
    "unreachable",
    "certificate",
    "cut",
    "too_large",
]


class ServerFault(Exception):
    """A call that brought no whole answer. Workers and Conductors make their own errors of it.

    Attributes:
        retry_after_s: how long the server asked us to wait, if it did.
        of_request: whether the server refused this request, and may accept another.
        reply: what the server said.
    """

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        retry_after_s: float | None = None,
        of_request: bool = False,
        reply: "ErrorReply | None" = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.of_request = of_request
        self.reply = reply or ErrorReply()


_MOST_SEARCHED = 4000
_HTML = re.compile(r"<(?:!doctype|html|head|body|script|style|title|meta|div|h1|p)\b", re.IGNORECASE)
_FLAGGED = frozenset(
    {"content_policy_violation", "content_filter", "refusal", "data_inspection_failed", "ResponsibleAIPolicyViolation"}
)
"""Codes of a filter that refused what was asked: OpenRouter's with status 403 (https://openrouter.ai/docs/errors), and
those of Azure, OpenAI and Alibaba with 400."""
_CODES = {
    402: "insufficient_quota insufficient_credits billing_hard_limit_reached billing_not_active billing_error "
    "budget_exceeded",
    401: "authentication_error invalid_api_key API_KEY_INVALID",
    403: "permission_error",
    404: "not_found_error model_not_found NotFoundError",
    413: "request_too_large",
    400: "invalid_request_error context_length_exceeded exceed_context_size_error content_filter "
    "content_policy_violation",
    429: "rate_limit_error rate_limit_exceeded ThrottlingException",
    500: "api_error server_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUS_OF_CODE = {code: status for status, codes in _CODES.items() for code in codes.split()}
"""Statuses that providers put into words in an error object: OpenAI's ``code`` and ``type``, Anthropic's ``type``
(https://docs.anthropic.com/en/api/errors), llama.cpp's and LiteLLM's ``type``."""


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL)


_SAID: tuple[tuple[FaultKind, re.Pattern[str]], ...] = (
    (
        "filtered",  # Azure OpenAI
        _words(r"content management policy", r"\binput (?:was|has been) flagged", r"data inspection failed"),
    ),
    (
        "unpaid",  # Anthropic with 400, others with 403 or 429; LiteLLM's budgets with 400
        _words(
            r"\bcredit balance\b",
            r"\binsufficient (?:account )?(?:credits?|balance|funds|quota)",
            r"\bmore credits\b",
            r"check your plan and billing",
            r"\bbudget has been exceeded\b|\bexceeded (?:your )?budget\b|\bbudget.{0,20}exceeded\b",
            r"billing (?:hard )?limit",
        ),
    ),
    (
        "key",  # Google with 400, OpenRouter with an error object under 200
        _words(
            r"api[ _-]?key (?:is )?(?:not valid|invalid|expired|not found)|\binvalid (?:x-)?api[ _-]?key",
            r"incorrect api[ _-]?key|\bno auth credentials\b|\binvalid authentication\b|unauthorized",
        ),
    ),
    (
        "rate",  # Bedrock, also with 400
        _words(r"\btoo many (?:tokens|requests), please wait|throttlingexception"),
    ),
    (
        "refused",  # OpenAI, vLLM: the limit on the answer is the one to be lowered, not the prompt
        _words(r"max(?:_completion)?_tokens\b.{0,40}\bis too large"),
    ),
    (
        "too_long",  # vLLM, SGLang, llama.cpp (also with 500), Ollama, LM Studio, OpenAI, Anthropic, Google, Groq
        _words(
            r"context[ _-]?(?:length|window|size|limit)",
            r"maximum (?:number of tokens|(?:allowed )?input|context)|too many (?:input )?tokens",
            r"(?:prompt|input|request)(?: is)? too (?:long|large)|prompt exceeds max|range of input length",
            r"exceeds? the (?:model's )?(?:maximum|available) (?:context|length|tokens|number of tokens)",
            r"token count.{0,40}exceeds",
            r"reduce (?:the length of (?:the|your) (?:messages|prompt)|your (?:message|prompt))",
        ),
    ),
    (
        "no_images",  # llama.cpp with 500, vLLM, Ollama, OpenRouter
        _words(
            r"image input is not supported|mmproj|multimodal",
            r"(?:does not|doesn't|do not|cannot|can't) (?:support|accept|handle|process|read|see) (?:image|vision)",
            r"no endpoints found that support image|image_url.{0,40}(?:not supported|unsupported|invalid)",
            r"image_url is only supported by|unknown variant `?image_url",
            r"\b(?:images?|vision) (?:inputs? )?(?:is|are) not supported",
        ),
    ),
    (
        "model",  # LiteLLM and OpenRouter with 400, Ollama, vLLM
        _words(
            r"not a valid model|invalid model name|unknown model|no such model|model_not_found",
            r"\bmodel\b.{0,80}\b(?:does not exist|not found|is not available|not supported by)",
        ),
    ),
)
"""What servers say, by what it means, whatever the status. The first that fits decides."""
_LOADING = re.compile(
    r"\bloading\b.{0,40}\bmodel|\bmodel\b.{0,120}\b(?:loading|being loaded|not (?:yet )?(?:loaded|ready))\b"
    r"|\bwarming up\b|\bstarting up\b",
    re.IGNORECASE | re.DOTALL,
)
"""Words of llama.cpp ("Loading model"), Ollama ("llm server loading model"), TGI and the hub ("Model X is currently
loading") and vLLM's front ends, with status 503."""
_RATE = re.compile(r"\brate.?limit|\btoo many requests\b", re.IGNORECASE)
_OF_REQUEST = frozenset({400, 413, 422})


class ErrorReply(NamedTuple):
    """An error reply: its message, fit to be quoted, the provider's codes for it, and the parameter that it names."""

    text: str = ""
    codes: tuple[str, ...] = ()
    parameter: str = ""
    whole: str = ""
    """All that it says, not cut: to be searched, never to be shown."""


def read_error_reply(body: bytes, content_type: str = "") -> ErrorReply:
    """Reads an error body: an error object or plain text. Quotes nothing of a page of HTML or of broken JSON."""
    text = body.decode("utf-8", "replace").strip()
    if "html" in content_type.lower():
        return ErrorReply()
    try:
        return error_reply_of(json.loads(text))
    except (ValueError, RecursionError):
        return ErrorReply() if text.startswith(("{", "[")) else ErrorReply(_quotable(text), whole=text[:_MOST_SEARCHED])


def error_reply_of(document: Any) -> ErrorReply:
    """Returns the error reply in an error object that was already parsed."""
    said = _message_of(document) or ""
    if behind := _behind(document):
        said = f"{said}: {behind}"
    named = _field_of(document, "param")
    parameter = named if named and isinstance(named, str) else _place_in(document)
    return ErrorReply(_quotable(said), _codes_of(document), parameter, f"{parameter} {said}".strip()[:_MOST_SEARCHED])


def _behind(document: Any) -> str:
    """Returns what the provider behind OpenRouter said, whose own message is only that there was an error."""
    metadata = _field_of(document, "metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return read_error_reply(raw.encode(errors="replace")).text if isinstance(raw, str) else ""


def _place_in(document: Any, levels: int = 8) -> str:
    """Returns the parameter that a server did not expect. Where pydantic checks requests, only ``loc`` names it."""
    if isinstance(document, dict):
        match document.get("loc"):
            case ["body", str(name), *_]:
                return name
        inside = [document.get(key) for key in ("error", "message", "detail")]
    else:
        inside = document[:3] if isinstance(document, list) else []
    return next((found for item in inside if levels and (found := _place_in(item, levels - 1))), "")


def _quotable(text: str) -> str:
    return "" if _HTML.search(text) else one_line(text)


def _error_in(document: Any) -> Any:
    """Returns the error object of a document, which may be a list of one (Google)."""
    if isinstance(document, list) and document:
        document = document[0]
    return document.get("error", document) if isinstance(document, dict) else None


def _field_of(document: Any, name: str) -> Any:
    found = _error_in(document)
    return found.get(name) if isinstance(found, dict) else None


def _codes_of(document: Any) -> tuple[str, ...]:
    words: list[Any] = []
    for found in (_error_in(document), document):
        if not isinstance(found, dict):
            continue
        metadata, inner, details = (found.get(name) for name in ("metadata", "innererror", "details"))
        if isinstance(metadata, dict) and "flagged_input" in metadata:
            words.append("content_policy_violation")
        words += [found.get(key) for key in ("code", "type", "status")]
        words += [inner.get("code")] if isinstance(inner, dict) else []
        words += (
            [each.get("reason") for each in details[:3] if isinstance(each, dict)] if isinstance(details, list) else []
        )
    return tuple(str(word)[:100] for word in words if isinstance(word, str | int) and not isinstance(word, bool))


def _message_of(document: Any, levels: int = 8) -> str | None:
    """Returns the message for people in error objects of OpenAI, Anthropic, FastAPI, Ollama, llama.cpp, MiniMax."""
    if isinstance(document, str):
        return document
    inside: list[Any] = []
    if isinstance(document, list):
        inside = document[:3]
    elif isinstance(document, dict):
        keys = ("error", "message", "detail", "msg", "error_description", "base_resp", "status_msg")
        inside = [document.get(key) for key in keys]
    return next((found for item in inside if levels and (found := _message_of(item, levels - 1))), None)


def kind_of(status: int, said: ErrorReply) -> FaultKind:
    """Returns what a reply means: by what it says, then by its codes, then by its status."""
    if not _FLAGGED.isdisjoint(said.codes) and status in (200, 400, 403):
        return "filtered"
    stated = status_of(said)
    if status == 402 or any(_STATUS_OF_CODE.get(code) == 402 for code in said.codes) or "402" in said.codes:
        return "unpaid"
    limited = 429 in (status, stated)
    for kind, pattern in _SAID:
        if pattern.search(said.whole) and not (limited and kind in ("key", "model")):
            return kind
    if _LOADING.search(said.whole) and status == 503:
        return "loading"
    if "no endpoints found" in said.whole.lower():  # OpenRouter: the account's own rules leave none
        return "refused"
    return _kind_of_status(status if status not in (200, 400, 500) or stated is None else stated, said)


def _kind_of_status(status: int, said: ErrorReply) -> FaultKind:
    if status in (401, 403):
        return "key"
    if status == 404:
        return "model"
    if status == 429:
        return "rate"
    if status in (408, 504, 524):
        return "timeout"
    if status >= 500 or status in (409, 425):
        return "failed"
    if status == 200:
        return "rate" if _RATE.search(said.whole) else "failed"
    return "refused"


def status_of(said: ErrorReply) -> int | None:
    """Returns the HTTP status that an error object's codes stand for: 429, "429" or "rate_limit_error"."""
    for word in said.codes:
        status = int(word) if word.isascii() and word.isdecimal() and len(word) == 3 else _STATUS_OF_CODE.get(word)
        if status is not None and 400 <= status < 600:
            return status
    return None


def fault_of_reply(
    where: str, status: int, said: ErrorReply, *, key_hint: str, wait_s: float | None = None
) -> ServerFault:
    """Returns the fault of an HTTP reply, or of an error object in place of an answer (``status`` 200).

    Args:
        where: who was asked, as ``worker w: 127.0.0.1:9``. key_hint: what to do about a key that is refused.
    """
    kind = kind_of(status, said)
    shown = status if status != 200 else status_of(said)
    number = "" if shown is None else f" {shown}"
    words = _FAULTS[kind]
    if kind == "failed" and status == 200:
        words = f"sent an error instead of an answer{f', {shown}' if shown else ''}{{quoted}}; try again"
    elif kind == "refused" and 300 <= status < 400:
        words = "redirects elsewhere,{number}, which is not followed; correct base_url"
    told = words.format(
        number=number,
        under=f" with{number}" if number else "",
        quoted=f" ({said.text})" if said.text else "",
        wait="" if wait_s is None else f", asking to wait {wait_s:.0f} s",
        key_hint=key_hint,
    )
    of_request = kind in ("filtered", "too_long", "no_images") or (kind == "refused" and status in (200, *_OF_REQUEST))
    return ServerFault(kind, f"{where} {told}", retry_after_s=wait_s, of_request=of_request, reply=said)


_FAULTS: dict[FaultKind, str] = {
    "filtered": "refused what was asked{under}{quoted}; reword the task",
    "unpaid": "wants to be paid first{quoted}; check the account's credit",
    "key": "refused the key{under}{quoted}; {key_hint}",
    "too_long": "finds the request longer than the model's context,{number}{quoted}; ask with less text",
    "no_images": "cannot see images{under}{quoted}; take another worker, or load the model's projector file (mmproj) "
    "at its server",
    "model": "knows no such model or path,{number}{quoted}; check model and base_url",
    "rate": "is limiting requests,{number}{wait}{quoted}; ask less at once, or wait",
    "timeout": "gave up waiting,{number}{quoted}; try again",
    "loading": "is loading its model,{number}{quoted}",
    "failed": "failed{under}{quoted}; try again later",
    "refused": "rejected the request{under}{quoted}; check model and params",
}
"""What to say of a reply, by its kind."""


def fault_of_connection(where: str, error: Exception, *, silence_s: float, answering: bool) -> ServerFault:
    """Returns the fault of a failed connection.

    Args:
        silence_s: how long nothing may come. answering: whether the server had begun to answer.
    """
    kind: FaultKind = "unreachable"
    if any(isinstance(cause, ssl.SSLError) for cause in causes(error)):
        kind, words = "certificate", "offers no valid TLS certificate; check base_url and the machine's certificates"
    elif isinstance(error, httpx2.ConnectTimeout):
        words = "did not accept a connection in time; check that the server is up, and base_url"
    elif isinstance(error, httpx2.TimeoutException):
        kind, words = "timeout", f"sent nothing for {silence_s:g} s; raise timeout_s or try again"
    elif isinstance(error, httpx2.ProxyError):
        variables = "http_proxy, https_proxy, all_proxy and no_proxy"
        words = f"is not reachable through the proxy ({one_line(str(error))}); check {variables}"
    elif isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        kind, words = "refused", "cannot be asked: the request is not valid HTTP; check base_url and the key"
    elif isinstance(error, httpx2.ConnectError):
        words = _why_unreachable(error)
    elif answering:
        kind, words = "cut", "closed the connection in the middle of its answer; try again"
    elif isinstance(error, httpx2.RemoteProtocolError):
        words = "answered with something that is not HTTP; check base_url"
    else:
        words = "closed the connection without an answer; try again"
    return ServerFault(kind, f"{where} {words}")


def _why_unreachable(error: BaseException) -> str:
    for cause in causes(error):
        if isinstance(cause, socket.gaierror):
            return "cannot be found: no such host name; check base_url"
        if isinstance(cause, ConnectionRefusedError):
            return "refuses connections; check that the server is running, and base_url"
    return "cannot be reached; check that the server is running, and base_url"


def retry_after_s(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """Returns the seconds that the provider asks us to wait: a number or an HTTP date (RFC 9110, 10.2.3)."""
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return min(milliseconds / 1000, _LONGEST_WAIT_S)
    value = headers.get("retry-after", "")
    if (seconds := _number(value)) is not None:
        return min(seconds, _LONGEST_WAIT_S)
    try:
        at_s = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return min(max(0.0, at_s - (time.time() if now_s is None else now_s)), _LONGEST_WAIT_S)


_LONGEST_WAIT_S = 366 * 86_400.0
"""No run waits for as long. What is longer is no time that a server means."""


def _number(text: str) -> float | None:
    with suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) and number >= 0 else None
    return None
