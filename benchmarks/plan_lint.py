"""How often a plan is warned of, and of what: the warnings of ``workflow.lint`` on plans without a planted fault.

    python -m benchmarks.plan_lint --data FOLDER [--n 5031] [--seed 0] [--corpus 5000] [--conductor tiny] [--show]

The shipped Conductor plans N prompts of public benchmark files (``real_prompts`` says which), the examples of the Run
page, and the requests of ``everyday_requests.toml``, as the app does. The plans of the training corpus, half of them
for questions of the rehearsal world, are drawn and checked as they are. Prints one JSON object: for each source the
plans, how many are warned of, and the warnings by code; ``--show`` adds each warning with its instruction.
"""

import argparse
import asyncio
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.everyday_requests import REQUESTS
from benchmarks.real_prompts import MAX_STEPS, draw, plan_all
from conductor_core.lab.training.corpus.plans import examples
from conductor_core.rehearsal import EXAMPLES
from conductor_core.settings import Settings
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.validation import validate


def everyday() -> list[tuple[str, str]]:
    kinds = tomllib.loads(REQUESTS.read_text(encoding="utf-8"))
    return [("everyday", request) for entry in kinds.values() for request in entry["requests"]]


def written(conductor: str, prompts: list[tuple[str, str]]) -> Iterator[tuple[str, Workflow]]:
    """The plan of each prompt, with the name of its source. Raises: ValueError if one does not parse and validate."""
    outcomes, _ = asyncio.run(plan_all(prompts, "rehearsal", Settings(), conductor))
    for outcome in outcomes:
        if outcome.workflow is None:
            raise ValueError(f"no plan for {outcome.prompt[:80]!r}: {outcome.faults}")
        yield outcome.dataset, outcome.workflow


def corpus(count: int) -> Iterator[tuple[str, Workflow]]:
    for example in islice(examples(seed=0, best_of=1), count):
        source = "corpus, other tasks" if example.task.rehearsal is None else "corpus, rehearsal world"
        yield source, example.plan.workflow()


def report(plans: Iterable[tuple[str, Workflow]], *, show: bool) -> dict[str, Any]:
    """Checks each plan and counts its warnings."""
    total: Counter[str] = Counter()
    warned: Counter[str] = Counter()
    codes: dict[str, Counter[str]] = {}
    shown = []
    for source, workflow in plans:
        agents = list(dict.fromkeys(step.agent for step in workflow.steps))
        steps = max(MAX_STEPS, len(workflow.steps))
        found = validate(workflow, agents, max_steps=steps, allow_recursion=True).warnings
        total[source] += 1
        warned[source] += bool(found)
        codes.setdefault(source, Counter()).update(warning.code for warning in found)
        shown += [
            {"code": warning.code, "message": warning.message, "plan": workflow.model_dump(mode="json")["steps"]}
            for warning in found
        ]
    counts = {
        source: {"plans": total[source], "warned": warned[source], "codes": dict(codes[source])} for source in total
    }
    return {"sources": counts, **({"warnings": shown} if show else {})}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_lint")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--n", type=int, default=5031)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=int, default=5000)
    parser.add_argument("--conductor", default="tiny")
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args(argv)
    prompts = [("examples", example.task) for example in EXAMPLES] + everyday()
    prompts += draw(asked.data, asked.n, asked.seed)
    plans = (*corpus(asked.corpus), *written(asked.conductor, prompts))
    print(json.dumps(report(plans, show=asked.show), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
