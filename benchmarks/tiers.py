"""Tiers on recorded rehearsal traffic: the fitted curve of cost against quality beside the exact one.

    python -m benchmarks.tiers --folder FOLDER [--tasks 2000] [--splits 20]

Each task is answered twice by the engine, in a database in FOLDER: by one cheap worker, as a forwarded request is, and
by the shipped Conductor's run about that request. The world grades both. Runs that FOLDER already has are not repeated.

The classifier is fitted on one half of the tasks. The other half shows whether what its curve promises holds. The world
knows each worker's exact chance, so there is a best possible choice: at each share of requests that go to the cheap
worker, those that lose least by it. Printed as JSON: the curve at nine shares (out of fold, sampled and by exact
chances; best possible; by chance); what three thresholds promise and what they do on the other half (first the
suggested one); in how many of ``--splits`` random halves a promise holds, that is, its difference to the other half has
an interval of 95 % with zero in it (the two halves are two samples); and what reading a request takes.
"""

import argparse
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from math import hypot
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from conductor_core.analysis.intervals import Difference
from conductor_core.engine.host import EngineHost
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, RehearsalTask, generate, grade
from conductor_core.rehearsal.exact import success_chance
from conductor_core.run.judgement import Judgement
from conductor_core.run.request import PASS_PURPOSE, SHADOW_PURPOSE, RunRequest
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.tiers.classifier import Classifier, Outcome
from conductor_core.tiers.curve import Standing, at, suggested, unit_of
from conductor_core.tiers.features import features
from conductor_core.tiers.fitting import fit
from conductor_core.tiers.outcomes import Row, find
from conductor_core.workflow.model import QUESTION, Step, Workflow
from storage.store import Store, open_store

CHEAP = "reasoner"
ALONE = Workflow(steps=(Step(instruction=QUESTION, agent=CHEAP),))
SHARES = tuple(share / 10 for share in range(1, 10))


def tasks(count: int) -> list[RehearsalTask]:
    """Returns tasks of all families and difficulties, in an order by chance; no text comes twice."""
    rng, seed = Random(40), 0
    found: dict[str, RehearsalTask] = {}
    while len(found) < count:
        task = generate(rng.choice(FAMILIES), rng.choice(DIFFICULTIES), seed)
        found.setdefault(task.question, task)
        seed += 1
    return list(found.values())


def record(store: Store, asked: Sequence[RehearsalTask]) -> None:
    """Carries out what FOLDER lacks."""
    known = {run.task for run in store.runs(10**6) if run.about_run_id is not None and run.status == "completed"}
    host = EngineHost(store.log, Settings(rehearsal_tokens_per_s=0), store)
    limits = Limits(max_steps=5, max_depth=0)
    started, done = time.perf_counter(), 0
    try:
        for task in asked:
            if task.question in known:
                continue
            cheap = RunRequest(task=task.question, workflow=ALONE, pool="rehearsal", purpose=PASS_PURPOSE)
            full = RunRequest(
                task=task.question,
                conductor="tiny",
                pool="rehearsal",
                limits=limits,
                purpose=SHADOW_PURPOSE,
                about_run_id=cheap.run_id,
            )
            for request in (cheap, full):
                host.start(request)
            for request in (cheap, full):
                host.wait(request.run_id, timeout_s=600)
            if (done := done + 1) % 100 == 0:
                print(f"# {done} more tasks, {(time.perf_counter() - started) / done:.2f} s each", flush=True)
    finally:
        host.close()


def judged(store: Store) -> tuple[list[Judgement], dict[str, Workflow]]:
    """Returns the world's verdicts about all runs, and the Conductor's plans by run."""
    verdicts, plans = [], {}
    for number, run in enumerate(store.runs(10**6), start=1):
        trace = store.read(run.run_id)
        if run.about_run_id is not None and trace.root.workflow is not None:
            plans[run.run_id] = trace.root.workflow
        right = trace.status == "completed" and grade(run.task, trace.answer or "")
        mark = "right" if right else "wrong"
        verdicts.append(Judgement(id=number, run_id=run.run_id, mark=mark, by="grader", at_utc=datetime.now(UTC)))
    return verdicts, plans


def with_probabilities(classifier: Classifier, rows: Sequence[Row]) -> list[Outcome]:
    return [row.outcome.model_copy(update={"probability": classifier.probability(row.features)}) for row in rows]


class World:
    """The exact chances of each recorded request, by the cheap worker's run."""

    def __init__(self, store: Store, plans: dict[str, Workflow], asked: Sequence[RehearsalTask]) -> None:
        by_text = {task.question: task for task in asked}
        self.cheap: dict[str, float] = {}
        self.full: dict[str, float] = {}
        for run in store.runs(10**6):
            if run.about_run_id is not None and run.run_id in plans and run.task in by_text:
                task = by_text[run.task]
                self.cheap[run.about_run_id] = success_chance(task, ALONE)
                self.full[run.about_run_id] = success_chance(task, plans[run.run_id])

    def loss(self, outcome: Outcome) -> float:
        return self.full[outcome.cheap_run_id] - self.cheap[outcome.cheap_run_id]

    def choice(self, ordered: Sequence[Outcome], easy: int) -> dict[str, float]:
        """Returns cost and quality, sampled and exact, if the first ``easy`` go to the cheap worker."""
        cheap, full = ordered[:easy], ordered[easy:]
        good = sum(each.easy for each in cheap) + sum(each.conductor_good for each in full)
        exact = sum(self.cheap[each.cheap_run_id] for each in cheap) + sum(
            self.full[each.cheap_run_id] for each in full
        )
        tokens = sum(each.cheap_tokens for each in cheap) + sum(each.conductor_tokens for each in full)
        count = len(ordered)
        return {"tokens": tokens / count, "sampled": good / count, "exact": exact / count}


def curves(world: World, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    fitted = sorted(outcomes, key=lambda each: -each.probability)
    best = sorted(outcomes, key=world.loss)
    ends = world.choice(fitted, 0), world.choice(fitted, len(fitted))
    points, won, possible = [], 0.0, 0.0
    for share in SHARES:
        easy = round(share * len(outcomes))
        ours, ideal = world.choice(fitted, easy), world.choice(best, easy)
        chance = ends[0]["exact"] + share * (ends[1]["exact"] - ends[0]["exact"])
        won, possible = won + ours["exact"] - chance, possible + ideal["exact"] - chance
        points.append({"easy": share, "fitted": ours, "best": ideal, "by_chance": chance})
    return {"all_conductor": ends[0], "all_cheap": ends[1], "points": points, "won_of_possible": won / possible}


def promise(world: World, classifier: Classifier, rows: Sequence[Row], threshold: float) -> dict[str, Any]:
    """Returns what a threshold promises by the fitted half, out of fold, and what it does on the other one.

    ``exact``: what the quality of the other half tends to, without the luck of the workers' draws.
    """
    unit = unit_of(classifier.outcomes)
    others = sorted(with_probabilities(classifier, rows), key=lambda each: -each.probability)
    told, held = at(classifier.outcomes, threshold, unit), at(others, threshold, unit)
    quality_off = between(
        told.quality.rate,
        (told.quality.low, told.quality.high),
        held.quality.rate,
        (held.quality.low, held.quality.high),
    )
    before, after = told.against_conductor, held.against_conductor
    against_off = between(before.mean, (before.low, before.high), after.mean, (after.low, after.high))
    exact = world.choice(others, sum(each.probability >= threshold for each in others))["exact"]
    return {
        "threshold": threshold,
        "promised": _figures(told),
        "held": _figures(held) | {"exact": exact, "by_chance_at_its_cost": held.mixed},
        "cost_off_percent": 100 * (held.cost / told.cost - 1),
        "quality_off": [quality_off.mean, quality_off.low, quality_off.high],
        "against_conductor_off": [against_off.mean, against_off.low, against_off.high],
        "quality_holds": not quality_off.clear,
        "against_conductor_holds": not against_off.clear,
        "exact_within": told.quality.low <= exact <= told.quality.high,
    }


def between(told: float, of_told: tuple[float, float], held: float, of_held: tuple[float, float]) -> Difference:
    """Returns how much more ``held`` is, with the interval of a difference of two independent samples (Newcombe)."""
    mean = held - told
    low, high = hypot(held - of_held[0], of_told[1] - told), hypot(of_held[1] - held, told - of_told[0])
    return Difference(mean, mean - low, mean + high)


def splits(world: World, rows: Sequence[Row], count: int) -> dict[str, Any]:
    """Returns how many promises of ``count`` random halves hold, and how far the cost is off at most."""
    promises = []
    for seed in range(count):
        mixed = Random(seed).sample(rows, len(rows))
        classifier = fit(mixed[::2], CHEAP)
        promises += [promise(world, classifier, mixed[1::2], each) for each in thresholds(classifier)]
    held = ("quality_holds", "against_conductor_holds", "exact_within")
    return {
        "promises": len(promises),
        **{kind: sum(each[kind] for each in promises) for kind in held},
        "cost_off_percent_at_most": max(abs(each["cost_off_percent"]) for each in promises),
    }


def _figures(found: Standing) -> dict[str, Any]:
    quality, against = found.quality, found.against_conductor
    return {
        "easy": found.easy,
        "cost": found.cost,
        "saved": found.saved,
        "quality": [quality.rate, quality.low, quality.high],
        "against_conductor": [against.mean, against.low, against.high],
    }


def thresholds(classifier: Classifier) -> tuple[float, ...]:
    return (suggested(classifier.outcomes, unit_of(classifier.outcomes)), 0.7, 0.5)


def reading_ms(text: str, classifier: Classifier) -> float:
    times = []
    for _ in range(50):
        started = time.perf_counter()
        classifier.probability(features(text))
        times.append(1000 * (time.perf_counter() - started))
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--splits", type=int, default=20)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    store = open_store(f"sqlite:///{given.folder / 'tiers.sqlite'}")
    asked = tasks(given.tasks)
    record(store, asked)
    verdicts, plans = judged(store)
    found = find(store, verdicts, CHEAP)
    world = World(store, plans, asked)
    known = [row for row in found.rows if row.outcome.cheap_run_id in world.cheap]  # FOLDER may have more tasks
    rows = sorted(known, key=lambda row: row.outcome.cheap_run_id)
    first, second = rows[::2], rows[1::2]
    classifier, swapped = fit(first, CHEAP), fit(second, CHEAP)
    both = [*classifier.outcomes, *with_probabilities(classifier, second)]
    per_task = [world.cheap[each.cheap_run_id] for each in both]
    long = "How many trains leave at 10:40? " * 32768
    print(
        json.dumps(
            {
                "outcomes": len(rows),
                "left_out": found.left_out,
                "auc_out_of_fold": classifier.fit.auc,
                "exact_chances": {"cheap": fmean(per_task), "conductor": fmean(world.full.values())},
                "curve_fitted_half_out_of_fold": curves(world, classifier.outcomes),
                "curve_other_half": curves(world, with_probabilities(classifier, second)),
                "promises": [promise(world, classifier, second, each) for each in thresholds(classifier)],
                "promises_halves_swapped": [promise(world, swapped, first, each) for each in thresholds(swapped)],
                "random_halves": splits(world, rows, given.splits),
                "read_ms": {"1 kB": reading_ms(long[:1024], classifier), "1 MB": reading_ms(long, classifier)},
            },
            indent=1,
        )
    )
    store.close()


if __name__ == "__main__":
    main()
