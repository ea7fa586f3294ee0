"""What this machine offers a model: device, number format, and the memory that each precision needs. It loads no torch.

The choice on a processor follows a measurement on an AVX512-BF16 machine, a 5504 x 3584 matrix, one thread:
float32 4.0 ms a vector and 33 ms for 64 of them, bfloat16 2.1 and 6.7 ms. Without such instructions bfloat16 is
emulated and only saves memory. Models below ``SMALL_PARAMETERS`` are bound by overhead and stay in float32.

Whether a processor keeps packed weights (``conductor_core.precision``) is a matter of memory here; whether they are
quicker is found by a trial (``quantization.choice``).
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
from typing import Literal, get_args

from conductor_core.precision import Packed, Precision, PrecisionChoice

Device = Literal["cuda", "mps", "cpu"]
Dtype = Literal["bfloat16", "float16", "float32"]

BYTES_OF: dict[Dtype, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
PACKED_BYTES: dict[Packed, float] = {"int8": 1.15, "int4": 0.75}
"""Bytes a parameter. Scales, the embedding, which is not packed, and in int4 the output layer in int8 count in it."""
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
    """Where and how a model runs. ``precision``: how its weights are packed; None: they are in ``dtype``."""

    device: Device
    dtype: Dtype
    needed_bytes: int
    memory: Memory
    precision: Packed | None = None

    @property
    def fits(self) -> bool:
        return self.memory.holds(self.needed_bytes)


def place(parameters: int, choice: PrecisionChoice = "bf16") -> Placement:
    """Returns where and how a model of so many parameters would run.

    It takes a graphics card if one is there and has room, else the processor. Packed weights run on the processor. With
    ``auto`` they are packed if they would not fit otherwise; a trial may pack them for speed.
    ``needed_bytes`` counts the weights, a twentieth for activations and caches, and the run-time's own half GiB (none
    for small models).
    """
    small = parameters < SMALL_PARAMETERS
    ram = Memory("cpu", ram_bytes(), "RAM")
    if choice in ("int8", "int4"):
        return _packed(parameters, choice, ram)
    accelerator = accelerator_memory()
    if accelerator is not None and not small:
        dtype: Dtype = "bfloat16" if accelerator.device == "cuda" else "float16"
        needed = _needed(parameters, BYTES_OF[dtype], small)
        if accelerator.holds(needed):
            return Placement(accelerator.device, dtype, needed, accelerator)
    if small or (not has_fast_bfloat16() and ram.holds(_needed(parameters, BYTES_OF["float32"], small))):
        return Placement("cpu", "float32", _needed(parameters, BYTES_OF["float32"], small), ram)
    whole = Placement("cpu", "bfloat16", needed_bytes(parameters, "bf16"), ram)
    if choice == "auto" and not whole.fits:
        packed = (_packed(parameters, precision, ram) for precision in PACKED_BYTES)
        return next((each for each in packed if each.fits), whole)
    return whole


def _packed(parameters: int, precision: Packed, ram: Memory) -> Placement:
    dtype: Dtype = "float32" if parameters < SMALL_PARAMETERS else "bfloat16"
    return Placement("cpu", dtype, needed_bytes(parameters, precision), ram, precision)


def needed_bytes(parameters: int, precision: Precision) -> int:
    """Returns the memory that a model needs on the processor with its weights in ``precision``, as ``place`` counts.

    Small models keep float32 unless they are packed.
    """
    small = parameters < SMALL_PARAMETERS
    if precision == "bf16":
        return _needed(parameters, BYTES_OF["float32" if small else "bfloat16"], small)
    return _needed(parameters, PACKED_BYTES[precision], small)


def lacking(parameters: int, choice: PrecisionChoice, placement: Placement) -> str:
    """Returns a sentence's rest for a ``placement`` that does not fit: what is needed, and what there is."""
    precisions = (choice,) if choice != "auto" else get_args(Precision)
    needs = " or ".join(f"{needed_bytes(parameters, each) / 1e9:.1f} GB in {each}" for each in precisions)
    memory = placement.memory
    return (
        f"needs {needs}, this machine has {memory.total_bytes / 1e9:.1f} GB of {memory.label}, of which a model may "
        f"take {SHARE_FOR_A_MODEL:.0%}"
    )


def _needed(parameters: int, bytes_each: float, small: bool) -> int:
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


def idle_threads() -> int:
    """Returns how many threads work at once here and now, by a trial of some milliseconds.

    On a busy machine more threads than idle cores are slower than fewer. OMP_NUM_THREADS is the most.
    """
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        most = min(most, max(1, int(os.environ["OMP_NUM_THREADS"])))
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
    """Returns what a model of so many parameters needs, widest precision first, and the memory it would run in.

    A small model and one on a graphics card have one precision alone: that of ``place``.
    """
    placement = place(parameters)
    first = Need(precision_name(placement), placement.needed_bytes, placement.fits)
    if parameters < SMALL_PARAMETERS or placement.device != "cpu":
        return (first,), placement.memory
    on_cpu = {precision: needed_bytes(parameters, precision) for precision in get_args(Precision)}
    found = [Need(name, each, placement.memory.holds(each)) for name, each in on_cpu.items() if name != first.precision]
    return (first, *found), placement.memory


def precision_name(placement: Placement) -> str:
    """Returns what to call the number format of weights that are not packed."""
    return "bf16" if placement.dtype == "bfloat16" else placement.dtype
