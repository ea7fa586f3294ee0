"""``rerun --only`` and ``--from``: a step asked afresh, several times or by several workers, and how far they agree."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor_core.analysis import documents
from conductor_core.cli import inputs
from conductor_core.cli.output import print_json
from conductor_core.cli.ready import ready
from conductor_core.cli.rerun_target import RerunTarget
from conductor_core.cli.text import one_line
from conductor_core.cli.wait_for_runs import all_ended
from conductor_core.cli.wiring import opened_engine
from conductor_core.engine.batch import BatchSpent
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.pools import images_given, pool_info, who_may_be_called
from conductor_core.engine.repeats import (
    Again,
    Repeats,
    RepeatsForecast,
    Tally,
    forecast_repeats,
    repeat_requests,
    tally,
    variants,
)
from conductor_core.engine.request import asks_conductor
from conductor_core.formats import seconds
from conductor_core.run.costs import cost_so_far
from conductor_core.run.request import Overrides, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings

if TYPE_CHECKING:
    from storage import Store


@dataclass(frozen=True)
class Many:
    """Runs that are ready to start."""

    source: RunTrace
    again: Again
    requests: tuple[RunRequest, ...]
    forecast: RepeatsForecast


def prepare(source: RunTrace, again: Again, by_hand: Overrides | None, settings: Settings, target: RerunTarget) -> Many:
    """Works out what is run, by which workers, and what that will take. ``source`` has the budgets of the runs.

    Raises: BadInput.
    """
    specs = pool_info(target.pool_of(source), settings, target.excluded).workers
    agents = [spec.name for spec in specs]
    images = images_given(source.conversation, {spec.name: spec for spec in specs}, every_step=source.give_question)
    for plan in variants(source, again, agents):
        what = f"run {source.run_id} cannot be run again: "
        inputs.valid_workflow(plan.workflow, agents, source.limits, what, images)
    needed = asks_conductor(source.root.workflow)
    asked = target.asked(source, settings, needed=needed)
    requests = repeat_requests(source, again, agents, door="cli", base=by_hand)
    forecast = forecast_repeats(source, again, specs, by_hand, target.info(settings) if needed else None)
    return Many(source, again, tuple(each.model_copy(update=asked) for each in requests), forecast)


def run(store: "Store", many: Many, settings: Settings, *, dry_run: bool, as_json: bool, quiet: bool) -> int:
    """Carries out all runs at once and prints their answers in groups.

    Returns 0 if a run answered, 1 if none did, 130 or 143 after a signal; what has ended by then is kept and counted.
    Raises: BadInput, StoreError.
    """
    if dry_run:
        if as_json:
            print_json(many.forecast.model_dump(mode="json"))
        else:
            print("\n".join(forecast_lines(many)))
        return 0
    called = {step.agent for each in many.forecast.each for step in each.will_run}
    cap = _cap(many, settings, called)
    for request in many.requests[:: many.again.times]:
        ready(request, settings, quiet=quiet, agents=called)
    if not quiet:
        print("\n".join(forecast_lines(many)), file=sys.stderr, flush=True)
    with opened_engine(store, settings) as host:
        for request in many.requests:
            host.start(request, cap)
        run_ids = [request.run_id for request in many.requests]
        traces, stopped_by = asyncio.run(all_ended(host, run_ids, "runs", quiet=quiet))
    found = tally(many.source, traces)
    if as_json:
        print_json(repeats_document(found, traces))
    else:
        print("\n".join(lines(found, many.source.task)))
    return stopped_by or (0 if any(each.answered for each in found.tallies) else 1)


def _cap(many: Many, settings: Settings, called: set[str]) -> CostCap | None:
    """Returns what all runs may spend together; None: there is no budget. Raises: BadInput if it cannot be kept."""
    limits = many.source.limits
    if limits.max_usd is None and limits.max_tokens is None:
        return None
    cap = CostCap(BatchSpent(), max_usd=limits.max_usd, max_tokens=limits.max_tokens, then="run the command again")
    pool = many.requests[0].pool
    specs = pool_info(settings.pool if pool is None else pool, settings).workers
    cap.check_workers(who_may_be_called(called, specs))
    return cap


def forecast_lines(many: Many) -> list[str]:
    """Says what all runs together will take, and of each worker's which steps run."""
    forecast, again = many.forecast, many.again
    said = []
    for each, agent in zip(forecast.each, again.agents or ("",), strict=True):
        run_ = ", ".join(str(step.index) for step in each.will_run) or "none"
        reused = ", ".join(str(step.index) for step in each.will_reuse) or "none"
        left = f", left out: {', '.join(map(str, each.will_skip))}" if each.will_skip else ""
        said.append(f"  {f'{one_line(agent, 40)}: ' if agent else ''}steps to run: {run_}, reused: {reused}{left}")
    runs = f"{forecast.runs} runs, {again.in_words}"
    return [*said, f"{runs}: about {forecast.estimated_tokens} tokens, {forecast.cost.in_line}"]


def lines(found: Repeats, task: str) -> Iterator[str]:
    """Says what each worker answered, in groups, how far that agrees, and what it took."""
    what = f"step {found.step} alone" if found.extent == "only" else f"from step {found.step} on"
    simulated = ", simulated workers" if found.simulated else ""
    yield f"{what}, {plural_runs(found)}{simulated}: {one_line(task)}"
    for each in found.tallies:
        yield from _tally_lines(each)
    yield "an interval is Wilson's at 95 %; `show RUN` opens a run, `compare RUN RUN` two"


def plural_runs(found: Repeats) -> str:
    return f"{sum(len(each.run_ids) for each in found.tallies)} runs"


def _tally_lines(found: Tally) -> Iterator[str]:
    answers = f"{found.answered} of {len(found.run_ids)} answered"
    agree = ""
    if found.groups:
        share = found.groups[0].share
        agree = f" · {share.share:.0%} agree by {found.compared_by} ({share.low:.0%} to {share.high:.0%})"
    took = "" if found.mean_ms is None else f" · {seconds(found.mean_ms)} on average"
    spent = f"{found.usage.total_tokens} tokens · {found.cost.in_line}{took}"
    yield f"{one_line(found.agent, 40)} · {answers}{agree} · {spent}"
    for group in found.groups:
        notes = ["as before"] if group.as_before else []
        notes += ["differs in wording"] if found.differs_in_wording(group) else []
        before = f"  ({', '.join(notes)})" if notes else ""
        yield f"  {len(group.run_ids):>3} ×  {one_line(group.conclusion, 100)}{before}"
        yield f"         run {', '.join(group.run_ids)}"
    alike: dict[tuple[str, str], list[str]] = {}
    for each in found.unanswered:
        alike.setdefault((each.status, each.error or ""), []).append(each.run_id)
    for (status, error), run_ids in alike.items():
        yield f"  {len(run_ids):>3} ×  no answer, {status}{f': {one_line(error, 300)}' if error else ''}"
        yield f"         run {', '.join(run_ids)}"


def repeats_document(found: Repeats, traces: list[RunTrace]) -> documents.Document:
    """Returns the groups with the runs that they come from."""
    batch = traces[0].batch
    agents = {run_id: each.agent for each in found.tallies for run_id in each.run_ids}
    runs = [
        {
            "run_id": trace.run_id,
            "status": trace.status,
            "agent": agents[trace.run_id],
            "seed": trace.overrides.seed_at((found.step,)),
            "answer": trace.answer,
            "usage": trace.usage.model_dump(mode="json"),
            **documents.cost_document(cost_so_far(trace)),
            "duration_ms": trace.duration_ms,
        }
        for trace in traces
    ]
    tallies = [each.model_dump(mode="json") | documents.cost_document(each.cost) for each in found.tallies]
    whole = found.model_dump(mode="json") | {"tallies": tallies}
    return whole | {"batch": None if batch is None else batch.id, "runs": runs}
