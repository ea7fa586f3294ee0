"""Fills in what the arguments of ``run --tasks --resume`` leave out: as the batch had it."""

from pathlib import Path

from conductor_core.cli.wiring import opened_store
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.settings import Settings


def last_run_of_batch(tasks: Path | None, db: str | None, settings: Settings) -> RunTrace | None:
    """Returns the newest run of the file's last batch that asked a Conductor, else the newest; None: there is none.

    Raises: StoreError.
    """
    if tasks is None:
        return None
    with opened_store(db, settings) as store:
        last = next(iter(store.batches(limit=1, name=tasks.name)), None)
        runs = [] if last is None else store.runs(limit=max(1, last.runs), batch=last.batch_id)
        if not runs:
            return None
        chosen = next((run for run in runs if run.conductor is not None), runs[0])
        return store.trace(chosen.run_id)[0]


def limits_of_batch(before: RunTrace, settings: Settings) -> Limits:
    """Returns the budgets with which the batch of ``before`` began. The one in USD is for all its runs together."""
    kept = None if before.batch is None else before.batch.max_usd
    return before.limits.model_copy(update={"max_usd": settings.max_usd if kept is None else kept})


def as_before(
    before: RunTrace,
    request: RunRequest,
    settings: Settings,
    *,
    conductor: str | None,
    pool: str | None,
    seed: int | None,
) -> RunRequest:
    """Returns ``request``. What ``before`` had fills in all that was not given (None)."""
    name = settings.conductor if before.conductor is None else before.conductor.name
    kept = {
        "conductor": conductor or name,
        "pool": pool or before.pool,
        "seed": before.seed if seed is None else seed,
        "on_incomplete": request.on_incomplete or before.on_incomplete,
        "give_question": before.give_question if request.give_question is None else request.give_question,
    }
    return request.model_copy(update=kept)
