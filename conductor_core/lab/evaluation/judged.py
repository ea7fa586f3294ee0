"""Makes a suite of judged runs: each task once, with the answer that somebody holds right, and the plan that led there.

The rows have our own format (``suites.own_task``), which passes over the fields that it does not know.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conductor_core.analysis.conclusion import asked, conclude
from conductor_core.errors import BadInput
from conductor_core.grading.grade import grade
from conductor_core.grading.numbers import parse_quantity
from conductor_core.grading.tasks import GraderName
from conductor_core.lab.evaluation.suites import own_task
from conductor_core.run.judgement import JUDGES, Judgement, Mark
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Conclusion
from conductor_core.workflow.model import Workflow

Row = dict[str, Any]
Judged = tuple[RunTrace, Sequence[Judgement]]
"""A run, and what counts of its judgements."""


@dataclass(frozen=True)
class Dataset:
    """``left_out``: why tasks are not among ``rows``, and how many for each reason."""

    rows: tuple[Row, ...]
    left_out: Mapping[str, int]


class _LeftOut(Exception):
    """The message says why there is no row of a task."""


def dataset(runs: Iterable[Judged]) -> Dataset:
    """Returns a row of each task that was judged or whose answer a person wrote. The newest right run gives its answer.

    A person's mark counts before a grader's, and that before a judge's.
    """
    by_task: dict[str, list[Judged]] = defaultdict(list)
    for trace, judgements in runs:
        by_task[trace.task].append((trace, judgements))
    rows: list[Row] = []
    left_out: Counter[str] = Counter()
    for of_task in by_task.values():
        try:
            rows.append(_row(of_task))
        except _LeftOut as why:
            left_out[str(why)] += 1
    return Dataset(tuple(rows), dict(left_out.most_common()))


def _row(runs: Sequence[Judged]) -> Row:
    """Raises: _LeftOut."""
    marks = {trace.run_id: _mark(trace, judgements) for trace, judgements in runs}
    right = [(trace, judgements) for trace, judgements in runs if marks[trace.run_id] == "right"]
    if not right:
        if "wrong" in marks.values():
            raise _LeftOut("judged wrong, and no right answer is known")
        raise _LeftOut("its judges disagree" if "disagree" in marks.values() else "its answer has no mark")
    trace, judgements = max(right, key=lambda each: each[0].created_at_utc)
    if len(trace.conversation) > 1:
        raise _LeftOut("turns came before the task")
    if trace.images:
        raise _LeftOut("images came with the task")
    answer = trace.answer or ""
    found = conclude(answer, asked(trace))
    grader = _grader(found)
    row: Row = {
        "task_id": f"judged/{trace.run_id}",
        "question": trace.task,
        "reference": found.formula if grader == "math" else found.text,
        "grader": grader,
        "family": "judged",
        "run_id": trace.run_id,
        "answer": answer,
        "judgements": [_said(each) for each in judgements if each.path is None],
    }
    try:
        understood = grader == "math" or grade(own_task(row, 0), answer).right  # LaTeX is read by another process
    except BadInput:
        understood = False
    if not understood:
        raise _LeftOut("no grader can read the right answer")
    if trace.root.workflow is not None:
        row["plan"] = _steps(trace.root.workflow)
    if trace.root.before_edit is not None:
        row["plan_before"] = _steps(trace.root.before_edit)
    return row


def _mark(trace: RunTrace, judgements: Sequence[Judgement]) -> Mark | str | None:
    """Returns what the first kind of judges with a mark says of the answer; ``disagree`` if they do."""
    for by in JUDGES:
        marks = {each.mark for each in judgements if each.path is None and each.by == by}
        said = marks & {"right", "wrong"}
        if len(said) > 1:
            return "disagree"
        if said:
            (mark,) = said
            return mark if mark == "wrong" or trace.answer else None
    last = trace.last
    written = last is not None and last.given is not None and last.given.how == "written"
    return "right" if written and trace.answer else None


def _grader(found: Conclusion) -> GraderName:
    """Raises: _LeftOut."""
    match found.kind:
        case "value":
            if found.formula:
                return "math"
            return "exact" if parse_quantity(found.text) is None else "numeric"
        case "code":
            raise _LeftOut("the right answer is code, which only tests can grade")
        case "text":
            raise _LeftOut("the right answer is prose, which marks no value")
    raise _LeftOut("the right answer is empty or declines")


def _said(judgement: Judgement) -> Row:
    fields = judgement.model_dump(mode="json", include={"mark", "score", "note", "by", "at_utc"})
    return fields | {"judge": None if judgement.actor is None else judgement.actor.short}


def _steps(plan: Workflow) -> list[Row]:
    return [step.model_dump(mode="json") for step in plan.steps]
