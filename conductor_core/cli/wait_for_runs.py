"""Waits for runs that are carried out at once."""

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from conductor_core.cli.wiring import stopping
from conductor_core.run.actor import local_caller
from conductor_core.run.trace import RunTrace

if TYPE_CHECKING:
    from conductor_core.engine.host import EngineHost


async def all_ended(
    host: "EngineHost", run_ids: Sequence[str], what: str, *, quiet: bool
) -> tuple[list[RunTrace], int]:
    """Waits for all runs. Ctrl-C or SIGTERM cancels those that have not ended.

    Returns them, and the exit code of a signal, else 0. ``what``: the word for them, in the plural.
    """

    def cancel() -> None:
        for run_id in run_ids:
            host.cancel(run_id, local_caller("cli"))

    loop, done = asyncio.get_running_loop(), 0

    def on_done(_: object) -> None:
        nonlocal done
        done += 1
        if not quiet:
            print(f"{done} of {len(run_ids)} {what}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(len(run_ids), what) as threads, stopping(cancel) as stopped_by:
        waiting = [loop.run_in_executor(threads, host.wait, run_id) for run_id in run_ids]
        for each in waiting:
            each.add_done_callback(on_done)
        traces = await asyncio.gather(*waiting)
    return list(traces), stopped_by[0] if stopped_by else 0
