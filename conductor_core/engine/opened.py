"""The pools and Conductors of a host, each opened once for all its runs."""

import asyncio
import logging
import threading
from contextlib import suppress
from pathlib import Path

from conductor_core.chat import Conductor, PlanRequest
from conductor_core.engine.pool import BUILT_IN_POOLS, Pool, open_pool, pool_file, reopen_pool
from conductor_core.engine.recorder import closing
from conductor_core.errors import InspectorError
from conductor_core.events import PoolInfo
from conductor_core.given_path import given_path, is_file
from conductor_core.settings import Settings

log = logging.getLogger(__name__)


class Opened:
    """Opens pools and Conductors when they are first asked for, and closes them together."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._opening = threading.Lock()
        self._pools: dict[tuple[object, ...], Pool] = {}
        self._conductors: dict[tuple[object, ...], asyncio.Task[Conductor]] = {}
        self._warming: dict[str, asyncio.Task[None]] = {}

    def pool(self, ref: str | PoolInfo, seed: int) -> Pool:
        """Returns an open pool. Opens a changed pool file anew; runs on the old pool go on."""
        if isinstance(ref, PoolInfo):
            key: tuple[object, ...] = (ref.model_dump_json(), seed)
        else:
            file = None if ref in BUILT_IN_POOLS else pool_file(ref, self._settings)
            key = (ref, file, file.stat().st_mtime_ns if file is not None and is_file(file) else None, seed)
        with self._opening:
            if key not in self._pools:
                if isinstance(ref, PoolInfo):
                    self._pools[key] = reopen_pool(ref, self._settings, seed=seed)
                else:
                    self._pools[key] = open_pool(ref, self._settings, seed=seed)
            return self._pools[key]

    def conductor(self, ref: str) -> Conductor:
        """Returns an open Conductor. Call it from any thread but the loop's. Raises: UnknownConductor."""
        return asyncio.run_coroutine_threadsafe(self._conductor(ref), self._loop).result()

    async def _conductor(self, ref: str) -> Conductor:
        """Returns an open Conductor, opened off the loop: that may import a lot. Raises: UnknownConductor."""
        key = (ref, *await asyncio.to_thread(self._conductors_files, ref))
        if key not in self._conductors:
            self._conductors[key] = asyncio.create_task(asyncio.to_thread(self._open_conductor, ref))
        try:
            return await asyncio.shield(self._conductors[key])
        except InspectorError:
            self._conductors.pop(key, None)
            raise

    def _conductors_files(self, ref: str) -> list[tuple[Path, int]]:
        """Returns the files that may define ``ref``, each with the time of its last change."""
        if ref == "tiny" or "://" in ref:
            return []
        files = [*self._settings.conductors_folder.glob("*.toml"), given_path(ref.partition("#")[0])]
        with suppress(OSError, ValueError):  # gone meanwhile, or no path at all
            return [(file, file.stat().st_mtime_ns) for file in files if is_file(file)]
        return []

    def _open_conductor(self, ref: str) -> Conductor:
        # Imported when used: a run of a given workflow needs no Conductor.
        from conductor_core.conductors.catalogue import open_conductor

        return open_conductor(ref, self._settings)

    async def _warm_up(self, conductor_ref: str, pool_ref: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            conductor = await self._conductor(conductor_ref)
            if conductor.info.kind != "local":
                return
            agents = self.pool(pool_ref, self._settings.seed).specs
            # As a first run with default settings would ask, so that its grammar is compiled too.
            request = PlanRequest(
                task="Warm up.",
                agents=agents,
                max_steps=self._settings.max_steps,
                allow_recursion=self._settings.max_depth > 0,
            )
            async with closing(conductor.write(request)) as stream:
                await anext(stream)
        except InspectorError as error:
            log.warning("Conductor %s is not warm: %s", conductor_ref, error)

    def warm_up(self, conductor_ref: str, pool_ref: str, after_s: float) -> None:
        """See ``EngineHost.warm_up``."""

        def begin() -> None:
            if conductor_ref not in self._warming:
                self._warming[conductor_ref] = self._loop.create_task(self._warm_up(conductor_ref, pool_ref, after_s))

        self._loop.call_soon_threadsafe(begin)

    async def aclose(self) -> None:
        """Call it on the loop."""
        for warming in self._warming.values():
            warming.cancel()
        await asyncio.gather(*self._warming.values(), return_exceptions=True)
        for pool in self._pools.values():
            await pool.aclose()
        for opened in await asyncio.gather(*self._conductors.values(), return_exceptions=True):
            if not isinstance(opened, BaseException):
                await opened.aclose()
