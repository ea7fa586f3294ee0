"""The options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.cli.inputs import database_url, named
from conductor_core.endings import OnIncomplete
from conductor_core.engine.request import limits_from
from conductor_core.events import Limits
from conductor_core.settings import Settings


class Status(StrEnum):
    """What ``runs --status`` takes."""

    RUNNING = "running"
    PLANNED = "planned"
    COMPLETED = "completed"
    REFUSED = "refused"
    FILTERED = "filtered"
    CUT = "cut"
    EMPTY = "empty"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    DAMAGED = "damaged"
    TOO_NEW = "too_new"


Conductor = Annotated[
    str | None,
    typer.Option(
        "--conductor",
        metavar="NAME",
        callback=named,
        help="tiny (default), a name or FILE#NAME of a conductors file, a model folder, a hub id, or URL#MODEL; else "
        "CONDUCTOR_CONDUCTOR.",
    ),
]
Pool = Annotated[
    str | None,
    typer.Option(
        "--pool",
        metavar="NAME",
        callback=named,
        help="rehearsal (default), paper, a pool file (TOML), or the name of one in pools/ of the data folder; else "
        "CONDUCTOR_POOL.",
    ),
]
Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="FILE|URL",
        callback=database_url,
        help="Database: an SQLite file or its URL; else DATABASE_URL, else a file in your data folder.",
    ),
]
# The common options are common to all commands, so that a script can give the same ones to each.
UnusedConductor = Annotated[str | None, typer.Option("--conductor", hidden=True)]
UnusedPool = Annotated[str | None, typer.Option("--pool", hidden=True)]
UnusedDb = Annotated[str | None, typer.Option("--db", hidden=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout, all else to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress on stderr.")]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="AGENT", help="A worker to leave out; may be repeated.")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=-(2**63), max=2**63 - 1, help="Seed of simulated workers and of sampled decoding."),
]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", min=1, max=32, help="Steps a workflow may have.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, max=10**12, help="Token budget of the run.")]
MaxUsd = Annotated[float | None, typer.Option("--max-usd", min=0, max=1e9, help="Cost budget of the run in USD.")]
MaxSeconds = Annotated[
    float | None,
    typer.Option("--max-seconds", min=0.001, max=1e9, help="Wall time budget of the run."),
]
OnlyWhatAnswers = Annotated[
    bool, typer.Option("--only-what-answers", help="Leave out the workers that would not answer, found out before.")
]
MaxDepth = Annotated[
    int | None, typer.Option("--max-depth", min=0, max=8, help="Rounds below the first that a recursion may open.")
]
Incomplete = Annotated[
    OnIncomplete | None,
    typer.Option(
        "--on-incomplete",
        help="What happens to a step whose answer is refused, filtered, cut or empty: what there is goes on (allow) or "
        "not (stop); a cut one is asked for again with more tokens; its worker's fallback is asked. Else as the pool "
        "file or CONDUCTOR_ON_INCOMPLETE has it.",
    ),
]
GiveQuestion = Annotated[
    bool | None,
    typer.Option(
        "--give-question/--no-give-question",
        help="Tell every step the task, also one whose instruction does not say {question}. Else as the pool file or "
        "CONDUCTOR_GIVE_QUESTION has it.",
    ),
]
WorkflowFile = Annotated[
    Path | None, typer.Option("--workflow", metavar="FILE", help="Carry out this workflow instead of planning one.")
]
Tasks = Annotated[
    Path | None,
    typer.Option(
        "--tasks",
        metavar="FILE.jsonl",
        help="Run each row {id, task, workflow?} of this file; --max-usd covers all rows together.",
    ),
]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=256, help="Tasks of a file at once.")]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Go on with the last batch of this file, as it was begun; nothing finished is paid again."
    ),
]


def limits(
    base: Settings | Limits,
    *,
    max_steps: int | None,
    max_tokens: int | None = None,
    max_usd: float | None = None,
    max_seconds: float | None = None,
    max_depth: int | None = None,
) -> Limits:
    """The budgets of ``base`` with what was given in their place."""
    given = {
        "max_steps": max_steps,
        "max_tokens": max_tokens,
        "max_usd": max_usd,
        "max_seconds": max_seconds,
        "max_depth": max_depth,
    }
    start = limits_from(base) if isinstance(base, Settings) else base
    return start.model_copy(update={name: value for name, value in given.items() if value is not None})
