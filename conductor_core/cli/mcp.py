"""The command ``mcp``: an MCP server over stdio, for a coding agent of this machine."""

import asyncio

from conductor_core.cli import options
from conductor_core.run.actor import local_caller


def mcp(given: options.Db = options.NONE) -> int:
    """The agent's program starts it and speaks to it over stdin and stdout. It reads all runs of the database.

    Over HTTP, /mcp of `serve` and `ui` answers the same under a service key: only the runs of that key.
    """
    with given.store(read=True) as store:
        # Imported when used: 0.8 s.
        from conductor_core.mcp.server import over_stdio

        if store.refusal is None:
            store.search.keep_up()
        asyncio.run(over_stdio(store, local_caller("cli")))
    return 0
