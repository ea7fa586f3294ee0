"""The options of ``rerun`` about single steps: ask one afresh, give its output by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.cli import inputs
from conductor_core.cli.text import one_line
from conductor_core.engine.repeats import MOST_TIMES, Again
from conductor_core.engine.request import carried, pinned_if_recorded, pinned_output
from conductor_core.errors import BadInput
from conductor_core.run.actor import local_caller
from conductor_core.run.request import MOST_CHARACTERS, Overrides, written_by
from conductor_core.run.trace import RunTrace

Only = Annotated[
    int | None,
    typer.Option("--only", metavar="N", help="Ask step N afresh, and end with its answer. What it reads is reused."),
]
From = Annotated[
    int | None,
    typer.Option("--from", metavar="N", help="Ask step N and all that its answer reaches afresh; reuse the rest."),
]
Times = Annotated[
    int | None,
    typer.Option(
        "--times",
        min=1,
        max=MOST_TIMES,
        help="With --only or --from: make so many runs with fresh seeds, and say how far their answers agree. "
        "--max-usd and --max-tokens then cover all of them together.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="N=TEXT|@FILE",
        help="Write the output of step N by hand: its worker is not asked. The record says that a person wrote it. "
        "May be repeated.",
    ),
]
Pins = Annotated[
    list[int] | None,
    typer.Option(
        "--pin", metavar="N", help="Keep the recorded output of step N, whatever it would see. May be repeated."
    ),
]
Releases = Annotated[
    list[int] | None,
    typer.Option(
        "--release", metavar="N", help="Let the worker of step N answer again, whose output RUN_ID wrote or pinned."
    ),
]


def read(
    only: int | None, from_step: int | None, times: int | None, agents: Sequence[str] | None, seed: int | None
) -> Again | None:
    """Returns what is asked afresh; None: nothing. Raises: BadInput."""
    if only is not None and from_step is not None:
        raise BadInput("give --only or --from, not both")
    if only is not None:
        return Again(step=only, extent="only", times=times or 1, agents=tuple(agents or ()), seed=seed)
    if from_step is not None:
        return Again(step=from_step, extent="from", times=times or 1, agents=tuple(agents or ()), seed=seed)
    if times is not None:
        raise BadInput("--times what? Give --only N or --from N with it")
    return None


def by_hand(source: RunTrace, outputs: Sequence[str], pins: Sequence[int], releases: Sequence[int]) -> Overrides | None:
    """Returns the overrides of a re-run of ``source``'s plan; None: those that it has. Raises: BadInput."""
    if not outputs and not pins and not releases:
        return None
    overrides = carried(source)
    for step in releases:
        if overrides.output_at((step,)) is None:
            raise BadInput(f"--release {step}: no output was written or pinned there in run {source.run_id}")
        overrides = overrides.without_output(step)
    for each in outputs:
        step, text = _output(each)
        _require_step(source, step, "--output")
        caller = local_caller("cli")
        given = pinned_if_recorded(source, step, text, caller) or written_by(caller)
        overrides = overrides.with_output(step, text, given)
    for step in pins:
        _require_step(source, step, "--pin")
        overrides = overrides.with_output(step, *pinned_output(source, step, local_caller("cli")))
    if len({*pins, *(_output(each)[0] for each in outputs)}) < len(pins) + len(outputs):
        raise BadInput("give each step one output: with --output or with --pin, and once")
    return overrides


def _output(given: str) -> tuple[int, str]:
    """Reads ``N=TEXT`` or ``N=@FILE``. Raises: BadInput."""
    number, equals, text = given.partition("=")
    if not equals or not (number.isascii() and number.isdigit() and len(number) < 6):
        raise BadInput(f"--output {one_line(given, 60)!r}: write N=TEXT, or N=@FILE for the text of a file")
    if text.startswith("@"):
        text = inputs.read_file(Path(text[1:]), "output file")
    text = inputs.given_text(text, f"output of step {number}")
    if len(text) > MOST_CHARACTERS:
        raise BadInput(
            f"--output {number}: a written output has at most {MOST_CHARACTERS:,} characters, not {len(text):,}"
        )
    return int(number), text


def _require_step(source: RunTrace, step: int, option: str) -> None:
    """Raises: BadInput."""
    count = len(source.steps)
    if not count:
        raise BadInput(f"{option} {step}: run {source.run_id} has no plan, so no such step")
    if not 0 <= step < count:
        raise BadInput(f"{option} {step}: the steps of run {source.run_id} are 0 to {count - 1}")
