"""What each way to choose workflows learned from, how well it does by exact chance, and what it could reach at best.

    python -m benchmarks.routing_budgets [--fit-tasks 300,1500] [--fit-seeds 0] [--limit 300] [--seed 0]

Everything is in the rehearsal world, simulated, where the chance that a workflow answers a question rightly is known
exactly: no worker's draw adds noise, and no run is needed. Test questions are those of ``evaluate --suite rehearsal``
with the same limit and seed; routers are fitted on questions of its training split, as ``evaluate`` fits them.

Columns: the mean chance of a right answer in points (all; easy, medium, hard), steps and worker tokens a task,
reckoned, what was learned from, and the *ceiling*: the best plan of the same form that any search here found for each
kind (family and difficulty), the kind told beforehand. What lies between score and ceiling is lost by not knowing the
kind, or by not finding its plan. ``mas-router, tokens free`` is fitted on the chance alone, without a price of tokens.
Prints a markdown table, with the seconds of processor time of each fit.
"""

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from conductor_core.chat.messages import Finished, Message, TextDelta
from conductor_core.chat.usage import estimate_tokens
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import Pool, open_pool
from conductor_core.engine.recorder import NoLog
from conductor_core.engine.runner import Engine
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Task
from conductor_core.lab.evaluation.orchestrators import SOLVE, single
from conductor_core.lab.evaluation.report import table
from conductor_core.lab.evaluation.routers import kind_table, mas_router, router_dc
from conductor_core.lab.evaluation.routers.workflows import TrainingRow
from conductor_core.lab.evaluation.suites import load_suite
from conductor_core.lab.records import SHIPPED
from conductor_core.lab.records.training import read_record
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, RehearsalTask, recognise
from conductor_core.rehearsal.exact import success_chance
from conductor_core.run.request import RunRequest
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workflow.model import QUESTION, Workflow

SETTINGS = Settings(rehearsal_tokens_per_s=0.0)
NO_RECURSION = Limits(max_depth=0)
Tried = dict[str, dict[Workflow, list[float]]]
"""By kind: every workflow that was asked for, with its chances."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    method: str
    learned_from: str
    workflows: Sequence[Workflow]
    ceiling: Sequence[Workflow]
    fit_cpu_s: float = 0.0


class Chances:
    """A ``Reward`` by exact chance that remembers what it was asked. ``asked``: how often."""

    def __init__(self, tasks: Sequence[Task], rows: Sequence[TrainingRow]) -> None:
        self._tasks, self._rows = [known(task) for task in tasks], rows
        self.tried: Tried = defaultdict(lambda: defaultdict(list))
        self.asked = 0

    def __call__(self, index: int, workflow: Workflow) -> tuple[float, int]:
        self.asked += 1
        chance = success_chance(self._tasks[index], workflow)
        self.tried[self._rows[index].kind][workflow].append(chance)
        return chance, tokens_of(workflow, self._rows[index].question, self._rows[index].tokens)


def known(task: Task) -> RehearsalTask:
    found = recognise(task.question)
    if found is None:
        raise ValueError(f"{task.task_id} is not a question of the rehearsal world")
    return found


def kind_of(task: Task) -> str:
    return f"{task.family} {task.difficulty}"


def tokens_of(workflow: Workflow, question: str, alone: "dict[str, int] | object") -> int:
    """Each call reads the question and what it is granted, and writes as much as that worker did alone."""
    asked = estimate_tokens(question)
    own = alone if isinstance(alone, dict) else {}
    written = [max(1, own.get(step.agent, asked + TYPICAL_TOKENS) - asked) for step in workflow.steps]
    read = [asked + sum(written[earlier] for earlier in workflow.reads(index)) for index in range(len(written))]
    return sum(read) + sum(written)


KINDS = len(FAMILIES) * len(DIFFICULTIES)
TYPICAL_TOKENS = 90
"""Written by a worker to a test question, whose answers are not looked at here."""


async def single_workers(tasks: Sequence[Task], pool: Pool) -> list[TrainingRow]:
    """Every worker alone on every task, one draw each."""
    rows = []
    for task in tasks:
        answers, tokens = {}, {}
        message = Message(role="user", content=SOLVE.replace(QUESTION, task.question))
        for name, worker in pool.workers.items():
            pieces = []
            async for chunk in worker.answer((message,)):
                if isinstance(chunk, TextDelta):
                    pieces.append(chunk.text)
                elif isinstance(chunk, Finished) and chunk.usage is not None:
                    tokens[name] = chunk.usage.total_tokens
            answers[name] = "".join(pieces)
        scores = {name: grade(task, answer).score for name, answer in answers.items()}
        rows.append(TrainingRow(task.question, scores, answers, tokens, kind_of(task)))
    return rows


async def planned(ref: str, tasks: Sequence[Task], pool: Pool) -> list[Workflow]:
    """The Conductor's workflow for each task; without one the task is a zero: a workflow of no steps."""
    conductor, engine = open_conductor(ref, SETTINGS), Engine(NoLog(), SETTINGS)
    workflows = []
    for task in tasks:
        trace = await engine.run(RunRequest(task=task.question, plan_only=True, limits=NO_RECURSION), conductor, pool)
        workflows.append(trace.root.workflow or Workflow(steps=()))
    await conductor.aclose()
    return workflows


def best_for_kind(tried: Tried, tasks: Sequence[Task], fits: Callable[[Workflow], bool]) -> list[Workflow]:
    """For each task the workflow with the best mean chance on its kind, of those that ``fits`` lets through."""
    best = {
        kind: max((each for each in found if fits(each)), key=lambda each: fmean(found[each]))
        for kind, found in tried.items()
    }
    return [best[kind_of(task)] for task in tasks]


def fitted(tasks: int, seed: int, test: Sequence[Task], pool: Pool, everything: Tried) -> Iterator[Row]:
    """The routers, each fitted on the first ``tasks`` training questions of suite seed ``seed``."""
    agents = tuple(pool.workers)
    train = load_suite("rehearsal", "train", limit=tasks, seed=seed).tasks
    rows = asyncio.run(single_workers(train, pool))
    exact = [
        replace(row, scores={agent: success_chance(known(task), single(agent)) for agent in agents})
        for row, task in zip(rows, train, strict=True)
    ]
    alone = [
        max((single(agent) for agent in agents), key=lambda one: success_chance(known(task), one)) for task in test
    ]
    answers = f"{tasks:,} questions, seed {seed}; {tasks * len(agents):,}"
    for learned, those in ((f"{answers} outcomes", rows), (f"{answers} exact chances", exact)):
        start = time.process_time()
        dc = router_dc.fit(those, agents, seed=seed)
        cpu_s = time.process_time() - start
        yield Row("router-dc", learned, [dc.route(task.question, agents) for task in test], alone, cpu_s)
    tokens_free = partial(mas_router.fit, config=mas_router.MasRouterConfig(cost_per_1k_tokens=0.0))
    for name, fit in (
        ("mas-router", mas_router.fit),
        ("mas-router, tokens free", tokens_free),
        ("kind-table", kind_table.fit),
    ):
        chances = Chances(train, rows)
        start = time.process_time()
        router = fit(rows, agents, reward=chances, seed=seed)
        cpu_s = time.process_time() - start
        for kind, found in chances.tried.items():
            for workflow, values in found.items():
                everything[kind][workflow] += values
        yield Row(
            name,
            f"{tasks:,} questions{' with their kinds' * (name == 'kind-table')}, seed {seed}; "
            f"{chances.asked:,} exact chances",
            [router.route(task.question, agents) for task in test],
            best_for_kind(chances.tried, test, lambda each: True),
            cpu_s,
        )


def conductor_learned(ref: str) -> str:
    """What the shipped Conductor's own record of training says; of another one nothing is known here."""
    if ref != "tiny":
        return "not known here"
    started = read_record(SHIPPED / "training" / "tiny").started
    if started is None:
        raise ValueError("the shipped record of training has no beginning")
    config = started.config
    cold, grpo = config["cold_start"], config["grpo"]
    return (
        f"{cold['examples']:,} examples, of rehearsal questions the best of {cold['best_of']} plans by exact chance; "
        f"{grpo['iterations'] * grpo['prompts'] * grpo['group']:,} exact chances by GRPO"
    )


def line(row: Row, test: Sequence[Task]) -> list[str]:
    chances = [
        success_chance(known(task), each) if each.steps else 0.0 for task, each in zip(test, row.workflows, strict=True)
    ]
    ceiling = fmean(success_chance(known(task), each) for task, each in zip(test, row.ceiling, strict=True))
    levels = [
        fmean(chance for chance, task in zip(chances, test, strict=True) if task.difficulty == level)
        for level in DIFFICULTIES
    ]
    return [
        row.method,
        f"{100 * fmean(chances):.1f}",
        " / ".join(f"{100 * each:.0f}" for each in levels),
        f"{100 * ceiling:.1f}",
        f"{fmean(len(each.steps) for each in row.workflows):.2f}",
        f"{fmean(tokens_of(each, task.question, None) for task, each in zip(test, row.workflows, strict=True)):.0f}",
        row.learned_from,
        f"{row.fit_cpu_s:.0f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing_budgets")
    parser.add_argument("--fit-tasks", default="300,1500", help="questions that the routers learn from; several: A,B")
    parser.add_argument("--fit-seeds", default="0", help="which questions; several: A,B")
    parser.add_argument("--limit", type=int, default=300, help="questions of the test")
    parser.add_argument("--seed", type=int, default=0, help="which questions of the test")
    parser.add_argument("--conductor", default="tiny", help="tiny, or a model folder")
    given = parser.parse_args()
    if min(given.limit, *map(int, given.fit_tasks.split(","))) < KINDS:
        parser.error(f"--limit and --fit-tasks need {KINDS} questions or more: one of each kind")
    pool = open_pool("rehearsal", SETTINGS, seed=given.seed)
    test = load_suite("rehearsal", "test", limit=given.limit, seed=given.seed).tasks
    everything: Tried = defaultdict(lambda: defaultdict(list))
    rows = [
        row
        for tasks in map(int, given.fit_tasks.split(","))
        for seed in map(int, given.fit_seeds.split(","))
        for row in fitted(tasks, seed, test, pool, everything)
    ]
    best = best_for_kind(everything, test, lambda each: len(each.steps) <= SETTINGS.max_steps)
    plans = asyncio.run(planned(given.conductor, test, pool))
    rows.insert(0, Row(f"conductor:{given.conductor}", conductor_learned(given.conductor), plans, best))
    header = [
        "method",
        "exact score",
        "easy / medium / hard",
        "ceiling",
        "steps",
        "tokens",
        "learned from",
        "fit, CPU s",
    ]
    print(table(header, [line(row, test) for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
