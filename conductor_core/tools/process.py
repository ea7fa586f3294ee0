"""Starts a tool server of this machine, talks with it over its standard input and output, and ends it.

Its process has a session of its own, few variables, and a ``guard`` above it, so that it ends with this program. What
it may send at once is bounded, and so is what is kept of its standard error.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from conductor_core.chat.tools import ToolServerSpec
from conductor_core.privacy.masking import one_line
from conductor_core.text import plain

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MOST_MESSAGE_BYTES = 16 * 1024**2
_MOST_STDERR_BYTES = 8_000
_GUARD = Path(__file__).with_name("guard.py")
_STOPS_IN_S = 1.0
"""How long a server may take to end once its input is closed, and again once it is asked to by a signal."""
_FOR_ALL = ("PATH", "HOME", "LANG", "TMPDIR")


class Notes:
    """What is known of a server besides its answers.

    Attributes:
        fault: why the connection was given up; empty: it was not.
    """

    def __init__(self) -> None:
        self.fault = ""
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
    import anyio
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
        asyncio.create_task(_write(cast(asyncio.StreamWriter, process.stdin), to_tell, told)),
        asyncio.create_task(_hear(cast(asyncio.StreamReader, process.stderr), notes)),
    ]
    try:
        yield incoming, outgoing
    finally:
        for stream in (incoming, outgoing, told, to_tell):
            stream.close()
        await asyncio.shield(asyncio.create_task(_end(process, tasks, life_in)))


async def _read(stdout: asyncio.StreamReader, told: Any, notes: Notes) -> None:
    import anyio
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
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                # Many servers print lines for people among their messages.
                if line.lstrip().startswith(b"{"):
                    notes.fault = "it sent a message that is broken JSON"
                    return
                continue
            await told.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        return
    finally:
        told.close()


async def _write(stdin: asyncio.StreamWriter, to_tell: Any, told: Any) -> None:
    import anyio

    try:
        async for each in to_tell:
            line = each.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
            stdin.write(line.encode("utf-8", "replace"))
            await stdin.drain()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
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
