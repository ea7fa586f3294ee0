"""How the endpoint answers: JSON, events of streams, the headers of every answer, errors in the shape of each API."""

import json
import math
import secrets
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from conductor_core.serving.errors import ANTHROPIC_STATUSES, Api, ApiError
from conductor_core.serving.outcome import Outcome

ROOT, MCP = "/v1", "/mcp"


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


def is_of_the_endpoint(path: str) -> bool:
    return path in (ROOT, MCP) or path.startswith(f"{ROOT}/")


def api_of(scope: Scope) -> Api:
    """Returns the API in whose shape errors are: Anthropic's for its paths, and for its clients' lists of models."""
    path = scope["path"]
    if path.startswith(f"{ROOT}/messages"):
        return "messages"
    if path.startswith(f"{ROOT}/models") and "anthropic-version" in Headers(scope=scope):
        return "messages"
    return "responses" if path.startswith(f"{ROOT}/responses") else "chat"


def id_headers(request_id: str, api: Api) -> dict[str, str]:
    """Returns the headers that name a request. Anthropic's SDK reads the second."""
    return {"x-request-id": request_id} | ({"request-id": request_id} if api == "messages" else {})


class Json(Response):
    """A document. Half a character, which only JSON's own escapes can hold, is written as one."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")


def refusal(error: ApiError, scope: Scope, request_id: str, headers: Mapping[str, str] | None = None) -> Json:
    """Returns the answer that says ``error`` to who asked. ``headers``: further ones."""
    api = api_of(scope)
    status = ANTHROPIC_STATUSES.get(error.status, error.status) if api == "messages" else error.status
    answer = Json(error.document(api, request_id), status, {"cache-control": "no-store", **(headers or {})})
    answer.headers.update(id_headers(request_id, api))
    if error.retry_after_s is not None:
        answer.headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if not error.may_retry:
        answer.headers["x-should-retry"] = "false"
    if error.status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    return answer


# Server-sent events, each whole in one write: some clients lose events that come in two pieces.


_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})
"""JSON escapes the rest. Clients that split text into lines by Python's or JavaScript's rules end a line here, too."""

COMMENT = b": the run goes on\n\n"
DONE = b"data: [DONE]\n\n"


def event(document: Mapping[str, Any], name: str | None = None) -> bytes:
    """Returns an event whose data is ``document``. ``name``: its type; None: it has none."""
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":")).translate(_LINE_ENDS)
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {data}\n\n".encode(errors="replace")


def failure(outcome: Outcome) -> ApiError | None:
    """Returns why a stream ends in an error; None: it ends in an answer."""
    if outcome.status == "cancelled":
        return outcome.error or ApiError(409, "The run was cancelled.", code="cancelled", run_id=outcome.run_id)
    if outcome.status == "failed":
        return outcome.error or ApiError(500, "The run failed.", code="failed", run_id=outcome.run_id)
    return None
