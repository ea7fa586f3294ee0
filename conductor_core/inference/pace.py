"""How fast models read and write on this machine: measured once, before they are downloaded, and kept on disk."""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conductor_core.inference.generation import Packing
from conductor_core.inference.pace_file import PaceFile, key_of

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


@dataclass(frozen=True)
class Pace:
    """What a model takes on this machine: seconds for a token of the prompt, and for one that it writes.

    ``precision``: that of its weights, as it was timed and as it would run.
    """

    read_token_s: float
    write_token_s: float
    precision: str = "bf16"

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
        return self._seconds(STATIC_TOKENS + TASK_TOKENS, PLAN_TOKENS)

    def _seconds(self, read: int, written: int) -> float:
        return read * self.read_token_s + written * self.write_token_s


def shape_of(config: Mapping[str, Any], parameters: int) -> Shape:
    """Returns the shape that a ``config.json`` describes. What a measurement does not need is left out."""
    # Models that also see pictures keep what is of text apart.
    text = config.get("text_config")
    sizes = text if isinstance(text, dict) else config
    kind = sizes.get("model_type") or config.get("model_type")
    return Shape(str(kind), parameters, {key: each for key, each in sizes.items() if isinstance(each, int | float)})


class Paces:
    """The measurements of one data folder, done or going on. Any thread may use it."""

    def __init__(self, file: Path, packing: Packing | None = None) -> None:
        """``packing``: how the models would keep their weights; None: as their checkpoints have them."""
        self._file = PaceFile(file)
        self._packing = packing
        self._running: dict[str, Future[Pace]] = {}
        self._lock = threading.Lock()

    def measure(self, shape: Shape, notify: Notify = lambda _done, _all: None) -> Pace:
        """Measures a model and keeps the result. Blocks for some seconds.

        Raises: InferenceError; what ``notify`` raises.

        It takes the processor, and memory for the vocabulary and four layers.
        """
        # The one import that brings in torch.
        from conductor_core.inference.trial import trial

        pace = Pace(*trial(shape.kind, shape.parameters, shape.config, self._packing, notify))
        self._file.keep(self._key(shape), (pace.read_token_s, pace.write_token_s, pace.precision))
        return pace

    def _key(self, shape: Shape) -> str:
        choice = "bf16" if self._packing is None else self._packing.choice
        return key_of(shape.kind, shape.parameters, shape.config, choice)

    def measure_soon(self, shape: Shape) -> None:
        """Begins ``measure`` in the background, unless it is known or being measured."""
        key = self._key(shape)
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
        kept = self._file.kept(self._key(shape))
        return None if kept is None else Pace(*kept)

    def is_measured(self, shape: Shape) -> bool:
        """Tells whether the measurement goes on or waits for its turn."""
        found = self._running.get(self._key(shape))
        return found is not None and not found.done()

    def fault(self, shape: Shape) -> str:
        """Returns why the last measurement of this process failed; empty if it did not."""
        found = self._running.get(self._key(shape))
        error = found.exception() if found is not None and found.done() else None
        return "" if error is None else str(error) or type(error).__name__


@cache
def paces(data_folder: Path, packing: Packing | None = None) -> Paces:
    """Returns the measurements that are kept in ``data_folder``, of models that are packed so."""
    return Paces(data_folder / "model-paces.json", packing)
