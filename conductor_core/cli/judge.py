"""``judge`` and ``judgements``: what a person holds of a run, what all hold of all runs, and a suite of it."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from conductor_core.analysis import documents
from conductor_core.cli import options
from conductor_core.cli.log_search import Since
from conductor_core.cli.output import one_line, print_json, print_written, table, write_file
from conductor_core.errors import BadInput, UnknownRun
from conductor_core.formats import UNKNOWN, plural
from conductor_core.privacy.masking import known_and_set
from conductor_core.run.actor import local_caller
from conductor_core.run.judgement import By, Judged, Judgement, Mark
from conductor_core.run.trace import RunTrace, RunUnreadable
from conductor_core.run.values import Path as StepPath
from conductor_core.run.values import label
from storage import Store
from storage.judgements import JudgementQuery


def judge(
    run_id: options.RunId,
    mark: Annotated[
        Literal["right", "wrong"] | None, typer.Argument(metavar="right|wrong", help="What it is.", show_default=False)
    ] = None,
    step: Annotated[str | None, typer.Option(metavar="N", help="Judge step N. Default: the run's answer.")] = None,
    score: Annotated[float | None, typer.Option(metavar="X", help="From 0 (bad) to 1 (good).")] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why. It goes with the run.")] = "",
    given: options.DbJson = options.NONE,
) -> int:
    """A later judgement of the same account counts in the place of this one; --note "taken back" alone leaves none."""
    with given.store(of_a_run=True) as store:
        run_id = store.resolve(run_id)
        path = None if step is None else _path(store.read(run_id), step)
        kept = store.judgements.add(run_id, local_caller("cli"), path=path, mark=mark, score=score, note=note)
    of = kept.run_id if kept.path is None else f"{kept.run_id} step {label(kept.path)}"
    given.print(lambda: document(kept), lambda: [f"{of}: {kept.in_words}"])
    return 0


def _path(trace: RunTrace, step: str) -> StepPath:
    found = next((each.path for each in trace.walk() if label(each.path) == step.strip()), None)
    if found is None:
        raise BadInput(f"run {trace.run_id} has no step {one_line(step, 40)!r}")
    return found


def judgements(
    what: Annotated[
        Literal["list", "export"], typer.Argument(metavar="[export]", help="Write tasks with right answers to --to.")
    ] = "list",
    run: Annotated[str | None, typer.Option(metavar="RUN_ID", help="Only of this run.")] = None,
    mark: Annotated[Mark | None, typer.Option(help="Only with this mark.", show_choices=True)] = None,
    by: Annotated[By | None, typer.Option(help="Only by these judges.", show_choices=True)] = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many are listed.")] = 50,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="With export: a suite for conductor evaluate --suite.")
    ] = None,
    given: options.DbJson = options.NONE,
) -> int:
    """Lists what counts, newest first: the last judgement of each judge of each run and step.

    An export has each task once, with the answer of the newest run that was judged right or that a person wrote, its
    plan, and the plan before an edit. It tells why other tasks are left out.
    """
    if (what == "export") != (to is not None):
        raise BadInput("export needs --to FILE.jsonl" if to is None else "--to is for export")
    with given.reading() as store:
        run_ids = None if run is None else (store.resolve(run),)
        asked = JudgementQuery(run_ids, mark, by, since, counting=True)
        if to is not None:
            return _export(store, asked, to, given)
        found = store.judgements.list(asked, limit)
        counts = store.judgements.counts()
        store.access_log.viewed({each.run_id for each in found if each.note}, "judgements", local_caller("cli"))
    given.print(
        lambda: {"judgements": [document(each) for each in found], "runs": counts},
        lambda: _lines(found, counts),
    )
    return 0


def document(judgement: Judgement) -> documents.Document:
    step = None if judgement.path is None else label(judgement.path)
    return judgement.model_dump(mode="json", exclude={"path"}) | {"step": step}


def _lines(found: Sequence[Judgement], counts: Mapping[Judged, int]) -> Iterator[str]:
    if not found:
        yield "no judgements: conductor judge RUN_ID right or wrong"
        return
    rows = [("RUN", "STEP", "JUDGEMENT", "BY", "JUDGE", "AT (UTC)", "NOTE")]
    rows += [
        (
            one_line(each.run_id, 60),
            "answer" if each.path is None else label(each.path),
            each.in_words,
            each.by,
            UNKNOWN if each.actor is None else one_line(each.actor.short, 40),
            f"{each.at_utc:%Y-%m-%d %H:%M}",
            one_line(each.note, 80),
        )
        for each in found
    ]
    yield from table(rows)
    yield f"runs: {counts['right']} right, {counts['wrong']} wrong, {counts['unjudged']} not judged"


def _export(store: Store, asked: JudgementQuery, to: Path, given: options.Options) -> int:
    from conductor_core.lab.evaluation.judged import dataset  # graders take time to import

    by_run: dict[str, list[Judgement]] = {}
    for each in reversed(store.judgements.list(asked)):
        by_run.setdefault(each.run_id, []).append(each)
    runs: list[tuple[RunTrace, Sequence[Judgement]]] = []
    unreadable = 0
    reruns = dict.fromkeys(copy for judged in by_run for copy in store.copies(judged))  # a person may have written one
    for run_id in dict.fromkeys([*by_run, *reruns]):
        try:
            runs.append((store.read(run_id), by_run.get(run_id, ())))
        except RunUnreadable:
            unreadable += 1
        except UnknownRun:  # it was deleted meanwhile
            continue
    made = dataset(runs)
    left_out = dict(made.left_out) | ({"its run cannot be read": unreadable} if unreadable else {})
    for why, count in left_out.items():
        print(f"left out: {plural(count, 'task')}: {why}", file=sys.stderr)
    if not made.rows:
        raise BadInput("no task has a right answer that a grader can read, so nothing was written")
    mask = known_and_set()
    write_file(to, "".join(mask.text(json.dumps(row)) + "\n" for row in made.rows))
    store.access_log.exported([row["run_id"] for row in made.rows], "judgements", local_caller("cli"))
    if given.as_json:
        print_json({"tasks": len(made.rows), "left_out": left_out, "file": str(to)})
    print_written([to])
    print(f"{plural(len(made.rows), 'task')}: conductor evaluate --suite {one_line(str(to))}", file=sys.stderr)
    return 0
