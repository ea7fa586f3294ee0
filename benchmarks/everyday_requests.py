"""Whether the tiny Conductor knows what kind of thing an everyday request asks for.

    python -m benchmarks.everyday_requests [--conductor tiny] [--misses]

The requests are in ``everyday_requests.toml``, by kind; they were written apart from the training corpus, and those
that came near to one of its typed requests are left out (a third of the words in common, rare words counting for more).
Each is planned as the app does (seven workers, at most 5 steps, recursion on offer). The kind is taken from the line
of thought ("A planning task: ..."). Prints one JSON object: requests, those whose kind is right, and both by kind;
``--misses`` adds the lines of thought of the others.
"""

import argparse
import asyncio
import json
import re
import tomllib
from pathlib import Path

from conductor_core.chat.messages import PlanRequest, PlanText
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.settings import Settings

REQUESTS = Path(__file__).with_suffix(".toml")
NAMED = {
    "calculation": r"calculation|(algebra|number theory) problem",
    "word_problem": r"word problem|calculation",
    "fact": r"(factual )?question",
    "explanation": r"(?<!factual )question",
    "comparison": r"comparison",
    "planning": r"planning task",
    "decision": r"decision",
    "writing": r"writing task",
    "translation": r"translation",
    "code": r"programming task",
    "debugging": r"(debugging|programming) task",
    "chat": r"message",
}
"""How a line of thought names each kind, in the words of ``training/tasks.py``."""


async def thoughts(name: str, requests: list[str]) -> list[str]:
    """The line of thought of each plan."""
    conductor, found = open_conductor(name, Settings()), []
    for task in requests:
        asked = PlanRequest(task=task, agents=rehearsal_specs(), max_steps=5, allow_recursion=True)
        written = "".join([piece.text async for piece in conductor.write(asked) if isinstance(piece, PlanText)])
        found.append(written.partition("\n")[0])
    return found


def named(thought: str, kind: str) -> bool:
    return re.search(rf"\b({NAMED[kind]})\b", thought.partition(":")[0]) is not None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.everyday_requests")
    parser.add_argument("--conductor", default="tiny")
    parser.add_argument("--misses", action="store_true")
    asked = parser.parse_args(argv)
    requests = {
        kind: list(entry["requests"]) for kind, entry in tomllib.loads(REQUESTS.read_text(encoding="utf-8")).items()
    }
    right: dict[str, str] = {}
    misses: dict[str, str] = {}
    total = 0
    for kind, own in requests.items():
        written = asyncio.run(thoughts(asked.conductor, own))
        wrong = {task: thought for task, thought in zip(own, written, strict=True) if not named(thought, kind)}
        misses |= wrong
        total += len(own) - len(wrong)
        right[kind] = f"{len(own) - len(wrong)} of {len(own)}"
    document: dict[str, object] = {"requests": sum(map(len, requests.values())), "right": total, "by_kind": right}
    if asked.misses:
        document["misses"] = misses
    print(json.dumps(document, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
