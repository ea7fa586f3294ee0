"""The tools over streamable HTTP: each request is answered by itself, as one JSON document, and no session is kept."""

import asyncio
from importlib import import_module

from starlette.types import Receive, Scope, Send

from conductor_core.run.actor import Caller
from storage.store import Store

AT_ONCE = 4
"""Calls that read the database at once; further ones wait, and leave the threads of the event loop to others."""


class OverHttp:
    """Answers a request to ``/mcp`` whose caller is known. The SDK is imported at the first one: 0.8 s.

    Belongs to the event loop that first used it.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._places = store, asyncio.Semaphore(AT_ONCE)

    async def __call__(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        server = await asyncio.to_thread(import_module, "conductor_core.mcp.server")
        await server.answer(self._store, caller, self._places, scope, receive, send)
