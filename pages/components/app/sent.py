"""Reads what a page sends with a request."""

from typing import TypeVar

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request

Form = TypeVar("Form", bound=BaseModel)
MOST_BYTES = 1_000_000
"""Of what a page sends. More is refused as it comes, so that no program of this machine fills the memory."""


async def sent(request: Request, form: type[Form]) -> Form:
    """Returns what was sent as JSON. Raises: pydantic.ValidationError; HTTPException 413 if it is too much."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"this is more than {MOST_BYTES:,} bytes", {"connection": "close"})
    return form.model_validate_json(bytes(body))
