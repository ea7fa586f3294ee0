"""The options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from conductor_core.chat.messages import OnIncomplete
from conductor_core.cli.inputs import database_url, named
from conductor_core.engine.request import limits_from
from conductor_core.run.request import LEAST_PLANS, MOST_PLANS, MOST_TEMPERATURE, USUAL_TEMPERATURE
from conductor_core.run.values import Limits
from conductor_core.settings import Settings

Status = Literal[
    "queued", "running", "waiting", "planned", "completed", "refused", "filtered", "cut", "empty", "failed", "denied",
    "cancelled", "interrupted", "damaged", "too_new", "key_away",
    "erased",
]  # fmt: skip
"""What ``runs --status`` takes."""
Conductor = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=named,
        help="tiny (default), a name or FILE#NAME of a conductors file, a model folder, a GGUF file, a hub id, or "
        "URL#MODEL. CONDUCTOR_CONDUCTOR sets another default.",
    ),
]
Pool = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=named,
        help="rehearsal (default), paper, small, a pool file (TOML), or the name of one in pools/ of the data folder. "
        "CONDUCTOR_POOL sets another default.",
    ),
]
Db = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|URL",
        callback=database_url,
        help="Database: an SQLite file or its URL. Default: DATABASE_URL, else a file in your data folder.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout, everything else to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress on stderr.")]
Lora = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A LoRA adapter in GGUF form for --conductor FILE.gguf.")
]
Exclude = Annotated[list[str] | None, typer.Option(metavar="AGENT", help="A worker to leave out; may be repeated.")]
Seed = Annotated[
    int | None, typer.Option(min=-(2**63), max=2**63 - 1, help="Seed of simulated workers and of sampled decoding.")
]
MaxSteps = Annotated[int | None, typer.Option(min=1, max=32, help="Steps a workflow may have.")]
Plans = Annotated[
    int | None,
    typer.Option(
        "--n",
        min=LEAST_PLANS,
        max=MOST_PLANS,
        help="Write so many plans for TASK, with fresh seeds, and show them as a table.",
    ),
]
PlanTemperature = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=MOST_TEMPERATURE,
        help="What a Conductor without a temperature of its own writes with. Default: 0, or with --n "
        f"{USUAL_TEMPERATURE:g}.",
    ),
]
MaxTokens = Annotated[int | None, typer.Option(min=1, max=10**12, help="Token budget of the run.")]
MaxUsd = Annotated[float | None, typer.Option(min=0, max=1e9, help="Cost budget of the run in USD.")]
MaxSeconds = Annotated[float | None, typer.Option(min=0.001, max=1e9, help="Wall time budget of the run in seconds.")]
OnlyWhatAnswers = Annotated[
    bool, typer.Option("--only-what-answers", help="Check the workers first and leave out those that would not answer.")
]
MaxDepth = Annotated[int | None, typer.Option(min=0, max=8, help="Recursive rounds below the first.")]
Incomplete = Annotated[
    OnIncomplete | None,
    typer.Option(
        help="What happens to a step whose answer is refused, filtered, cut or empty. allow: later steps read what "
        "there is. stop: those steps are skipped. more_tokens: a cut answer is requested again with more tokens. "
        "fallback: the worker's fallback is asked. Default: the pool file's, else CONDUCTOR_ON_INCOMPLETE."
    ),
]
GiveQuestion = Annotated[
    bool | None,
    typer.Option(
        "--give-question/--no-give-question",
        help="Tell every step the task, even if its instruction lacks {question}. Default: the pool file's, else "
        "CONDUCTOR_GIVE_QUESTION.",
    ),
]
WorkflowFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Run this workflow instead of planning one.")]
Tasks = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.jsonl",
        help="Run each row {id, task, workflow?} of this file; --max-usd covers all rows together.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1, max=256, help="How many tasks of a file run at once. Default: 8, or with --resume as many as before."
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue the last batch of this file with the options it had. No finished step is paid again."
    ),
]
Gates = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GATE",
        help="Wait for an approval: plan (before any worker is called), steps (before every step), step:N, usd:X (if "
        "the highest possible cost exceeds X USD), provider:NAME (before anything goes there) or tools (before each "
        "call of a tool that has effects). May be repeated.",
    ),
]
Images = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="A PNG, JPEG, WebP or GIF image that comes with TASK. The steps that receive the task see it. May be "
        "repeated.",
    ),
]
Conversation = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help='The conversation before TASK: a JSON list of {"role": "user" or "assistant", "content": TEXT}. Without '
        "TASK, its last turn is the task.",
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="End with exit code 3 as soon as the run waits.")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, or its beginning.")]
Note = Annotated[str, typer.Option(metavar="TEXT", help="Why. Kept in the run's record.")]
OfStep = Annotated[str | None, typer.Option(metavar="N", help="Decide only about step N. Default: all that waits now.")]


def limits(base: Settings | Limits, **given: float | None) -> Limits:
    """Returns the budgets of ``base`` with those that were ``given`` in their place, by field name; None: not given."""
    start = limits_from(base) if isinstance(base, Settings) else base
    return Limits.model_validate(dict(start) | {name: value for name, value in given.items() if value is not None})
