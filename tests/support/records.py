"""Records as training and evaluation leave them, made by seed: for the pages' tests, and to look at the pages with.

python -m tests.support.records FOLDER      writes some of each into the data folder FOLDER
"""

import itertools
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conductor_core.lab.evaluation.report import summarise
from conductor_core.lab.records import DIFFICULTIES, evaluation, training
from conductor_core.lab.records.evaluation import EvaluationPlan, Outcome, Result, Summary
from conductor_core.lab.records.training import Ended, HeldOut, Iteration, Row, Sample, Stage, Started

AGENTS = ("planner", "reasoner", "calculator", "coder", "scientist", "verifier", "writer")
PLANNED: Mapping[Stage, int] = {"cold_start": 90, "grpo": 120, "recursion": 30}
FAMILIES = ("arithmetic", "algebra", "word_problem", "code", "fact", "multi_hop", "table", "planning")
TASKS = (
    ("word_problem", "hard", "A tank holds 240 litres and loses 3 litres an hour. After how many hours are 150 left?"),
    ("code", "medium", "Write a Python function that returns the second largest number of a list without sorting."),
    ("arithmetic", "easy", "What is 48 times 17?"),
)
EARLY = (
    "one worker answers\nmodel_id = [1]\nsubtasks = ['Answer this: {question}']\naccess_list = [[]]",
    "model_id = [2, 6, 0]\nsubtasks = ['Work out the numbers in {question}', 'Write it', 'Plan the rest']\n"
    "access_list = [[], [], [0]]",
    "model_id = [1, 4\nsubtasks = ['Break the the the question",
)
LATE = (
    "plan, two ways, a check\nmodel_id = [0, 2, 1, 5]\nsubtasks = ['Break this into the quantities that matter: "
    "{question}', 'Compute the result by the plan: {question}', 'Reason it out independently: {question}', "
    "'Compare both results with the task and state the right one: {question}']\naccess_list = [[], [0], [], 'all']",
    "code and a check\nmodel_id = [3, 5]\nsubtasks = ['Write the function asked for: {question}', 'Test the function "
    "on short lists and mend it']\naccess_list = [[], [0]]",
    "one worker answers\nmodel_id = [2]\nsubtasks = ['Compute {question}']\naccess_list = [[]]",
)


def training_rows(
    seed: int = 0,
    *,
    cold_start: int = 90,
    grpo: int = 120,
    recursion: int = 30,
    ended: bool = True,
    simulated: bool = True,
    planned: Mapping[Stage, int] | None = None,
) -> list[Row]:
    """A training that went as the prototype's did: the cold start finds the form, GRPO what is rewarded."""
    rng = random.Random(seed)
    lengths: dict[Stage, int] = {"cold_start": cold_start, "grpo": grpo, "recursion": recursion}
    rows: list[Row] = [
        Started(
            name="tiny",
            at="2026-03-02T09:30:00+00:00",
            seed=seed,
            config={"name": "tiny", "model": {"hidden": 192, "layers": 4}, "grpo": {"lr": 2e-4, "group": 64}},
            simulated=simulated,
            machine="x86-64, 2 threads, torch 2.13.0",
            agents=AGENTS,
            planned=planned or lengths,
        )
    ]
    for number in range(cold_start):
        done = number / max(cold_start, 1)
        rows.append(
            Iteration(
                stage="cold_start",
                iteration=number + 1,
                seconds=0.9 * (number + 1),
                loss=3.1 * math.exp(-4 * done) + 0.35 + rng.gauss(0, 0.04),
                learning_rate=1e-3 * (1 - done),
                update_s=0.88 + rng.gauss(0, 0.02),
            )
        )
    for stage in ("grpo", "recursion"):
        for number in range(lengths[stage]):
            rows += _grpo_rows(stage, number, lengths[stage], rng)
    if ended:
        seconds = 0.9 * cold_start + 2.8 * (grpo + recursion)
        rows.append(Ended(at="2026-03-02T09:37:00+00:00", seconds=seconds, model="conductors/tiny", sha256="9f2c" * 16))
    return rows


def _grpo_rows(stage: Stage, number: int, length: int, rng: random.Random) -> list[Row]:
    done = number / length if stage == "grpo" else 1 + number / length
    risen = 1 - math.exp(-3.2 * done)
    accuracy = {
        "easy": 0.80 + 0.14 * risen + rng.gauss(0, 0.02),
        "medium": 0.52 + 0.38 * risen + rng.gauss(0, 0.03),
        "hard": 0.22 + 0.50 * risen + rng.gauss(0, 0.035),
    }
    steps = {
        "easy": 2.6 - 1.5 * risen + rng.gauss(0, 0.06),
        "medium": 2.5 + 0.5 * risen + rng.gauss(0, 0.06),
        "hard": 2.6 + 0.9 * risen + rng.gauss(0, 0.07),
    }
    wanted = (0.24, 0.10, 0.17, 0.16, 0.10, 0.17, 0.06)
    share = [(1 / 7) * (1 - risen) + to * risen + abs(rng.gauss(0, 0.012)) for to in wanted]
    if stage == "recursion":
        share.append(0.10 * (done - 1) + 0.01)
    total = sum(share)
    mean = sum(accuracy.values()) / 3
    rows: list[Row] = [
        Iteration(
            stage=stage,
            iteration=number + 1,
            seconds=2.8 * (number + 1),
            loss=0.02 * rng.gauss(0, 1),
            supervised_loss=0.5 - 0.1 * risen + rng.gauss(0, 0.01),
            reward=0.5 + 0.5 * mean - 0.04 + rng.gauss(0, 0.012),
            format_rate=min(1.0, 0.93 + 0.065 * risen + rng.gauss(0, 0.006)),
            accuracy=mean,
            accuracy_by_difficulty=accuracy,
            steps=sum(steps.values()) / 3,
            steps_by_difficulty=steps,
            topology_share={"one shot": 0.3, "chain": 0.2 + 0.2 * risen, "fan-out": 0.3 - 0.1 * risen, "mixed": 0.1},
            agent_share={name: value / total for name, value in zip((*AGENTS, "conductor"), share, strict=False)},
            entropy=0.62 * math.exp(-1.1 * done) + 0.12 + rng.gauss(0, 0.012),
            rollout_s=1.5 + rng.gauss(0, 0.06),
            reward_s=0.15 + abs(rng.gauss(0, 0.01)),
            update_s=1.1 + rng.gauss(0, 0.05),
        )
    ]
    if number % 20 == 0 or number == length - 1:
        held = {name: min(value + 0.03, 1.0) for name, value in accuracy.items()}
        rows.append(
            HeldOut(
                stage=stage,
                iteration=number + 1,
                split="test",
                n=300,
                accuracy=sum(held.values()) / 3,
                accuracy_by_difficulty=held,
                steps=sum(steps.values()) / 3,
                steps_by_difficulty=steps,
            )
        )
        rows += [_sample(stage, number + 1, at, early=done < 0.3, risen=risen) for at in range(len(TASKS))]
    return rows


def _sample(stage: Stage, iteration: int, at: int, *, early: bool, risen: float) -> Sample:
    family, difficulty, task = TASKS[at]
    text = (EARLY if early else LATE)[at]
    chance = None if text.startswith("model_id = [1, 4") else 0.15 + 0.75 * risen
    return Sample(
        stage=stage,
        iteration=iteration,
        task=task,
        family=family,
        difficulty=difficulty,
        completion=text,
        reward=0.0 if chance is None else 0.5 + chance / 2,
        chance=chance,
    )


def write_training(folder: Path, rows: Sequence[Row], *, age_s: float = 0.0) -> Path:
    """Writes a record last changed ``age_s`` ago."""
    folder.mkdir(parents=True, exist_ok=True)
    training.append(folder, *rows)
    _age(folder / training.RECORD, age_s)
    return folder


def _age(file: Path, age_s: float) -> None:
    moment = time.time() - age_s
    os.utime(file, (moment, moment))


ORCHESTRATORS: Mapping[str, tuple[tuple[float, float, float], float, float]] = {
    # Chance of a right answer (easy, medium, hard), tokens, steps.
    "conductor": ((0.97, 0.93, 0.79), 1430, 2.2),
    "conductor-recursion": ((0.97, 0.94, 0.84), 1890, 2.8),
    "single:planner": ((0.80, 0.47, 0.16), 380, 1),
    "single:reasoner": ((0.86, 0.58, 0.20), 412, 1),
    "single:calculator": ((0.78, 0.44, 0.13), 301, 1),
    "single:coder": ((0.82, 0.50, 0.18), 420, 1),
    "single:scientist": ((0.81, 0.49, 0.18), 402, 1),
    "single:verifier": ((0.70, 0.36, 0.09), 344, 1),
    "single:writer": ((0.66, 0.33, 0.07), 365, 1),
    "self-reflection": ((0.88, 0.60, 0.24), 2010, 5),
    "output-budget": ((0.87, 0.59, 0.22), 1540, 1),
    "consensus": ((0.90, 0.62, 0.25), 2060, 5),
    "moa": ((0.93, 0.67, 0.33), 4490, 8),
    "random": ((0.72, 0.40, 0.14), 1361, 2.7),
    "prompted": ((0.84, 0.55, 0.21), 1210, 2.1),
    "router-dc": ((0.89, 0.64, 0.30), 398, 1),
    "mas-router": ((0.91, 0.68, 0.36), 2240, 3.1),
    "smoothie": ((0.87, 0.60, 0.26), 2876, 7),
}


KINDS = {"conductor": "conductor", "recursion": "conductor-recursion"}
"""What those of several Conductors (conductor:REF) answer like."""


def evaluation_plan(
    name: str, orchestrators: Sequence[str], tasks: int, seed: int = 0, *, simulated: bool = True
) -> EvaluationPlan:
    return EvaluationPlan(
        name=name,
        at="2026-03-02T10:00:00+00:00",
        suite="rehearsal",
        split="test",
        tasks=tasks,
        seed=seed,
        orchestrators=tuple(orchestrators),
        pool="rehearsal",
        simulated=simulated,
    )


def outcomes(plan: EvaluationPlan) -> list[Outcome]:
    """Task after task, each through all orchestrators, in runs that no database here has."""
    rng = random.Random(plan.seed)
    made: list[Outcome] = []
    for number in range(plan.tasks):
        family, difficulty = FAMILIES[number % len(FAMILIES)], DIFFICULTIES[number % 3]
        for orchestrator in plan.orchestrators:
            chances, tokens, steps = ORCHESTRATORS[KINDS.get(orchestrator.partition(":")[0], orchestrator)]
            longer = (0.8, 1.0, 1.2)[number % 3]
            fault = "the worker's stream ended early" if rng.random() < 0.004 else None
            made.append(
                Outcome(
                    orchestrator=orchestrator,
                    task_id=f"{family}-{difficulty}-{number:04}",
                    family=family,
                    difficulty=difficulty,
                    run_id=f"elsewhere-{len(made):06}",
                    score=float(fault is None and rng.random() < chances[number % 3]),
                    tokens=round(tokens * longer * rng.uniform(0.8, 1.2)),
                    conductor_tokens=120 if orchestrator.startswith(("conductor", "recursion")) else 0,
                    cost_usd=0.0 if plan.simulated else tokens * 4e-6 * longer,
                    duration_ms=steps * 900 * longer * rng.uniform(0.8, 1.3),
                    steps=max(1, round(steps * (longer if steps > 1.5 else 1))),
                    fault=fault,
                )
            )
    return made


def summary(plan: EvaluationPlan, found: Sequence[Outcome]) -> Summary:
    """Figures with intervals by the normal approximation: near enough to be looked at."""
    first = _mean([each.score for each in found if each.orchestrator == plan.orchestrators[0]])
    results = []
    for orchestrator in plan.orchestrators:
        own = [each for each in found if each.orchestrator == orchestrator]
        score = _mean([each.score for each in own])
        half = 1.96 * math.sqrt(score * (1 - score) / len(own))
        difference = None if orchestrator == plan.orchestrators[0] else score - first
        costs = [each.cost_usd for each in own if each.cost_usd is not None]
        results.append(
            Result(
                orchestrator=orchestrator,
                n=len(own),
                score=score,
                score_low=max(score - half, 0.0),
                score_high=min(score + half, 1.0),
                tokens_per_task=_mean([each.tokens for each in own]),
                conductor_tokens_per_task=_mean([each.conductor_tokens for each in own]),
                steps_per_task=_mean([each.steps for each in own]),
                usd_per_task=_mean(costs) if len(costs) == len(own) else None,
                latency_ms_per_task=_mean([each.duration_ms for each in own]),
                by_difficulty={name: _mean([e.score for e in own if e.difficulty == name]) for name in DIFFICULTIES},
                by_family={name: _mean([e.score for e in own if e.family == name]) for name in FAMILIES},
                steps_by_difficulty={
                    name: _mean([float(e.steps) for e in own if e.difficulty == name]) for name in DIFFICULTIES
                },
                faults=sum(each.fault is not None for each in own),
                difference=difference,
                difference_low=None if difference is None else difference - 1.1 * half,
                difference_high=None if difference is None else difference + 1.1 * half,
            )
        )
    return Summary(suite=plan.suite, split=plan.split, n=plan.tasks, results=tuple(results))


def seeds_and_parts(tasks: int = 140) -> tuple[EvaluationPlan, list[Outcome]]:
    """Two Conductors, one of them also with recursion; for each task another three of the seven workers."""
    conducted = {"conductor": "tiny", "conductor:seeds/two": "seeds/two", "recursion": "tiny"}
    plan = evaluation_plan("seeds", (*conducted, *(f"single:{agent}" for agent in AGENTS)), tasks)
    digests = {"tiny": "d9abbc4d" * 8, "seeds/two": "c0f0e966" * 8}
    settings = {"conductors": conducted, "models_sha256": digests, "present": 3}
    parts = list(itertools.combinations(AGENTS, 3))
    found = []
    for at, each in enumerate(outcomes(plan)):
        number = at // len(plan.orchestrators)
        again = each.orchestrator == "recursion" and number % 3 > 0
        fields = {"rounds": 2 if again and number % 3 == 2 else 1, "stops": int(again and number % 6 == 1)}
        part = parts[number % len(parts)] if each.orchestrator in conducted else ()
        found.append(each.model_copy(update={**fields, "present": part}))
    return plan.model_copy(update={"settings": settings}), found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def write_evaluation(
    folder: Path,
    plan: EvaluationPlan,
    found: Sequence[Outcome],
    *,
    done: bool = True,
    age_s: float = 0.0,
    figures: Callable[[EvaluationPlan, Sequence[Outcome]], Summary] = summary,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / evaluation.PLAN).write_text(plan.model_dump_json(indent=2), encoding="utf-8")
    evaluation.append(folder, *found)
    if done:
        (folder / evaluation.SUMMARY).write_text(figures(plan, found).model_dump_json(), encoding="utf-8")
    for file in folder.iterdir():
        _age(file, age_s)
    return folder


def main(folder: Path) -> None:
    write_training(folder / "training" / "tiny-2", training_rows(2), age_s=60)
    write_training(
        folder / "training" / "tiny-1", training_rows(1, grpo=70, recursion=0, ended=False, planned=PLANNED), age_s=4000
    )
    plan = evaluation_plan("rehearsal-test", tuple(ORCHESTRATORS), 300)
    write_evaluation(folder / "evaluations" / "rehearsal-test", plan, outcomes(plan), age_s=60)
    write_evaluation(folder / "evaluations" / "seeds", *seeds_and_parts(), age_s=300, figures=summarise)
    going = evaluation_plan("going-on", ("conductor", "single:reasoner", "moa"), 100)
    write_evaluation(folder / "evaluations" / "going-on", going, outcomes(going)[:140], done=False, age_s=900)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
