"""How many passes a plan takes with drafts, and how much time, against the same model without.

    python -m benchmarks.drafts [--conductor tiny] [--n 200] [--data FOLDER] [--max-tokens 1024]
        [--precision int8|int4] [--packed FOLDER] [--replay | --rounding]

The requests are the examples of the Run page, those of ``everyday_requests.toml`` and, if FOLDER is given, prompts of
public benchmark files (``real_prompts`` says which), in an order drawn once: at most N.

Without ``--replay`` the Conductor writes each plan three times, in turns: with passes as they were before drafts
("usual"), with even passes and no drafts ("without"), and with drafts ("with"). It prints passes, tokens, seconds and
processor seconds a plan, and how many plans differ. Plans with drafts and without must not differ at all: exit 1.

With ``--replay`` the shipped Conductor writes the plans, and each is then read as if ``--conductor`` wrote it after its
own prompt, token for token by its tokenizer. No weights are used: it counts passes.

With ``--rounding`` the model reads N random tokens one by one and four by four, with usual passes and with even ones.
It prints how many of the likeliest next tokens differ, and by how much a logit does at most.
"""

import argparse
import asyncio
import copy
import json
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from benchmarks.real_prompts import MAX_STEPS, draw, everyday, plan_all
from conductor_core.chat.messages import PlanRequest
from conductor_core.conductors.catalogue import TINY, TINY_FOLDER, open_conductor
from conductor_core.conductors.local import LocalConductor
from conductor_core.inference import speculative
from conductor_core.inference.decoding import Writer, write
from conductor_core.inference.drafts import LONGEST_WITH_DRAFT, Drafts, Earlier, PassTimes
from conductor_core.inference.generation import Generation, Packing
from conductor_core.inference.model import LoadedModel
from conductor_core.inference.source import inspect_folder
from conductor_core.rehearsal import EXAMPLES, rehearsal_specs
from conductor_core.settings import Settings

WAYS = ("usual", "without", "with")


def requests(n: int, data: Path | None) -> list[tuple[str, str]]:
    """Pairs of a source and a task."""
    found = [("example", example.task) for example in EXAMPLES] + everyday()
    if data is not None and len(found) < n:
        found += draw(data, n - len(found), 0)
    random.Random(0).shuffle(found)
    return found[:n]


class Counted:
    """A model that counts its passes."""

    def __init__(self, folder: Path, packing: Packing | None) -> None:
        self.model = LoadedModel(inspect_folder(folder), packing=packing)
        with torch.inference_mode():
            self.even = speculative.try_passes(self.model.model)
        self.model.drafting.tried = True
        self.passes = 0
        self.model.model.register_forward_pre_hook(self._count)

    def _count(self, *_: object) -> None:
        self.passes += 1

    def write(self, generation: Generation, way: str) -> tuple[str, dict[str, float]]:
        """Returns the plan and what it took."""
        self.model.drafting.even = None if way == "usual" else self.even
        self.passes, pieces = 0, list[str]()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        written = self.model.generate(replace(generation, drafts=way == "with"), pieces.append, lambda: False)
        seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        assert written is not None
        took = {"passes": self.passes, "tokens": written.completion_tokens, "s": seconds, "cpu_s": cpu_s}
        return "".join(pieces), took


def generation_of(name: str, task: str, max_tokens: int) -> Generation:
    conductor = open_conductor(name, Settings(plan_max_tokens=max_tokens))
    if not isinstance(conductor, LocalConductor):
        raise SystemExit(f"{name} does not run in this process")
    request = PlanRequest(task=task, agents=rehearsal_specs(), max_steps=MAX_STEPS, allow_recursion=True)
    return conductor._generation(request)


def measure(name: str, tasks: Sequence[str], max_tokens: int, packing: Packing | None) -> dict[str, Any]:
    counted = Counted(TINY_FOLDER if name == TINY else Path(name), packing)
    counted.write(generation_of(name, "Warm up.", max_tokens), "usual")
    sums = {way: {"passes": 0.0, "tokens": 0.0, "s": 0.0, "cpu_s": 0.0} for way in WAYS}
    unlike = {"without": 0, "with": 0}
    for number, task in enumerate(tasks):
        generation = generation_of(name, task, max_tokens)
        plans = {}
        for way in WAYS[number % 3 :] + WAYS[: number % 3]:
            plans[way], took = counted.write(generation, way)
            sums[way] = {key: total + took[key] for key, total in sums[way].items()}
        unlike["without"] += plans["without"] != plans["usual"]
        unlike["with"] += plans["with"] != plans["without"]
    even = counted.even
    return {
        "conductor": name if name == TINY else Path(name).name,
        "precision": "as it is" if packing is None else packing.choice,
        "plans": len(tasks),
        "even_passes": None if even is None else [even.fewest, even.most],
        "ms_of_1_to_8_tokens": even and [round(1000 * even.times.seconds(n), 1) for n in range(1, 9)],
        "a_plan": {way: {key: round(total / len(tasks), 3) for key, total in sums[way].items()} for way in WAYS},
        "time_with_over_without": round(sums["with"]["s"] / sums["without"]["s"], 3),
        "time_with_over_usual": round(sums["with"]["s"] / sums["usual"]["s"], 3),
        "cpu_with_over_usual": round(sums["with"]["cpu_s"] / sums["usual"]["cpu_s"], 3),
        "without_unlike_usual": unlike["without"],
        "with_unlike_without": unlike["with"],
    }


class Replayed:
    """A reader that knows the completion: its logits say the next token of ``target``."""

    def __init__(self, model: LoadedModel, writer: Writer, target: str) -> None:
        self._model, self._writer, self._target = model, writer, target
        self.passes = 0

    def logits(self, draft: Sequence[int] = ()) -> torch.Tensor:
        rows = torch.zeros(1 + len(draft), self._model.vocabulary.size)
        for row in range(1 + len(draft)):
            text = self._writer.text + self._model.tokenizer.decode(draft[:row])
            rest = self._target.removeprefix(text) if self._target.startswith(text) else ""
            rows[row, (self._model.vocabulary.encode(rest) or [min(self._model.vocabulary.stop_ids)])[0]] = 1.0
        return rows

    def read(self, ids: Sequence[int], draft: Sequence[int]) -> torch.Tensor:
        self.passes += 1
        return self.logits(draft)

    def drop(self, tokens: int) -> None:
        """Has read nothing."""


def replay_one(
    model: LoadedModel, generation: Generation, target: str, earlier: Earlier | None, *, drafted: bool
) -> tuple[int, int] | None:
    """Returns passes and tokens; None if the model's grammar or budget allows another plan only."""
    ids, _ = model.encode(generation)
    writer = model.writer(len(ids), generation, lambda _: None)
    reader = Replayed(model, writer, target)
    times = PassTimes([1.0] * LONGEST_WITH_DRAFT) if drafted else None
    drafts = Drafts(ids, earlier or Earlier(), times)
    write(writer, reader.logits()[0], lambda: (reader, drafts), generation.max_tokens, lambda: False, lambda: None)
    if earlier is not None:
        earlier.add(writer.ids)
    return (reader.passes, len(writer.ids)) if writer.text == target else None


def replay(name: str, found: list[tuple[str, str]], max_tokens: int) -> dict[str, Any]:
    outcomes, _ = asyncio.run(plan_all(found, "rehearsal", Settings(), TINY))
    model = LoadedModel(inspect_folder(TINY_FOLDER if name == TINY else Path(name)))
    earlier = Earlier()
    ways = ("without", "prompt and completion", "and earlier plans")
    passes, tokens, plans = dict.fromkeys(ways, 0), 0, 0
    for outcome in outcomes:
        generation = replace(generation_of(name, outcome.prompt, max_tokens), keep_choices=False)
        took = [
            replay_one(model, generation, outcome.completion, kept, drafted=drafted)
            for kept, drafted in ((None, False), (None, True), (earlier, True))
        ]
        whole = [each for each in took if each is not None]
        if len(whole) < len(took):
            continue
        plans, tokens = plans + 1, tokens + whole[0][1]
        for way, each in zip(ways, whole, strict=True):
            passes[way] += each[0]
    return {
        "prompt_and_tokenizer": name if name == TINY else Path(name).name,
        "plans": plans,
        "plans_left_out": len(outcomes) - plans,
        "tokens_a_plan": round(tokens / plans, 1),
        "passes_a_plan": {way: round(count / plans, 1) for way, count in passes.items()},
    }


@torch.inference_mode()
def rounding(name: str, n: int) -> dict[str, Any]:
    model = LoadedModel(inspect_folder(TINY_FOLDER if name == TINY else Path(name)))
    even = speculative.try_passes(model.model)
    known = len(model.tokenizer)
    ids = torch.randint(known // 10, known, (400 + n,), generator=torch.Generator().manual_seed(1)).tolist()
    start = DynamicCache(config=model.model.config)
    model.model(input_ids=torch.tensor([ids[:400]]), past_key_values=start, use_cache=True, logits_to_keep=1)

    def read(by: int, rows: bool) -> torch.Tensor:
        cache, found = copy.deepcopy(start), []
        for first in range(400, 400 + n, by):
            some = ids[first : min(first + by, 400 + n)]
            if rows and even is not None:
                found.append(speculative.row_pass(model.model, cache, some, len(some), even.fewest))
            else:
                output = model.model(input_ids=torch.tensor([some]), past_key_values=cache, use_cache=True)
                found.append(output.logits[0].float())
        return torch.cat(found)

    result: dict[str, Any] = {"dtype": str(model.model.dtype), "tokens": n, "even_passes": even and even[:2]}
    for way, rows in (("usual", False), ("even", True)):
        one, four = read(1, rows), read(4, rows)
        unlike = int((one.argmax(1) != four.argmax(1)).sum())
        result[way] = {"other_choices": unlike, "largest_difference": float((one - four).abs().max())}
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drafts")
    parser.add_argument("--conductor", default=TINY, help="tiny, or a model folder")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--precision", choices=["int8", "int4"], help="packed weights; default: as they are")
    parser.add_argument("--packed", type=Path, help="keeps packed weights; default: a temporary folder")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--rounding", action="store_true")
    asked = parser.parse_args()
    if asked.rounding:
        print(json.dumps(rounding(asked.conductor, asked.n), indent=1))
        return 0
    found = requests(asked.n, asked.data)
    if asked.replay:
        result = replay(asked.conductor, found, asked.max_tokens)
    else:
        with nullcontext(asked.packed) if asked.packed else tempfile.TemporaryDirectory() as folder:
            packing = None if asked.precision is None else Packing(asked.precision, Path(folder))
            result = measure(asked.conductor, [task for _, task in found], asked.max_tokens, packing)
    print(json.dumps(result, indent=1))
    return int(result.get("with_unlike_without", 0) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
