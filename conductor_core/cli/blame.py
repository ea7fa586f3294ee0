"""``blame``: which step, and which access granted or withheld, decided a run's answer."""

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_core.analysis.conclusion import concluded
from conductor_core.blame import report
from conductor_core.blame.experiments import (
    MOST_REPLAYS,
    PURPOSE,
    USUAL_REPLAYS,
    Effect,
    Experiments,
    Flips,
    Only,
    effects,
)
from conductor_core.blame.report import blame_document
from conductor_core.blame.runs import CONCURRENCY, SIMULATED_CONCURRENCY, Blame, CarryingOut, Verdicts, recorded
from conductor_core.cli import options
from conductor_core.cli.live import ready, until_stopped
from conductor_core.cli.output import one_line, print_not_on_record, table
from conductor_core.run.actor import local_caller

if TYPE_CHECKING:
    from storage import Store

_MOST_CHILDREN = 1_000_000
_SAID_EVERY_S = 5.0


def blame_command(
    run_id: options.RunId,
    n: Annotated[
        int, typer.Option(min=1, max=MOST_REPLAYS, help="Replays with each change, and as many without it.")
    ] = USUAL_REPLAYS,
    truth: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The right answer. Default: what the rehearsal world knows; else answers are compared with RUN_ID's.",
        ),
    ] = None,
    only: Annotated[Only | None, typer.Option(help="Only steps re-run, or only accesses cut and granted.")] = None,
    max_usd: Annotated[
        float | None,
        typer.Option(min=0, max=1e9, help="Cost budget in USD of all replays of RUN_ID, earlier ones too."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help=f"How many replays run at once. Default: {CONCURRENCY}, of simulated workers {SIMULATED_CONCURRENCY}.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it takes and what is known so far; run nothing.")
    ] = False,
    given: options.DbJsonQuiet = options.NONE,
) -> int:
    """Each step is re-run, each access cut or granted, and all below runs again, N times; everything else is reused.
    The same is replayed without the change. Replays are runs: `runs --replays` and History list them. Stopped, the same
    command goes on with what is left.
    """
    with given.store(read=dry_run, of_a_run=True) as store:
        source, _ = store.trace(store.resolve(run_id))
        experiments, verdicts = Experiments(source, only), Verdicts(source, truth)
        store.access_log.viewed([source.run_id], "blame", local_caller("cli"))
        print_not_on_record(store)
        if dry_run:
            _print(_blame(store, experiments, verdicts, n), None, given)
            return 0
        with store.carrying_out(f"{PURPOSE} {source.run_id}", f"the blame of run {source.run_id}"):
            blame = _blame(store, experiments, verdicts, n)
            given.say(*_head(blame))
            code, why = _carry_out(store, blame, given, max_usd, concurrency)
    _print(blame, why, given)
    return code


def _blame(store: "Store", experiments: Experiments, verdicts: Verdicts, count: int) -> Blame:
    children = store.runs(limit=_MOST_CHILDREN, parent=experiments.source.run_id)
    return Blame(experiments, verdicts, count, recorded(children, store.read))


def _carry_out(
    store: "Store", blame: Blame, given: options.Options, max_usd: float | None, concurrency: int | None
) -> tuple[int, str | None]:
    """Returns the exit code, and why not all replays were run."""
    if not blame.left:
        return 0, None
    first = blame.experiments.request(blame.left[0], door="cli")
    ready(first, given, agents={spec.name for spec in blame.experiments.agents_asked})
    said_s = time.monotonic()

    def notify(work: CarryingOut) -> None:
        nonlocal said_s
        now_s = time.monotonic()
        if now_s - said_s >= _SAID_EVERY_S or work.ended == work.total:
            said_s = now_s
            failed = f", {work.failed} failed" if work.failed else ""
            given.say(f"{work.ended} of {work.total} replays{failed}")

    with given.engine(store) as host:
        work = CarryingOut(blame, host, local_caller("cli"), max_usd=max_usd, concurrency=concurrency, notify=notify)
        stopped_by = asyncio.run(until_stopped(work))
    if stopped_by:
        return stopped_by, "Stopped; run the same command to continue."
    if blame.left:
        failed = f"{work.failed} replays failed" if work.failed else "not all replays were run"
        return 1, work.why_not_all or f"{failed}: the same command tries again."
    return 0, None


def _print(blame: Blame, why: str | None, given: options.Options) -> None:
    ranking = effects(blame.experiments, blame.answers(), blame.count)
    given.print(
        lambda: {**blame_document(blame, ranking), "stopped": why},
        lambda: [*_lines(blame, ranking), *([one_line(why, 1000)] if why else [])],
    )


def _head(blame: Blame) -> Iterator[str]:
    source = blame.experiments.source
    said = concluded(source)
    yield f"run {source.run_id} · {one_line(source.task)}"
    if said is not None:
        what = "answer" if said.headline else "text"
        yield f"{what}{' (simulated)' if source.simulated else ''}: {one_line(said.text)}"
    yield one_line(blame.verdicts.in_words, 400)
    yield f"{blame.count} replays of each: {report.estimate_words(blame.estimate)}"
    if blame.left and len(blame.left) < len(blame.replays):
        yield f"left: {report.estimate_words(blame.estimate_left)}"
    yield from report.notes(blame.experiments)


def _lines(blame: Blame, ranking: tuple[Effect, ...]) -> Iterator[str]:
    yield from _head(blame)
    plan = blame.experiments.plan
    if not any(effect.pairs for effect in ranking):
        yield "Nothing is measured yet."
        return
    yield from ("", report.why_first(ranking, plan), "")
    rows: list[tuple[str, ...]] = [("", "FINDING", "CHANGE", "FLIPS WITH", "WITHOUT", "EFFECT (95 %)")]
    rows += [_row(effect, report.change_words(effect.change, plan)) for effect in ranking]
    yield from table(rows)
    yield ""
    for effect in ranking:
        said = report.sentence(effect, plan, seeds_sent=blame.experiments.seeds_sent)
        yield f"{effect.rank}. {one_line(said, 400)} {report.finding_words(effect)}"


def _row(effect: Effect, change: str) -> tuple[str, ...]:
    sign, said = report.FINDINGS[effect.finding]
    if effect.with_it is None:
        return (str(effect.rank), f"{sign} {said}", one_line(change, 60), "-", "-", "-")
    interval = f"{report.signed(effect.effect)} ({report.signed(effect.low)} to {report.signed(effect.high)})"
    with_it, without = _counted(effect.with_it), _counted(effect.without)
    return (str(effect.rank), f"{sign} {said}", one_line(change, 60), with_it, without, interval)


def _counted(flips: Flips | None) -> str:
    return "-" if flips is None else f"{flips.flipped}/{flips.replays}"
