"""The tools over streamable HTTP: each request is answered by itself, as one JSON document, and no session is kept."""

import asyncio
from importlib import import_module

from starlette.types import Receive, Scope, Send

from conductor_core.run.actor import Caller
from storage.store import Store


class OverHttp:
    """Answers a request to ``/mcp`` whose caller is known. The SDK is imported at the first one: 0.8 s."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __call__(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        server = await asyncio.to_thread(import_module, "conductor_core.mcp.server")
        await server.answer(self._store, caller, scope, receive, send)
