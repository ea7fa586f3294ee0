"""The built-in tool server ``python``: a program of a worker runs in the sandbox that also grades programs."""

import asyncio
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

from conductor_core.chat.messages import ToolSpec
from conductor_core.chat.tools import PYTHON, OfferedTool, ToolAnswer, ToolListing, ToolServerSpec
from conductor_core.grading.sandbox.run import ProcessLimits, Ran, active_layers, run
from conductor_core.tools.servers import answer, fit_name, has_effects

TOOL = "run"
_NEEDED = ("Landlock", "seccomp")
_THREADS = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="python tool")
"""Not those of the event loop: programs that never end would keep all else that needs a thread waiting."""
_PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "A whole Python program."}},
    "required": ["code"],
    "additionalProperties": False,
}
_DESCRIPTION = (
    "Runs a Python program and returns what it prints. It has the standard library, no network and no files, and each "
    "call begins anew: print what you want to know."
)


class PythonServer:
    """Runs programs in the sandbox.

    Its tool has no effects. That relies on two layers of the Linux kernel: Landlock, which leaves the program no file
    but those of its own folder, removed afterwards, and seccomp, which leaves it no socket and no other program. Where
    one of them is missing nothing runs. Namespaces and limits of time, memory and output hold it, too.
    """

    def __init__(self, spec: ToolServerSpec) -> None:
        self.spec = spec

    async def list(self) -> ToolListing:
        if fault := await asyncio.to_thread(_fault):
            return ToolListing(server=self.spec.name, kind="python", fault=fault)
        return ToolListing(server=self.spec.name, kind="python", title="Python sandbox", tools=(self._tool,))

    async def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolAnswer:
        if fault := await asyncio.to_thread(_fault):
            return answer("unreachable", f"Nothing was run: {fault}.")
        if tool != self._tool:
            return answer("changed", f"Nothing was run: {PYTHON} is no longer the tool that was offered.")
        code = arguments.get("code")
        if not isinstance(code, str):
            return answer("error", "code must be given, as a text: a whole Python program.")
        limits = ProcessLimits(wall_s=self.spec.timeout_s, cpu_s=max(1, round(min(self.spec.timeout_s, 3600))))
        stop = threading.Event()
        program = partial(run, "script", code, limits=limits, stop=stop)
        try:
            ran = await asyncio.get_running_loop().run_in_executor(_THREADS, program)
        except OSError as error:
            return answer("unreachable", f"Nothing was run: {error.strerror or error}.")
        finally:
            stop.set()
        return _told(ran)

    async def aclose(self) -> None:
        """Nothing stays open: a program ends by itself, or is ended when its time is over or its call cancelled."""

    @property
    def _tool(self) -> OfferedTool:
        spec = ToolSpec(name=fit_name(self.spec.name, TOOL), description=_DESCRIPTION, parameters=_PARAMETERS)
        effects = has_effects(self.spec, TOOL, read_only=True)
        return OfferedTool(server=self.spec.name, tool=TOOL, spec=spec, effects=effects)


@lru_cache(maxsize=1)
def _fault() -> str:
    """Says why no program may run here; empty: it may."""
    try:
        layers = active_layers()
    except OSError as error:
        return f"the sandbox cannot be started: {error.strerror or error}"
    lacks = [layer for layer in _NEEDED if layer not in layers]
    return f"this system has no {' and no '.join(lacks)}, so programs of models are not run here" if lacks else ""


def _told(ran: Ran) -> ToolAnswer:
    size = len(ran.stdout.encode("utf-8", "replace"))
    if ran.ending == "completed":
        return answer("returned", ran.stdout or "The program printed nothing.", size)
    ended = f"The program failed: {ran.error}" if ran.ending == "failed" else f"The program was ended: {ran.error}."
    printed = f"\nUntil then it printed:\n{ran.stdout}" if ran.stdout else ""
    return answer("timed_out" if ran.ending == "timed out" else "error", ended + printed, size)
