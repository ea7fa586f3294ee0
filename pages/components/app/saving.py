"""Answers a page that saves a file which a person hands over."""

import asyncio
from collections.abc import Callable

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from conductor_core.errors import BadInput, StoreError, UnknownRun
from conductor_core.run.redaction import Redactor, words
from conductor_core.run.trace import RunUnreadable


class Hidden(BaseModel):
    """What a page hides in the file: words, as they are."""

    words: tuple[str, ...] = Field(default=(), max_length=1000)

    @property
    def redactor(self) -> Redactor:
        return Redactor(words(self.words))


async def saved(write: Callable[[], str]) -> Response:
    """Returns the page that ``write`` makes, in a thread, to be saved: 400, 404, 409 or 503 with the reason."""
    try:
        text = await asyncio.to_thread(write)
    except UnknownRun as error:
        return refused(404, str(error))
    except RunUnreadable as error:
        return refused(409, str(error))
    except BadInput as error:
        return refused(400, str(error))
    except StoreError as error:
        return refused(503, str(error))
    # It is for saving. Should a browser open it here all the same, it can do nothing.
    headers = {"content-disposition": "attachment", "content-security-policy": "sandbox", "cache-control": "no-store"}
    return Response(text, media_type="text/html", headers=headers)


def refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status_code=status)
