"""One connection to a tool server of the Model Context Protocol, shared by all who call it from one event loop.

It opens when it is first needed, again when the server has died, and closes when nobody has called for some minutes.
A task of its own holds it, so whoever asks may be cancelled without harm to others. The server's own requests, for
sampling, input of a person or folders, are refused.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from conductor_core import __version__
from conductor_core.chat.tools import ToolServerSpec
from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.privacy.masking import is_set, names_a_key, one_line
from conductor_core.tools.process import MOST_MESSAGE_BYTES, Notes, is_missing, started, words_of

if TYPE_CHECKING:
    import httpx2
    import mcp
    from mcp.client._transport import TransportStreams

IDLE_S = 300.0
_ANSWERS_IN_S = 2.0
"""How long a server may take to answer anything at all once a call was given up, before its connection is closed."""
_CLOSES_IN_S = 5.0
"""How long a connection may take to close in order, before it is cut."""
_MOST_PAGES = 50


class Unreachable(Exception):
    """Nothing was sent: the server could not be reached, or refused. Says why."""


class Silent(Unreachable):
    """The server did not answer in time."""


class BrokeOff(Exception):
    """The server gave no result to what it was sent. Says why."""


class Failed(Exception):
    """The server answered with an error. Says which."""


_status: ContextVar[list[int]] = ContextVar("status")
"""Takes the HTTP statuses of the replies to what the current task sends; ``_NO_REPLY`` for one that is no message."""
_NO_REPLY = 0


class _Open:
    """An open connection. Attributes: client: once it is connected. closing: closes it when set."""

    def __init__(self) -> None:
        self.client: mcp.Client | None = None
        self.closing = asyncio.Event()
        self.notes = Notes()
        self.task: asyncio.Task[None]


class Connection:
    """Attributes: users: how many servers of pools hold it."""

    def __init__(self, spec: ToolServerSpec) -> None:
        self._spec = spec
        self.users = 0
        self._opening = asyncio.Lock()
        self._open: _Open | None = None
        self._calls = 0
        self._idle: asyncio.TimerHandle | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self._held: set[asyncio.Task[None]] = set()

    async def tools(self) -> tuple[list[Any], str]:
        """Returns the definitions of the server's tools, and how it names itself. Raises: Unreachable."""

        async def listed(client: "mcp.Client") -> list[Any]:
            found: list[Any] = []
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                if not (cursor := page.next_cursor):
                    break
            return found

        for again in (True, False):
            opened = await self._opened()
            try:
                found = await self._asked(opened, listed)
            except TimeoutError:
                self._check_soon(opened)
                raise Unreachable(f"{self.name} did not list its tools within {self._spec.timeout_s:g} s") from None
            except (BrokeOff, Failed) as error:
                # It may have died, or forgotten us, since it was last called.
                self._give_up(opened)
                if not again:
                    raise Unreachable(str(error)) from None
            else:
                info = opened.client.server_info if opened.client else None
                return found, one_line(f"{info.name} {info.version}") if info else ""
        raise AssertionError

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool once. Raises: Unreachable, TimeoutError, BrokeOff, Failed."""
        from mcp import types
        from pydantic import TypeAdapter

        opened = await self._opened()
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        # Not by call_tool of the library: it checks results by a pattern of the server's, which may take for ever.
        anything = TypeAdapter(dict[str, Any])
        try:
            result: dict[str, Any] = await self._asked(
                opened, lambda client: client.session.send_request(request, anything)
            )
        except (TimeoutError, asyncio.CancelledError):
            self._check_soon(opened)
            raise
        except BrokeOff:
            self._give_up(opened)
            raise
        return result

    @property
    def name(self) -> str:
        return f"the tool server {self._spec.name}"

    async def aclose(self) -> None:
        opened, self._open = self._open, None
        if self._idle is not None:
            self._idle.cancel()
        if opened is not None:
            opened.closing.set()
        for check in tuple(self._checks):
            check.cancel()
        if self._held:  # also those that were given up
            await asyncio.wait(tuple(self._held))

    async def _asked(self, opened: _Open, ask: "Callable[[mcp.Client], Any]") -> Any:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, PARSE_ERROR
        from pydantic import ValidationError

        client = cast("mcp.Client", opened.client)
        statuses: list[int] = []
        token = _status.set(statuses)
        self._calls += 1
        try:
            async with asyncio.timeout(self._spec.timeout_s):
                return await ask(client)
        except MCPError as error:
            status = statuses[-1] if statuses else 200
            if status in _REFUSALS or 300 <= status < 400:
                raise Unreachable(self._refused(status, error.message)) from None
            if status >= 500 or status in (202, _NO_REPLY) or error.code in (CONNECTION_CLOSED, PARSE_ERROR):
                why = f"HTTP {status}" if status >= 400 else one_line(error.message)
                raise BrokeOff(self._broken(opened, why)) from None
            raise Failed(one_line(error.message) or f"error {error.code}") from None
        except ValidationError:
            raise BrokeOff(f"{self.name} sent a reply that is not of its protocol") from None
        except RuntimeError:  # the connection was closed at the same time
            raise BrokeOff(self._broken(opened, "its connection is closed")) from None
        finally:
            self._calls -= 1
            _status.reset(token)
            self._rest_later()

    def _broken(self, opened: _Open, why: str) -> str:
        if self._spec.kind == "http":
            return f"{self.name} gave no result: {why}"
        words = words_of(opened.notes)
        return (
            f"{self.name} gave no result: {opened.notes.fault}"
            if opened.notes.fault
            else (f"{self.name} ended before it gave a result{words}")
        )

    def _refused(self, status: int, message: str) -> str:
        if 300 <= status < 400:
            return f"{self.name} sent us to another address, which is not followed: {one_line(message)}"
        why = {401: "it wants a key", 403: "it refused the key", 404: "there is nothing at this address"}.get(status)
        named = f" (token_env names {self._spec.token_env})" if self._spec.token_env and status in (401, 403) else ""
        return f"{self.name} answered with HTTP {status}{f': {why}' if why else ''}{named}"

    # Opening and closing.

    async def _opened(self) -> _Open:
        async with self._opening:
            if self._open is None or self._open.task.done() or self._open.closing.is_set():
                self._open = await self._connect()
            return self._open

    async def _connect(self) -> _Open:
        if fault := missing(self._spec):
            raise Unreachable(f"{self.name}: {fault}")
        # In a thread: the library takes a second to import, and the loop has other things to do.
        await asyncio.to_thread(import_module, "mcp")
        try:
            return await self._connect_as("auto")
        except Silent:
            raise
        except Unreachable:
            # Some older servers end when they are first asked which protocol they speak.
            if self._spec.kind == "http":
                raise
        return await self._connect_as("legacy")

    async def _connect_as(self, mode: str) -> _Open:
        opened = _Open()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        opened.task = asyncio.create_task(self._hold(opened, mode, ready))
        self._held.add(opened.task)
        opened.task.add_done_callback(self._held.discard)
        try:
            async with asyncio.timeout(self._spec.timeout_s):
                await asyncio.shield(ready)
        except TimeoutError:
            await _stopped(opened.task)
            words = words_of(opened.notes)
            raise Silent(f"{self.name} did not answer within {self._spec.timeout_s:g} s{words}") from None
        except asyncio.CancelledError:
            opened.task.cancel()
            raise
        except Unreachable:
            await asyncio.wait([opened.task])
            raise
        return opened

    async def _hold(self, opened: _Open, mode: str, ready: "asyncio.Future[None]") -> None:
        """Opens the connection, holds it until it is to be closed or is lost, and closes it."""
        from mcp import Client
        from mcp.types import Implementation

        info = Implementation(name="conductor-inspector", version=__version__)
        statuses: list[int] = []
        _status.set(statuses)
        try:
            transport = _http(self._spec) if self._spec.kind == "http" else started(self._spec, opened.notes)
            async with Client(transport, mode=mode, cache=None, client_info=info) as client:
                opened.client = client
                ready.set_result(None)
                await opened.closing.wait()
                asyncio.get_running_loop().call_later(_CLOSES_IN_S, opened.task.cancel)
        except asyncio.CancelledError:
            if not ready.done():
                ready.cancel()
            raise
        except Exception as error:  # noqa: BLE001  whatever the library or the server did, it is told as a fault
            if not ready.done():
                ready.set_exception(Unreachable(self._not_connected(opened, _innermost(error), statuses)))
        finally:
            opened.closing.set()

    def _not_connected(self, opened: _Open, error: BaseException, statuses: list[int]) -> str:
        if statuses and (statuses[-1] in _REFUSALS or 300 <= statuses[-1] < 400):
            return self._refused(statuses[-1], str(error))
        if statuses and statuses[-1] >= 500:
            return f"{self.name} answered with HTTP {statuses[-1]}"
        why = one_line(str(error) or type(error).__name__)
        if self._spec.kind == "http":
            return f"{self.name} cannot be reached: {why}"
        if isinstance(error, OSError):
            return f"{self.name} cannot be started: {why}"
        words = words_of(opened.notes)
        return f"{self.name} ended at its start{words}" if words else f"{self.name} ended at its start: {why}"

    def _give_up(self, opened: _Open) -> None:
        opened.closing.set()
        if self._open is opened:
            self._open = None

    def _check_soon(self, opened: _Open) -> None:
        """Has the connection closed if the server does not answer, unless others wait for results of it."""
        check = asyncio.create_task(self._check(opened))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)

    async def _check(self, opened: _Open) -> None:
        if self._spec.kind == "http" or opened.client is None or self._calls:
            return
        try:
            async with asyncio.timeout(_ANSWERS_IN_S):
                await opened.client.list_tools()
        except Exception:  # noqa: BLE001  a server that does not answer is ended, whatever it did
            self._give_up(opened)

    def _rest_later(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._rest)

    def _rest(self) -> None:
        if not self._calls and self._open is not None:
            self._give_up(self._open)


_REFUSALS = range(400, 500)


async def _stopped(task: "asyncio.Task[None]") -> None:
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CLOSES_IN_S)


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def missing(spec: ToolServerSpec) -> str:
    """Says what of this machine a server lacks before it can be reached; empty: nothing."""
    for variable in (*spec.env, *filter(None, (spec.token_env,))):
        if not is_set(variable):
            return f"{variable} is not set where this program was started"
        if variable == spec.token_env or names_a_key(variable):
            try:
                masking.remember_variable(variable)
            except BadInput as error:
                return str(error)
    if spec.kind == "stdio" and is_missing(spec):
        return f"its program {one_line(spec.command[0])} is not on this machine"
    return ""


# HTTP.


@asynccontextmanager
async def _http(spec: ToolServerSpec) -> "AsyncGenerator[TransportStreams]":
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    # What is compressed may be any size once it is not.
    headers = {"Accept-Encoding": "identity"}
    if spec.token_env is not None:
        headers["Authorization"] = f"Bearer {os.environ[spec.token_env].strip()}"
    timeout = httpx2.Timeout(30, read=None)  # ours ends a call
    hooks = {"response": [_bounded]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=False, event_hooks=hooks) as client,
        streamable_http_client(str(spec.url), http_client=client, max_sse_event_size=MOST_MESSAGE_BYTES) as streams,
    ):
        yield streams


async def _bounded(response: "httpx2.Response") -> None:
    """Notes the status of a reply, and bounds what is read of it."""
    import httpx2

    kind = response.headers.get("content-type", "").lower()
    if (statuses := _status.get(None)) is not None:
        of_the_protocol = kind.startswith(("application/json", "text/event-stream"))
        statuses.append(response.status_code if response.status_code != 200 or of_the_protocol else _NO_REPLY)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.StreamError("it sent a compressed reply, which was not asked for")
    if not kind.startswith("text/event-stream"):
        response.stream = _stream_of_at_most(response.stream)


def _stream_of_at_most(stream: Any) -> Any:
    import httpx2

    class AtMost(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MOST_MESSAGE_BYTES
            async for piece in stream:
                left -= len(piece)
                if left < 0:
                    raise httpx2.StreamError(f"it sent a reply of more than {MOST_MESSAGE_BYTES // 1024**2} MB")
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return AtMost()


def host_of(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc if re.fullmatch(r"[\w.:\[\]-]+", parts.netloc) else str(parts.hostname)


# Sharing.

_shared: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Connection]]" = WeakKeyDictionary()


def shared(spec: ToolServerSpec) -> Connection:
    """Returns the connection of the running event loop to that server, with one more user."""
    of_loop = _shared.setdefault(asyncio.get_running_loop(), {})
    connection = of_loop.setdefault(_key(spec), Connection(spec))
    connection.users += 1
    return connection


async def release(spec: ToolServerSpec, connection: Connection) -> None:
    connection.users -= 1
    if connection.users <= 0:
        of_loop = _shared.get(asyncio.get_running_loop(), {})
        if of_loop.get(_key(spec)) is connection:
            del of_loop[_key(spec)]
        await connection.aclose()


def _key(spec: ToolServerSpec) -> str:
    return spec.model_dump_json(exclude={"effects", "only"})
