"""Runs GGUF models with llama.cpp, each in a child process that is asked over a Unix socket in a private folder.

shared_llama(file, lora) -> Llama.turn()      one caller at a time; starts ``llama_child`` where it does not run
                            Turn.inert        messages whose text cannot open a turn
                            Turn.read_static  the beginning that prompts share, read once and kept as a file
                            Turn.progress     tells how far an answer is, by the server's events
The answer itself is read by ``providers.client`` over ``Llama.socket``.

A process of its own: files from elsewhere can abort whoever loads them, and killing is the one way to stop loading and
reading within a second.
"""

import asyncio
import atexit
import contextlib
import hashlib
import itertools
import json
import logging
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx2

from conductor_core.chat.messages import (
    Content,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    in_words,
)
from conductor_core.chat.progress import Notify, Progress, watcher
from conductor_core.files import UNFINISHED, private_folder
from conductor_core.inference.found import described
from conductor_core.inference.generation import (
    IdleTimer,
    InferenceError,
    Meter,
    ModelNotHere,
    ModelUnavailable,
    ProcessEnded,
    RecentPace,
    WritingMeter,
    mean_of_late,
    sparingly,
)
from conductor_core.inference.gguf_file import GgufHeader, choose_context, file_sha256, file_stamp
from conductor_core.inference.hardware import SMALL_PARAMETERS, free_ram_bytes, idle_threads
from conductor_core.privacy.masking import names_a_key, one_line
from conductor_core.providers.transport import AiohttpTransport, Body, async_stream

URL = "http://llama.invalid/v1"
"""Where requests over the socket go by name: nothing is looked up, and nothing answers there."""
REQUEST = {"return_progress": True, "min_p": 0.0}
"""What each request to a model of ours says beside the usual."""
BATCH = 128
"""Tokens that the model reads in one pass, between which it looks whether somebody still waits."""
CANCEL_S = 0.6
"""How long a process may take to stop an answer before it is killed."""
_ROOT = URL.removesuffix("/v1")
_STDERR_BYTES = 16_384
_FOLDER = "conductor-gguf-"
_MOST_FOLDER_BYTES = 60
_ROUNDS = 4
_OF_OLLAMA = " (Ollama changes some models so that only its own server runs them: `ollama serve`, then URL#MODEL)"

log = logging.getLogger(__name__)

_servers: dict[tuple[Path, Path | None], "Llama"] = {}
_servers_lock = threading.Lock()


def shared_llama(file: Path, lora: Path | None = None) -> "Llama":
    """Returns the process's one server for a file and an adapter. It starts nothing yet."""
    # Links stay: the hub's cache links each part of a split model to a file whose name does not say which part it is.
    key = (file.absolute(), lora.absolute() if lora is not None else None)
    with _servers_lock:
        if key not in _servers:
            _servers[key] = Llama(*key)
        return _servers[key]


def known_pace(file: Path) -> RecentPace:
    """Returns how quick a file was of late in this process, with whatever adapter."""
    with _servers_lock:
        paces = [server.pace for (path, _), server in _servers.items() if path == file.absolute()]
    return next((each for each in reversed(paces) if each.written_per_s), RecentPace())


def end_all_of(file: Path) -> bool:
    """Ends the processes that run ``file``. Returns False if somebody uses one or waits for it."""
    with _servers_lock:
        own = [server for (each, _), server in _servers.items() if each == file.resolve()]
        return not any(server.waits for server in own) and all(server.stop() for server in own)


@atexit.register
def _stop_all() -> None:
    with _servers_lock:
        for server in _servers.values():
            server.stop()


class Llama:
    """A GGUF model and the child process that runs it: calls wait for each other in order of arrival.

    Attributes:
        file, lora: what it runs.
        idle_s: seconds without a call after which the process ends; None: never.
        kept: where the beginnings of prompts are kept, from the next start of the process on; None: beside the socket.
        pace: how quick it was of late.
    """

    def __init__(self, file: Path, lora: Path | None) -> None:
        self.file, self.lora = file, lora
        self.idle_s: float | None = None
        self.kept: PrefixFolder | None = None
        self.pace = RecentPace()
        self._folder: Path | None = None
        self._child: _Child | None = None
        self._lock = threading.RLock()  # of the process and its folder
        self._turns = threading.Lock()  # of who has the turn; never held for long: event loops take it
        self._waiting: deque[Future[None]] = deque()
        self._busy = False
        self._idle = IdleTimer(self._leave_if_idle)

    @property
    def socket(self) -> str:
        """The path of the socket. Its folder is made at first use, for this user alone."""
        with self._lock:
            if self._folder is None:
                _remove_stale_folders()
                self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=_sockets_folder()))
            return str(self._folder / "llama.sock")

    @property
    def process(self) -> "subprocess.Popen[bytes] | None":
        """The running child process; None: it does not run."""
        child = self._child
        return None if child is None or child.process.poll() is not None else child.process

    @property
    def waits(self) -> int:
        """How many callers use or wait for it."""
        with self._turns:
            return self._busy + len(self._waiting)

    @contextlib.asynccontextmanager
    async def turn(self) -> "AsyncGenerator[Turn]":
        """Gives the model to one caller, loaded. If the block ends by an error or is cancelled, the model stops.

        Raises: ModelUnavailable if it cannot be loaded, ProcessEnded if its process ends in the block.
        """
        notify = sparingly(watcher())
        gone = threading.Event()
        whole, child = False, None
        await self._queued()
        try:
            child = await self._loaded(notify, gone)
            async with httpx2.AsyncClient(transport=AiohttpTransport(socket=self.socket)) as client:
                yield Turn(self, child, client, notify)
            whole = True
        except Exception as error:
            if child is not None and await asyncio.to_thread(child.has_ended):
                raise ProcessEnded(f"{self.file.name}: {child.why()}") from error
            raise
        finally:
            gone.set()
            if whole:
                self._release()
            else:
                # Not awaited: whoever cancels need not wait, and its event loop may end now.
                with contextlib.suppress(RuntimeError):  # the interpreter ends
                    threading.Thread(target=self._settle, daemon=True).start()

    def stop(self) -> bool:
        """Ends the process and removes its folder. Returns False if somebody uses or waits for it."""
        idle = self.waits == 0
        with self._lock:
            self._end_child()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
        return idle

    # -- turns -----------------------------------------------------------------------------------------------------

    async def _queued(self) -> None:
        """Waits until it is the caller's turn."""
        with self._turns:
            if not self._busy:
                self._busy = True
                return
            mine: Future[None] = Future()
            self._waiting.append(mine)
        try:
            await asyncio.wrap_future(mine)
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # the turn came together with the cancelling
                self._release()
            raise

    def _release(self) -> None:
        with self._turns:
            while self._waiting:
                following = self._waiting.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            self._busy = False
            if self._child is not None:
                self._idle.begin(self.idle_s)

    def _settle(self) -> None:
        """After a turn that was broken off: waits until the model has stopped, or kills its process."""
        with self._lock:
            child = self._child
        if child is not None and not child.stops(self.socket, CANCEL_S):
            log.info("%s: its process is ended to stop it", self.file.name)
            with self._lock:
                self._end_child()
        self._release()

    def _leave_if_idle(self) -> None:
        with self._turns:
            if self._busy:
                return  # ``_release`` begins again
            self._busy = True
        with self._lock:
            self._end_child()
        self._release()

    # -- the process -----------------------------------------------------------------------------------------------

    async def _loaded(self, notify: Notify, gone: threading.Event) -> "_Child":
        """Returns the running process with the model loaded. Raises: ModelUnavailable."""
        child, done = await asyncio.to_thread(self._started, gone), 0
        while not child.is_ready:
            if child.process.poll() is not None:
                hint = _OF_OLLAMA if self.file.name.startswith("sha256-") else ""
                why = await asyncio.to_thread(child.why)
                raise ModelUnavailable(f"{self.file.name} could not be loaded: {why}{hint}")
            done = max(done, min(child.resident_bytes, child.size_bytes - 1))  # memory also shrinks
            notify(Progress(phase="loading", done=done, total=child.size_bytes))
            await asyncio.sleep(0.02)
        notify(Progress(phase="loading", done=child.size_bytes, total=child.size_bytes))
        return child

    def _started(self, gone: threading.Event) -> "_Child":
        """Returns the process that runs the files as they are now, started if need be. Raises: ModelUnavailable."""
        try:
            stamps = tuple(file_stamp(each) for each in (self.file, self.lora) if each is not None)
        except OSError as error:
            raise ModelNotHere(f"{error.filename}: {error.strerror or error}") from error
        with self._lock:
            child = self._child
            if child is not None and (child.process.poll() is not None or child.stamps != stamps):
                self._end_child()
            if self._child is None:
                header = checked(self.file, self.lora)
                context = _context(self.file, header)
                statics = self._statics(stamps)
                if gone.is_set():
                    raise ModelUnavailable(f"{self.file.name}: nobody waits for it now")
                asked = {
                    "file": str(self.file),
                    "lora": None if self.lora is None else str(self.lora),
                    "name": self.file.name,
                    "socket": self.socket,
                    "folder": f"{statics.folder}/",
                    "context": context,
                    "batch": BATCH,
                    "threads": 1 if header.parameters < SMALL_PARAMETERS else idle_threads(),
                }
                Path(self.socket).unlink(missing_ok=True)
                self._child = _Child(asked, stamps, header.size_bytes, statics)
            return self._child

    def _statics(self, stamps: tuple[str, ...]) -> "KeptStatics":
        beside = Path(self.socket).parent
        if self.kept is None:
            return KeptStatics(beside, None, stamps)
        try:
            private_folder(self.kept.path)
        except OSError as error:
            log.warning("no prefix is kept in %s: %s", self.kept.path, error.strerror or error)
            return KeptStatics(beside, None, stamps)
        return KeptStatics(self.kept.path, self.kept.max_bytes, stamps)

    def _end_child(self) -> None:
        """Kills the process. The caller has the lock."""
        if self._child is not None:
            self._child.kill()
            self._child = None
        if self._folder is not None:
            for path in self._folder.iterdir():
                path.unlink(missing_ok=True)


class _Child:
    """A child process: its state, what it said of errors, and its end."""

    def __init__(
        self, asked: Mapping[str, Any], stamps: tuple[str, ...], size_bytes: int, statics: "KeptStatics"
    ) -> None:
        """Starts it. Raises: ModelUnavailable."""
        self.stamps, self.size_bytes, self.statics = stamps, size_bytes, statics
        self.context: int = asked["context"]
        environment = {name: value for name, value in os.environ.items() if not names_a_key(name)}
        # A waiting thread of OpenMP would else spin, and take the processor from the one that works.
        environment |= {"OMP_WAIT_POLICY": "passive", "PYTHONDONTWRITEBYTECODE": "1"}
        # A process that breaks off would else have a debugger look at it first, for many seconds.
        environment |= {"GGML_NO_BACKTRACE": "1"}
        try:
            self.process = subprocess.Popen(  # noqa: S603 our own program
                [sys.executable, "-P", str(Path(__file__).with_name("llama_child.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ModelUnavailable(f"{asked['name']}: no process can be started: {error.strerror}") from error
        self.is_ready = False
        self._said = b""
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read_errors, self._wait_ready)]
        for reader in self._readers:
            reader.start()
        with contextlib.suppress(OSError):  # it has ended: ``why`` says why
            assert self.process.stdin is not None  # noqa: S101 for the type
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()

    def _wait_ready(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 for the type
        for line in self.process.stdout:
            self.is_ready = self.is_ready or line.strip() == b"ready"

    def _read_errors(self) -> None:
        """Keeps the first and the last bytes of what it says of errors."""
        assert self.process.stderr is not None  # noqa: S101 for the type
        half = _STDERR_BYTES // 2
        while part := os.read(self.process.stderr.fileno(), 4096):
            said = self._said + part
            self._said = said if len(said) <= _STDERR_BYTES else said[:half] + b"\n" + said[-half + 1 :]

    @property
    def resident_bytes(self) -> int:
        """The bytes of memory that it has; 0 where the system does not say. While it loads, they are mostly weights."""
        try:
            pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def has_ended(self) -> bool:
        """Tells whether it has ended, or does so just now."""
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            return False
        return True

    def why(self) -> str:
        """Says on one line why it ended."""
        code = self._ended()
        said = _telling(self._said.decode(errors="replace"))
        if code == -signal.SIGKILL:
            return "its process was killed from outside; Linux does so when memory runs out"
        if code < 0:
            with contextlib.suppress(ValueError):
                said = f"{signal.Signals(-code).name}{': ' if said else ''}{said}"
            return f"its process broke off ({said})"
        return said or f"its process ended with status {code}"

    def stops(self, path: str, within_s: float) -> bool:
        """Waits until it answers nobody. Returns False if it still does after ``within_s``, or has not loaded."""
        until_s = time.monotonic() + within_s
        while self.is_ready and self.process.poll() is None and (left_s := until_s - time.monotonic()) > 0:
            try:
                transport = httpx2.HTTPTransport(uds=path)
                with httpx2.Client(transport=transport, timeout=left_s, trust_env=False) as client:
                    slots = client.get(f"{_ROOT}/slots").json()
                if not any(slot["is_processing"] for slot in slots):
                    return True
            except (httpx2.HTTPError, ValueError, LookupError, TypeError):
                return False
            time.sleep(0.02)
        return False

    def kill(self) -> None:
        self.process.kill()
        self._ended()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ended(self) -> int:
        code = self.process.wait()
        for reader in self._readers:
            reader.join(1.0)
        return code


_ERROR = re.compile(r"^[\d.]+ E +(?:\w+ +)?(?:\S+?: )?(.+)$", re.MULTILINE)
_BROKE = re.compile(
    r"^.*(?:GGML_ASSERT|what\(\):|terminate called|MemoryError|ModuleNotFoundError|ImportError).*$", re.M
)


def _telling(said: str) -> str:
    """Returns the line that tells most: why it broke off, else the first error, from which the others follow."""
    if broke := _BROKE.findall(said):
        line = broke[-1].strip()
    elif errors := _ERROR.findall(said):
        line = str(errors[0]).removeprefix("error loading model: ")
    else:
        line = next((each for each in reversed(said.splitlines()) if each.strip()), "")
    # No path of this machine: the last part of each says enough.
    return one_line(re.sub(r"(?:/[^\s/'\":]+)+/", "", line), limit=200)


def checked(file: Path, lora: Path | None = None) -> GgufHeader:
    """Returns the header of a model that may be loaded, of all its parts, with an adapter. Raises: ModelUnavailable."""
    found = described(file)
    if found.header is None or found.fault:
        raise ModelUnavailable(f"{file.name}: {found.fault}")
    if found.header.part != 1:
        raise ModelUnavailable(f"{file.name} is part {found.header.part} of {found.header.parts}: name part 1")
    if found.header.kind != "model":
        raise ModelUnavailable(f"{file.name} is not a model: it is of type {one_line(found.header.kind, limit=40)}")
    if lora is not None:
        _check_adapter(lora, file, found.header)
    return found.header


def _check_adapter(lora: Path, file: Path, model: GgufHeader) -> None:
    """Raises: ModelUnavailable, if ``lora`` cannot be an adapter of the model in ``file``."""
    found = described(lora)
    if found.header is None or not found.header.is_whole:
        raise ModelUnavailable(f"the adapter {lora.name}: {found.fault}")
    if not found.is_adapter:
        raise ModelUnavailable(f"{lora.name} is not an adapter: it is of type {one_line(found.header.kind, limit=40)}")
    if found.header.architecture != model.architecture:
        kinds = [one_line(each.architecture, limit=40) for each in (found.header, model)]
        raise ModelUnavailable(
            f"{lora.name} is an adapter of a {kinds[0]} model, and {file.name} is a {kinds[1]} model"
        )


def _context(file: Path, header: GgufHeader) -> int:
    """Returns how many tokens prompt and answer may have. Raises: ModelUnavailable if memory is short."""
    free = free_ram_bytes()
    context, needed = choose_context(header, free)
    if free is not None and needed > free:
        raise ModelUnavailable(
            f"{file.name} needs {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free: close other "
            "programs, or take a smaller file"
        )
    return context


def _sockets_folder() -> Path:
    """Returns where folders of sockets lie: a socket's path may have about 100 bytes."""
    usual = Path(tempfile.gettempdir())
    return usual if len(os.fsencode(usual)) <= _MOST_FOLDER_BYTES else Path("/tmp")  # noqa: S108 mkdtemp makes it ours


def _remove_stale_folders() -> None:
    """Removes the folders of processes that were killed."""
    for folder in _sockets_folder().glob(f"{_FOLDER}*"):
        owner = folder.name.removeprefix(_FOLDER).partition("-")[0]
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid() and owner.isdigit() and not _runs(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


class Turn:
    """The model while it is the caller's: what goes before asking it for an answer."""

    def __init__(self, llama: Llama, child: _Child, client: httpx2.AsyncClient, notify: Notify) -> None:
        self._llama, self._client, self._notify = llama, client, notify
        self._statics = child.statics
        self.context = child.context

    async def inert(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Breaks up control tokens in texts, so that the words of a person or a model cannot open a new turn."""
        return tuple([Message(role=turn.role, content=await self._inert_content(turn)) for turn in messages])

    async def _inert_content(self, turn: Message) -> Content:
        """Calls of tools and their results stay parts, which the model's template knows; all else becomes text."""
        if isinstance(turn.content, str) or not any(isinstance(p, ToolCallPart | ToolResultPart) for p in turn.content):
            return await self._inert(turn.text)
        parts: list[Part] = []
        for part in turn.content:
            match part:
                case ToolCallPart():
                    parts.append(part.model_copy(update={"arguments": await self._inert(part.arguments)}))
                case ToolResultPart():
                    parts.append(part.model_copy(update={"text": await self._inert(part.text)}))
                case _:
                    parts.append(TextPart(text=await self._inert(in_words((part,)))))
        return tuple(parts)

    async def _inert(self, text: str) -> str:
        for _ in range(_ROUNDS):
            read = await self._tokens(text, special=True)
            if (plain := await self._tokens(text, special=False)) == read:
                return text
            ordinary = {token for token, _ in plain}
            markers = {piece for token, piece in read if token not in ordinary and len(piece.strip()) > 1}
            for marker in sorted(markers, key=len, reverse=True):
                text = text.replace(marker, f"{marker[0]} {marker[1:]}")
        return text

    async def _tokens(self, text: str, *, special: bool) -> list[tuple[int, str]]:
        asked = {"content": text, "add_special": False, "parse_special": special, "with_pieces": True}
        found = (await self._asked("/tokenize", asked))["tokens"]
        return [(each["id"], each["piece"] if isinstance(each["piece"], str) else "") for each in found]

    async def _prompt(self, messages: Sequence[Message], options: Mapping[str, Any]) -> list[int]:
        """Returns the token ids of a prompt, as the server makes them."""
        turns = [{"role": turn.role, "content": turn.text} for turn in messages]
        text = (await self._asked("/apply-template", {"messages": turns, **options}))["prompt"]
        asked = {"content": text, "add_special": True, "parse_special": True}
        return list((await self._asked("/tokenize", asked))["tokens"])

    async def read_static(self, messages: Sequence[Message], static: int, options: Mapping[str, Any]) -> bool:
        """Makes the model have read what all prompts share that begin with the first ``static`` of ``messages``.

        Returns whether it has. ``options``: those of the template that the request has, too.
        """
        if not static:
            return False
        try:
            ids = await self._prompt(messages, options)
            ends = [
                await self._prompt([*messages[:static], Message(role="user", content=end)], options) for end in "T0"
            ]
        except InferenceError:
            return False  # a template without a system role: the client puts the messages differently
        shared = [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*ends, strict=False))]
        if not shared or ids[: len(shared)] != shared or len(ids) == len(shared):
            return False
        statics, key = self._statics, self._statics.key(shared)
        if (name := await asyncio.to_thread(statics.find, key)) is not None:
            with contextlib.suppress(InferenceError):  # another process made room just now
                restored = await self._asked("/slots/0?action=restore", {"filename": name})
                if restored.get("n_restored") == len(shared):
                    return True
        meter = Meter("reading", len(ids), self._notify, known_per_s=self._llama.pace.read_per_s)
        await self._read(shared, meter)
        try:
            await self._asked("/slots/0?action=save", {"filename": statics.unfinished(key)})
            await asyncio.to_thread(statics.keep, key)
        except (InferenceError, OSError) as error:
            log.warning("a prefix is not kept: %s", error)
        return True

    async def _read(self, ids: Sequence[int], meter: Meter) -> None:
        body = {"prompt": list(ids), "n_predict": 0, "cache_prompt": False, "stream": True, "return_progress": True}
        async with self._client.stream("POST", f"{_ROOT}/completion", json=body, timeout=None) as response:
            too_large = InferenceError("the model's process sent too much, or bytes that are not UTF-8")
            source = Body(async_stream(response), 10**8, 10**7, lambda: too_large, lambda: too_large)
            async for _, data in source.events():
                event = json.loads(data)
                if "error" in event or response.status_code != 200:
                    raise InferenceError(f"{self._llama.file.name}: {one_line(str(event.get('error', event)))}")
                if isinstance(progress := event.get("prompt_progress"), dict):
                    meter.at(progress["processed"])

    async def _asked(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Raises: InferenceError, and httpx2.TransportError if the process is gone."""
        response = await self._client.post(f"{_ROOT}{path}", json=dict(body), timeout=None)
        answer = response.json()
        if response.status_code != 200:
            said = answer.get("error", {}).get("message", "") if isinstance(answer, dict) else ""
            raise InferenceError(f"{self._llama.file.name}: {one_line(str(said)) or response.status_code}")
        return dict(answer)

    def progress(
        self, limit: int, usual: float | None = None, begins: str | None = None
    ) -> Callable[[Mapping[str, Any]], None]:
        """Returns what to give the events of an answer to, so that whoever watches learns how far it is.

        Args:
            limit: the most tokens of the answer. usual: how many such answers have.
            begins: with which text what is asked for begins; before it the model thinks.
        """
        return _AnswerProgress(self._llama, self._notify, limit, usual, begins).feed


class _AnswerProgress:
    def __init__(self, llama: Llama, notify: Notify, limit: int, usual: float | None, begins: str | None) -> None:
        self._llama, self._notify = llama, notify
        self._reading: Meter | None = None
        self._writing: WritingMeter | None = None
        self._limit, self._usual, self._begins = limit, usual, begins
        self._written, self._text = 0, ""

    def feed(self, event: Mapping[str, Any]) -> None:
        pace = self._llama.pace
        if isinstance(read := event.get("prompt_progress"), dict) and isinstance(read.get("total"), int):
            if self._reading is None:
                self._reading = Meter("reading", read["total"], self._notify, known_per_s=pace.read_per_s)
            self._reading.at(read.get("processed", 0))
            return
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            text = delta.get("content") or delta.get("reasoning_content") or ""
            if not text:
                continue
            if self._writing is None:
                usual = self._usual and (pace.written or self._usual)
                self._writing = WritingMeter(self._limit, usual, self._notify, known_per_s=pace.written_per_s)
            self._written += 1
            self._text = (self._text + text)[-64:] if self._begins else ""
            if self._begins and self._begins in self._text:
                self._begins = None
            self._writing.at(self._written, thinking=bool(self._begins or delta.get("reasoning_content")))
        if isinstance(timings := event.get("timings"), dict):
            self._ended(timings)

    def _ended(self, timings: Mapping[str, Any]) -> None:
        """Keeps the pace for later estimates. A few tokens are read at another pace than a whole prompt."""
        pace = self._llama.pace
        read, write = timings.get("prompt_per_second"), timings.get("predicted_per_second")
        self._llama.pace = RecentPace(
            read_per_s=read if read and timings.get("prompt_n", 0) >= BATCH else pace.read_per_s,
            written_per_s=write or pace.written_per_s,
            written=mean_of_late(pace.written, self._written) if self._usual and self._written else pace.written,
        )


# What llama.cpp has read of prompts' static beginnings, kept as files, so that it is read once. Only whole beginnings
# are kept: reading a prompt in other pieces rounds differently, and the text would differ. A file is named by a digest
# of all that decides it, and by the SHA-256 of its content, which is checked before llama.cpp gets it: a cut file would
# end its process.

FORM = 1
"""The version of these files. Raise it when a beginning is read in another way than before."""
SUFFIX = ".llama"
_LONGEST_WRITE_S = 3600.0


@dataclass(frozen=True)
class PrefixFolder:
    """Where files of read beginnings may be, and how many bytes all of them may have."""

    path: Path
    max_bytes: int


class KeptStatics:
    """The files of one model in a folder where its process reads and writes them. Other processes may share it."""

    def __init__(self, folder: Path, max_bytes: int | None, stamps: tuple[str, ...]) -> None:
        """``max_bytes``: of all files in the folder; None: of no account. ``stamps``: of the model's files."""
        self.folder, self._max_bytes, self._stamps = folder, max_bytes, stamps
        self._checked: dict[str, tuple[int, int]] = {}

    def key(self, ids: Sequence[int]) -> str:
        """Returns what names a beginning ``ids`` of this model."""
        decides = [FORM, list(self._stamps), BATCH, metadata.version("xllamacpp"), platform.machine(), list(ids)]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()

    def unfinished(self, key: str) -> str:
        """Returns the name under which this process writes the file of a beginning."""
        return f"{key}-{os.getpid()}{UNFINISHED}"

    def find(self, key: str) -> str | None:
        """Returns the name of a whole file; None if there is none."""
        for path in sorted(self.folder.glob(f"{key}-*{SUFFIX}")):
            try:
                if self._checked.get(path.name) != _state(path) and path.name != self._whole(key, path):
                    log.warning("%s is dropped, and the prompt is read again: its content is damaged", path)
                    path.unlink()
                    continue
                os.utime(path)  # the oldest leave first
                self._checked[path.name] = _state(path)
                return path.name
            except OSError as error:
                log.warning("%s cannot be used: %s", path, error.strerror or error)
        return None

    def keep(self, key: str) -> None:
        """Gives the ``unfinished`` file its name; the oldest files leave for it. Raises: OSError."""
        path = self.folder / self.unfinished(key)
        whole = path.with_name(self._whole(key, path))
        os.replace(path, whole)
        self._checked[whole.name] = _state(whole)
        files = [(each, each.lstat()) for each in self.folder.iterdir() if each.suffix in (SUFFIX, UNFINISHED)]
        total = 0
        for each, status in sorted(files, key=lambda one: -one[1].st_mtime_ns):
            total += status.st_size if each.suffix == SUFFIX else 0
            abandoned = each.suffix == UNFINISHED and time.time() - status.st_mtime > _LONGEST_WRITE_S
            if abandoned or (each.suffix == SUFFIX and self._max_bytes is not None and total > self._max_bytes):
                each.unlink(missing_ok=True)

    def _whole(self, key: str, path: Path) -> str:
        return f"{key}-{file_sha256(path)}{SUFFIX}"


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_ctime_ns
