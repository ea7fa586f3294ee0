"""Turns faults on the way to a provider into our errors, each with one clear line.

A line names the worker, what happened and what to do. It never holds a page of HTML or a control character: a
provider's words are untrusted, so they are masked, cleaned and cut before they are quoted.
"""

import socket
from typing import Any

import httpx2

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import (
    WorkerCertificate,
    WorkerContextOverflow,
    WorkerError,
    WorkerFailed,
    WorkerFiltered,
    WorkerKeyRefused,
    WorkerLoading,
    WorkerModelUnknown,
    WorkerRateLimited,
    WorkerRefused,
    WorkerStreamCut,
    WorkerTimedOut,
    WorkerUnpaid,
    WorkerUnreachable,
)
from conductor_core.providers import errors
from conductor_core.providers.errors import ErrorReply
from conductor_core.providers.transport import causes, no_certificate

_OF_REQUEST = frozenset({400, 413, 422})

# Statuses that providers put into words in an error object: OpenAI's ``code`` and ``type``, Anthropic's ``type``
# (https://docs.anthropic.com/en/api/errors).
_STATUS_OF_TYPE = {
    "insufficient_quota": 402,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def _host(spec: WorkerSpec, url: httpx2.URL) -> str:
    return f"worker {spec.name}: {url.host}" + (f":{url.port}" if url.port else "")


def _key_hint(spec: WorkerSpec) -> str:
    if spec.api_key_env is None:
        return "name the variable that holds its key as api_key_env in the pool file"
    return f"check the key in {spec.api_key_env}"


def from_status(
    spec: WorkerSpec, url: httpx2.URL, status: int, said: ErrorReply, wait_s: float | None = None
) -> WorkerError:
    """Returns the error for an HTTP status, or for the status that an error object under 200 stands for."""
    quoted = f" ({said.text})" if said.text else ""
    where = _host(spec, url)
    if errors.filtered(status, said.code):
        return WorkerFiltered(f"{where} refused what was asked with {status}{quoted}; reword the task")
    if errors.unpaid(status, said.code, said.text):
        return WorkerUnpaid(f"{where} wants to be paid first{quoted}; check the account's credit")
    if status in (401, 403):
        return WorkerKeyRefused(f"{where} refused the key with {status}{quoted}; {_key_hint(spec)}")
    if errors.too_long(status, said.code, said.text):
        return WorkerContextOverflow(
            f"{where} finds the request longer than the model's context, {status}{quoted}; let the step read less"
        )
    if status == 404 or said.code == "model_not_found":
        return WorkerModelUnknown(f"{where} knows no such model or path, 404{quoted}; check model and base_url")
    if status == 429:
        wait = "" if wait_s is None else f", asking to wait {wait_s:.0f} s"
        return WorkerRateLimited(
            f"{where} is limiting requests, 429{wait}{quoted}; lower max_concurrency or wait", retry_after_s=wait_s
        )
    if status in (408, 504):
        return WorkerTimedOut(f"{where} gave up waiting, {status}{quoted}; try again", retry_after_s=wait_s)
    if errors.loading(status, said.text):
        return WorkerLoading(f"{where} is loading its model, {status}{quoted}", retry_after_s=wait_s)
    if status >= 500 or status in (409, 425):
        return WorkerFailed(f"{where} failed with {status}{quoted}; try again later", retry_after_s=wait_s)
    if 300 <= status < 400:
        return WorkerRefused(f"{where} redirects elsewhere, {status}, which is not followed; correct base_url")
    return WorkerRefused(
        f"{where} rejected the request with {status}{quoted}; check model and params", of_request=status in _OF_REQUEST
    )


def from_error_object(spec: WorkerSpec, url: httpx2.URL, found: Any) -> WorkerError:
    """Returns the error for an error object in place of an answer: under 200, or in the middle of a stream."""
    said = errors.error_reply_of(found)
    words = [found.get(key) for key in ("code", "type", "status")] if isinstance(found, dict) else []
    for status in map(_status_of, words):
        if status is not None:
            return from_status(spec, url, status, said)
    quoted = f" ({said.text})" if said.text else ""
    return WorkerFailed(f"{_host(spec, url)} sent an error instead of an answer{quoted}; try again")


def _status_of(word: Any) -> int | None:
    """Returns the HTTP status that a provider's error code stands for: 429, "429" or "rate_limit_error"."""
    if isinstance(word, str):
        word = int(word) if word.isascii() and word.isdecimal() and len(word) == 3 else _STATUS_OF_TYPE.get(word)
    return word if type(word) is int and 400 <= word < 600 else None


def from_transport(spec: WorkerSpec, url: httpx2.URL, error: Exception, *, answering: bool) -> WorkerError:
    """Returns the error for a failed connection. ``answering``: the provider had begun to answer."""
    where = _host(spec, url)
    if isinstance(error, httpx2.ConnectTimeout):
        return WorkerUnreachable(f"{where} did not accept a connection in time; is the server up and base_url right?")
    if isinstance(error, httpx2.TimeoutException):
        return WorkerTimedOut(f"{where} sent nothing for {spec.timeout_s:g} s; raise timeout_s or try again")
    if isinstance(error, httpx2.ProxyError):
        return WorkerUnreachable(
            f"{where} is not reachable through the proxy; check http_proxy, https_proxy and no_proxy"
        )
    if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        return WorkerRefused(f"{where} cannot be asked: the request is not valid HTTP; check base_url and the key")
    if isinstance(error, httpx2.ConnectError) and no_certificate(error):
        return WorkerCertificate(
            f"{where} offers no valid TLS certificate; check base_url and the machine's certificates"
        )
    if isinstance(error, httpx2.ConnectError):
        return WorkerUnreachable(f"{where} {_why_unreachable(error)}")
    if answering:
        return WorkerStreamCut(f"{where} closed the connection in the middle of its answer; try again")
    if isinstance(error, httpx2.RemoteProtocolError):
        return WorkerUnreachable(f"{where} answered with something that is not HTTP; check base_url")
    return WorkerUnreachable(f"{where} closed the connection without an answer; try again")


def _why_unreachable(error: BaseException) -> str:
    for cause in causes(error):
        if isinstance(cause, socket.gaierror):
            return "cannot be found: no such host name; check base_url"
        if isinstance(cause, ConnectionRefusedError):
            return "refuses connections: is the server running, and is base_url right?"
    return "cannot be reached: is the server running, and is base_url right?"
