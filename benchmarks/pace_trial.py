"""What the trial of `models time` says of a model, beside what the loaded model takes, in alternating rounds.

    python -m benchmarks.pace_trial FOLDER [--rounds 3]

FOLDER is a model folder, for instance one of `benchmarks.random_checkpoint`. Both keep the weights as the checkpoint
has them. The trial builds one and four layers with weights of zero; the model reads 1,344 tokens and writes 15.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from transformers import DynamicCache

from conductor_core.inference.model import LoadedModel
from conductor_core.inference.pace import STATIC_TOKENS, shape_of
from conductor_core.inference.source import inspect_folder
from conductor_core.inference.trial import trial

WRITTEN = 15
CHUNK = 256


@torch.inference_mode()
def taken(model: LoadedModel) -> tuple[float, float]:
    """Returns the seconds to read ``STATIC_TOKENS`` tokens, and to write one after them."""
    model.choose_threads()
    ids = torch.arange(100, 100 + STATIC_TOKENS)[None] % model.vocabulary.size
    cache = DynamicCache(config=model.model.config)
    began_s = time.perf_counter()
    for start in range(0, STATIC_TOKENS, CHUNK):
        chunk = ids[:, start : start + CHUNK]
        model.model(input_ids=chunk, past_key_values=cache, use_cache=True, logits_to_keep=1)
    read_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    for number in range(WRITTEN):
        one = ids[:, number : number + 1]
        model.model(input_ids=one, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return read_s, (time.perf_counter() - began_s) / WRITTEN


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    files = inspect_folder(given.folder)
    shape, model = shape_of(files.config, files.parameters), LoadedModel(files)
    said, took, trial_s = [], [], []
    for _ in range(given.rounds):
        began_s = time.perf_counter()
        read_token_s, write_s, _ = trial(shape.kind, shape.parameters, shape.config, None, lambda _done, _all: None)
        trial_s.append(time.perf_counter() - began_s)
        said.append((STATIC_TOKENS * read_token_s, write_s))
        took.append(taken(model))
    print(f"medians of {given.rounds} rounds; a trial takes {median(trial_s):.1f} s")
    for number, what in enumerate((f"read {STATIC_TOKENS:,} tokens, s", "write a token, s")):
        predicted, real = (median(each[number] for each in column) for column in (said, took))
        print(f"{what:26} trial {predicted:8.3f}   model {real:8.3f}   trial / model {predicted / real:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
