"""How quick models are on this machine, measured before they are downloaded and kept on disk.

``Paces`` measures each model once, and imports no torch until then. ``CONDUCTORS`` and ``SMALL_WORKERS`` are models of
the hub that people will want to try: their sizes and licences are known before anything is downloaded.
"""

import hashlib
import json
import logging
import platform
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from conductor_core.files import private_folder, write_whole
from conductor_core.inference.hardware import accelerator_memory, most_threads, place

log = logging.getLogger(__name__)

READ_TOKENS, WRITTEN_TOKENS = 256, 150
"""The tokens of a worker's answer: a short question with what an earlier step said, and a paragraph."""
STATIC_TOKENS, TASK_TOKENS, PLAN_TOKENS = 1344, 60, 150
"""The tokens of a plan: the prompt that all plans share, which is read once and kept; the task; and what is written."""

Notify = Callable[[int, int], None]
"""Takes how many parts of a measurement are done, and of how many. What it raises ends the measurement."""

_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pace")
"""It runs one measurement at a time: two would slow each other."""


@dataclass(frozen=True)
class Shape:
    """A model's architecture. ``kind`` is its name in transformers; ``config`` has its sizes, as in ``config.json``."""

    kind: str
    parameters: int
    config: Mapping[str, Any]


_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Pace:
    """What a model takes on this machine: seconds for a token of the prompt, and for one that it writes.

    ``precision``: that of its weights, as it was timed and as it would run. ``static_tokens``: of its prompt.
    """

    read_token_s: _Seconds
    write_token_s: _Seconds
    precision: Annotated[str, Field(pattern="^(float32|float16|bf16|int8|int4)$")] = "bf16"
    static_tokens: int = STATIC_TOKENS

    @property
    def answer_s(self) -> float:
        """Seconds for a worker's answer of ``WRITTEN_TOKENS`` tokens after ``READ_TOKENS``."""
        return self._seconds(READ_TOKENS, WRITTEN_TOKENS)

    @property
    def plan_s(self) -> float:
        """Seconds for a plan whose static prompt was read before."""
        return self._seconds(TASK_TOKENS, PLAN_TOKENS)

    @property
    def first_plan_s(self) -> float:
        """Seconds for the first plan, which reads the static prompt too. Loading the weights is not in it."""
        return self._seconds(self.static_tokens + TASK_TOKENS, PLAN_TOKENS)

    def _seconds(self, read: int, written: int) -> float:
        return read * self.read_token_s + written * self.write_token_s


def shape_of(config: Mapping[str, Any], parameters: int) -> Shape:
    """Returns the shape that a ``config.json`` describes. What a measurement does not need is left out."""
    # Models that also see pictures keep what is of text apart.
    text = config.get("text_config")
    sizes = text if isinstance(text, dict) else config
    kind = sizes.get("model_type") or config.get("model_type")
    return Shape(str(kind), parameters, {key: each for key, each in sizes.items() if isinstance(each, int | float)})


V = TypeVar("V")
MOST_KEPT = 200
_MOST_BYTES = 1_000_000


class Kept(Generic[V]):
    """Values by key, kept as a file of JSON for the user alone: hints and no records.

    A damaged file is as if it were empty. A disk that refuses it costs a line in the log.
    """

    def __init__(self, file: Path, values: TypeAdapter[dict[str, V]]) -> None:
        self._file, self._values = file, values
        self._refused: dict[str, V] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> V | None:
        return self._read().get(key)

    def keep(self, key: str, value: V) -> None:
        """Keeps ``value``; of more than ``MOST_KEPT`` the ones not kept for longest go."""
        with self._lock:
            others = [(name, each) for name, each in self._read().items() if name != key]
            kept = dict([*others, (key, value)][-MOST_KEPT:])
            try:
                private_folder(self._file.parent)
                write_whole(self._file, self._values.dump_json(kept, exclude_none=True))
            except OSError as error:
                self._refused = kept
                log.warning("a measured pace is not kept in %s: %s", self._file, error.strerror or error)

    def _read(self) -> dict[str, V]:
        try:
            with self._file.open("rb") as file:
                return self._values.validate_json(file.read(_MOST_BYTES))
        except (OSError, ValidationError):
            return self._refused


# Measurements.

_SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "tie_word_embeddings",
)  # fmt: skip
"""What of a configuration decides the pace. ``config.json`` says much more, so that a downloaded model is known too."""


def key_of(shape: Shape) -> str:
    """Returns the digest of all that a pace depends on: the model's sizes, where it would run, this machine."""
    placement = place(shape.parameters)
    sizes = {name: shape.config.get(name) for name in _SIZES}
    parts = [shape.kind, sizes, placement.device, placement.dtype, _machine()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _machine() -> list[str]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    accelerator = accelerator_memory()
    card = "" if accelerator is None else accelerator.label
    return [platform.machine(), processor, str(most_threads()), card, metadata.version("torch")]


class Paces:
    """The measurements of one data folder, done or going on. Any thread may use it."""

    def __init__(self, file: Path) -> None:
        self._kept = Kept(file, TypeAdapter(dict[str, Pace]))
        self._running: dict[str, Future[Pace]] = {}
        self._lock = threading.Lock()

    def measure(self, shape: Shape, notify: Notify = lambda _done, _all: None) -> Pace:
        """Measures a model and keeps the result. Blocks for some seconds.

        Raises: InferenceError; what ``notify`` raises.

        It takes the processor, and memory for the vocabulary and four layers.
        """
        # The one import that brings in torch.
        from conductor_core.inference.model import trial

        pace = Pace(*trial(shape.kind, shape.parameters, shape.config, notify))
        self._kept.keep(key_of(shape), pace)
        return pace

    def measure_soon(self, shape: Shape) -> None:
        """Begins ``measure`` in the background, unless it is known or being measured."""
        key = key_of(shape)
        if self.known(shape) is not None:
            return
        with self._lock:
            if key not in self._running or self._running[key].done():
                self._running[key] = _thread.submit(self._logged, shape)

    def _logged(self, shape: Shape) -> Pace:
        try:
            return self.measure(shape)
        except Exception:
            log.exception("what a model of %s takes here could not be measured", shape.kind)
            raise

    def known(self, shape: Shape) -> Pace | None:
        """Returns what was measured on this machine, now or earlier."""
        return self._kept.get(key_of(shape))

    def is_measured(self, shape: Shape) -> bool:
        """Tells whether the measurement goes on or waits for its turn."""
        found = self._running.get(key_of(shape))
        return found is not None and not found.done()

    def fault(self, shape: Shape) -> str:
        """Returns why the last measurement of this process failed; empty if it did not."""
        found = self._running.get(key_of(shape))
        error = found.exception() if found is not None and found.done() else None
        return "" if error is None else str(error) or type(error).__name__


@cache
def paces(data_folder: Path) -> Paces:
    """Returns the measurements that are kept in ``data_folder``."""
    return Paces(data_folder / "model-paces.json")


@dataclass(frozen=True)
class Published:
    """A model of the hub. ``size_bytes``: of its weights, in bfloat16 unless ``config.json`` says otherwise."""

    shape: Shape
    licence: str
    size_bytes: int


_NAMES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_APACHE = "apache-2.0"


def _published(
    kind: str, parameters: int, licence: str, sizes: tuple[int, ...], size_bytes: int | None = None, **more: Any
) -> Published:
    """``sizes``: as ``_NAMES``. ``more``: what differs from the smaller Qwen2.5."""
    usual = {"vocab_size": 151_936, "max_position_embeddings": 32_768, "tie_word_embeddings": True}
    shape = Shape(kind, parameters, dict(zip(_NAMES, sizes, strict=True)) | usual | more)
    return Published(shape, licence, size_bytes or 2 * parameters)


_LLAMA_3B = {"head_dim": 128, "vocab_size": 128_256, "max_position_embeddings": 131_072}
_HALF_BILLION = _published("qwen2", 494_032_768, _APACHE, (896, 4864, 24, 14, 2))

CONDUCTORS: Mapping[str, Published] = MappingProxyType(
    {
        "di-zhang-fdu/openfugu-conductor-3b": _published(
            "llama", 3_212_749_824, "llama3.2", (3072, 8192, 28, 24, 8), **_LLAMA_3B
        ),
        "Qwen/Qwen2.5-7B-Instruct": _published(
            "qwen2", 7_615_616_512, _APACHE, (3584, 18_944, 28, 28, 4), vocab_size=152_064, tie_word_embeddings=False
        ),
        "Qwen/Qwen2.5-3B-Instruct": _published("qwen2", 3_085_938_688, "qwen-research", (2048, 11_008, 36, 16, 2)),
        "Qwen/Qwen2.5-1.5B-Instruct": _published("qwen2", 1_543_714_304, _APACHE, (1536, 8960, 28, 12, 2)),
        "Qwen/Qwen2.5-0.5B-Instruct": _HALF_BILLION,
    }
)
"""Those that plan. The first is a Conductor that others have trained, on Llama-3.2-3B-Instruct."""

SMALL_WORKERS: Mapping[str, Published] = MappingProxyType(
    {
        "Qwen/Qwen2.5-0.5B-Instruct": _HALF_BILLION,
        "Qwen/Qwen2.5-Coder-0.5B-Instruct": _HALF_BILLION,
        # Its file on the hub also holds what the embeddings share.
        "Qwen/Qwen3-0.6B": _published(
            "qwen3",
            596_049_920,
            _APACHE,
            (1024, 3072, 28, 16, 8),
            1_500_000_000,
            head_dim=128,
            max_position_embeddings=40_960,
        ),
    }
)
"""Those of the small pool."""
