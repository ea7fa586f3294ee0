"""What this machine offers a model: device, number format, memory, idle processors. It loads no torch.

The choice on a processor follows a measurement on an AVX512-BF16 machine, a 5504 x 3584 matrix, one thread:
float32 4.0 ms a vector and 33 ms for 64 of them, bfloat16 2.1 and 6.7 ms. Without such instructions bfloat16 is
emulated and only saves memory. Models below ``SMALL_PARAMETERS`` are bound by overhead and stay in float32.
"""

import os
import platform
import shutil
import subprocess
import timeit
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
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
    """Where and how a model runs."""

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
        needed = _needed(parameters, BYTES_OF[dtype], small)
        if accelerator.holds(needed):
            return Placement(accelerator.device, dtype, needed, accelerator)
    wide = _needed(parameters, BYTES_OF["float32"], small)
    if small or (not has_fast_bfloat16() and ram.holds(wide)):
        return Placement("cpu", "float32", wide, ram)
    return Placement("cpu", "bfloat16", _needed(parameters, BYTES_OF["bfloat16"], small), ram)


def lacking(placement: Placement) -> str:
    """Returns a sentence's rest for a ``placement`` that does not fit: what is needed, and what there is."""
    memory = placement.memory
    return (
        f"needs {placement.needed_bytes / 1e9:.1f} GB, this machine has {memory.total_bytes / 1e9:.1f} GB of "
        f"{memory.label}, of which a model may take {SHARE_FOR_A_MODEL:.0%}: a GGUF file of it needs less"
    )


def _needed(parameters: int, bytes_each: int, small: bool) -> int:
    return int(parameters * bytes_each * 1.05) + (0 if small else 2**29)


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


def most_threads() -> int:
    """Returns how many processors this process may use; OMP_NUM_THREADS bounds it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, max(1, int(said))) if said.isdigit() else cores


def idle_threads() -> int:
    """Returns how many threads work at once here and now, by a trial of some milliseconds.

    On a busy machine more threads than idle cores are slower than fewer.
    """
    most = most_threads()
    alone_s = _seconds_together(1)
    candidates = sorted({most, max(1, most // 2)}, reverse=True)
    return next((threads for threads in candidates if _seconds_together(threads) < 1.5 * alone_s), 1)


def _seconds_together(threads: int) -> float:
    """Returns the best time of three in which so many threads hash a megabyte each."""
    block = bytes(2**20)
    with ThreadPoolExecutor(threads) as pool:
        return min(timeit.repeat(lambda: list(pool.map(sha256, [block] * threads)), number=1, repeat=3))


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


@dataclass(frozen=True)
class Need:
    """What a model needs at one precision, in bytes, and whether the memory that it would run in has that."""

    precision: str
    needed_bytes: int
    fits: bool


def needs(parameters: int) -> tuple[tuple[Need, ...], Memory]:
    """Returns what a model of so many parameters needs, and the memory it would run in."""
    placement = place(parameters)
    return (Need(precision_name(placement), placement.needed_bytes, placement.fits),), placement.memory


def precision_name(placement: Placement) -> str:
    """Returns what to call the number format of the weights."""
    return "bf16" if placement.dtype == "bfloat16" else placement.dtype
