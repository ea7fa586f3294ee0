"""Turns what went wrong at a Conductor's server into one of our errors, with one clear line."""

import httpx2

from conductor_core.errors import (
    ConductorError,
    ConductorFailed,
    ConductorKeyRefused,
    ConductorLoading,
    ConductorModelUnknown,
    ConductorRateLimited,
    ConductorUnavailable,
    ConductorUnpaid,
    PromptOverflows,
)
from conductor_core.providers import errors


class Refused(Exception):
    """The server does not accept the request as it is (400, 422), or its ``logprobs``."""


class Filtered(Exception):
    """A filter of the server refused the request; the message is what the server said."""


async def from_status(where: str, model: str, response: httpx2.Response, key_hint: str) -> Exception:
    """Returns the error for a reply that is no completion.

    Args:
        where: the server, as a message names it.
        key_hint: what to do about a key that is refused.
    """
    status = response.status_code
    said = await _beginning(response)
    text, code = errors.read_error_reply(said, response.headers.get("content-type", ""))
    detail = f": {text}" if text else ""
    wait_s = errors.retry_after_s(response.headers)
    if errors.filtered(status, code):
        return Filtered(text or f"status {status}")
    if errors.unpaid(status, code, text):
        return ConductorUnpaid(f"{where} wants to be paid first ({status}){detail}")
    if errors.too_long(status, code, text):
        return PromptOverflows(f"{where} refuses the request as too long: {text}")
    if status in (400, 422) or "logprobs" in text:  # OpenAI forbids these for some models (403)
        return Refused(text or f"status {status}")
    if status in (401, 403):
        return ConductorKeyRefused(f"{where} refuses access ({status}): {key_hint}{detail}")
    if status == 404:
        return ConductorModelUnknown(f"{where} does not know the model {model!r} or the address{detail}")
    if status == 429:
        asked = "" if wait_s is None else f", asking to wait {wait_s:.0f} s"
        said_so = f"{where} has too many requests (429{asked}): try again later{detail}"
        return ConductorRateLimited(said_so, retry_after_s=wait_s)
    if errors.loading(status, text):
        return ConductorLoading(f"{where} is loading its model ({status}){detail}", retry_after_s=wait_s)
    if status >= 500 or status in (408, 409, 425):
        return ConductorFailed(f"{where} failed ({status}): try again{detail}", retry_after_s=wait_s)
    return ConductorUnavailable(f"{where} failed ({status}): try again{detail}")


def from_error_object(where: str, data: str) -> ConductorError:
    """Returns the error for an error object that comes instead of a plan, or in the middle of one."""
    text, code = errors.read_error_reply(data.encode())
    if errors.too_long(400, code, text):
        return PromptOverflows(f"{where} refuses the request as too long: {text}")
    kind = ConductorUnpaid if errors.unpaid(400, code, text) else ConductorFailed
    return kind(f"{where} reports an error: {text or 'without words'}")


async def _beginning(response: httpx2.Response) -> bytes:
    """Reads the first bytes of an error's body."""
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > 16_384:
            break
    return body
