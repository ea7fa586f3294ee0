"""Opens tool servers by what a pool says of them: of the Model Context Protocol, or the built-in sandbox."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conductor_core.chat.tools import OfferedTool, ToolAnswer, ToolListing, ToolServer, ToolServerSpec
from conductor_core.privacy.masking import one_line
from conductor_core.tools import connection
from conductor_core.tools.connection import BrokeOff, Connection, Failed, Unreachable, host_of
from conductor_core.tools.listing import Definition, inert, offered
from conductor_core.tools.results import answer, answer_of


def open_server(spec: ToolServerSpec, refusal: str = "") -> ToolServer:
    """Opens a server. Starts and connects to nothing yet.

    Args:
        refusal: why it may not be reached; then it offers nothing, and calls nothing.
    """
    if refusal:
        return RefusedServer(spec, refusal)
    if spec.kind == "python":
        from conductor_core.tools.python import PythonServer

        return PythonServer(spec)
    return McpServer(spec)


def where(spec: ToolServerSpec) -> str:
    """Returns the host or the program of a server, for people; empty for the built-in one."""
    if spec.url is not None:
        return one_line(host_of(spec.url))
    return one_line(Path(spec.command[0]).name) if spec.command else ""


class RefusedServer:
    """A server that this machine must not reach. Its listing says why."""

    def __init__(self, spec: ToolServerSpec, refusal: str) -> None:
        self.spec = spec
        self._refusal = refusal

    async def list(self) -> ToolListing:
        spec = self.spec
        return ToolListing(server=spec.name, kind=spec.kind, where=where(spec), fault=self._refusal)

    async def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolAnswer:
        return answer("unreachable", self._refusal)

    async def aclose(self) -> None:
        """Nothing was opened."""


class McpServer:
    """A server of the Model Context Protocol, on its standard input and output or over streamable HTTP.

    Before each call its definitions are read again: a tool that is no longer as it was offered is not called.
    """

    def __init__(self, spec: ToolServerSpec) -> None:
        self.spec = spec
        self._connection: Connection | None = None

    async def list(self) -> ToolListing:
        spec = self.spec
        try:
            definitions, title = await self._definitions()
        except Unreachable as error:
            return ToolListing(server=spec.name, kind=spec.kind, where=where(spec), fault=one_line(str(error)))
        tools, left_out = offered(spec, definitions)
        return ToolListing(
            server=spec.name, kind=spec.kind, where=where(spec), title=title, tools=tools, left_out=left_out
        )

    async def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolAnswer:
        try:
            definitions, _ = await self._definitions()
            now, _ = offered(self.spec, [each for each in definitions if each.name == tool.tool])
            if now != (tool,):
                return answer("changed", _changed(now, tool))
            result = await self._shared().call(tool.tool, dict(arguments))
        except Unreachable as error:
            return answer("unreachable", f"Nothing was sent: {error}.")
        except TimeoutError:
            return answer("timed_out", f"The tool server {self.spec.name} gave no result in {self.spec.timeout_s:g} s.")
        except BrokeOff as error:
            return answer("broke_off", f"{inert(str(error))[:1].upper()}{inert(str(error))[1:]}.")
        except Failed as error:
            return answer("error", f"The tool server {self.spec.name} refused the call: {error}")
        if result.get("resultType") == "input_required":
            return answer("error", f"The tool {tool.tool} asked for more input, which nobody gives it here.")
        return answer_of(result)

    async def aclose(self) -> None:
        held, self._connection = self._connection, None
        if held is not None:
            await connection.release(self.spec, held)

    async def _definitions(self) -> tuple[Sequence[Definition], str]:
        found, title = await self._shared().tools()
        return [
            Definition(
                each.name,
                each.description or "",
                each.input_schema,
                each.annotations is not None and each.annotations.read_only_hint is True,
            )
            for each in found
        ], title

    def _shared(self) -> Connection:
        if self._connection is None:
            self._connection = connection.shared(self.spec)
        return self._connection


def _changed(now: tuple[OfferedTool, ...], tool: OfferedTool) -> str:
    if not now:
        return f"Nothing was sent: the server {tool.server} no longer offers its tool {tool.tool}."
    return f"Nothing was sent: the server {tool.server} has changed its tool {tool.tool} since it was offered."
