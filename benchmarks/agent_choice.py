"""Whether the tiny Conductor chooses agents as its corpus does: its plans for unseen examples against the corpus' own.

    python -m benchmarks.agent_choice [--n 200] [--conductor tiny]

Prints one JSON object: the share of plans that are valid, that have the corpus' number of steps, and of steps (in plans
of equal length) that go to the same worker; beside what the most frequent worker and a random one would reach.
Which description leads to which role is a rule (``conductors.roles``), tested apart; this measures what is made of it.
"""

import argparse
import asyncio
import itertools
import json
import sys
from collections import Counter

from conductor_core.chat.messages import Conductor, PlanText
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.lab.training.corpus.plans import TrainingExample, examples
from conductor_core.settings import Settings
from conductor_core.workflow.parser import parse_completion

HELD_OUT_SEED = 1_000_003


async def agents_of(conductor: Conductor, example: TrainingExample) -> list[int] | None:
    """The ordinals of the plan written for ``example``; None if it does not parse."""
    pieces = [piece.text async for piece in conductor.write(example.request) if isinstance(piece, PlanText)]
    steps = parse_completion("".join(pieces)).steps
    return None if steps is None else [step.agent if isinstance(step.agent, int) else -1 for step in steps]


async def measure(name: str, n: int) -> dict[str, float]:
    conductor = open_conductor(name, Settings())
    several = (each for each in examples(HELD_OUT_SEED) if len(each.request.agents) > 1 and each.plan.steps)
    valid = same_length = same_agent = steps = 0
    chosen: Counter[int] = Counter()
    by_chance = 0.0
    for example in itertools.islice(several, n):
        wanted = [step.ordinal for step in example.plan.steps]
        agents = await agents_of(conductor, example)
        valid += agents is not None
        if agents is None or len(agents) != len(wanted):
            continue
        same_length += 1
        steps += len(wanted)
        same_agent += sum(a == b for a, b in zip(agents, wanted, strict=True))
        chosen.update(wanted)
        by_chance += len(wanted) / len(example.request.agents)
    return {
        "plans": n,
        "valid": valid / n,
        "same_length": same_length / n,
        "same_agent": same_agent / steps,
        "same_agent_if_always_the_most_frequent": max(chosen.values()) / steps,
        "same_agent_by_chance": by_chance / steps,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_choice")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--conductor", default="tiny")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.conductor, given.n)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
