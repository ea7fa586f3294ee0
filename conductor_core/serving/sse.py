"""Server-sent events as bytes, each to be written at once: some clients lose events that come in two pieces."""

import json
from collections.abc import Mapping
from typing import Any

from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Outcome

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
