"""A tool server in memory, scripted: ``Hand``. It counts what it did."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from conductor_core.chat.messages import ToolSpec
from conductor_core.chat.tools import OfferedTool, ToolAnswer, ToolListing, ToolServerSpec


def offered(server: str, tool: str, *, effects: bool = False) -> OfferedTool:
    spec = ToolSpec(name=f"{server}__{tool}", description=f"Does {tool}.", parameters={"type": "object"})
    return OfferedTool(server=server, tool=tool, spec=spec, effects=effects)


def _repeats(tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
    return ToolAnswer(outcome="returned", text=f"{tool} {arguments}", size_bytes=9)


class Hand:
    """Offers ``read``, without effects, and ``write``, with effects; both repeat their arguments.

    Attributes:
        done: the calls that arrived, as (tool, arguments).
        fault: why it cannot be reached; empty: it can.
        tools: what it offers. answer: what each call brings.
        hold: a call waits for this before it answers. begun: set as soon as a call arrives.
    """

    def __init__(
        self, name: str = "hand", answer: Callable[[str, Mapping[str, Any]], ToolAnswer] | None = None
    ) -> None:
        self.spec = ToolServerSpec(name=name, command=("hand-server",))
        self.tools: tuple[OfferedTool, ...] = (offered(name, "read"), offered(name, "write", effects=True))
        self.answer = answer or _repeats
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.listed = 0
        self.fault = ""
        self.hold: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.most_at_once = self._at_once = 0

    async def list(self) -> ToolListing:
        self.listed += 1
        tools = () if self.fault else self.tools
        return ToolListing(server=self.spec.name, kind="stdio", where="hand-server", tools=tools, fault=self.fault)

    async def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolAnswer:
        self.done.append((tool.tool, dict(arguments)))
        self.begun.set()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(0)
        if self.hold is not None:
            await self.hold.wait()
        self._at_once -= 1
        return self.answer(tool.tool, arguments)

    async def aclose(self) -> None:
        return None
