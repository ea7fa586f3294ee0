"""The record of an evaluation: a folder with ``plan.json``, ``outcomes.jsonl`` and, once it is done, ``summary.json``.

Each outcome names its run, so that any figure can be followed down to a trace. ``begun.jsonl`` names every run before
it begins, because a run without an outcome costs money, too.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from conductor_core.errors import BadInput
from conductor_core.lab.records import Finite, append_lines, read_rows, why
from conductor_core.workflow.model import Frozen

PLAN, OUTCOMES, SUMMARY, BEGUN = "plan.json", "outcomes.jsonl", "summary.json", "begun.jsonl"

FIT_PREFIX = "fit-"
"""Prefix of the folders that hold what learned routers are fitted on: no evaluation to show."""

M = TypeVar("M", bound=Frozen)


class EvaluationPlan(Frozen):
    """What is evaluated: enough to repeat it, and to refuse to continue it with other settings.

    Attributes:
        tasks: how many. database: URL of the runs, without a password.
        settings: further choices (seed of workers, limits, model folders and their sha256), by name.
    """

    name: str
    at: str
    suite: str
    split: str
    tasks: int
    seed: int
    orchestrators: tuple[str, ...]
    pool: str
    simulated: bool
    database: str = ""
    settings: Mapping[str, Any] = {}


class Outcome(Finite):
    """The outcome of one task with one orchestrator.

    Attributes:
        score: between 0 and 1. duration_ms: wall time of the run.
        tokens: input and output of all workers, without the Conductor's own (``conductor_tokens``).
        cost_usd: None if a price is unknown. known_usd: of what has a price; None in older records.
        steps: worker calls, also of inner rounds. rounds: workflows that were carried out, 1 without recursion.
        stops: recursions that the Conductor ended with three empty lists.
        present: the workers that were there, if the task was asked with a part of the pool; else empty.
        rejected_plans: completions that were no usable workflow. absent_named: those that named an absent worker.
        fault: why there is no answer or no score: an error's code, a colon, its message. The score is then 0.
        also: further runs that it took.
    """

    orchestrator: str
    task_id: str
    family: str
    difficulty: str
    run_id: str
    score: float
    tokens: int
    conductor_tokens: int = 0
    cost_usd: float | None = None
    known_usd: float | None = None
    duration_ms: float
    steps: int
    rounds: int = 1
    stops: int = 0
    topology: str | None = None
    present: tuple[str, ...] = ()
    rejected_plans: int = 0
    absent_named: int = 0
    fault: str | None = None
    also: tuple[str, ...] = ()

    @property
    def at_least_usd(self) -> float:
        """The least that it cost. Older records have only the whole cost, or none."""
        return (self.cost_usd or 0.0) if self.known_usd is None else self.known_usd


class Begun(Frozen):
    run_id: str


class Result(Finite):
    """An orchestrator's figures over all tasks: a row of ``evaluate --json``, which the page draws, too.

    Attributes:
        score_low, score_high: 95 % interval by bootstrap over tasks.
        difference, difference_low, difference_high: from the plan's first orchestrator, paired over the same tasks.
            ``difference_by_difficulty`` has the same three for each difficulty.
        stops_by_difficulty: recursions per task that the Conductor ended with three empty lists.
        fault_kinds: how many answers have each fault, by the error's code.
    """

    orchestrator: str
    n: int
    score: float
    score_low: float
    score_high: float
    tokens_per_task: float
    steps_per_task: float
    usd_per_task: float | None
    known_usd_per_task: float | None = None
    latency_ms_per_task: float
    by_difficulty: Mapping[str, float]
    by_family: Mapping[str, float]
    steps_by_difficulty: Mapping[str, float] = {}
    rounds_by_difficulty: Mapping[str, float] = {}
    stops_by_difficulty: Mapping[str, float] = {}
    difference_by_difficulty: Mapping[str, tuple[float, float, float]] = {}
    conductor_tokens_per_task: float = 0.0
    rejected_plans: int = 0
    absent_named: int = 0
    faults: int = 0
    fault_kinds: Mapping[str, int] = {}
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None


class PresentSubset(Finite):
    """Tasks that were asked with the same part of the pool.

    Attributes:
        best_worker: the present worker that, alone, answers most tasks of the whole evaluation.
        best_score: its score, alone, on the tasks of this subset. scores: of the other orchestrators, by name.
    """

    present: tuple[str, ...]
    n: int
    best_worker: str
    best_score: float
    scores: Mapping[str, float]


class Present(Frozen):
    """The results of tasks for which only ``k`` workers were present, and of the best of these workers alone."""

    k: int
    best_present: Result
    subsets: tuple[PresentSubset, ...]


class Spread(Finite):
    """The joint figures of Conductors asked in the same way (``conductor:REF``), say of three training seeds.

    Attributes:
        score_sd: standard deviation between them, with n - 1. score_min, score_max: the worst and the best.
    """

    kind: str
    orchestrators: tuple[str, ...]
    score: float
    score_sd: float
    score_min: float
    score_max: float
    tokens_per_task: float
    steps_per_task: float


class LearnedFrom(Frozen):
    """What a learned router was fitted on.

    Attributes:
        tasks: training tasks. answers: of single workers to them, one draw each.
        tried: workflows that were scored, each for one task. exact: whether the score was the exact chance of a right
            answer; else it was the outcome of one run.
    """

    tasks: int
    answers: int
    tried: int = 0
    exact: bool = False

    def in_words(self) -> str:
        tried = (
            f", {self.tried:,} workflows by {'exact chance' if self.exact else 'one run each'}" if self.tried else ""
        )
        return f"{self.tasks:,} tasks, {self.answers:,} answers of single workers{tried}"


class Summary(Frozen):
    """The results in the plan's order.

    Attributes:
        spreads: of each kind of orchestrator that has several Conductors.
        learned_from: of the learned routers, by name, without routers that an earlier version fitted.
    """

    suite: str
    split: str
    n: int
    results: tuple[Result, ...]
    present: Present | None = None
    spreads: tuple[Spread, ...] = ()
    learned_from: Mapping[str, LearnedFrom] = {}


@dataclass(frozen=True)
class EvaluationRecord:
    """A record as read.

    Attributes:
        summary: None while the evaluation goes on.
        broken_lines, broken_summary: what is wrong with the outcomes, and with the summary, that were left out.
    """

    folder: Path
    plan: EvaluationPlan
    outcomes: tuple[Outcome, ...]
    summary: Summary | None
    broken_lines: tuple[str, ...] = ()
    broken_summary: str | None = None

    @property
    def broken(self) -> tuple[str, ...]:
        return self.broken_lines if self.broken_summary is None else (self.broken_summary, *self.broken_lines)


def first_of_each(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Returns the first outcome of each task and orchestrator: two processes at once may have added it twice."""
    found: dict[tuple[str, str], Outcome] = {}
    for each in outcomes:
        found.setdefault((each.orchestrator, each.task_id), each)
    return tuple(found.values())


def append(folder: Path, *outcomes: Outcome) -> None:
    """Adds outcomes to the record. Raises: OSError."""
    append_lines(folder / OUTCOMES, *outcomes)


def drop_unfinished_line(path: Path) -> None:
    """Drops an unfinished last line of a killed process, which the next line would continue. Raises: OSError."""
    if not path.is_file():
        return
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def read_record(folder: Path, *, lenient: bool = False) -> EvaluationRecord:
    """Reads the record in ``folder``, each outcome once, without a last line that is still being written.

    Args:
        lenient: whether to leave out and report broken outcomes. A broken summary is always left out and reported,
            because an evaluation that continues makes it again.

    Raises: BadInput, which names the file and what is wrong with it.
    """
    plan = _read(folder / PLAN, EvaluationPlan)
    summary, broken_summary = None, None
    if (folder / SUMMARY).is_file():
        try:
            summary = _read(folder / SUMMARY, Summary)
        except BadInput as error:
            broken_summary = str(error)
    broken: list[str] = []
    found = read_lines(folder / OUTCOMES, Outcome, "outcome", broken if lenient else None)
    return EvaluationRecord(folder, plan, first_of_each(found), summary, tuple(broken), broken_summary)


def _read(path: Path, model: type[M]) -> M:
    try:
        return model.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        what = why(error) if isinstance(error, ValidationError) else error
        raise BadInput(f"{path} cannot be used: {what}") from error


def read_lines(path: Path, model: type[M], what: str, broken: list[str] | None = None) -> Iterator[M]:
    """Reads the rows of a file as ``read_rows`` does; none if no such file. Raises: BadInput."""
    if path.is_file():
        yield from read_rows(path, model.model_validate_json, what, broken)
