"""What the tiny Conductor plans for tasks that it was never trained on.

    python -m benchmarks.real_prompts public --data FOLDER [--n 400] [--seed 21] [--besides N:SEED ...] [--plans FILE]
    python -m benchmarks.real_prompts everyday [--misses]

Each prompt goes the app's own way: ``open_conductor("tiny")``, recursion offered as by default, the parser, validation.

public: FOLDER holds gsm8k, math500, mmlu_stem, aime24 and humaneval, each ``.jsonl`` with the fields of the public data
set (``PROMPT_OF`` names those that are read); they are not part of this repository. Exit 1 if a plan does not parse and
validate.

everyday: the 175 requests of ``everyday_requests.toml``, by kind. They were written apart from the training corpus, and
those that came near to one of its typed requests are left out (a third of the words in common, rare words counting for
more). The kind is taken from the line of thought ("A planning task: ...").
"""

import argparse
import asyncio
import itertools
import json
import random
import re
import statistics
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conductor_core.chat.messages import Conductor, PlanRequest, TextDelta, WorkerSpec
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.conductors.roles import agents_by_ordinal
from conductor_core.engine.pools import read_specs
from conductor_core.lab.evaluation.report import table
from conductor_core.lab.training.corpus.tasks import NOUNS, typed_requests
from conductor_core.lab.training.corpus.wording import table as words_of
from conductor_core.settings import Settings
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import validate

EVERYDAY = Path(__file__).with_name("everyday_requests.toml")
MAX_STEPS = 5


def _choices(row: dict[str, Any]) -> str:
    options = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCDEFGH", row["choices"], strict=False))
    return f"{row['question']}\n{options}"


PROMPT_OF: dict[str, Callable[[dict[str, Any]], str]] = {
    "gsm8k": lambda row: str(row["question"]),
    "math500": lambda row: str(row["problem"]),
    "mmlu_stem": _choices,
    "aime24": lambda row: str(row["problem"]),
    "humaneval": lambda row: str(row["prompt"]),
}
"""How a row of each file is put as a task. The answer is never part of it."""
EVERYDAY_NAMES = {
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
"""How a line of thought names each kind of everyday request, in the words of ``training/tasks.py``."""
_MATHS = r"algebra|geometry|number theory|counting|probability|trigonometry|calculus|statistics|contest|calculation"
FITTING = {
    "gsm8k": rf"word problem|{_MATHS}",
    "math500": rf"word problem|{_MATHS}",
    "aime24": rf"word problem|logic puzzle|{_MATHS}",
    "humaneval": "programming task",
    "mmlu_stem": "|".join(str(topic["noun"]) for topic in words_of("topics").values()),
}
"""How the line of thought names what each file holds; a question of MMLU by its subject, or one near to it."""
_OF_OPTIONS = r"option|letter|choice"
"""What the instructions for multiple choice speak of, and those for open questions of the same subjects do not."""


@dataclass(frozen=True)
class Outcome:
    """One plan. ``workflow`` is None if it did not parse and validate; ``faults`` then says why."""

    dataset: str
    prompt: str
    completion: str
    workflow: Workflow | None
    faults: tuple[str, ...]
    repairs: tuple[str, ...]
    warnings: tuple[str, ...]
    unreadable: tuple[str, ...]
    first_s: float
    seconds: float

    @property
    def thought(self) -> str:
        return self.completion.partition("\n")[0]

    @property
    def fits(self) -> bool:
        if self.workflow is None:
            return False
        of_options = any(re.search(_OF_OPTIONS, step.instruction) for step in self.workflow.steps)
        named = re.search(FITTING[self.dataset], self.thought.partition(":")[0]) is not None
        return named and of_options == (self.dataset == "mmlu_stem")


RUN_WORDS = 8


def runs(text: str) -> frozenset[str]:
    """Every run of ``RUN_WORDS`` words: what texts share that have it from one another, and stock phrases."""
    words = re.findall(r"\w+", text.lower())
    return frozenset(" ".join(words[at : at + RUN_WORDS]) for at in range(len(words) - RUN_WORDS + 1))


def draw(folder: Path, n: int, seed: int, besides: Container[str] = ()) -> list[tuple[str, str]]:
    """``n`` (data set, prompt) pairs, as many from each file as there are, up to an equal share; none of ``besides``.

    Raises: OSError, ValueError if a file is missing or is not JSON lines.
    """
    rng = random.Random(seed)
    prompts = {
        name: [put(json.loads(line)) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name, put in PROMPT_OF.items()
    }
    prompts = {name: [each for each in found if each not in besides] for name, found in prompts.items()}
    drawn: list[tuple[str, str]] = []
    left = n
    for position, name in enumerate(sorted(prompts, key=lambda each: len(prompts[each]))):
        share = min(len(prompts[name]), left // (len(prompts) - position))
        drawn += [(name, prompt) for prompt in rng.sample(prompts[name], share)]
        left -= share
    return drawn


async def plan(
    conductor: Conductor, agents: tuple[WorkerSpec, ...], dataset: str, prompt: str, seed: int = 0
) -> Outcome:
    began, first_s, pieces = time.perf_counter(), 0.0, list[str]()
    request = PlanRequest(task=prompt, agents=agents, max_steps=MAX_STEPS, allow_recursion=True, seed=seed)
    async for piece in conductor.write(request):
        if isinstance(piece, TextDelta):
            first_s = first_s or time.perf_counter() - began
            pieces.append(piece.text)
    seconds = time.perf_counter() - began
    completion = "".join(pieces)
    parsed = parse_completion(completion)
    ordinals = agents_by_ordinal(conductor.info, agents)
    checked = validate(parsed, ordinals, max_steps=MAX_STEPS, allow_recursion=True)
    return Outcome(
        dataset,
        prompt,
        completion,
        checked.workflow,
        tuple(fault.message for fault in (*parsed.faults, *checked.faults)),
        parsed.repairs,
        tuple(warning.message for warning in checked.warnings),
        tuple(faults(checked.workflow)) if checked.workflow else (),
        first_s,
        seconds,
    )


async def plan_all(
    drawn: Sequence[tuple[str, str]], pool_ref: str, settings: Settings, name: str
) -> tuple[list[Outcome], tuple[WorkerSpec, ...]]:
    conductor = open_conductor(name, settings)
    agents = read_specs(pool_ref)
    await plan(conductor, agents, "", "Warm up.")
    outcomes = []
    for number, (dataset, prompt) in enumerate(drawn, 1):
        outcomes.append(await plan(conductor, agents, dataset, prompt))
        if number % 50 == 0:
            print(f"{number} of {len(drawn)}", file=sys.stderr, flush=True)
    return outcomes, agents


def _counts(values: Iterable[object]) -> str:
    return ", ".join(f"{value} {count}" for value, count in Counter(values).most_common())


def _shapes(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for name in (*PROMPT_OF, "all"):
        own = [each for each in outcomes if name in (each.dataset, "all")]
        flows = [each.workflow for each in own if each.workflow is not None]
        if own:
            steps = statistics.fmean(len(flow.steps) for flow in flows) if flows else 0.0
            shapes = _counts(topology(flow) for flow in flows)
            counts = ", ".join(f"{k}: {v}" for k, v in sorted(Counter(len(flow.steps) for flow in flows).items()))
            fitting = f"{sum(each.fits for each in own) / len(own):.0%}"
            rows.append((name, str(len(own)), f"{len(flows) / len(own):.1%}", fitting, f"{steps:.2f}", counts, shapes))
    return table(("data set", "prompts", "valid", "fitting kind", "mean steps", "plans by steps", "topologies"), rows)


def _agents(outcomes: Sequence[Outcome], agents: Sequence[WorkerSpec]) -> str:
    rows = []
    names = (*(agent.name for agent in agents), CONDUCTOR_AGENT)
    for name in PROMPT_OF:
        chosen = Counter(
            step.agent
            for each in outcomes
            if each.dataset == name and each.workflow is not None
            for step in each.workflow.steps
        )
        if chosen:
            rows.append((name, *(f"{chosen[agent] / chosen.total():.0%}" for agent in names)))
    return table(("data set", *names), rows)


def _counted(outcomes: Sequence[Outcome], free: Sequence[Outcome]) -> list[str]:
    valid = sum(each.workflow is not None for each in outcomes)
    free_valid = sum(each.workflow is not None for each in free)
    durations = sorted(1000 * each.seconds for each in outcomes)
    wordings = {step.instruction for each in outcomes if each.workflow for step in each.workflow.steps}
    taught = frozenset(run for request in typed_requests() for run in runs(request.text))
    alike = sum(not taught.isdisjoint(runs(each.prompt)) for each in outcomes)
    return [
        f"**{valid} of {len(outcomes)} plans parse and validate** with grammar-constrained decoding, as in the app. "
        f"{sum(bool(each.repairs) for each in outcomes)} of them needed a repair; "
        f"{sum(bool(each.warnings) for each in outcomes)} of them led to a warning.",
        f"Without the grammar: {free_valid} of {len(free)}, drawn from the same prompts.",
        f"{statistics.median(durations):.0f} ms per plan (median), {durations[int(len(durations) * 0.95)]:.0f} ms at "
        "the 95th percentile, on a machine of two cores with other work on it.",
        f"{sum(each.fits for each in outcomes)} plans fit the kind of task. A plan begins with a line of thought, "
        'whose noun names the kind ("a short word problem"). The noun must fit the data set. The instructions must '
        "speak of options for multiple choice, and only there.",
        f"{len(wordings)} different instructions.",
        f"{alike} prompts have {RUN_WORDS} consecutive words in common with a typed request of the training corpus.",
        f"{sum(bool(each.unreadable) for each in outcomes)} plans hold an instruction that the check of wording "
        "rejects (``faults``: repetitions, words never taught, broken macros, nothing to work on).",
    ]


def report(outcomes: Sequence[Outcome], free: Sequence[Outcome], agents: Sequence[WorkerSpec]) -> str:
    lines = [f"- {each}" for each in _counted(outcomes, free)]
    return "\n".join(
        [*lines, "", _shapes(outcomes), "", "Who is asked, as a share of steps", _agents(outcomes, agents)]
    )


# -- wording --


LEAST_WORDS = 3
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_PHRASE_WORDS = 3


def faults(workflow: Workflow) -> list[str]:
    """One sentence for everything that is wrong with a workflow's instructions; empty: they read well.

    Nothing in the reward of a plan protects its wording, and a small model that is pushed by reward alone can end in
    "Break the the the question". What this check asks is mechanical, so that it can be counted: no word or phrase over
    and over, no word that the tiny Conductor was never taught, nothing begun and not ended, and something to work on.
    """
    found = []
    for index, step in enumerate(workflow.steps):
        found += [f"step {index} {fault}" for fault in _of(step.instruction)]
        if QUESTION not in step.instruction and not workflow.reads(index):
            found.append(f"step {index} has neither the task nor an earlier output to work on")
    return found


def _of(instruction: str) -> Iterator[str]:
    own = instruction.replace(QUESTION, " ")
    words = [word.lower() for word in _WORD.findall(own)]
    if len(words) < LEAST_WORDS:
        yield f"says hardly anything: {instruction!r}"
    if instruction.count("{") != instruction.count(QUESTION) or instruction.count("}") != instruction.count(QUESTION):
        yield f"has a broken brace: {instruction!r}"
    if instruction.count(QUESTION) > 1:
        yield f"holds the task more than once: {instruction!r}"
    if not own.isprintable():
        yield f"has characters that cannot be read: {instruction!r}"
    for first, second in itertools.pairwise(words):
        if first == second:
            yield f"says {first!r} twice running: {instruction!r}"
            break
    phrases = [tuple(words[at : at + _PHRASE_WORDS]) for at in range(len(words) - _PHRASE_WORDS + 1)]
    if len(set(phrases)) < len(phrases):
        yield f"repeats itself: {instruction!r}"
    unknown = [word for word in words if word not in _vocabulary()]
    if unknown:
        yield f"has words that it was never taught ({', '.join(unknown[:3])}): {instruction!r}"


@cache
def _vocabulary() -> frozenset[str]:
    words: set[str] = {"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "half"}
    words |= {"one", "two", "three", "four", "five", "six", "seven"}
    for text in (*_texts(words_of("plans")), *NOUNS.values(), *(each["noun"] for each in words_of("topics").values())):
        words |= {word.lower() for word in _WORD.findall(str(text))}
    return frozenset(words)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for each in node.values():
            yield from _texts(each)
    elif isinstance(node, list):
        for each in node:
            yield from _texts(each)


# -- commands --


def everyday() -> list[tuple[str, str]]:
    kinds = tomllib.loads(EVERYDAY.read_text(encoding="utf-8"))
    return [(kind, request) for kind, entry in kinds.items() for request in entry["requests"]]


def print_everyday(conductor: str, *, misses: bool) -> None:
    outcomes, _ = asyncio.run(plan_all(everyday(), "rehearsal", Settings(), conductor))
    total, right = Counter(each.dataset for each in outcomes), Counter[str]()
    for each in outcomes:
        if re.search(rf"\b({EVERYDAY_NAMES[each.dataset]})\b", each.thought.partition(":")[0]):
            right[each.dataset] += 1
        elif misses:
            print(f"{each.dataset}: {each.prompt!r}: {each.thought}")
    print("\n".join(f"{kind:12} {right[kind]} of {count}" for kind, count in total.items()))
    print(f"{'all':12} {right.total()} of {total.total()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["public", "everyday"])
    parser.add_argument("--conductor", default="tiny", help="tiny, or a model folder")
    parser.add_argument("--misses", action="store_true", help="print the requests whose kind is not known")
    parser.add_argument("--data", type=Path, help="folder with the .jsonl files")
    parser.add_argument("--n", type=int, default=400)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument(
        "--besides", nargs="*", default=[], metavar="N:SEED", help="leave out the prompts of these earlier draws"
    )
    parser.add_argument("--pool", default="rehearsal", help="rehearsal, paper or a pool file")
    parser.add_argument("--free", type=int, default=100, help="how many to plan without the grammar as well")
    parser.add_argument("--plans", type=Path, help="write every prompt and plan to this file, to be read")
    given = parser.parse_args()
    if given.part == "everyday":
        print_everyday(given.conductor, misses=given.misses)
        return 0
    if given.data is None:
        parser.error("public needs --data")
    earlier: set[str] = set()
    try:
        for each in given.besides:
            n, _, seed = each.partition(":")
            earlier |= {prompt for _, prompt in draw(given.data, int(n), int(seed))}
        drawn = draw(given.data, given.n, given.seed, earlier)
    except OSError as problem:
        parser.error(f"--data {given.data}: {problem}")
    outcomes, agents = asyncio.run(plan_all(drawn, given.pool, Settings(constrained=True), given.conductor))
    sample = random.Random(given.seed).sample(drawn, min(given.free, len(drawn)))
    free, _ = asyncio.run(plan_all(sample, given.pool, Settings(constrained=False), given.conductor))
    print(report(outcomes, free, agents))
    if given.plans:
        shown = (f"## {each.dataset}\n{each.prompt}\n---\n{each.completion}\n" for each in outcomes)
        given.plans.write_text("\n".join(shown), encoding="utf-8")
    for each in outcomes:
        for fault in each.unreadable:
            print(f"wording: {fault}", file=sys.stderr)
        if each.workflow is None:
            print(f"not valid: {each.faults}: {each.completion!r}", file=sys.stderr)
    return 0 if all(each.workflow is not None for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
