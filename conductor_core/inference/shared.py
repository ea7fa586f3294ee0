"""One model per process and folder, shared by all who name it: loaded at first use, used by one call at a time.

shared_model(ref) -> SharedModel.stream(generation) -> its own thread: load, then LoadedModel.generate
                                                    -> pieces of text over a queue into the caller's event loop
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.chat import Usage
from conductor_core.inference.errors import InferenceError
from conductor_core.inference.generation import Done, Generation
from conductor_core.inference.hardware import Placement, free_ram_bytes, place
from conductor_core.inference.source import fetch, inspect_folder, local_folder

if TYPE_CHECKING:
    from conductor_core.inference.model import LoadedModel

_models: dict[str, "SharedModel"] = {}
_models_lock = threading.Lock()
_loading_lock = threading.Lock()


def shared_model(ref: str) -> "SharedModel":
    """The process's one model for a folder or hub id. Reads and loads nothing yet."""
    key = _key(ref)
    with _models_lock:
        if key not in _models:
            _models[key] = SharedModel(ref)
        return _models[key]


def _key(ref: str) -> str:
    folder = Path(ref).expanduser()
    return str(folder.resolve()) if folder.is_dir() else ref


class SharedModel:
    """A model and the one thread in which it lives: calls wait for each other in order of arrival.

    Attributes:
        loaded: None until the first call, and after it has made room for another model.
        load_s: seconds that loading took.
    """

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.loaded: LoadedModel | None = None
        self.load_s: float | None = None
        self._waiting = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

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
        """Pieces of the completion, then ``Done``.

        Closing the iterator stops the model before its next token. Raises: InferenceError.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | Done | Exception] = asyncio.Queue()
        cancelled = threading.Event()

        def tell(item: str | Done | Exception) -> None:
            try:
                loop.call_soon_threadsafe(queue.put_nowait, item)
            except RuntimeError:
                cancelled.set()  # the loop was closed: nobody listens any more

        with _models_lock:
            self._waiting += 1
        self._thread.submit(self._serve, generation, tell, cancelled)
        try:
            while True:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                if isinstance(item, Done):
                    return
        finally:
            cancelled.set()

    def _serve(
        self,
        generation: Generation,
        tell: Callable[[str | Done | Exception], None],
        cancelled: threading.Event,
    ) -> None:
        try:
            if cancelled.is_set():
                return
            model = self.loaded or self._load()
            result = model.generate(generation, tell, cancelled.is_set)
            if result is not None:
                finish_reason, read, written = result
                tell(Done(finish_reason, Usage(input_tokens=read, output_tokens=written)))
        except InferenceError as error:
            tell(error)
        except Exception as error:  # noqa: BLE001 it must cross to the caller, who would else wait for ever
            failure = InferenceError(
                f"{self.ref} failed while writing: {type(error).__name__}: {error}".splitlines()[0]
            )
            failure.__cause__ = error
            tell(failure)
        finally:
            with _models_lock:
                self._waiting -= 1

    def _load(self) -> "LoadedModel":
        """Loads the model, one at a time in this process. Models nobody waits for make room where memory is short."""
        with _loading_lock:
            files = fetch(self.ref)
            placement = place(files.parameters)
            free = free_ram_bytes()
            if placement.device != "cpu" or (free is not None and free < placement.needed_bytes):
                self._unload_idle_others()
            # The one import that brings in torch: an inspector with remote models never pays for it.
            from conductor_core.inference.model import LoadedModel

            start = time.perf_counter()
            self.loaded = LoadedModel(files)
            self.load_s = time.perf_counter() - start
            return self.loaded

    def _unload_idle_others(self) -> None:
        with _models_lock:
            for other in _models.values():
                if other is not self and other._waiting == 0:
                    other.loaded = None
