"""One connection to a tool server of the Model Context Protocol, shared by all who call it from one event loop.

It opens when it is first needed, again when the server has died, and closes when nobody has called for some minutes.
A task of its own holds it, so whoever asks may be cancelled without harm to others. The server's own requests, for
sampling, input of a person or folders, are refused.

A server of this machine is a process with a session of its own, few variables, and a ``guard`` above it, so that it
ends with this program. What it may send at once is bounded, and so is what is kept of its standard error.
"""

import asyncio
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio
import httpx2

from conductor_core import __version__
from conductor_core.chat.tools import ToolServerSpec
from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.privacy.masking import is_set, names_a_key, one_line
from conductor_core.text import plain

if TYPE_CHECKING:
    import mcp
    from mcp.client._transport import TransportStreams

MOST_MESSAGE_BYTES = 16 * 1024**2
MOST_BRACKETS = 1_000_000
"""In one message, opening ones: to parse more would hold up the event loop for seconds."""
_MOST_VALUES = 100_000
"""Values in one message: the library takes two kilobytes for each that is not of the protocol."""
_MOST_LINES = 20_000
"""Lines that a server may send after a request of ours: one that floods us is ended."""
_MOST_STDERR_BYTES = 8_000
_GUARD = Path(__file__).with_name("guard.py")
_STOPS_IN_S = 1.0
"""How long a server may take to end once its input is closed, and again once it is asked to by a signal."""
_FOR_ALL = ("PATH", "HOME", "LANG", "TMPDIR")


class Notes:
    """What is known of a server besides its answers.

    Attributes:
        fault: why the connection was given up; empty: it was not.
        lines: how many it has sent since our last request.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.lines = 0
        self._stderr = b""

    def heard(self, piece: bytes) -> None:
        self._stderr = (self._stderr + piece)[-_MOST_STDERR_BYTES:]

    @property
    def last_line(self) -> str:
        """The last line that the server wrote to its standard error, without keys; empty: none."""
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        return next((one_line(line) for line in reversed(lines) if line.strip()), "")


def environment(names: Sequence[str], ours: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the variables of a started server: what every program needs, and those that its pool file names."""
    ours = os.environ if ours is None else ours
    return {name: value for name, value in ours.items() if name in _FOR_ALL or name.startswith("LC_") or name in names}


def is_missing(spec: ToolServerSpec) -> bool:
    return shutil.which(spec.command[0], path=environment(spec.env).get("PATH", os.defpath)) is None


@asynccontextmanager
async def started(spec: ToolServerSpec, notes: Notes) -> "AsyncGenerator[TransportStreams]":
    """Starts the server, and yields what it sends and what it is sent. Ends it with all its processes.

    Raises: OSError if no process can be started.
    """
    from mcp.shared.message import SessionMessage

    life_out, life_in = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-B", str(_GUARD), str(life_out), *spec.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(spec.env),
            cwd=Path.home() if Path.home().is_dir() else "/",
            start_new_session=True,
            pass_fds=(life_out,),
            limit=MOST_MESSAGE_BYTES,
        )
    except BaseException:
        os.close(life_in)
        raise
    finally:
        os.close(life_out)
    told, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_tell = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(cast(asyncio.StreamReader, process.stdout), told, notes)),
        asyncio.create_task(_write(cast(asyncio.StreamWriter, process.stdin), to_tell, told, notes)),
        asyncio.create_task(_hear(cast(asyncio.StreamReader, process.stderr), notes)),
    ]
    try:
        yield incoming, outgoing
    finally:
        for stream in (incoming, outgoing, told, to_tell):
            stream.close()
        await asyncio.shield(asyncio.create_task(_end(process, tasks, life_in)))


async def _read(stdout: asyncio.StreamReader, told: Any, notes: Notes) -> None:
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    try:
        while True:
            try:
                line = await stdout.readline()
            except ValueError:
                notes.fault = f"it sent a message of more than {MOST_MESSAGE_BYTES // 1024**2} MB"
                return
            if not line:
                return
            notes.lines += 1
            if notes.lines > _MOST_LINES:
                notes.fault = f"it sent more than {_MOST_LINES:,} lines at once"
                return
            if brackets(line) > MOST_BRACKETS:
                notes.fault = MANY_VALUES
                return
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                # Many servers print lines for people among their messages.
                if line.lstrip().startswith(b"{"):
                    notes.fault = "it sent a message that is broken JSON"
                    return
                continue
            if has_many_values(message):
                notes.fault = MANY_VALUES
                return
            await told.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        return
    finally:
        told.close()


MANY_VALUES = f"it sent a message of more than {_MOST_VALUES:,} values"


def brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def has_many_values(message: Any) -> bool:
    """Whether a message of the protocol, which is not read further yet, holds more values than may be read."""
    ahead = [getattr(message, name, None) for name in ("result", "params")]
    ahead.append(getattr(getattr(message, "error", None), "data", None))
    left = _MOST_VALUES
    while ahead:
        each = ahead.pop()
        if isinstance(each, dict):
            each = list(each.values())
        if isinstance(each, list):
            left -= len(each)
            if left < 0:
                return True
            ahead += each
    return False


async def _write(stdin: asyncio.StreamWriter, to_tell: Any, told: Any, notes: Notes) -> None:
    from mcp.types import JSONRPCRequest

    try:
        async for each in to_tell:
            if isinstance(each.message, JSONRPCRequest):
                notes.lines = 0
            line = each.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
            stdin.write(line.encode("utf-8", "replace"))
            await stdin.drain()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ValueError):
        told.close()  # so that nobody waits for an answer


async def _hear(stderr: asyncio.StreamReader, notes: Notes) -> None:
    with suppress(OSError):
        while piece := await stderr.read(65536):
            notes.heard(piece)


async def _end(process: asyncio.subprocess.Process, tasks: Sequence[asyncio.Task[None]], life: int) -> None:
    """Closes the server's input, asks it to end, and kills its group: each if it has not ended by then."""
    try:
        with suppress(OSError):
            cast(asyncio.StreamWriter, process.stdin).close()
        for ask in (signal.SIGTERM, signal.SIGKILL):
            with suppress(TimeoutError):
                await asyncio.wait_for(_ended(process), _STOPS_IN_S)
            if process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, ask)
    finally:
        os.close(life)
        with suppress(TimeoutError):
            await asyncio.wait_for(_ended(process), _STOPS_IN_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # What left the group may hold the pipes open.
        getattr(process, "_transport").close()  # noqa: B009 - nothing public closes it
        await asyncio.sleep(0)  # its pipes close in the loop


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Waits until the process has ended. ``Process.wait`` would also wait for whoever holds its pipes."""
    while process.returncode is None:  # noqa: ASYNC110  nothing tells of it
        await asyncio.sleep(0.01)


def words_of(notes: Notes) -> str:
    """Returns what else is known of why a server failed, to be put behind a sentence; empty: nothing."""
    said = f"; it last wrote: {plain(notes.last_line)}" if notes.last_line else ""
    return f": {notes.fault}{said}" if notes.fault else said


IDLE_S = 300.0
_ANSWERS_IN_S = 2.0
"""How long a server may take to answer anything at all once a call was given up, before its connection is closed."""
_CLOSES_IN_S = 5.0
"""How long a connection may take to close in order, before it is cut."""
_MOST_PAGES, _MOST_TOOLS = 50, 10_000


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
                if not (cursor := page.next_cursor) or len(found) > _MOST_TOOLS:
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

        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            request.model_dump_json()
        except ValueError:  # half a character, or a depth, that JSON is read with and not written with
            raise Unreachable("the arguments cannot be written as JSON") from None
        opened = await self._opened()
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
            if statuses and all(map(_is_refusal, statuses)):
                raise Unreachable(self._refused(status, error.message)) from None
            # A refusal that comes later is of an attempt to hear the rest of what a call, which was taken, brought.
            if status >= 300 or status in (202, _NO_REPLY) or error.code in (CONNECTION_CLOSED, PARSE_ERROR):
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
        if statuses and _is_refusal(statuses[-1]):
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


def _is_refusal(status: int) -> bool:
    return 300 <= status < 500


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
        told, incoming = anyio.create_memory_object_stream[Any](0)
        passing = asyncio.create_task(_pass_on(streams[0], told))
        try:
            yield incoming, streams[1]
        finally:
            passing.cancel()
            incoming.close()


async def _pass_on(received: Any, told: Any) -> None:
    """Passes on what a server sends until it sends too much at once."""
    with told, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for each in received:
            if has_many_values(getattr(each, "message", None)):
                return
            await told.send(each)


async def _bounded(response: httpx2.Response) -> None:
    """Notes the status of a reply, and bounds what is read of it."""
    kind = response.headers.get("content-type", "").lower()
    if (statuses := _status.get(None)) is not None:
        of_the_protocol = kind.startswith(("application/json", "text/event-stream"))
        statuses.append(response.status_code if response.status_code != 200 or of_the_protocol else _NO_REPLY)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.StreamError("it sent a compressed reply, which was not asked for")
    # Of a stream of messages, the library bounds the bytes of each.
    most_bytes = math.inf if kind.startswith("text/event-stream") else MOST_MESSAGE_BYTES
    response.stream = _AtMost(response.stream, most_bytes)


class _AtMost(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, most_bytes: float) -> None:
        self._stream, self._most_bytes = stream, most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left, opened = self._most_bytes, 0
        async for piece in self._stream:
            left -= len(piece)
            opened += brackets(piece)
            if opened > MOST_BRACKETS:
                raise httpx2.StreamError(MANY_VALUES)
            if left < 0:
                raise httpx2.StreamError(f"it sent a reply of more than {MOST_MESSAGE_BYTES // 1024**2} MB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


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
