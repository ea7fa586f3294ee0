"""The folder that a training writes: its model, as the local Conductor and the next stage load it, and checkpoints."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
)

from conductor_core.conductors.local import PHRASES
from conductor_core.errors import BadInput
from conductor_core.lab.records import hold, release, write_whole
from conductor_core.lab.records.training import RECORD, Ended, Row, Stage, Started, Taught, read_record
from conductor_core.lab.training.corpus.wording.phrases import phrase_rules

# Checkpoints, and what a resumed training finds in its folder.

COMPLETE = "complete"
"""File name of the mark of a whole checkpoint."""


class SafeCheckpoints(Trainer):
    """Mixin for trainers: marks a checkpoint once all of it is on the disk.

    transformers writes it file by file. It counts only with its mark, and the one before it is kept until then.
    """

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with writing(Path(str(self.args.output_dir))):
            super()._save_checkpoint(model, trial)
            if self.args.should_save:
                mark_complete(Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}")

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Writes no card: TRL's does not describe a Conductor, whose card is written by hand, with its figures."""


def mark_complete(folder: Path) -> None:
    """Forces ``folder``'s files to the disk, then marks the folder as a whole checkpoint."""
    for path in (*(each for each in folder.rglob("*") if each.is_file()), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    (folder / COMPLETE).touch()


def latest_checkpoint(folder: Path) -> Path | None:
    """Returns the newest whole checkpoint in ``folder``, or None. Removes checkpoints that are not whole."""
    whole: dict[int, Path] = {}
    for path in folder.glob("checkpoint-*"):
        if (path / COMPLETE).is_file():
            whole[step_of(path)] = path
        else:
            shutil.rmtree(path)
    return whole[max(whole)] if whole else None


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def show_disk_needs(folder: Path, weights_bytes: int, show: Callable[[str], None]) -> None:
    """Warns through ``show`` if the disk may be too small for all checkpoints that exist at the same time."""
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    # Two checkpoints are kept, and a third exists while it is written. Each holds the optimiser's two moments and the
    # weights, which transformers and accelerate both save under FSDP.
    needed, free = 3 * 4 * weights_bytes - used, shutil.disk_usage(folder).free
    if free < needed:
        show(f"{folder}: checkpoints take up to {needed / 1e9:.3g} GB more and {free / 1e9:.3g} GB are free: make room")


def drop_rows_after(folder: Path, kept: tuple[Stage, ...], stage: Stage, iteration: int, *, rounds: int = 0) -> None:
    """Drops rows from the record of ``folder``. The stages ``kept`` stay whole; ``stage`` keeps its rows up to
    ``iteration`` and its lessons up to ``rounds``. Raises: BadInput.
    """

    def stays(row: Row) -> bool:
        if isinstance(row, Started | Ended):
            return isinstance(row, Started)  # the last row is written again when the training ends
        early = row.rounds <= rounds if isinstance(row, Taught) else row.iteration <= iteration
        return row.stage in kept or (row.stage == stage and early)

    rewrite(folder, [row for row in read_record(folder).rows if stays(row)])


def replan_stages(folder: Path, planned: Mapping[Stage, int], stages: Iterable[Stage], started_from: str) -> None:
    """Updates the plan in the first row and removes the last row, because more stages may follow. Raises: BadInput.

    Args:
        planned: iterations of all stages of the config. The row keeps those of ``stages`` and of stages already begun.
    """
    record = read_record(folder)
    wanted = {*stages, *(row.stage for row in record.iterations())}
    kept = {stage: count for stage, count in planned.items() if stage in wanted}
    changed = {"planned": kept, "started_from": started_from}
    rows = [row.model_copy(update=changed) if isinstance(row, Started) else row for row in record.rows]
    rewrite(folder, [row for row in rows if not isinstance(row, Ended)])


def rewrite(folder: Path, rows: Iterable[Row]) -> None:
    """Replaces the whole record of ``folder`` by ``rows`` in one step. Raises: BadInput."""
    text = "".join(row.model_dump_json(exclude_none=True) + "\n" for row in rows)
    with writing(folder):
        write_whole(folder / RECORD, text)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns a failure to write below ``folder`` into one clear line. Raises: BadInput."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BadInput(f"{folder}: no space left on the disk. Free some, then continue with --resume") from error
        raise BadInput(f"{folder} cannot be written: {error.strerror or error}") from error
    except (SafetensorError, RuntimeError) as error:
        # safetensors and torch report a full disk with exceptions of their own.
        raise BadInput(f"{folder} cannot be written: {error}. Fix that, then continue with --resume") from error


WEIGHTS = "model.safetensors"


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes weights as safetensors, tokenizer, phrases and ``conductor.json``.

    A new folder appears whole or not at all. Other files in a folder stay. Raises: BadInput if it cannot be written.
    """
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]  # untyped in transformers
        do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.config.use_cache = True
    new = folder.with_name(folder.name + ".new")
    with writing(folder):
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        model.save_pretrained(new, safe_serialization=True)
        tokenizer.save_pretrained(new)
        (new / "conductor.json").write_text(json.dumps({"prompt": "short"}) + "\n", encoding="utf-8")
        (new / PHRASES).write_text(phrase_rules(), encoding="utf-8")
        if folder.exists():
            # The weights come last: no reader takes a folder without weights for a model.
            for path in sorted(new.iterdir(), key=lambda each: each.name == WEIGHTS):
                path.replace(folder / path.name)
            new.rmdir()
        else:
            new.replace(folder)


def load(ref: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads the model in float32 and the tokenizer of a folder or hub id. Raises: BadInput naming it."""
    try:
        model = AutoModelForCausalLM.from_pretrained(ref, dtype=torch.float32, use_safetensors=True)
        tokenizer = AutoTokenizer.from_pretrained(ref)
    except (OSError, ValueError) as error:
        raise BadInput(f"{ref} cannot be loaded as a model: {error}") from error
    return model, tokenizer


def begun_with(ref: str) -> str:
    """Returns ``ref`` as the record keeps it: a hub id as it is, a folder as its absolute path."""
    return str(Path(ref).resolve()) if ref and Path(ref).exists() else ref


@contextmanager
def held(out: Path, *, resume: bool) -> Iterator[None]:
    """Locks ``out`` against other processes: two trainings would drop each other's rows and checkpoints.

    Raises: BadInput if ``out`` cannot be used, is in use, has no training to ``resume``, or has one without ``resume``.
    """
    if resume and not (out / RECORD).is_file():
        raise BadInput(f"{out} holds no training to resume: leave out --resume")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        hold(out)
    try:
        if not resume and (out / RECORD).is_file():
            raise BadInput(f"{out} holds a training: continue it (--resume), or name another folder")
        yield
    finally:
        release(out)
