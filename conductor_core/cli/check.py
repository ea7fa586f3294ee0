"""``check``: what a workflow file means. It needs neither the store nor the engine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import fault_line
from conductor_core.cli.live import workflow_lines
from conductor_core.cli.output import access_words, one_line
from conductor_core.engine.pools import read_pool
from conductor_core.errors import BadInput
from conductor_core.formats import plural
from conductor_core.workflow.source import Parsed
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import Checked


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow file: JSON, or the three Python lists.")],
    given: Annotated[options.Options, "pool", "exclude", "max_steps", "max_depth", "as_json"] = options.NONE,
) -> int:
    excluded = set(given.exclude or ())
    read = read_pool(given.pool or given.settings.pool, given.settings)
    names = [spec.name for spec in read.workers]
    every_step = given.settings.give_question if read.give_question is None else read.give_question
    if unknown := excluded - set(names):
        raise BadInput(f"--exclude: the pool has no worker {', '.join(sorted(unknown))}; it has {', '.join(names)}")
    parsed = inputs.read_workflow(file)
    agents = [name for name in names if name not in excluded]
    checked = inputs.check(parsed, agents, given.limits(), give_question=every_step)
    given.print(lambda: documents.check_document(parsed, checked, agents), lambda: check_lines(parsed, checked))
    if not checked.faults:
        return 0
    print(f"error: {one_line(str(file))} has {plural(checked.fault_count, 'fault')} and cannot be run", file=sys.stderr)
    return 2


def check_lines(parsed: Parsed, checked: Checked) -> list[str]:
    """Returns what ``check`` prints on stdout: what the file says, how it was read, what is wrong."""
    steps = parsed.steps or ()
    if checked.workflow is not None:
        lines = [f"{len(steps)} steps · {topology(checked.workflow)}", *workflow_lines(checked.workflow)]
    else:
        lines = [
            f"  {index}  agent {one_line(str(step.agent), 40)}, access list {access_words(step.access_list)}: "
            f"{one_line(step.instruction or '')}"
            for index, step in enumerate(steps)
        ]
    lines += [f"repaired: {one_line(repair, 400)}" for repair in parsed.repairs]
    lines += [f"warning: {fault_line(warning)}" for warning in checked.warnings]
    return lines + [f"fault: {fault_line(fault)}" for fault in checked.faults]
