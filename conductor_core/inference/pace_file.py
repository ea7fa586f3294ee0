"""Keeps on disk how quick local models are here: paces that were measured, and paces of late. Imports no torch.

``PaceFile`` has those measured, by model and machine: JSON ``{key: [read_token_s, write_token_s, precision]}``.
``kept_pace`` and ``keep_pace`` have how quick each local Conductor was of late, for estimates after a restart. Both
files are hints and no records: one that is damaged is written again.
"""

import hashlib
import json
import logging
import math
import os
import platform
import threading
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from conductor_core.inference.generation import Pace
from conductor_core.inference.hardware import accelerator_memory, place
from conductor_core.inference.private_files import write_whole, writing_to
from conductor_core.precision import Precision, PrecisionChoice

log = logging.getLogger(__name__)

MOST_KEPT = 200
_MOST_BYTES = 1_000_000
_SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "tie_word_embeddings",
)  # fmt: skip
"""What of a configuration decides the pace. ``config.json`` says much more, so that a downloaded model is known too."""

Entry = tuple[float, float, str]


_PRECISIONS = ("float32", "float16", *get_args(Precision))


def key_of(kind: str, parameters: int, config: Mapping[str, Any], choice: PrecisionChoice) -> str:
    """Returns the digest of all that a pace depends on: the model's sizes, where it would run, this machine."""
    placement = place(parameters, choice)
    sizes = {name: config.get(name) for name in _SIZES}
    parts = [kind, sizes, choice, placement.device, placement.dtype, _machine()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _machine() -> list[str]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    accelerator = accelerator_memory()
    card = "" if accelerator is None else accelerator.label
    return [platform.machine(), processor, str(cores), threads, card, metadata.version("torch")]


class PaceFile:
    """See the module. What is damaged in the file is as if it were not there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._read_at: tuple[int, int] | None = None
        self._kept: dict[str, Entry] = {}

    def kept(self, key: str) -> Entry | None:
        with self._lock:
            return self._read().get(key)

    def keep(self, key: str, entry: Entry) -> None:
        """Rewrites the whole file. A disk that refuses it costs the next process a measurement, no more."""
        with self._lock:
            kept = {name: each for name, each in self._read().items() if name != key}
            kept = dict(list(kept.items())[-(MOST_KEPT - 1) :]) | {key: entry}
            self._kept = kept
            fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                try:
                    fresh.write_text(json.dumps(kept, indent=1), encoding="utf-8")
                    fresh.replace(self._file)
                finally:
                    fresh.unlink(missing_ok=True)
                self._read_at = self._state()
            except OSError as error:
                log.warning("a measured pace is not kept in %s: %s", self._file, error)

    def _state(self) -> tuple[int, int] | None:
        try:
            stat = self._file.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size

    def _read(self) -> dict[str, Entry]:
        """Returns what the file has by now: another process may have measured, too."""
        state = self._state()
        if state is None or state == self._read_at:
            return self._kept
        self._read_at = state
        try:
            if state[1] > _MOST_BYTES:
                raise ValueError(f"{state[1]:,} bytes")
            found = json.loads(self._file.read_text(encoding="utf-8"))
            self._kept = {str(key): entry for key, each in found.items() if (entry := _entry(each)) is not None}
        except (OSError, ValueError, RecursionError, AttributeError) as error:
            log.warning("%s is damaged and read as if it were empty: %s", self._file, error)
            self._kept = {}
        return self._kept


def _entry(each: object) -> Entry | None:
    if not isinstance(each, list) or len(each) != 3:
        return None
    read, write, precision = each
    fine = all(type(value) is float and math.isfinite(value) and value > 0 for value in (read, write))
    return (read, write, precision) if fine and precision in _PRECISIONS else None


# Paces of late.


FILE = "paces.json"
MOST_MODELS = 100
_PACES = TypeAdapter(dict[str, Pace])


def kept_pace(folder: Path, model: str) -> Pace:
    """Returns the pace of ``model`` that ``keep_pace`` last wrote into ``folder``; an empty one if there is none."""
    return _read(folder).get(model, Pace())


def keep_pace(folder: Path, model: str, pace: Pace) -> None:
    """Writes the pace of ``model``, for the user alone. A disk that is full or read-only costs a line in the log."""
    try:
        with writing_to(folder) as may_write:
            if may_write:
                paces = _read(folder)
                paces.pop(model, None)
                newest_last = [*paces.items(), (model, pace)][-MOST_MODELS:]
                write_whole(folder / FILE, _PACES.dump_json(dict(newest_last), exclude_none=True))
    except OSError as error:
        log.warning("how quick %s was is not kept in %s: %s", model, folder, error.strerror or error)


def _read(folder: Path) -> dict[str, Pace]:
    try:
        return _PACES.validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return {}
