"""How often blame ranks a planted fault first: 100 rehearsal runs, each with a fault in one step or one access.

    python -m benchmarks.blame [--runs 100] [--n 20] [--seed 0] [--show]

A healthy run is drawn: a template's plan, cast as the app casts it, for a question of the rehearsal world, whose answer
is right. Then one thing is changed, drawn among all steps or all accesses: a step is asked with another seed, with
which it goes wrong, or one output is granted or withheld that was not before. The rest goes on with the run's own seed.
The change is a planted fault if the answer is wrong now and, by the exact chances (``rehearsal.exact``), the fault
takes at least half of the right answers, with all below it re-run. So the benchmark knows what decided the answer.

Each faulty run is carried out by the engine and blamed as ``conductor blame`` does. Prints how often the planted fault
ranks first and third or better, with the truth known and by agreement with the wrong answer; ``--show`` adds a line
for each run. Everything here is simulated.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from conductor_core.blame.experiments import Arm, Change, Effect, Experiments, effects
from conductor_core.blame.report import change_words
from conductor_core.blame.runs import Blame, CarryingOut, Recorded, Verdicts
from conductor_core.conductors.roles import cast_of
from conductor_core.engine.host import EngineHost
from conductor_core.engine.prompts import Answer, Asked, build, digest_text
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, RehearsalTask, generate, grade, rehearsal_specs
from conductor_core.rehearsal.exact import success_chance
from conductor_core.rehearsal.skills import RIGHT, Branch
from conductor_core.rehearsal.worker import RehearsalWorker
from conductor_core.run.actor import local_caller
from conductor_core.run.request import Overrides, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.topology import TEMPLATES
from storage import open_store

LEAST_FAULT = 0.5
"""What takes less of a right answer's chance may matter less than the luck of the steps below."""
SPECS = {spec.name: spec for spec in rehearsal_specs()}


@dataclass(frozen=True)
class Drawn:
    """A run as the workers would answer it: text and outcome of each step."""

    texts: tuple[str, ...]
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Planted:
    """A faulty run, and what blame should find. ``effect``: by the exact chances."""

    task: RehearsalTask
    plan: Workflow
    seed: int
    overrides: Overrides
    change: Change
    shape: str
    effect: float


def answer(task: RehearsalTask, plan: Workflow, seed: int, own: dict[int, int]) -> Drawn:
    """Returns what the engine would record, without it: ``own`` has the seeds of steps that have their own."""
    texts: list[str] = []
    branches: list[Branch] = []
    answers: dict[int, Answer] = {}
    for index, step in enumerate(plan.steps):
        messages = build(Asked(task.question), plan, index, answers).messages
        worker = RehearsalWorker(SPECS[step.agent], seed=own.get(index, seed), tokens_per_s=0)
        texts.append(worker.respond(messages))
        branches.append(worker.drawn(messages))
        answers[index] = Answer.of((index,), step, task.question, texts[-1], digest_text(texts[-1]))
    return Drawn(tuple(texts), tuple(branches))


def exact(task: RehearsalTask, plan: Workflow, drawn: Drawn, arm: Arm) -> float:
    """Returns the chance that a replay of ``arm`` is right."""
    kept = {index: drawn.branches[index] for index in range(len(plan.steps)) if index not in arm.fresh}
    return success_chance(task, arm.workflow(plan), kept)


def below(plan: Workflow, step: int) -> set[int]:
    found = {step}
    for later in range(step + 1, len(plan.steps)):
        if found.intersection(plan.reads(later)):
            found.add(later)
    return found


def went_wrong(branch: Branch) -> bool:
    return branch.manner == "poor plan" or branch.answer not in (None, RIGHT)


def plant(rng: Random, kind: str) -> tuple[Planted | None, str]:
    """Draws a healthy run and a change of it. Returns the faulty run, or None and why the change is no fault."""
    template = rng.choice(TEMPLATES[1:])
    plan = template.workflow(cast_of(tuple(SPECS.values())))
    task = generate(rng.choice(FAMILIES), rng.choice(DIFFICULTIES), rng.randrange(10**6), split="test")
    seed, last = rng.randrange(2**31), len(plan.steps) - 1
    healthy = answer(task, plan, seed, {})
    if not grade(task, healthy.texts[last]):
        return None, "the healthy run is wrong itself"
    own: dict[int, int] = {}
    if kind == "step":
        step = rng.randrange(last + 1)
        own = {step: rng.randrange(2**31)}
        change, faulty_plan = Change(kind="fresh", step=step), plan
    else:
        step = rng.randrange(1, last + 1)
        read = rng.randrange(step)
        granted = read in plan.reads(step)
        # Undoing the fault grants what was cut, and cuts what was granted.
        change = Change(kind="granted" if granted else "cut", step=step, source=read)
        faulty_plan = Arm(edit=Change(kind="cut" if granted else "granted", step=step, source=read)).workflow(plan)
    faulty = answer(task, faulty_plan, seed, own)
    if kind == "step" and not went_wrong(faulty.branches[step]):
        return None, "the step did not go wrong"
    if grade(task, faulty.texts[last]):
        return None, "the answer stayed right"
    rerun_steps = tuple(sorted(below(faulty_plan, step)))
    if kind == "step":
        with_it, without = Arm(fresh=rerun_steps), Arm(fresh=tuple(each for each in rerun_steps if each != step))
    else:
        with_it, without = Arm(edit=change, fresh=rerun_steps), Arm(fresh=rerun_steps)
    effect = exact(task, faulty_plan, faulty, with_it) - exact(task, faulty_plan, faulty, without)
    if effect < LEAST_FAULT:
        return None, f"it takes fewer than {LEAST_FAULT:.0%} of the right answers"
    overrides = Overrides().with_seeds(own)
    return Planted(task, faulty_plan, seed, overrides, change, template.name, effect), ""


def planted(count: int, seed: int, rejected: Counter[str]) -> Iterator[Planted]:
    """Draws ``count`` faulty runs, half of them with a fault in a step, half in an access."""
    rng = Random(f"blame/{seed}")
    for number in range(count):
        kind = ("step", "access")[number % 2]
        while True:
            found, why = plant(rng, kind)
            if found is not None:
                yield found
                break
            rejected[f"{kind}: {why}"] += 1


def rank_of(change: Change, ranking: tuple[Effect, ...]) -> int:
    return next(effect.rank for effect in ranking if effect.change == change)


@dataclass
class Outcome:
    fault: Planted
    by_truth: int
    by_agreement: int
    first: str


def blame_one(fault: Planted, host: EngineHost, count: int, number: int) -> Outcome:
    request = RunRequest(
        run_id=f"planted-{number}",  # the seeds of replays follow from it
        task=fault.task.question,
        workflow=fault.plan,
        pool="rehearsal",
        seed=fault.seed,
        overrides=fault.overrides,
    )
    request = request.model_copy(update={"limits": request.limits.model_copy(update={"max_steps": 32})})
    source = host.wait(host.start(request))
    own = {each.step: each.seed for each in fault.overrides.seeds}
    if [step.output for step in source.steps] != list(answer(fault.task, fault.plan, fault.seed, own).texts):
        raise AssertionError("the engine recorded other answers than the workers give")
    experiments, known = Experiments(source), Recorded()
    blame = Blame(experiments, Verdicts(source), count, known)
    CarryingOut(blame, host, local_caller("cli")).run()
    ranking = effects(experiments, blame.answers(), count)
    agreed = Blame(experiments, _by_agreement(source), count, known)
    return Outcome(
        fault=fault,
        by_truth=rank_of(fault.change, ranking),
        by_agreement=rank_of(fault.change, effects(experiments, agreed.answers(), count)),
        first=change_words(ranking[0].change, experiments.plan),
    )


def _by_agreement(source: RunTrace) -> Verdicts:
    verdicts = Verdicts(source)
    verdicts.truth, verdicts.known_by = "", "nobody"
    return verdicts


def report(outcomes: list[Outcome], rejected: Counter[str]) -> dict[str, object]:
    def firsts(of: list[Outcome]) -> dict[str, object]:
        return {
            "runs": len(of),
            "planted_first": sum(each.by_truth == 1 for each in of),
            "planted_in_first_three": sum(each.by_truth <= 3 for each in of),
            "planted_first_by_agreement": sum(each.by_agreement == 1 for each in of),
        }

    return {
        "simulated": True,
        "all": firsts(outcomes),
        "fault_in_a_step": firsts([each for each in outcomes if each.fault.change.source is None]),
        "fault_in_an_access": firsts([each for each in outcomes if each.fault.change.source is not None]),
        "changes_drawn_that_were_no_fault": dict(rejected),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    rejected: Counter[str] = Counter()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'blame.db'}")
        host = EngineHost(store.log, Settings(rehearsal_tokens_per_s=0), store)
        try:
            for number, fault in enumerate(planted(given.runs, given.seed, rejected)):
                outcome = blame_one(fault, host, given.n, number)
                outcomes.append(outcome)
                if given.show:
                    said = change_words(fault.change, fault.plan)
                    print(
                        f"{outcome.by_truth:>2} {outcome.by_agreement:>2}  {fault.shape:<27} {fault.task.family:<11}"
                        f"{fault.task.difficulty:<7} {fault.effect:.2f}  {said}; first: {outcome.first}",
                        flush=True,
                    )
        finally:
            host.close()
            store.close()
    print(json.dumps(report(outcomes, rejected), indent=2))


if __name__ == "__main__":
    main()
