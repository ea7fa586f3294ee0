"""Shares one model per process and folder among all who name it. Its one thread loads it at first use and uses it.

shared_model(ref) -> SharedModel.stream(generation) -> its own thread: load, then LoadedModel.generate
                                                    -> pieces of text over a queue into the caller's event loop
"""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.chat.progress import Progress, watcher
from conductor_core.files import FileLock, expand_path, is_folder, is_locked
from conductor_core.inference.generation import (
    Call,
    Done,
    Generation,
    IdleTimer,
    InferenceError,
    Interrupted,
    sparingly,
)
from conductor_core.inference.hardware import SMALL_PARAMETERS, Placement, free_ram_bytes, place
from conductor_core.inference.source import inspect_folder, local_folder, model_files

if TYPE_CHECKING:
    from conductor_core.inference.model import LoadedModel

OF_LATE_S = 60.0
"""A model that was not used for so long leaves when another is loaded: a run's own models follow each other sooner."""

log = logging.getLogger(__name__)

_models: dict[str, "SharedModel"] = {}
_models_lock = threading.Lock()
_loading_lock = threading.Lock()


def shared_model(ref: str) -> "SharedModel":
    """Returns the process's one model for a folder or hub id. It reads and loads nothing yet."""
    key = _key(ref)
    with _models_lock:
        if key not in _models:
            _models[key] = SharedModel(ref)
        return _models[key]


def release(ref: str) -> bool:
    """Takes a model out of the memory of this process. Returns False if somebody waits for it."""
    with _models_lock:
        model = _models.get(_key(ref))
        return model is None or model._leave()


def _key(ref: str) -> str:
    folder = expand_path(ref)
    return str(folder.resolve()) if is_folder(folder) else ref


class SharedModel:
    """A model and the one thread in which it lives: calls wait for each other in order of arrival.

    Attributes:
        loaded: the model; None until the first call, and after it has left memory.
        idle_s: seconds without a call after which it leaves memory; None: never.
        load_s: seconds that loading took.
    """

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.loaded: LoadedModel | None = None
        self.load_s: float | None = None
        self.idle_s: float | None = None
        self._used_s = time.monotonic()
        self._idle = IdleTimer(self._leave_if_idle)
        self._in_use: FileLock | None = None
        self._calls: list[Call] = []  # those that wait, and the one that is answered
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

    @property
    def busy(self) -> bool:
        """Whether somebody waits for the model."""
        return bool(self._calls)

    @property
    def is_small(self) -> bool:
        """Whether it stays in memory: it takes next to none, and the first plan after a pause should not wait."""
        return self.loaded is None or self.loaded.files.parameters < SMALL_PARAMETERS

    @property
    def placement(self) -> Placement | None:
        """Where the model runs, or would run as far as is known without loading it; None if that is unknown."""
        if self.loaded is not None:
            return self.loaded.placement
        folder = local_folder(self.ref)
        try:
            return place(inspect_folder(folder).parameters) if folder else None
        except InferenceError:
            return None  # loading it will say why

    async def stream(self, generation: Generation) -> AsyncGenerator[str | Done, None]:
        """Yields the pieces of the completion, then ``Done``.

        Closing the iterator stops the model before its next token. Raises: InferenceError.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | Done | Exception] = asyncio.Queue()
        cancelled = threading.Event()

        sparing = sparingly(watcher())

        def told(made: Progress) -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody listens any more
                loop.call_soon_threadsafe(sparing, made)

        def notify(item: str | Done | Exception) -> None:
            try:
                loop.call_soon_threadsafe(queue.put_nowait, item)
            except RuntimeError:
                cancelled.set()  # the loop was closed: nobody listens any more

        call = Call(generation, notify, cancelled, told)
        with _models_lock:
            self._calls.append(call)
        self._thread.submit(self._serve, call)
        try:
            while True:
                item = await queue.get()
                if isinstance(item, InferenceError):
                    raise item
                if isinstance(item, Exception):
                    said = f"{self.ref} failed while writing: {type(item).__name__}: {item}"
                    raise InferenceError(said.splitlines()[0]) from item
                yield item
                if isinstance(item, Done):
                    return
        finally:
            cancelled.set()

    def _serve(self, call: Call) -> None:
        try:
            if not call.cancelled.is_set():
                model = self.loaded or self._load()
                call.notify(model.generate(call.generation, call.notify, call.cancelled.is_set, call.progress))
        except Interrupted:
            log.info("%s stops: nobody waits for it now", self.ref)
        except Exception as error:  # noqa: BLE001 it must cross to the caller, who would else wait for ever
            call.notify(error)
        finally:
            with _models_lock:
                self._calls.remove(call)
                self._used_s = time.monotonic()
                if not self.is_small:
                    self._idle.begin(self.idle_s)

    def _load(self) -> "LoadedModel":
        """Loads the model for all who wait for it, one at a time in this process.

        Other models leave: those that were not used of late, and where memory is short all that nobody waits for.
        Raises: Interrupted once nobody waits any more.
        """

        def waiting() -> list[Call]:
            with _models_lock:
                return [call for call in self._calls if not call.cancelled.is_set()]

        def notify(made: Progress) -> None:
            for call in waiting():
                call.progress(made)

        with _loading_lock:
            if not waiting():
                raise Interrupted
            files = model_files(self.ref)
            notify(Progress(phase="loading", done=0, total=files.size_bytes))
            placement = place(files.parameters)
            free = free_ram_bytes()
            short = placement.device != "cpu" or (free is not None and free < placement.needed_bytes)
            with _models_lock:
                for other in _models.values():
                    unused_s = time.monotonic() - other._used_s
                    if other is not self and not other.is_small and (short or unused_s >= OF_LATE_S):
                        other._leave()
            # The one import that brings in torch: an inspector with remote models never pays for it.
            from conductor_core.inference.model import LoadedModel

            if not waiting():
                raise Interrupted
            start = time.perf_counter()
            self._in_use = hold(files.folder)
            try:
                self.loaded = LoadedModel(files, notify, cancelled=lambda: not waiting())
            finally:
                if self.loaded is None:
                    self._drop()
            self.load_s = time.perf_counter() - start
            return self.loaded

    def _leave(self) -> bool:
        """Leaves memory unless somebody waits for it. The caller has the lock."""
        if self._calls:
            return False
        if self.loaded is not None:
            log.info("%s leaves memory", self.ref)
        self._drop()
        return True

    def _drop(self) -> None:
        self.loaded = None
        if self._in_use is not None:
            self._in_use.close()
            self._in_use = None

    def _leave_if_idle(self) -> None:
        with _models_lock:
            left = self._leave()
        if left:
            gc.collect()  # a model's parts hold each other


# Models in memory are marked for all processes of this machine: nobody deletes the files under them. The mark is a
# shared lock on the model's ``config.json``, which the kernel drops when a process dies.


def hold(folder: Path) -> FileLock | None:
    """Marks the model until the lock is closed. None where the files may not be written: nobody can delete them."""
    try:
        lock = FileLock(folder / "config.json")
    except OSError as error:
        log.info("%s is not marked as in use: %s", folder, error)
        return None
    if lock.try_acquire(shared=True):
        return lock
    lock.close()
    return None


def is_held(folder: Path) -> bool:
    """Tells whether any process has the model in memory."""
    return (folder / "config.json").is_file() and is_locked(folder / "config.json")
