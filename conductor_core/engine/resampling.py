"""Several plans for one task to choose from: how they are asked for, and what they are beside each other.

Each plan is a run of its own that only plans. A common batch and a purpose mark the runs as belonging together, so that
any page finds the others from one of them.
"""

import secrets
from collections.abc import Sequence

from conductor_core.engine.estimates import ANSWER_TOKENS, forecast
from conductor_core.engine.request import rerun_of
from conductor_core.engine.rerun import RerunPreview
from conductor_core.run.actor import Door
from conductor_core.run.costs import Cost
from conductor_core.run.request import LEAST_PLANS, MOST_PLANS, USUAL_TEMPERATURE, RunRequest, new_run_id
from conductor_core.run.trace import RunStatus, RunTrace
from conductor_core.run.values import BatchRow
from conductor_core.workflow.model import Fault, Frozen, Workflow
from conductor_core.workflow.topology import layers

PURPOSE = "plans to choose from"
_MOST_SEED = 2**63 - 1
_LONGEST_NAME = 80


def plans_requested(
    each: RunRequest, count: int, seed: int | None = None, temperature: float | None = USUAL_TEMPERATURE
) -> tuple[RunRequest, ...]:
    """Returns the requests of ``count`` plans for the task of ``each``, with a mark in common.

    Args:
        seed: of the first plan; the others follow in steps of one. None: each seed is drawn afresh.
        temperature: for a Conductor that has none of its own; None: as always.

    Raises: ValueError unless ``count`` is ``LEAST_PLANS`` to ``MOST_PLANS``.
    """
    if not LEAST_PLANS <= count <= MOST_PLANS:
        raise ValueError(f"{LEAST_PLANS} to {MOST_PLANS} plans can be asked for at once, not {count}")
    mark, task_text = new_run_id(), " ".join(each.task.split())
    name = f"{_name(count)}{task_text[:_LONGEST_NAME]}{'…' if len(task_text) > _LONGEST_NAME else ''}"
    seeds = _drawn(count) if seed is None else [_within(seed + number) for number in range(count)]
    common = {"plan_only": True, "purpose": PURPOSE, "plan_temperature": temperature}
    return tuple(
        each.model_copy(
            update={
                **common,
                "run_id": new_run_id(),
                "seed": own,
                "batch": BatchRow(id=mark, row=str(number), name=name, size=count),
            }
        )
        for number, own in enumerate(seeds)
    )


def _name(count: int) -> str:
    return f"{count} plans: "


def names_plans(batch_name: str, size: int) -> bool:
    """Tells whether a batch of that name is one of plans to choose from. A file of tasks has a file's name."""
    return batch_name.startswith(_name(size))


def _drawn(count: int) -> list[int]:
    """Returns different seeds, short enough to be read and typed."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[secrets.randbelow(2**31)] = None
    return list(found)


def _within(seed: int) -> int:
    return seed if seed <= _MOST_SEED else seed - 2**64


def run_of(plan: RunTrace, *, door: Door, seed: int) -> RunRequest:
    """Returns a run of a plan. All plans are run with one ``seed``, so that only the plans differ."""
    return rerun_of(plan, door=door).model_copy(update={"seed": seed})


def batch_of_plans(trace: RunTrace) -> str | None:
    """Returns the batch of plans that ``trace`` is one of; None: it is none."""
    return trace.batch.id if trace.purpose == PURPOSE and trace.batch is not None else None


class PlanChoice(Frozen):
    """One plan, or several equal ones.

    Attributes:
        numbers, run_ids: of the runs that wrote it, in order; numbers count from 0.
        status: of the first of them. A plan that is still being written is alone.
        workflow: None without a usable plan. Then ``faults`` are those of its last attempt, and ``error`` says why.
        critical_path: the number of steps on the longest way through the plan.
        forecast: what a run of it would take; None without a plan.
    """

    numbers: tuple[int, ...]
    run_ids: tuple[str, ...]
    status: RunStatus
    workflow: Workflow | None = None
    topology: str | None = None
    critical_path: int = 0
    forecast: RerunPreview | None = None
    faults: tuple[Fault, ...] = ()
    error: str | None = None

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents, each once, in the order of their first steps."""
        return () if self.workflow is None else tuple(dict.fromkeys(step.agent for step in self.workflow.steps))

    @property
    def cost(self) -> Cost | None:
        return None if self.forecast is None else self.forecast.cost


def choices(traces: Sequence[RunTrace], answer_tokens: int = ANSWER_TOKENS) -> list[PlanChoice]:
    """Returns the plans beside each other, in the order of their rows. Equal ones are one.

    Args:
        traces: runs of one batch of plans.
        answer_tokens: what an answer takes, see ``estimates``.
    """
    ordered = sorted(traces, key=_number)
    equal: dict[object, list[RunTrace]] = {}
    for trace in ordered:
        equal.setdefault(trace.root.workflow or trace.run_id, []).append(trace)
    return [_choice(same, answer_tokens) for same in equal.values()]


def _number(trace: RunTrace) -> int:
    row = "" if trace.batch is None else trace.batch.row
    return int(row) if row.isdecimal() else 0


def _choice(same: Sequence[RunTrace], answer_tokens: int) -> PlanChoice:
    first = same[0]
    workflow, rejected = first.root.workflow, first.root.rejected
    choice = PlanChoice(
        numbers=tuple(map(_number, same)),
        run_ids=tuple(trace.run_id for trace in same),
        status=first.status,
        error=first.error,
    )
    if workflow is None:
        return choice.model_copy(update={"faults": rejected[-1].faults if rejected else ()})
    estimate = forecast(
        workflow,
        first.pool.workers,
        first.task,
        answer_tokens=answer_tokens,
        give_question=first.give_question,
        images=first.images,
        turns_before=first.turns_before,
    )
    known = {"workflow": workflow, "topology": first.root.topology, "forecast": estimate}
    return choice.model_copy(update={**known, "critical_path": len(layers(workflow.all_reads))})


def all_equal(found: Sequence[PlanChoice]) -> bool:
    """Tells whether several plans were written and all are equal."""
    return len(found) == 1 and found[0].workflow is not None and len(found[0].run_ids) > 1


def how_to_vary(trace: RunTrace) -> str:
    """Says why equal plans may have come out and what to do, in a sentence. ``trace``: one of their runs."""
    if trace.plan_temperature:
        return (
            f"This Conductor writes the same plan also at temperature {trace.plan_temperature:g}: it is sure of it, or "
            "its file sets a temperature of its own. Try a higher temperature, or another Conductor."
        )
    return (
        "A Conductor without a temperature always takes the likeliest word, whatever the seed. Give a temperature, for "
        f"instance {USUAL_TEMPERATURE:g}."
    )
