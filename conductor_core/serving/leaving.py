"""Work that ends with the client's connection, or when its key is revoked."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from conductor_core.serving.admission import Allowance, needs_key

_T = TypeVar("_T")


async def unless_left(
    work: Coroutine[Any, Any, _T],
    receive: Receive,
    allowance: Allowance,
    when_revoked: Callable[[], None] = lambda: None,
) -> _T:
    """Returns the result of ``work``, which is cancelled if the client leaves or its key is revoked.

    Raises: ClientDisconnect, ApiError 401.
    """
    working = asyncio.create_task(work)
    leaving, revoked = asyncio.create_task(left(receive)), asyncio.create_task(allowance.revoked.wait())
    try:
        await asyncio.wait({working, leaving, revoked}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if not revoked.done():
            raise ClientDisconnect
        when_revoked()
        raise needs_key()
    finally:
        await ended(working, leaving, revoked)


async def left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def ended(*tasks: "asyncio.Future[Any]") -> None:
    """Cancels tasks and waits until they are over."""
    for task in tasks:
        task.cancel()
    if going := [task for task in tasks if not task.done()]:
        await asyncio.wait(going)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # heard: whoever waited for it was told
