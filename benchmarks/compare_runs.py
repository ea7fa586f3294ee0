"""Milliseconds to compare two runs of many steps, with a word-level difference of every output.

The naive alternative aligns each step with each other by `difflib`'s likeness of their instructions, and compares the
words of the outputs with `difflib` as well.

python -m benchmarks.compare_runs [--steps 40] [--words 400]
"""

import argparse
import difflib
import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime

from conductor_core.analysis.compare import compare_runs, headline
from conductor_core.analysis.text_diff import compare_texts
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.run.values import Limits, PoolInfo
from conductor_core.workflow.edits import add_step, move_step, remove_step, replace_step
from conductor_core.workflow.model import Step, Workflow

WORDS = [f"word{number}" for number in range(800)]
AGENTS = ("planner", "calculator", "reasoner", "verifier")


def text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(WORDS, k=words))


def plan(draw: random.Random, steps: int) -> Workflow:
    return Workflow(
        steps=tuple(
            Step(
                instruction=text(draw, 30),
                agent=draw.choice(AGENTS),
                access_list=tuple(sorted(draw.sample(range(index), min(index, 3)))),
            )
            for index in range(steps)
        )
    )


def edited(draw: random.Random, workflow: Workflow) -> Workflow:
    """``workflow`` with every fourth step reworded, one removed, one added and five moved."""
    for index in range(0, len(workflow.steps), 4):
        step = workflow.steps[index]
        words = step.instruction.split()
        words[:: max(1, len(words) // 8)] = draw.choices(WORDS, k=len(words[:: max(1, len(words) // 8)]))
        workflow = replace_step(workflow, index, step.model_copy(update={"instruction": " ".join(words)}))
    workflow, _ = remove_step(workflow, draw.randrange(len(workflow.steps)))
    workflow = add_step(workflow, 0, Step(instruction=text(draw, 30), agent="planner"))
    for _ in range(5):
        workflow, _ = move_step(workflow, draw.randrange(len(workflow.steps)), draw.randrange(len(workflow.steps)))
    return workflow


def run_of(run_id: str, workflow: Workflow, outputs: list[str]) -> RunTrace:
    steps = [
        StepTrace(
            path=(index,),
            instruction=step.instruction,
            agent=step.agent,
            access_list=step.access_list,
            reads=workflow.reads(index),
            status="completed",
            identity=f"{run_id} {index}",
            output=outputs[index],
        )
        for index, step in enumerate(workflow.steps)
    ]
    now = datetime.now(UTC)
    return RunTrace(
        run_id=run_id,
        status="completed",
        task="task",
        simulated=True,
        pool=PoolInfo(name="pool", workers=()),
        limits=Limits(),
        app_version="0",
        created_at_utc=now,
        clock_zero_utc=now,
        root=RoundTrace(status="planned", workflow=workflow, steps=steps),
        answer=outputs[-1],
    )


def ours(a: RunTrace, b: RunTrace) -> None:
    compared = compare_runs(a, b)
    headline(compared)
    for pair in compared.root.walk():
        if pair.a is not None and pair.b is not None and pair.output_changed:
            compare_texts(pair.a.output, pair.b.output)


def naive(a: RunTrace, b: RunTrace) -> None:
    for step in b.steps:
        other = max(a.steps, key=lambda each: difflib.SequenceMatcher(None, each.instruction, step.instruction).ratio())
        if other.output != step.output:
            difflib.SequenceMatcher(None, other.output.split(), step.output.split(), autojunk=False).get_opcodes()


def milliseconds(work: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1e3)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--words", type=int, default=400, help="of each output")
    given = parser.parse_args()
    draw = random.Random(0)
    before = plan(draw, given.steps)
    after = edited(draw, before)
    outputs = [text(draw, given.words) for _ in before.steps]
    changed = [" ".join(draw.choice([word, word, word, "new"]) for word in output.split()) for output in outputs]
    a, b = run_of("a", before, outputs), run_of("b", after, changed)
    fast, slow = milliseconds(lambda: ours(a, b), 9), milliseconds(lambda: naive(a, b), 3)
    plans = milliseconds(lambda: compare_runs(a, b), 9)
    print(f"{given.steps} steps against {len(b.steps)}, {given.words} words in each output, all of them changed")
    print(f"ours {fast:.1f} ms (without the words of the outputs {plans:.1f} ms), naive {slow:.1f} ms")
    print(f"ratio {slow / fast:.1f}")
    long_a = "\n".join(text(draw, 12) for _ in range(8_000))
    long_b = "\n".join(line if draw.random() < 0.9 else text(draw, 12) for line in long_a.split("\n"))
    took = milliseconds(lambda: compare_texts(long_a, long_b), 3)
    print(f"one output of {len(long_a.split())} words, a tenth of its lines changed: {took:.0f} ms")


if __name__ == "__main__":
    main()
