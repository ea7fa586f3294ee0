"""Plans of several Conductors for 200 prompts, read blind by people or models with a written rubric.

    python -m benchmarks.blind_reading write --out FOLDER --conductor tiny --conductor small [--prompts FILE] [--seed 7]
    python -m benchmarks.blind_reading score --out FOLDER MARKS.jsonl MARKS.jsonl
    python -m benchmarks.blind_reading rehearsal --conductor tiny --conductor small [--n 60]

write: every Conductor plans every prompt, with the rehearsal pool and at most five steps, as the app asks by default.
FOLDER gets ``plans.jsonl``, which the readers see, in an order of chance and without names, and ``key.jsonl``, which
they do not. Plans that are there already stay, so that a stopped run goes on.

score: each file of marks is one reader's, a line of JSON for each plan, as ``docs/research/blind-reading.md`` says.
Prints for each Conductor the share that is sensible, by reader and by group of prompts, with intervals after Wilson,
and how far the readers agree (Cohen's kappa).

rehearsal: what the same Conductors plan, greedily, for ``n`` questions of the rehearsal world in wordings that no
training used: the exact chance that a plan is right, and its steps.

The prompts were used in no training and no choice: 120 were written for this by a writer who had not seen the training
data, 80 are drawn from public benchmark files (``source``).
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.real_prompts import MAX_STEPS, plan
from conductor_core.analysis.intervals import wilson
from conductor_core.chat.messages import Conductor, TextDelta
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.conductors.roles import ROLES, numbering
from conductor_core.lab.training.config import HeldOutConfig
from conductor_core.lab.training.tiny.situations import held_out_situations, read_plan
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.rehearsal.exact import success_chance
from conductor_core.settings import Settings
from conductor_core.workflow.model import CONDUCTOR_AGENT

PROMPTS = Path(__file__).with_name("blind_prompts.jsonl")
CRITERIA = ("kind", "shape", "agents", "access", "instructions", "nothing_false", "sensible")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


async def _plan(conductor: Conductor, prompt: str, seed: int) -> dict[str, Any]:
    """Returns the plan as readers see it, its seconds, and whether it is valid."""
    agents = rehearsal_specs()
    written = await plan(conductor, agents, "", prompt, seed)
    role_of = {name: role for name, role in zip(numbering(agents), ROLES, strict=True) if name is not None}
    steps = [
        {
            "instruction": step.instruction,
            "agent": CONDUCTOR_AGENT if step.agent == CONDUCTOR_AGENT else role_of[step.agent],
            "reads": step.access_list if step.access_list == "all" else list(step.access_list),
        }
        for step in (written.workflow.steps if written.workflow else ())
    ]
    return {
        "thought": written.completion.partition("model_id")[0].strip(),
        "steps": steps,
        "valid": written.workflow is not None,
        "completion": written.completion,
        "first_s": round(written.first_s, 3),
        "seconds": round(written.seconds, 3),
    }


async def write(names: Sequence[str], prompts: Path, out: Path, seed: int) -> None:
    asked = _lines(prompts)
    written = out / "written.jsonl"
    there = {(row["conductor"], row["prompt_id"]) for row in _lines(written)}
    for name in names:
        conductor = open_conductor(name, Settings())
        await _plan(conductor, "Warm up.", seed)
        with written.open("a", encoding="utf-8") as file:
            for number, row in enumerate(asked, 1):
                if (name, row["id"]) not in there:
                    said = await _plan(conductor, row["prompt"], seed)
                    file.write(json.dumps({"conductor": name, "prompt_id": row["id"], **said}) + "\n")
                    file.flush()
                if number % 20 == 0:
                    print(f"{name}: {number} of {len(asked)}", file=sys.stderr, flush=True)
        await conductor.aclose()
    rows = _lines(written)
    random.Random(seed).shuffle(rows)
    prompt_of = {row["id"]: row for row in asked}
    with (out / "plans.jsonl").open("w", encoding="utf-8") as plans, (out / "key.jsonl").open("w") as key:
        for number, row in enumerate(rows):
            shown = {"prompt": prompt_of[row["prompt_id"]]["prompt"], "thought": row["thought"], "steps": row["steps"]}
            plans.write(json.dumps({"id": f"p{number:04}", **shown}, ensure_ascii=False) + "\n")
            group = prompt_of[row["prompt_id"]]["group"]
            key.write(json.dumps({"id": f"p{number:04}", "group": group, **_without_plan(row)}) + "\n")


def _without_plan(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("conductor", "prompt_id", "valid", "first_s", "seconds")}


def score(out: Path, marks: Sequence[Path]) -> None:
    key = {row["id"]: row for row in _lines(out / "key.jsonl")}
    readers = [{row["id"]: row for row in _lines(path)} for path in marks]
    for number, reader in enumerate(readers):
        if missing := key.keys() - reader.keys():
            raise SystemExit(f"{marks[number]}: no marks for {len(missing)} plans, such as {min(missing)}")
    names = sorted({row["conductor"] for row in key.values()})
    for name in names:
        ids = [each for each, row in key.items() if row["conductor"] == name]
        valid = sum(key[each]["valid"] for each in ids)
        first, whole = (statistics.median(key[each][part] for each in ids) for part in ("first_s", "seconds"))
        print(
            f"\n{name}: {len(ids)} plans, {valid} valid, median {first:.2f} s to the first text, {whole:.2f} s in all"
        )
        for criterion in CRITERIA:
            given = [sum(reader[each][criterion] for each in ids) for reader in readers]
            both = sum(all(reader[each][criterion] for reader in readers) for each in ids)
            shares = ", ".join(f"{each / len(ids):.3f}" for each in given)
            mean = wilson(statistics.fmean(given), len(ids))
            print(
                f"  {criterion:<13} {mean.rate:.3f} ({mean.low:.3f} to {mean.high:.3f}); readers {shares}; "
                f"all of them {both / len(ids):.3f}"
            )
        for group in sorted({key[each]["group"] for each in ids}):
            of_group = [each for each in ids if key[each]["group"] == group]
            share = statistics.fmean(reader[each]["sensible"] for reader in readers for each in of_group)
            print(f"  sensible, {group:<9} {share:.3f} of {len(of_group)}")
    if len(readers) == 2:
        pairs = [(readers[0][each]["sensible"], readers[1][each]["sensible"]) for each in key]
        same = sum(a == b for a, b in pairs) / len(pairs)
        happens = [sum(pair[at] for pair in pairs) / len(pairs) for at in (0, 1)]
        chance = happens[0] * happens[1] + (1 - happens[0]) * (1 - happens[1])
        kappa = (same - chance) / (1 - chance) if chance < 1 else 1.0
        print(f"\nreaders agree on sensible for {same:.3f} of {len(pairs)} plans, kappa {kappa:.2f}")


async def rehearsal(names: Sequence[str], n: int) -> None:
    asked = held_out_situations(HeldOutConfig(tasks=n, split="test"), MAX_STEPS)
    for name in names:
        conductor, chances, steps = open_conductor(name, Settings()), list[float](), list[int]()
        for situation in asked:
            pieces = [piece async for piece in conductor.write(situation.request)]
            plan = read_plan(situation, "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)))
            chances.append(0.0 if plan is None else success_chance(situation.task, plan))
            steps.append(0 if plan is None else len(plan.steps))
        await conductor.aclose()
        levels = {situation.task.difficulty for situation in asked}
        by_level = {
            level: statistics.fmean(
                chance for chance, each in zip(chances, asked, strict=True) if each.task.difficulty == level
            )
            for level in sorted(levels)
        }
        said = ", ".join(f"{level} {chance:.3f}" for level, chance in by_level.items())
        print(
            f"{name}: right {statistics.fmean(chances):.3f} ({said}), {statistics.fmean(steps):.2f} steps", flush=True
        )


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = cli.add_subparsers(dest="command", required=True)
    writes, scores, world = (commands.add_parser(name) for name in ("write", "score", "rehearsal"))
    for each in (writes, scores):
        each.add_argument("--out", type=Path, required=True)
    for each in (writes, world):
        each.add_argument("--conductor", action="append", required=True)
    world.add_argument("--n", type=int, default=60)
    writes.add_argument("--prompts", type=Path, default=PROMPTS)
    writes.add_argument("--seed", type=int, default=7)
    scores.add_argument("marks", type=Path, nargs="+")
    given = cli.parse_args()
    if given.command == "write":
        given.out.mkdir(parents=True, exist_ok=True)
        asyncio.run(write(given.conductor, given.prompts, given.out, given.seed))
    elif given.command == "rehearsal":
        asyncio.run(rehearsal(given.conductor, given.n))
    else:
        score(given.out, given.marks)


if __name__ == "__main__":
    main()
