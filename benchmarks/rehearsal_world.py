"""What orchestration is worth in the rehearsal world, exactly: the best worker, the best short plans, the baselines.

    python -m benchmarks.rehearsal_world [--triples] [--second-round]
    python -m benchmarks.rehearsal_world --evaluations FOLDER [FOLDER ...]

Prints a table by family and difficulty, and its averages. Nothing is sampled: every figure is a chance over the
workers' seeds (``rehearsal.exact``), the best plan of a length is found by trying all agents in all shapes of that
length, and a plan is chosen among lengths by its chance less a cost for each step after the first.

--triples       for each three of the seven workers: their best plans against the best one of them alone
--second-round  after the best plan of one round: what a second one adds, asked for only where the last text shows doubt
--evaluations   what recursion earned in evaluations, sampled and by exact chance

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
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from conductor_core.cli.options import Options
from conductor_core.errors import BadInput
from conductor_core.lab.evaluation import orchestrators
from conductor_core.lab.evaluation.statistics import mean_interval
from conductor_core.lab.records.evaluation import Outcome, read_record
from conductor_core.rehearsal import (
    DIFFICULTIES,
    FAMILIES,
    PROFILES,
    RehearsalTask,
    generate,
    recognise,
    rehearsal_specs,
)
from conductor_core.rehearsal.exact import Ending, endings, second_round, success_chance
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import Step, Workflow

SOLVE = orchestrators.SOLVE
AGAIN = "Solve the task once more from the beginning, without looking back: {question}"
PLAN = "Make a complete plan for this task, without solving it yet: {question}"
BY_PLAN = "Follow the plan above and solve the task: {question}"
CHECK = "Check the solution above and correct any mistake: {question}"
COMPARE = orchestrators.AGGREGATE

STEP_COST = 0.02
"""What a step after the first must at least bring, as in the reward of the small Conductor's training."""

NAMES = tuple(worker.name for worker in PROFILES)
Shape = tuple[tuple[str, tuple[int, ...]], ...]
SHAPES: tuple[Shape, ...] = (
    ((SOLVE, ()),),
    ((SOLVE, ()), (CHECK, (0,))),
    ((PLAN, ()), (BY_PLAN, (0,))),
    ((PLAN, ()), (BY_PLAN, (0,)), (CHECK, (1,))),
    ((SOLVE, ()), (CHECK, (0,)), (CHECK, (1,))),
    ((SOLVE, ()), (SOLVE, ()), (COMPARE, (0, 1))),
)


class Found(NamedTuple):
    chance: float
    plan: Workflow

    @property
    def worth(self) -> float:
        return self.chance - STEP_COST * (len(self.plan.steps) - 1)

    def __str__(self) -> str:
        signs = {SOLVE: "", PLAN: "plan:", BY_PLAN: "", CHECK: "check:", COMPARE: "compare:", AGAIN: "again:"}
        return f"{self.chance:.2f} " + " ".join(signs[step.instruction] + step.agent for step in self.plan.steps)


def plans(shape: Shape, agents: Sequence[str]) -> Iterable[Workflow]:
    """``shape`` with every choice of ``agents``."""
    for chosen in product(agents, repeat=len(shape)):
        yield Workflow(
            steps=tuple(
                Step(instruction=instruction, agent=agent, access_list=reads)
                for (instruction, reads), agent in zip(shape, chosen, strict=True)
            )
        )


def best_by_length(task: RehearsalTask, agents: Sequence[str] = NAMES) -> tuple[Found, Found, Found]:
    best: dict[int, Found] = {}
    for shape in SHAPES:
        for plan in plans(shape, agents):
            found = Found(success_chance(task, plan), plan)
            if len(shape) not in best or found.chance > best[len(shape)].chance:
                best[len(shape)] = found
    return best[1], best[2], best[3]


def print_world(tasks: Sequence[RehearsalTask]) -> list[Found]:
    """The table; returns the plan that is worth most for each task."""
    specs = rehearsal_specs()
    chosen = []
    lengths: dict[str, list[tuple[float, ...]]] = {difficulty: [] for difficulty in DIFFICULTIES}
    print("family, difficulty | best worker | best two steps | best three steps | mixture of agents | best length")
    for task in tasks:
        best = best_by_length(task)
        worthiest = max(best, key=lambda found: found.worth)
        mixture = success_chance(task, orchestrators.mixture(specs))
        chosen.append(worthiest)
        lengths[task.difficulty].append((*(found.chance for found in best), mixture, worthiest.chance))
        shown = " | ".join(str(found) for found in best)
        print(f"{task.family:11} {task.difficulty:6} | {shown} | mixture {mixture:.2f} | {len(worthiest.plan.steps)}")
    heads = ("best worker for it", "best two steps", "best three steps", "mixture of agents", "plan worth most")
    print(f"\n{'':24}" + "".join(f"{difficulty:>8}" for difficulty in (*DIFFICULTIES, "all")))
    for place, head in enumerate(heads):
        columns = [fmean(row[place] for row in lengths[difficulty]) for difficulty in DIFFICULTIES]
        print(f"{head:24}" + "".join(f"{value:8.3f}" for value in (*columns, fmean(columns))))
    steps = [
        fmean(len(f.plan.steps) for t, f in zip(tasks, chosen, strict=True) if t.difficulty == d) for d in DIFFICULTIES
    ]
    print(f"{'its steps':24}" + "".join(f"{value:8.2f}" for value in (*steps, fmean(steps))))
    for label, make in (
        ("alone", orchestrators.single),
        ("5 times reflecting", orchestrators.reflection),
        ("5 times consensus", orchestrators.consensus),
    ):
        averages = {name: fmean(success_chance(task, make(name)) for task in tasks) for name in NAMES}
        print(f"\n{label}: " + ", ".join(f"{name} {value:.3f}" for name, value in averages.items()))
    return chosen


def print_triples(tasks: Sequence[RehearsalTask]) -> None:
    print("\nthree of seven: best one of them alone, the best of them for each task, their best plans")
    gains = []
    for present in combinations(NAMES, 3):
        best = [max(best_by_length(task, present), key=lambda found: found.worth).chance for task in tasks]
        alone = {name: [success_chance(task, orchestrators.single(name)) for task in tasks] for name in present}
        one = max(fmean(values) for values in alone.values())
        routed = fmean(max(values[place] for values in alone.values()) for place in range(len(tasks)))
        gains.append(fmean(best) - one)
        print(f"{', '.join(present):36} {one:.3f} {routed:.3f} {fmean(best):.3f}")
    print(f"gain over the best one alone: least {min(gains):.3f}, mean {fmean(gains):.3f}")


def doubtful(ending: Ending) -> bool:
    """Whether a text says of itself that it may be wrong."""
    return ending.manner in ("doubted solution", "read through", "first of equals")


def print_second_round(tasks: Sequence[RehearsalTask], firsts: Sequence[Found]) -> None:
    print("\nsecond round, the same plan in other words, where the first ends in doubt")
    for difficulty in DIFFICULTIES:
        once, twice, asked = [], [], []
        for task, first in zip(tasks, firsts, strict=True):
            if task.difficulty != difficulty:
                continue
            words = {SOLVE: AGAIN, PLAN: "Plan this task afresh: {question}", BY_PLAN: BY_PLAN, CHECK: CHECK}
            again = Workflow(
                steps=tuple(
                    step.model_copy(update={"instruction": words.get(step.instruction, step.instruction)})
                    for step in first.plan.steps
                )
            )
            after = second_round(task, first.plan, again)
            once.append(first.chance)
            asked.append(sum(chance for ending, (chance, _) in after.items() if doubtful(ending)))
            twice.append(
                sum(
                    chance * right if doubtful(ending) else chance * bool(ending.right)
                    for ending, (chance, right) in after.items()
                )
            )
        print(f"{difficulty:6} {fmean(once):.3f} -> {fmean(twice):.3f}, asked for in {fmean(asked):.2f} of the runs")
    task, first = tasks[-1], firsts[-1]
    print(f"endings of {first} on {task.family} {task.difficulty}:")
    for ending, chance in sorted(endings(task, first.plan).items(), key=lambda item: -item[1]):
        print(f"  {chance:.3f} {ending.manner}, {'right' if ending.right else 'wrong'}")


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


def print_evaluations(folders: Sequence[Path]) -> None:
    found = [each for folder in folders for each in compared(folder)]
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


def compared(folder: Path) -> Iterator[Compared]:
    """The questions of an evaluation that both orchestrators have answered. Raises: BadInput for an unreadable one."""
    record = read_record(folder)
    plain = {each.task_id: each for each in record.outcomes if each.orchestrator == "conductor"}
    with Options(db=record.plan.database).store() as store:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triples", action="store_true")
    parser.add_argument("--second-round", action="store_true")
    parser.add_argument("--evaluations", type=Path, nargs="+", metavar="FOLDER")
    options = parser.parse_args()
    if options.evaluations:
        print_evaluations(options.evaluations)
        return
    tasks = [generate(family, difficulty, 1) for family in FAMILIES for difficulty in DIFFICULTIES]
    firsts = print_world(tasks)
    if options.triples:
        print_triples(tasks)
    if options.second_round:
        print_second_round(tasks, firsts)


if __name__ == "__main__":
    main()
