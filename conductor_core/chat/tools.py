"""Tools that workers may call: servers of the Model Context Protocol that a pool file names, and the Python sandbox.

The engine knows a server by its protocol alone (``ToolServer``), so no room above ``chat`` needs the MCP library.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from conductor_core.chat.messages import Seconds, ToolSpec, WorkerSpec
from conductor_core.workflow.model import Frozen

PYTHON = "python"
"""The name of the built-in tool server: the sandbox that also grades programs."""
MOST_RESULT_CHARACTERS = 32_000
"""Of a tool's result that a worker is told. What is cut is said in the result itself."""
MOST_TOOL_TURNS = 16
"""How often one step may call tools of its pool before it fails: a model that loops is stopped here."""

ToolOutcome = Literal[
    "returned", "error", "unreachable", "timed_out", "broke_off", "changed", "unoffered", "denied", "unknown"
]
"""What became of one call. ``returned``: the tool's result. ``error``: the tool said that it failed. ``unreachable``:
nothing was sent, because the server could not be reached or refused. ``timed_out``, ``broke_off``: it was sent, and the
server gave no result in time, or died. ``changed``: nothing was sent, because the server's tool is no longer the one
that was offered. ``unoffered``: nothing was sent, because the worker may call no tool of that name. ``denied``:
nothing was sent, because somebody denied the call, or the run may not act. ``unknown``: the program ended during the
call; whether it had effects, nobody knows, and it was not repeated."""
NOT_SENT: frozenset[ToolOutcome] = frozenset({"unreachable", "changed", "unoffered", "denied"})


def called_name(name: str) -> str:
    """Returns how people read the name by which workers call a tool: ``files.write`` for ``files__write``."""
    return name.replace("__", ".", 1)


def dotted(server: str, tool: str) -> str:
    """Returns how people read a tool: ``files.write``. ``server``: empty if none offers it any more."""
    return f"{server}.{tool}" if server else called_name(tool)


class ToolServerSpec(Frozen):
    """A tool server as its pool file names it. Never holds a secret, only names of variables that do.

    One without ``command`` and ``url`` is built in: the Python sandbox.

    Attributes:
        command: starts a server that speaks over its standard input and output; the program first.
        url: of a server that speaks streamable HTTP.
        env: names of variables that a started server is given, besides those that every program needs.
        token_env: the variable whose value goes to ``url`` as a bearer token.
        effects: which of its tools change something: all, none, or those named. None: as the server's annotations say,
            and a tool without one has effects.
        only: the tools that are offered; None: all.
        timeout_s: of one call.
    """

    name: str = Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?$")
    command: tuple[str, ...] = ()
    url: str | None = None
    env: tuple[str, ...] = ()
    token_env: str | None = None
    effects: Literal["all", "none"] | tuple[str, ...] | None = None
    only: tuple[str, ...] | None = None
    timeout_s: Seconds = 60

    @property
    def kind(self) -> Literal["stdio", "http", "python"]:
        return "http" if self.url is not None else "stdio" if self.command else "python"


class OfferedTool(Frozen):
    """One tool of a server.

    Attributes:
        tool: its name at the server. spec: as workers see it; its name is ``SERVER__TOOL``.
        effects: whether it changes something. Such a call is never repeated by itself.
    """

    server: str
    tool: str
    spec: ToolSpec
    effects: bool = True


class ToolListing(Frozen):
    """The tools of one server, as a run found them.

    Attributes:
        where: the host of a server on HTTP, the program of one that was started; empty for the built-in one.
        title: how the server names itself, with its version.
        tools: those that its file offers. fault: why there are none; empty: they are known.
        left_out: names of tools that cannot be offered, each with the reason.
    """

    server: str
    kind: Literal["stdio", "http", "python"]
    where: str = ""
    title: str = ""
    tools: tuple[OfferedTool, ...] = ()
    fault: str = ""
    left_out: tuple[str, ...] = ()


def servers_of(spec: WorkerSpec) -> tuple[str, ...]:
    """Returns the names of the tool servers of which a worker may call something, each once."""
    return tuple(dict.fromkeys(name.partition(".")[0] for name in spec.tools))


def allowed(spec: WorkerSpec, listings: Iterable[ToolListing]) -> tuple[OfferedTool, ...]:
    """Returns the tools that a worker may call, in the order of its pool file."""
    by_server = {listing.server: listing.tools for listing in listings}
    found: dict[str, OfferedTool] = {}
    for name in spec.tools:
        server, _, one = name.partition(".")
        found |= {tool.spec.name: tool for tool in by_server.get(server, ()) if one in ("", tool.tool)}
    return tuple(found.values())


class ToolAnswer(Frozen):
    """What one call brought.

    Attributes:
        text: what the worker is told: the result, or one sentence on why there is none. Images and other content are
            described in it. It has at most ``MOST_RESULT_CHARACTERS``.
        size_bytes: of the whole result, before anything was cut; 0: there was none.
    """

    outcome: ToolOutcome
    text: str
    size_bytes: Annotated[int, Field(ge=0)] = 0

    @property
    def is_error(self) -> bool:
        return self.outcome != "returned"


class ToolServer(Protocol):
    """An open tool server. It connects, or starts its process, when it is first needed, and again when it has died.

    It belongs to the event loop that first used it.
    """

    spec: ToolServerSpec

    async def list(self) -> ToolListing:
        """Returns its tools; a server that cannot be reached gives a listing with a ``fault``. Never raises."""
        ...

    async def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Calls a tool once, if the server still has it as it was offered. Never raises, but may be cancelled."""
        ...

    async def aclose(self) -> None: ...
