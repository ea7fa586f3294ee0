"""The model folder that a training writes: the local Conductor loads it, and the next stage begins with it."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from conductor_core.conductors.local import PHRASES
from conductor_core.errors import BadInput
from conductor_core.lab.records.in_use import hold, release
from conductor_core.lab.records.training import RECORD
from conductor_core.lab.training.checkpoint import writing
from conductor_core.lab.training.corpus.wording.phrases import phrase_rules

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


def check_start(out: Path, before: str | None, now: str) -> None:
    """Checks that the training in ``out`` is resumed from the model that it began with.

    Args:
        before, now: results of ``begun_with``; empty for a cold start. ``before`` is None if an older record lacks it.

    Raises: BadInput naming both.
    """
    if before in (None, now):
        return
    was, given = before or "a cold start", now or "a cold start"
    do = f"add --from {before}" if before else "leave out --from"
    raise BadInput(f"{out} holds a training that began with {was}, not with {given}: {do}, or name another folder")


def weights_sha256(folder: Path) -> str:
    """Returns the digest of the weights' files, for the model card."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
    return digest.hexdigest()


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
