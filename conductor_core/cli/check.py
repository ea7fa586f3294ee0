"""``check``: what a workflow file means."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.cli import inputs, options, report
from conductor_core.cli.output import print_json
from conductor_core.cli.text import one_line
from conductor_core.engine.pools import read_pool
from conductor_core.errors import BadInput


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow file: JSON, or the three Python lists.")],
    pool: options.Pool = None,
    exclude: options.Exclude = None,
    max_steps: options.MaxSteps = None,
    max_depth: options.MaxDepth = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _db: options.UnusedDb = None,
) -> int:
    """Show what a workflow FILE means, and every fault and warning with its place."""
    settings = inputs.read_settings()
    excluded = set(exclude or ())
    read = read_pool(pool or settings.pool, settings)
    names = [spec.name for spec in read.workers]
    every_step = settings.give_question if read.give_question is None else read.give_question
    if unknown := excluded - set(names):
        raise BadInput(f"--exclude: the pool has no worker {', '.join(sorted(unknown))}; it has {', '.join(names)}")
    parsed = inputs.read_workflow(file)
    budget = options.limits(settings, max_steps=max_steps, max_depth=max_depth)
    agents = [name for name in names if name not in excluded]
    checked = inputs.check(parsed, agents, budget, give_question=every_step)
    if as_json:
        print_json(documents.check_document(parsed, checked, agents))
    else:
        print("\n".join(report.check_lines(parsed, checked)))
    if not checked.faults:
        return 0
    faults = f"{checked.fault_count:,} fault{'s' if checked.fault_count > 1 else ''}"
    print(f"error: {one_line(str(file))} has {faults} and cannot be run", file=sys.stderr)
    return 2
