"""Finds out what this machine offers a model, and chooses device and number format. It loads no torch.

The choice on a processor follows a measurement on an AVX512-BF16 machine, a 5504 x 3584 matrix, one thread:
float32 4.0 ms a vector and 33 ms for 64 of them, bfloat16 2.1 and 6.7 ms. Without such instructions bfloat16 is
emulated and only saves memory. Models below ``SMALL_PARAMETERS`` are bound by overhead and stay in float32.
"""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

Device = Literal["cuda", "mps", "cpu"]
Dtype = Literal["bfloat16", "float16", "float32"]

BYTES_OF: dict[Dtype, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
SMALL_PARAMETERS = 100_000_000
SHARE_FOR_A_MODEL = 0.9
"""The share of all memory that a model may take; the rest is for the system and this program."""


@dataclass(frozen=True)
class Memory:
    """Memory that a model could have on ``device``, in bytes. ``label`` is for people."""

    device: Device
    total_bytes: int
    label: str

    def holds(self, needed_bytes: int) -> bool:
        return needed_bytes <= self.total_bytes * SHARE_FOR_A_MODEL


@dataclass(frozen=True)
class Placement:
    device: Device
    dtype: Dtype
    needed_bytes: int
    memory: Memory

    @property
    def fits(self) -> bool:
        return self.memory.holds(self.needed_bytes)


def place(parameters: int) -> Placement:
    """Returns where and how a model of so many parameters would run.

    It takes a graphics card if one is there and has room, else the processor. ``needed_bytes`` counts the weights, a
    twentieth for activations and caches, and the run-time's own half GiB (none for small models).
    """
    small = parameters < SMALL_PARAMETERS
    ram = Memory("cpu", ram_bytes(), "RAM")
    accelerator = accelerator_memory()
    if accelerator is not None and not small:
        dtype: Dtype = "bfloat16" if accelerator.device == "cuda" else "float16"
        needed = _needed(parameters, dtype, small)
        if accelerator.holds(needed):
            return Placement(accelerator.device, dtype, needed, accelerator)
    if small or (not has_fast_bfloat16() and ram.holds(_needed(parameters, "float32", small))):
        return Placement("cpu", "float32", _needed(parameters, "float32", small), ram)
    return Placement("cpu", "bfloat16", _needed(parameters, "bfloat16", small), ram)


def _needed(parameters: int, dtype: Dtype, small: bool) -> int:
    return int(parameters * BYTES_OF[dtype] * 1.05) + (0 if small else 2**29)


@cache
def ram_bytes() -> int:
    """Returns the RAM of this machine, or what a container's limit leaves of it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file():
        text = limit.read_text().strip()
        if text.isdigit():
            total = min(total, int(text))
    return total


def free_ram_bytes() -> int | None:
    """Returns the RAM that is free now without swapping; None where the system does not say."""
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.is_file() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


@cache
def accelerator_memory() -> Memory | None:
    """Returns the first graphics card that the installed torch can use, by the system's tools; None: there is none."""
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return Memory("mps", int(ram_bytes() * 0.75), "Apple GPU (shared RAM)")
    command = shutil.which("nvidia-smi")
    if command is None or "+cpu" in metadata.version("torch"):
        return None
    query = [command, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout  # noqa: S603 fixed
        name, mebibytes = answer.splitlines()[0].rsplit(",", 1)
        return Memory("cuda", int(mebibytes) * 2**20, name.strip())
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None  # a driver without a card says so by failing


@cache
def has_fast_bfloat16() -> bool:
    """Tells whether the processor multiplies bfloat16 natively."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file():
        return platform.machine() == "arm64"
    text = cpuinfo.read_text()
    return any(flag in text for flag in ("avx512_bf16", "amx_bf16", " bf16 "))
