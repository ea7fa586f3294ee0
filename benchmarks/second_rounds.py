"""What recursion earned in evaluations of the rehearsal world, sampled and by exact chance.

    python -m benchmarks.second_rounds FOLDER [FOLDER ...]

Each folder is an evaluation (``evaluations/NAME`` of the data folder) with the orchestrators ``conductor`` and
``recursion`` by these names, so of ``evaluate --conductor MODEL``; its runs are still in its database.
Prints one JSON object. By difficulty, over all folders: the gain in points (paired, 95 % interval over questions), of
the sampled answers and of exact chances; how often a second round was opened, and how often the Conductor was asked
again and stopped. For second rounds on hard questions: the chance of a right answer before and after.

The exact gain of a question is the chance of the first workflow that may recurse less that of the workflow without
recursion, and, where a second round was carried out, what that round adds, given how the last response reads. Its mean
is what the sampled gain tends to, without the luck of the workers' draws.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from conductor_core.cli.wiring import opened_store
from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.statistics import mean_interval
from conductor_core.lab.records.evaluation import Outcome, read_record
from conductor_core.rehearsal import DIFFICULTIES, recognise
from conductor_core.rehearsal.exact import second_round, success_chance
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings


class Compared(NamedTuple):
    """One question, answered with recursion and without. Gains are shares of 1."""

    recursion: Outcome
    second: "SecondRound | None"
    gain: float
    exact_gain: float


class SecondRound(NamedTuple):
    """Chances of a right answer, exact, given so much of how the last response reads.

    Attributes:
        recomputed: whether that response is a check that recomputed.
    """

    recomputed: bool
    before: float
    after: float


def second_round_of(trace: RunTrace) -> SecondRound | None:
    """None if the task is no rehearsal question, or no second round was carried out."""
    task, first = recognise(trace.task), trace.root.workflow
    inner = trace.root.steps[-1].round if trace.root.steps else None
    if task is None or first is None or inner is None or inner.workflow is None or not inner.workflow.steps:
        return None
    read = trace.root.steps[first.reads(len(first.steps) - 1)[-1]].output or ""
    recomputed = "**Check, recomputed.**" in read
    rounds = second_round(task, first, inner.workflow)
    alike = [
        (weight, float(bool(ending.right)), after)
        for ending, (weight, after) in rounds.items()
        if (ending.manner in ("confirmed", "corrected")) == recomputed
    ]
    weight = sum(each for each, _, _ in alike)
    if not weight:
        return None
    before, then = sum(w * right for w, right, _ in alike), sum(w * after for w, _, after in alike)
    return SecondRound(recomputed, before / weight, then / weight)


def first_chance(trace: RunTrace) -> float:
    """The exact chance of the first workflow, as if the recursion were ended at once; 0 without a workflow."""
    task, first = recognise(trace.task), trace.root.workflow
    if task is None:
        raise BadInput(f"run {trace.run_id}: its task is no rehearsal question, so no chance is known")
    return 0.0 if first is None else success_chance(task, first)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second_rounds")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    asked = parser.parse_args(argv)
    found = [each for folder in asked.folders for each in compared(folder)]
    if not found:
        raise SystemExit("nothing to compare: no question has answers of both conductor and recursion, by these names")
    rounds = [each.second for each in found if each.second is not None and each.recursion.difficulty == "hard"]
    document: dict[str, object] = {}
    for difficulty in DIFFICULTIES:
        of = [each for each in found if each.recursion.difficulty == difficulty]
        if not of:
            continue
        document[difficulty] = {
            "questions": len({each.recursion.task_id for each in of}),
            "answers": len(of),
            "gain_points": _points((each.recursion.task_id, each.gain) for each in of),
            "exact_gain_points": _points((each.recursion.task_id, each.exact_gain) for each in of),
            "second_rounds_of_100": round(100 * fmean(each.recursion.rounds > 1 for each in of), 1),
            "stops_of_100": round(100 * fmean(each.recursion.stops > 0 for each in of), 1),
        }
    for name, recomputed in (("hard_after_doubt", False), ("hard_after_a_recomputed_check", True)):
        alike = [each for each in rounds if each.recomputed == recomputed]
        if alike:
            before, after = (round(fmean(both), 3) for both in zip(*(each[1:] for each in alike), strict=True))
            document[name] = {"second_rounds": len(alike), "before": before, "after": after}
    print(json.dumps(document, indent=2))
    return 0


def compared(folder: Path) -> Iterator[Compared]:
    """The questions of an evaluation that both orchestrators have answered. Raises: BadInput for an unreadable one."""
    record = read_record(folder)
    plain = {each.task_id: each for each in record.outcomes if each.orchestrator == "conductor"}
    with opened_store(record.plan.database, Settings()) as store:
        for one in record.outcomes:
            if one.orchestrator != "recursion" or one.task_id not in plain:
                continue
            other = plain[one.task_id]
            again, once = store.trace(one.run_id)[0], store.trace(other.run_id)[0]
            second, first, alone = second_round_of(again), first_chance(again), first_chance(once)
            added = second.after - second.before if second is not None else 0.0
            yield Compared(one, second, one.score - other.score, first + added - alone)


def _points(gains: Iterable[tuple[str, float]]) -> list[float]:
    """Mean and 95 % interval in points, over questions: several answers to one are averaged first."""
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for task_id, gain in gains:
        by_task[task_id].append(gain)
    interval = mean_interval([fmean(each) for each in by_task.values()])
    return [round(100 * value, 1) for value in (interval.mean, interval.low, interval.high)]


if __name__ == "__main__":
    raise SystemExit(main())
