"""``plan``: the Conductor writes a workflow, or several beside each other (``--n``), and nothing is carried out."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.cli import inputs, options
from conductor_core.cli.batch import read_tasks
from conductor_core.cli.live import ProgressView, all_ended, exit_code, ready, watch, workflow_lines
from conductor_core.cli.output import one_line, table
from conductor_core.cli.show import alternative_lines
from conductor_core.engine import repeats
from conductor_core.engine.estimates import usual_answer_tokens
from conductor_core.engine.repeats import PlanChoice, plans_requested
from conductor_core.errors import BadInput
from conductor_core.formats import run_word
from conductor_core.run.request import (
    LEAST_PLANS,
    MOST_PLANS,
    MOST_TEMPERATURE,
    USUAL_TEMPERATURE,
    RunRequest,
    new_run_id,
)
from conductor_core.run.trace import RunTrace

_RUNS_READ = 50


def _print_plans(requests: Sequence[RunRequest], given: options.Options) -> int:
    """Has the plans written at once and prints them as a table.

    Returns 0 if at least one can be run, 1 if none can, 130 or 143 after a signal. Raises: BadInput, StoreError.
    """
    with given.store() as store, given.engine(store) as host:
        for request in requests:
            host.start(request)
        run_ids = [request.run_id for request in requests]
        traces, stopped_by = asyncio.run(all_ended(host, run_ids, "plans", given))
        answer_tokens = usual_answer_tokens(traces[0].pool.name, store.runs(limit=_RUNS_READ))
    found = repeats.choices(traces, answer_tokens)
    given.print(lambda: _document(traces, found), lambda: _table(traces, found))
    return stopped_by or min(map(exit_code, traces))


def _document(traces: Sequence[RunTrace], found: Sequence[PlanChoice]) -> documents.Document:
    batch = traces[0].batch
    return {
        "plans": [documents.plan_document(trace) for trace in traces],
        "choices": [
            {
                "numbers": choice.numbers,
                "run_ids": choice.run_ids,
                "status": choice.status,
                "topology": choice.topology,
                "agents": choice.agents,
                "steps": 0 if choice.workflow is None else len(choice.workflow.steps),
                "critical_path_steps": choice.critical_path,
                "estimated_tokens": None if choice.forecast is None else choice.forecast.estimated_tokens,
                "estimated_usd": None if choice.forecast is None else choice.forecast.estimated_usd,
                "faults": [fault.model_dump(mode="json") for fault in choice.faults],
                "error": choice.error,
            }
            for choice in found
        ],
        "batch": None if batch is None else batch.id,
        "temperature": traces[0].plan_temperature,
        "all_equal": repeats.all_equal(found),
    }


def _table(traces: Sequence[RunTrace], found: Sequence[PlanChoice]) -> list[str]:
    rows: list[tuple[str, ...]] = [("PLAN", "TOPOLOGY", "STEPS", "CRITICAL PATH", "TOKENS", "COST", "RUN", "AGENTS")]
    rows += [_row(choice) for choice in found]
    lines = [one_line(traces[0].task), *table(rows)]
    for choice in found:
        faults = [fault.message for fault in choice.faults] or ([choice.error] if choice.error else [])
        lines += [f"fault of plan {_numbers(choice)}: {one_line(said, 400)}" for said in faults]
    if any(choice.forecast is not None for choice in found):
        lines.append("tokens and cost are estimates of what a run of the plan takes; `rerun RUN` runs it")
    if repeats.all_equal(found):
        lines.append(f"all {len(traces)} plans are equal. {repeats.how_to_vary(traces[0])} (--temperature)")
    return lines


def _row(choice: PlanChoice) -> tuple[str, ...]:
    if choice.workflow is None or choice.forecast is None:
        return (_numbers(choice), choice.status, "-", "-", "-", "-", choice.run_ids[0], "-")
    return (
        _numbers(choice),
        str(choice.topology),
        str(len(choice.workflow.steps)),
        f"{choice.critical_path} of {len(choice.workflow.steps)}",
        f"{choice.forecast.estimated_tokens:,}",
        str(choice.cost),
        choice.run_ids[0],
        ", ".join(one_line(agent, 40) for agent in choice.agents),
    )


def _numbers(choice: PlanChoice) -> str:
    """Returns ``0``, or ``0, 2 (2 times)`` for equal plans."""
    numbers = ", ".join(map(str, choice.numbers))
    return numbers if len(choice.numbers) == 1 else f"{numbers} ({len(choice.numbers)} times)"


@dataclass(frozen=True)
class PlanOptions(options.Options):
    count: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=LEAST_PLANS,
            max=MOST_PLANS,
            help="Write so many plans for TASK, with fresh seeds, and show them as a table.",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=MOST_TEMPERATURE,
            help="What a Conductor without a temperature of its own writes with. Default: 0, or with --n "
            f"{USUAL_TEMPERATURE:g}.",
        ),
    ] = None


def plan(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", show_default=False)] = None,
    tasks: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="Plan the task of each line instead.")
    ] = None,
    given: Annotated[PlanOptions, *options.OF_A_PLAN, "count", "temperature", "as_json", "quiet"] = PlanOptions(),
) -> int:
    if (task is None) == (tasks is None):
        raise BadInput("give a TASK, or --tasks FILE.jsonl" if task is None else "give a TASK or --tasks, not both")
    if given.count is not None and task is None:
        raise BadInput("--n is for one TASK: leave --n or --tasks out")
    texts = [inputs.task_text(task)] if task is not None else read_tasks(tasks or Path())
    longest = given.request(task=max(texts, key=len), plan_only=True, plan_temperature=given.temperature)
    ready(longest, given)
    if given.count is not None:
        warm = USUAL_TEMPERATURE if given.temperature is None else given.temperature
        return _print_plans(plans_requested(longest, given.count, given.seed, warm), given)
    traces: list[RunTrace] = []
    code = 0
    with given.store() as store, given.engine(store) as host:
        for number, text in enumerate(texts, start=1):
            run_id = host.start(longest.model_copy(update={"task": text, "run_id": new_run_id()}))
            view = ProgressView(quiet=given.quiet or len(texts) > 1, answer=False, db=given.db)
            trace, this_code = watch(store, host, run_id, view)
            traces.append(trace)
            code = max(code, this_code)
            if len(texts) > 1:
                shown = trace.root.topology or f"{run_word(trace.status)}: {one_line(trace.error or '')}"
                given.say(f"{number} of {len(texts)} · {len(trace.steps)} steps · {shown}")
            if this_code > 1:
                break
    given.print(
        lambda: {"plans": [documents.plan_document(trace) for trace in traces]},
        lambda: [line for trace in traces for line in plan_lines(trace)],
    )
    return code


def plan_lines(trace: RunTrace) -> list[str]:
    root = trace.root
    head = one_line(trace.task)
    if root.workflow is None:
        return [head, f"  no plan: {one_line(trace.error or trace.status, 1000)}"]
    warnings = [f"  warning: {one_line(warning.message, 400)}" for warning in root.warnings]
    alternatives = [f"  {line}" for line in alternative_lines(root)]
    return [f"{head} · {root.topology}", *workflow_lines(root.workflow), *alternatives, *warnings]
