"""Fills a database with forwarded requests, the Conductor's runs of them, and verdicts, all of the rehearsal world.

They are real runs of the engine, by simulated workers. ``python -m tests.support.shadow_traffic FILE`` fills a database
to look at, spread over some days.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from conductor_core.engine.host import EngineHost
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, generate, grade
from conductor_core.run.actor import local_caller
from conductor_core.run.judgement import Mark, Verdict
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, SHADOW_PURPOSE, RunRequest, read_gate
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workflow.model import QUESTION, Step, Workflow
from storage.store import Store, open_store

MODELS = ("scientist", "scientist", "writer")
"""To whom requests are forwarded, in turn."""
JUDGED = "Which of the two answers is better? {question}"
_AT_ONCE, _PLANNED_AT_ONCE = 24, 4
"""Runs at once: those that a Conductor of this machine plans wait for it, and their times say so."""
_TOO_FEW = Limits(max_tokens=1)
CALLER = local_caller("cli")


@dataclass(frozen=True)
class Pair:
    """A forwarded request, the Conductor's run of it and the question to a judge; None: there is none."""

    task: str
    forwarded: RunTrace
    shadow: RunTrace | None = None
    judging: RunTrace | None = None

    @property
    def runs(self) -> tuple[RunTrace, ...]:
        return tuple(run for run in (self.forwarded, self.shadow, self.judging) if run is not None)


def run_pairs(host: EngineHost, count: int, plan: Workflow | None = None) -> list[Pair]:
    """Runs ``count`` requests. Of ten, one has no shadow, and of four with one, a judge is asked about three.

    Of each forty, one forwarded request and one shadow fail, and one shadow waits for an approval. ``plan``: of all
    shadows; None: the shipped Conductor writes one for each, in a second.
    """
    numbers = range(count)
    tasks = {number: _task(number) for number in numbers}
    forwarded = _all(host, {number: _forwarded(number, tasks[number]) for number in numbers})
    asked = {number: _shadow(number, tasks[number], forwarded[number], plan) for number in numbers if number % 10 != 9}
    shadows = _all(host, asked, _AT_ONCE if plan else _PLANNED_AT_ONCE)
    about = {number: shadow for number, shadow in shadows.items() if number % 4 and shadow.status == "completed"}
    judgings = _all(host, {number: _judging(tasks[number], shadow) for number, shadow in about.items()})
    return [Pair(tasks[each], forwarded[each], shadows.get(each), judgings.get(each)) for each in numbers]


def _task(number: int) -> str:
    family, level = FAMILIES[number % len(FAMILIES)], DIFFICULTIES[number // len(FAMILIES) % len(DIFFICULTIES)]
    return generate(family, level, number, split="test").question


def _alone(instruction: str, agent: str) -> Workflow:
    return Workflow(steps=(Step(instruction=instruction, agent=agent),))


def _forwarded(number: int, task: str) -> RunRequest:
    limits = _TOO_FEW if number % 40 == 21 else Limits()
    workflow = _alone(QUESTION, MODELS[number % len(MODELS)])
    return RunRequest(task=task, workflow=workflow, purpose=PASS_PURPOSE, door="api", seed=number, limits=limits)


def _shadow(number: int, task: str, of: RunTrace, plan: Workflow | None) -> RunRequest:
    return RunRequest(
        task=task,
        conductor=None if plan else "tiny",
        workflow=plan,
        purpose=SHADOW_PURPOSE,
        about_run_id=of.run_id,
        door="api",
        seed=number,
        limits=_TOO_FEW if number % 40 == 33 else Limits(),
        gates=(read_gate("plan"),) if number % 40 == 7 else (),
    )


def _judging(task: str, of: RunTrace) -> RunRequest:
    workflow = _alone(JUDGED, "verifier")
    return RunRequest(task=task, workflow=workflow, purpose=JUDGE_PURPOSE, about_run_id=of.run_id, door="api")


def _all(host: EngineHost, requests: dict[int, RunRequest], at_once: int = _AT_ONCE) -> dict[int, RunTrace]:
    found: dict[int, RunTrace] = {}
    numbers = list(requests)
    for begin in range(0, len(numbers), at_once):
        begun = {number: host.start(requests[number]) for number in numbers[begin : begin + at_once]}
        found |= {number: host.wait(run_id, 120) for number, run_id in begun.items()}
    return found


def verdicts(pairs: Sequence[Pair]) -> list[Verdict]:
    """Returns what a grader holds of each whole answer of a pair, and what a judge says where one was asked."""
    found: list[Verdict] = []
    for pair in pairs:
        shadow = pair.shadow
        if shadow is None:
            continue
        rights = [grade(pair.task, run.answer or "") for run in (pair.forwarded, shadow)]
        for run, is_right in zip((pair.forwarded, shadow), rights, strict=True):
            if run.status == "completed":
                found.append(Verdict(run_id=run.run_id, mark="right" if is_right else "wrong", by="grader"))
        if pair.judging is not None and pair.forwarded.status == "completed":
            mark: Mark = "same" if rights[0] == rights[1] else "better" if rights[1] else "worse"
            source, other = pair.judging.run_id, pair.forwarded.run_id
            found.append(
                Verdict(run_id=shadow.run_id, mark=mark, by="judge", source_run_id=source, compared_with=other)
            )
    return found


@contextmanager
def engine_on(store: Store, settings: Settings) -> Iterator[EngineHost]:
    host = EngineHost(store.log, settings, store)
    try:
        yield host
    finally:
        host.close()


def fill(
    store: Store, settings: Settings, count: int, *, days: int = 0, judged: bool = True, plan: Workflow | None = None
) -> list[Pair]:
    """Fills ``store``. ``days``: the runs are copied there as if they were spread over so many days before today."""
    if not days:
        with engine_on(store, settings) as host:
            pairs = run_pairs(host, count, plan)
    else:
        with TemporaryDirectory() as folder:
            scratch = open_store(f"sqlite:///{folder}/scratch.sqlite")
            with engine_on(scratch, settings) as host:
                pairs = run_pairs(host, count, plan)
            now = datetime.now(UTC)
            for number, pair in enumerate(pairs):
                since = now - timedelta(days=days * (1 - number / count)) - pair.forwarded.created_at_utc
                for run in pair.runs:
                    _copy(scratch, store, run.run_id, since)
            scratch.close()
    if judged:
        store.judgements.add_all(verdicts(pairs), CALLER)
    return pairs


def _copy(source: Store, to: Store, run_id: str, later: timedelta) -> None:
    events = [stored.event for stored in source.events(run_id)]
    to.log.append_and_wait(*(event.model_copy(update={"at_utc": event.at_utc + later}) for event in events))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--tokens-per-s", type=float, default=200)
    asked = parser.parse_args(arguments)
    store = open_store(f"sqlite:///{asked.file.resolve()}")
    try:
        fill(store, Settings(rehearsal_tokens_per_s=asked.tokens_per_s), asked.requests, days=asked.days)
    finally:
        store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
