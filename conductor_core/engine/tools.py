"""The tools of a pool, for whoever wants to see or try them before a run: the command line and the pages.

These functions block: they are for callers without an event loop. They start the servers they need, and end them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from conductor_core.chat.messages import WorkerSpec
from conductor_core.chat.tools import PYTHON, OfferedTool, ToolAnswer, ToolListing, ToolServer, allowed
from conductor_core.engine.pools import read_pool
from conductor_core.errors import BadInput
from conductor_core.settings import Settings
from conductor_core.tools.servers import allow, open_server

Notify = Callable[[int, int], None]
"""Takes how many servers have answered, of how many."""


@dataclass(frozen=True)
class PoolTools:
    """What the tool servers of a pool offer, in the order of its file.

    Attributes:
        workers: those of the pool.
    """

    workers: tuple[WorkerSpec, ...]
    listings: tuple[ToolListing, ...]

    @property
    def tools(self) -> list[OfferedTool]:
        return [tool for listing in self.listings for tool in listing.tools]

    def callers(self, tool: OfferedTool) -> list[str]:
        """Returns the names of the workers that may call it."""
        return [spec.name for spec in self.workers if tool in allowed(spec, self.listings)]

    @property
    def missing(self) -> list[str]:
        """Returns a sentence on each tool that a worker names and its server, which answered, does not offer."""
        answered = {each.server: {tool.tool for tool in each.tools} for each in self.listings if not each.fault}
        return [
            f"worker {spec.name} names {server}.{tool}, which the server does not offer"
            for spec in self.workers
            for server, dot, tool in (grant.partition(".") for grant in spec.tools)
            if dot and server in answered and tool not in answered[server]
        ]


def list_tools(pool: str, settings: Settings, notify: Notify = lambda _done, _all: None) -> PoolTools:
    """Asks all tool servers of a pool at once. Raises: PoolInvalid; BadInput for a name without a file."""
    read = read_pool(pool, settings)

    async def ask() -> tuple[ToolListing, ...]:
        done = 0
        if read.tools:
            notify(done, len(read.tools))

        async def listed(server: ToolServer) -> ToolListing:
            nonlocal done
            listing = await server.list()
            done += 1
            notify(done, len(read.tools))
            return listing

        async with _opened(pool, settings) as servers:
            return tuple(await asyncio.gather(*map(listed, servers.values())))

    return PoolTools(read.workers, asyncio.run(ask()))


def find_tool(pool: str, named: str, settings: Settings) -> OfferedTool:
    """Returns the tool that ``SERVER.TOOL`` names. Raises: PoolInvalid, BadInput."""
    server, dot, tool = named.partition(".")

    async def find() -> ToolListing:
        async with _opened(pool, settings) as servers:
            if server not in servers or not dot:
                has = ", ".join(servers) or f"none; {PYTHON} needs a worker that names it"
                raise BadInput(f"unknown tool {named[:80]!r}: give SERVER.TOOL; the pool's servers are {has}")
            return await servers[server].list()

    listing = asyncio.run(find())
    if listing.fault:
        raise BadInput(listing.fault)
    found = next((each for each in listing.tools if each.tool == tool), None)
    if found is None:
        raise BadInput(f"unknown tool {named[:80]!r}: {server} offers {', '.join(t.tool for t in listing.tools)}")
    return found


def try_tool(pool: str, tool: OfferedTool, arguments: Mapping[str, Any], settings: Settings) -> ToolAnswer:
    """Calls a tool once, as it was offered. Raises: PoolInvalid; BadInput for a pool without the tool's server."""

    async def call() -> ToolAnswer:
        async with _opened(pool, settings) as servers:
            if tool.server not in servers:
                raise BadInput(f"the pool has no tool server {tool.server} any more")
            return await servers[tool.server].call(tool, arguments)

    return asyncio.run(call())


@asynccontextmanager
async def _opened(pool: str, settings: Settings) -> AsyncIterator[Mapping[str, ToolServer]]:
    read = read_pool(pool, settings)
    allow(read.tools, settings.data_folder)
    servers = {spec.name: open_server(spec) for spec in read.tools}
    try:
        yield servers
    finally:
        await _close(tuple(servers.values()))


async def _close(servers: Sequence[ToolServer]) -> None:
    await asyncio.gather(*(server.aclose() for server in servers))
