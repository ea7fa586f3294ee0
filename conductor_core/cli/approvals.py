"""``waiting``, ``approve``, ``deny`` and ``cancel``: what a person decides about a run that goes on."""

import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.cli import inputs, live, options
from conductor_core.cli.live import ProgressView, exit_code, follow, print_outcome, summary, watch
from conductor_core.cli.output import one_line, print_json
from conductor_core.engine.approvals import cancel as cancel_run
from conductor_core.errors import BadInput, EventOutOfOrder, NotHeard, RunHasEnded
from conductor_core.formats import run_word
from conductor_core.run.actor import local_caller
from conductor_core.run.commands import Approve, Deny, Edit, note_for_record
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import label
from storage import Store


def waiting(given: options.DbJson = options.NONE) -> int:
    with given.reading() as store:
        found, for_tools = store.waiting(), store.waiting_for_tools()
    lines = [] if found or for_tools else ["no run waits for an approval or for its client's tools"]
    for trace in found:
        since = trace.waiting_since_utc or trace.asked_for[0].requested_at_utc
        others = "" if trace.status == "waiting" else " · other steps still run"
        head = f"{one_line(trace.run_id, 60)}  since {since:%Y-%m-%d %H:%M:%S} UTC{others}"
        lines += [f"{head}  {one_line(trace.task, 80)}"]
        lines += [f"  {live.asked(approval)} · gate {', '.join(approval.rules)}" for approval in trace.asked_for]
    for trace in for_tools:
        at = trace.waiting_since_utc
        head = one_line(trace.run_id, 60) + ("" if at is None else f"  since {at:%Y-%m-%d %H:%M:%S} UTC")
        lines.append(f"{head}  {one_line(trace.task, 80)}")
        names = ", ".join(dict.fromkeys(one_line(call.name, 40) for call in trace.open_calls))
        lines.append(f"  its client's tools: {names} · asked by {one_line(trace.caller.in_words, 80)}")
    given.print(lambda: {"waiting": [_document(trace) for trace in [*found, *for_tools]]}, lambda: lines)
    return 0


def approve(
    run_id: options.RunId,
    step: options.OfStep = None,
    rest: Annotated[
        bool, typer.Option("--all", help="Approve all that waits, and all that would wait from now on.")
    ] = False,
    workflow: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on with this workflow: no step that has begun may differ.")
    ] = None,
    note: options.Note = "",
    given: options.DbJsonQuiet = options.NONE,
) -> int:
    """Shows it until it ends or waits again. If no other process goes on with the run, this one does."""
    caller, note = local_caller("cli"), note_for_record(note)
    if step is not None and (rest or workflow is not None):
        raise BadInput("give --step, or --all or --workflow, not both")
    with given.store(of_a_run=True) as store:
        trace, sequence = _that_waits(store, run_id)
        by = {"run_id": trace.run_id, "actor": caller.actor, "door": caller.door}
        numbers: tuple[int, ...] | None = _numbers(trace, step)
        edit = None
        if workflow is not None:
            agents = [spec.name for spec in trace.pool.workers]
            what = f"workflow file {one_line(str(workflow))}: "
            edited = inputs.valid_workflow(inputs.read_workflow(workflow), agents, trace.limits, what)
            edit, numbers = store.send(Edit.model_validate(by | {"workflow": edited})), None
        said = {"numbers": numbers, "rest": rest, "note": note, "after_edit": edit}
        number = store.send(Approve.model_validate(by | said))
        view = ProgressView(quiet=given.quiet, answer=not given.as_json, trace=trace, db=given.db)
        trace = _go_on(store, given, trace.run_id, (edit, number), view, sequence)
    print_outcome(trace, view, as_json=given.as_json)
    return exit_code(trace)


def deny(
    run_id: options.RunId,
    step: options.OfStep = None,
    note: options.Note = "",
    given: options.DbJsonQuiet = options.NONE,
) -> int:
    caller, note = local_caller("cli"), note_for_record(note)
    with given.store(of_a_run=True) as store:
        trace, sequence = _that_waits(store, run_id)
        numbers = _numbers(trace, step)
        command = Deny(run_id=trace.run_id, numbers=numbers, note=note, actor=caller.actor, door=caller.door)
        view = ProgressView(quiet=given.quiet, answer=False, trace=trace, db=given.db)
        trace = _go_on(store, given, trace.run_id, (store.send(command),), view, sequence)
    if given.as_json:
        print_json(documents.run_document(trace))
    return 0 if trace.status == "denied" else 1


def _document(trace: RunTrace) -> documents.Document:
    named = {"run_id": trace.run_id, "task": trace.task, "status": trace.status}
    return named | documents.waiting_document(trace)


def _that_waits(store: Store, run_id: str) -> tuple[RunTrace, int]:
    """Returns the run, and the sequence of its last event.

    Raises: UnknownRun; RunHasEnded; BadInput if nothing of the run waits.
    """
    trace, sequence = store.trace(store.resolve(run_id))
    if trace.ended:
        raise RunHasEnded(f"run {trace.run_id} has already ended: {run_word(trace.status)}")
    if not trace.asked_for:
        tools = trace.status == "waiting"
        how = "it waits for its client's tools" if tools else run_word(trace.status)
        raise BadInput(f"run {trace.run_id} does not wait for an approval: {how}")
    return trace, sequence


def _numbers(trace: RunTrace, step: str | None) -> tuple[int, ...]:
    """Returns the requests that are decided: what is asked now, not what may be asked when the command is heard."""
    asked = [approval for approval in trace.asked_for if step is None or label(approval.path) == step.strip()]
    if not asked:
        waits = ", ".join(approval.what for approval in trace.asked_for)
        raise BadInput(f"--step {step}: that does not wait for an approval; {waits} of run {trace.run_id} does")
    return tuple(approval.number for approval in asked)


def _go_on(
    store: Store,
    given: options.Options,
    run_id: str,
    numbers: Collection[int | None],
    view: ProgressView,
    sequence: int,
) -> RunTrace:
    """Carries the run out here, or follows it in another process, until it has ended or waits again.

    Raises: BadInput if one of the commands ``numbers`` was refused.
    """
    with given.engine(store) as host:
        try:
            host.resume(run_id)
        except EventOutOfOrder:
            follow(store, run_id, view, sequence)
        else:
            watch(store, host, run_id, view, after=sequence, until_it_waits=True)
    trace = store.read(run_id)
    # Of an edit and its approval, the edit comes first and says why.
    refused = next((each for each in trace.refused if each.command in numbers), None)
    if refused is not None:
        raise BadInput(f"refused: {refused.reason}")
    return trace


_ANSWER_WITHIN_S = 10.0


def cancel(
    run_id: options.RunId,
    given: options.DbJson = options.NONE,
) -> int:
    with given.store(of_a_run=True) as store:
        run_id = store.resolve(run_id)
        cancel_run(store, store.log, run_id, local_caller("cli"))
        deadline_s = time.monotonic() + _ANSWER_WITHIN_S
        while not (trace := store.read(run_id)).ended:
            if time.monotonic() > deadline_s:
                raise NotHeard(f"the process that carries out run {run_id} has not answered for {_ANSWER_WITHIN_S:g} s")
            time.sleep(0.05)
    if given.as_json:
        print_json(documents.run_document(trace))
    else:
        print(summary(trace), file=sys.stderr)
    return 0
