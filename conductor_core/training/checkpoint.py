"""Checkpoints that a kill cannot damage, and what a resumed training finds in its folder.

transformers writes a checkpoint file by file. One counts only when its last file, a mark, is there; the one before it
is kept until then.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import Trainer

from conductor_core.errors import BadInput
from conductor_core.records.training import RECORD, Ended, Row, Stage, Started, Taught, read_record

COMPLETE = "complete"
"""Name of the mark."""


class SafeCheckpoints(Trainer):
    """Mixin for trainers: marks a checkpoint once all of it is on the disk."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with writing(Path(str(self.args.output_dir))):
            super()._save_checkpoint(model, trial)
            if self.args.should_save:
                mark_complete(Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}")


def mark_complete(folder: Path) -> None:
    """Forces ``folder``'s files to the disk, then marks it."""
    for path in (*(each for each in folder.rglob("*") if each.is_file()), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    (folder / COMPLETE).touch()


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in ``folder``; what is not whole is removed."""
    whole: dict[int, Path] = {}
    for path in folder.glob("checkpoint-*"):
        if (path / COMPLETE).is_file():
            whole[int(path.name.rpartition("-")[2])] = path
        else:
            shutil.rmtree(path)
    return whole[max(whole)] if whole else None


def tell_space(folder: Path, weights_bytes: int, show: Callable[[str], None]) -> None:
    """Says so before the first checkpoint if the disk may not hold all that are there at once."""
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    # Two are kept, and the older one goes when the next is whole. Each has both moments, and the weights: under FSDP
    # twice, by transformers and by accelerate.
    needed, free = 3 * 4 * weights_bytes - used, shutil.disk_usage(folder).free
    if free < needed:
        show(f"{folder}: checkpoints take up to {needed / 1e9:.3g} GB more and {free / 1e9:.3g} GB are free: make room")


def drop_rows_after(
    folder: Path, kept: Iterator[Stage] | tuple[Stage, ...], stage: Stage, iteration: int, *, rounds: int = 0
) -> None:
    """Leaves in the record of ``folder`` the stages ``kept`` whole and of ``stage`` all up to ``iteration``, and its
    lessons up to ``rounds``.
    """
    whole = set(kept)

    def stays(row: Row) -> bool:
        if isinstance(row, Started):
            return True
        of = getattr(row, "stage", None)  # the last row has none, and is written anew
        if isinstance(row, Taught):
            return of in whole or (of == stage and row.rounds <= rounds)
        return of in whole or (of == stage and getattr(row, "iteration", 0) <= iteration)

    rewrite(folder, [row for row in read_record(folder).rows if stays(row)])


def plan_anew(folder: Path, planned: Mapping[Stage, int], stages: Iterable[Stage], started_from: str) -> None:
    """Writes into the first row what is planned now, and takes away the last: more stages may follow than before.

    Args:
        planned: iterations of all stages of the config; of them, ``stages`` are asked for, and those begun remain.
    """
    record = read_record(folder)
    wanted = {*stages, *(row.stage for row in record.iterations())}
    changed = {
        "planned": {stage: count for stage, count in planned.items() if stage in wanted},
        "started_from": started_from,
    }
    rows = [row.model_copy(update=changed) if isinstance(row, Started) else row for row in record.rows]
    rewrite(folder, [row for row in rows if not isinstance(row, Ended)])


def rewrite(folder: Path, rows: Iterable[Row]) -> None:
    """Puts ``rows`` in the place of all that the record of ``folder`` has, at once. Raises: BadInput."""
    text = "".join(row.model_dump_json(exclude_none=True) + "\n" for row in rows)
    new = folder / f"{RECORD}.new"
    with writing(folder):
        new.write_text(text, encoding="utf-8")
        new.replace(folder / RECORD)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns a failure to write below ``folder`` into one clear line. Raises: BadInput."""
    try:
        yield
    except OSError as error:
        raise BadInput(_why(folder, error)) from error
    except (SafetensorError, RuntimeError) as error:
        # Both libraries report a disk that is full in words of their own.
        raise BadInput(f"{folder} cannot be written: {error}. Fix that, then continue with --resume") from error


def _why(folder: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{folder}: no space left on the disk. Free some, then continue with --resume"
    return f"{folder} cannot be written: {error.strerror or error}"
