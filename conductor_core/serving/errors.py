"""What goes wrong with a request, and how each API says it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

Api = Literal["chat", "responses", "messages"]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
_OPENAI_TYPES = {500: "server_error", 502: "server_error", 503: "server_error", 504: "server_error"}
ANTHROPIC_STATUSES = {503: 529}
"""Anthropic's own number where the protocols differ."""
_IN_RESPONSES = {"messages": "input", "response_format": "text.format"}
"""What a field of a chat completion is called in the Responses API."""


def until_midnight_s() -> float:
    """Returns the seconds until the next day of UTC begins, and with it what keys may spend."""
    now = datetime.now(UTC)
    return ((now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0) - now).total_seconds()


@dataclass
class ApiError(Exception):
    """A refused or failed request.

    Attributes:
        status: of HTTP, as OpenAI numbers it.
        message: one sentence that names the fault and what to do.
        code: a word for programs. param: the field at fault, as a chat completion calls it.
        retry_after_s: when the same request may be sent again; None: nobody says.
        may_retry: False: an SDK must not repeat it by itself, because workers were paid.
        run_id: of the run that failed; None: there is none.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    may_retry: bool = True
    run_id: str | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def type(self) -> str:
        return _OPENAI_TYPES.get(self.status) or _TYPES.get(self.status, "api_error")

    def document(self, api: Api, request_id: str) -> dict[str, Any]:
        """Returns the body in the shape of ``api``; all four keys of OpenAI's are always there."""
        if api == "messages":
            error = {"type": _TYPES.get(self.status, "api_error"), "message": self.message}
            return {"type": "error", "error": error, "request_id": request_id}
        param = _IN_RESPONSES.get(self.param, self.param) if api == "responses" and self.param else self.param
        return {"error": {"message": self.message, "type": self.type, "param": param, "code": self.code}}
