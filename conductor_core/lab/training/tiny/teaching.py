"""The recursion stage's lessons: real inner and outer rounds, each shown once before its reinforcement learning.

A kill loses at most a twentieth of them. Model and optimiser are saved with each progress row of the record, and the
number of the step repeats the examples.
"""

import os
import random
import time
from pathlib import Path
from statistics import fmean

import torch
from accelerate.utils import send_to_device
from torch import Tensor
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

from conductor_core.lab.records.training import Taught
from conductor_core.lab.training.checkpoint import writing
from conductor_core.lab.training.config import RecursionConfig
from conductor_core.lab.training.corpus.corpus import TrainingExample
from conductor_core.lab.training.recorder import StageRecord, in_words
from conductor_core.lab.training.tiny.cold_start import LeftPadded, example_rows
from conductor_core.lab.training.tiny.recursion import draw_inner_round, draw_other_example, draw_outer_rounds

INNER_AT_ONCE, OUTER_AT_ONCE, CORPUS_AT_ONCE = 6, 2, 4
"""Numbers of examples in one supervised step. Inner rounds are more, because a model learns sooner whether to open a
further round than which worker to ask in it. The corpus' examples are other tasks than rehearsal questions. They keep
the plans for those tasks unchanged, also for tasks with a wish for a way of working."""
AT_ONCE = INNER_AT_ONCE + OUTER_AT_ONCE
REPORTS = 20
"""How often the progress of the lessons is recorded and saved."""
_KEPT = "taught-*.pt"


def teach(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    config: RecursionConfig,
    seed: str,
    work: Path,
    record: StageRecord,
) -> None:
    """Shows ``config.taught`` inner and outer rounds once each, among examples of the corpus. Continues from what
    ``work`` holds. Every outer round comes with its twin without recursion; otherwise plans learned to add the further
    step even if the prompt did not offer the Conductor.

    Raises: BadInput if record or folder cannot be written.
    """
    steps = config.taught // AT_ONCE
    report_every, began = max(1, steps // REPORTS), time.monotonic()
    collate, losses = LeftPadded(int(tokenizer.pad_token_id)), list[float]()
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.taught_learning_rate, betas=(0.9, 0.98))
    first = _resumed_from(work, model, optimiser)
    model.train()
    for step in range(first, steps):
        optimiser.param_groups[0]["lr"] = config.taught_learning_rate * min(1.0, (step + 1) / 5) * (1 - step / steps)
        rows = example_rows(_lesson(f"{seed}/taught/{step}", config), tokenizer)
        batch = send_to_device(collate(rows), model.device)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=config.optimiser.bf16):
            loss: Tensor = model(**batch).loss
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimiser.max_grad_norm)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss.detach()))
        done = step + 1
        if done % report_every == 0 or done == steps:
            left_s = (time.monotonic() - began) / (done - first) * (steps - done)
            mean, shown, planned = fmean(losses), done * AT_ONCE, steps * AT_ONCE
            record.add(Taught(stage=record.stage, rounds=shown, planned=planned, seconds=record.seconds, loss=mean))
            record.show(f"{record.stage}: shown {shown} of {planned} rounds · loss {mean:.3f} · {in_words(left_s)}")
            _keep(work, done, model, optimiser)
            losses.clear()


def taught_rounds(work: Path) -> int:
    """Returns how many rounds the model saved in ``work`` has been shown."""
    kept = _latest(work)
    return _step(kept) * AT_ONCE if kept else 0


def _lesson(seed: str, config: RecursionConfig) -> list[TrainingExample]:
    step_cost = config.reward.step_cost
    drawn = [
        draw_inner_round(random.Random(f"{seed}/inner/{at}"), config.pool, step_cost) for at in range(INNER_AT_ONCE)
    ]
    for at in range(OUTER_AT_ONCE):
        drawn += draw_outer_rounds(random.Random(f"{seed}/outer/{at}"), config.pool, step_cost)
    return drawn + [draw_other_example(f"{seed}/corpus/{at}") for at in range(CORPUS_AT_ONCE)]


def _keep(work: Path, step: int, model: Qwen2ForCausalLM, optimiser: torch.optim.Optimizer) -> None:
    """Saves model and optimiser whole or not at all, and removes the earlier file only after that."""
    path, new = work / _KEPT.replace("*", str(step)), work / "taught.new"
    with writing(work):
        work.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        for earlier in work.glob(_KEPT):
            if earlier != path:
                earlier.unlink()


def _resumed_from(work: Path, model: Qwen2ForCausalLM, optimiser: torch.optim.Optimizer) -> int:
    """Loads the saved state into model and optimiser. Returns the step that comes next."""
    kept = _latest(work)
    if kept is None:
        return 0
    state = torch.load(kept, map_location=model.device, weights_only=True)
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    return _step(kept)


def _latest(work: Path) -> Path | None:
    return max(work.glob(_KEPT), key=_step, default=None)


def _step(kept: Path) -> int:
    return int(kept.stem.rpartition("-")[2])
