"""The checkpoint that a benchmark was given, or a random one of the same form for as long as the benchmark runs."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def given_or_random(model: Path | None, size: str) -> Iterator[Path]:
    """Yields ``model``, or else the folder of a random Qwen2.5 of ``size`` (a key of ``random_checkpoint.SIZES``)."""
    if model is not None:
        yield model
        return
    from benchmarks.random_checkpoint import write_checkpoint  # loads torch, which a benchmark of starts must not

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / f"qwen2.5-{size}-random"
        write_checkpoint(folder, size)
        yield folder
