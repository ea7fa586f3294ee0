"""What recursion earned in evaluations of the rehearsal world, sampled and by exact chance.

    python -m benchmarks.second_rounds FOLDER [FOLDER ...]

Each folder is an evaluation with the orchestrators conductor and recursion, whose runs are still in its database.
Prints one JSON object: the gain in points by difficulty (paired, 95 % interval) over all folders, how often a second
round was opened and how often the Conductor was asked again and stopped; and for second rounds on hard questions the
chance of a right answer before and after, exact given how the last response reads.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

from conductor_core.cli.wiring import opened_store
from conductor_core.evaluation.statistics import paired_difference
from conductor_core.records.evaluation import Outcome, read_record
from conductor_core.rehearsal import DIFFICULTIES, recognise
from conductor_core.rehearsal.exact import second_round
from conductor_core.settings import Settings
from conductor_core.trace import RunTrace


def chances(trace: RunTrace) -> tuple[bool, float, float] | None:
    """Whether the text that a second round read is a check that recomputed; and the chance of a right answer before
    and after that round, exact, given so much of how it reads. None if the task is no rehearsal question, or no second
    round was carried out.
    """
    task, first = recognise(trace.task), trace.root.workflow
    inner = trace.root.steps[-1].round
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
    return recomputed, before / weight, then / weight


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second_rounds")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    asked = parser.parse_args(argv)
    pairs: list[tuple[Outcome, Outcome]] = []
    doubtful: list[tuple[float, float]] = []
    checked: list[tuple[float, float]] = []
    for folder in asked.folders:
        record = read_record(folder)
        plain = {each.task_id: each for each in record.outcomes if each.orchestrator == "conductor"}
        again = [each for each in record.outcomes if each.orchestrator == "recursion"]
        pairs += [(each, plain[each.task_id]) for each in again]
        with opened_store(record.plan.database, Settings()) as store:
            for each in again:
                if each.difficulty == "hard" and each.rounds > 1 and each.steps > 1:
                    found = chances(store.trace(each.run_id)[0])
                    if found is not None:
                        recomputed, *both = found
                        (checked if recomputed else doubtful).append((both[0], both[1]))
    document: dict[str, object] = {}
    for difficulty in DIFFICULTIES:
        of = [(recursion, plain) for recursion, plain in pairs if recursion.difficulty == difficulty]
        gain = paired_difference([one.score for one, _ in of], [other.score for _, other in of])
        document[difficulty] = {
            "questions": len(of),
            "gain_points": [round(100 * value, 1) for value in (gain.mean, gain.low, gain.high)],
            "second_rounds_of_100": round(100 * fmean(one.rounds > 1 for one, _ in of), 1),
            "stops_of_100": round(100 * fmean(one.stops > 0 for one, _ in of), 1),
        }
    for name, found_chances in (("after_doubt", doubtful), ("after_a_recomputed_check", checked)):
        if found_chances:
            before, after = (round(fmean(each[at] for each in found_chances), 3) for at in (0, 1))
            document[f"hard_{name}"] = {"second_rounds": len(found_chances), "before": before, "after": after}
    print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
