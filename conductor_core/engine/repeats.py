"""Several runs for one question: one step of a run many times, or several plans for one task to choose from.

Each of them is a run of its own, with a batch and a purpose in common. So it is opened, listed and compared as any
other, and any page finds the others from one of them. The seeds of a step are the same for each worker that takes one:
those are compared in pairs.
"""

import secrets
from collections.abc import Sequence
from typing import Literal

from conductor_core.analysis.conclusion import answer_key, asked, conclude
from conductor_core.analysis.intervals import wilson
from conductor_core.chat.messages import ConductorInfo, Usage, WorkerSpec, sum_of_costs
from conductor_core.engine.estimates import ANSWER_TOKENS, RerunPreview, edit_step, forecast, preview
from conductor_core.engine.prompts import Asked
from conductor_core.engine.request import carried, rerun_of
from conductor_core.errors import BadInput
from conductor_core.run.actor import Door
from conductor_core.run.costs import Cost, cost_so_far
from conductor_core.run.request import (
    LEAST_PLANS,
    MOST_PLANS,
    MOST_SEED,
    USUAL_TEMPERATURE,
    Overrides,
    RunRequest,
    brief,
    new_run_id,
)
from conductor_core.run.trace import RunStatus, RunTrace
from conductor_core.run.values import BatchRow, ConclusionKind
from conductor_core.workflow.model import Fault, Frozen, Workflow
from conductor_core.workflow.topology import descendants, layers

PURPOSE = "one step again"
MOST_TIMES = 100

Extent = Literal["only", "from"]
"""``only``: the run ends with the step's answer. ``from``: the step and all that its answer reaches run."""


class Again(Frozen):
    """What is asked afresh of a run.

    Attributes:
        times: how often each worker is asked.
        agents: the workers that take the step, one after the other; empty: its own.
        seed: of the first time; the others follow in steps of one. None: each is drawn afresh.
    """

    step: int
    extent: Extent = "only"
    times: int = 1
    agents: tuple[str, ...] = ()
    seed: int | None = None

    @property
    def runs(self) -> int:
        return self.times * max(1, len(self.agents))

    @property
    def in_words(self) -> str:
        """Words for people: ``step 2 alone, 5 times, by solver and checker``."""
        what = f"step {self.step} alone" if self.extent == "only" else f"from step {self.step} on"
        often = f", {self.times} times" if self.times > 1 else ""
        by = f", by {' and '.join(self.agents)}" if self.agents else ""
        return f"{what}{often}{by}"


def variants(source: RunTrace, again: Again, agents: Sequence[str]) -> tuple[Workflow, ...]:
    """Returns the plan with each worker that takes the step. ``agents``: those that the re-run may call.

    Raises: BadInput.
    """
    workflow = source.root.workflow
    if workflow is None:
        raise BadInput(f"run {source.run_id} has no workflow, so no step {again.step}")
    if not 0 <= again.step < len(workflow.steps):
        raise BadInput(
            f"unknown step {again.step}: the steps of run {source.run_id} are 0 to {len(workflow.steps) - 1}"
        )
    if not 1 <= again.times <= MOST_TIMES:
        raise BadInput(f"a step can be asked 1 to {MOST_TIMES} times, not {again.times}")
    if again.seed is not None and not 0 <= again.seed <= MOST_SEED - again.times + 1:
        raise BadInput(f"the seeds of single steps are 0 to {MOST_SEED}, so {again.seed} does not fit")
    own = workflow.steps[again.step].agent
    if len(set(again.agents)) < len(again.agents):
        raise BadInput("name each worker once")
    for agent in again.agents:
        if agent not in agents and agent != own:
            raise BadInput(f"the pool has no worker {agent}; it has {', '.join(agents)}")
    return tuple(
        workflow if agent == own else edit_step(workflow, again.step, agent=agent) for agent in again.agents or (own,)
    )


def overrides_of(source: RunTrace, again: Again, seed: int, base: Overrides | None = None) -> Overrides:
    """Returns the overrides of one run. ``base``: what holds besides; by default the source's.

    An output that a person gave to the step is dropped: its worker is to be asked.
    """
    workflow = source.root.workflow
    overrides = (carried(source) if base is None else base).without_output(again.step)
    fresh = {again.step}
    if again.extent == "from" and workflow is not None:
        fresh |= descendants(workflow, again.step)
    last = again.step if again.extent == "only" else None
    return overrides.with_seeds(dict.fromkeys(fresh, seed)).model_copy(update={"last_step": last, "again": again.step})


def repeat_requests(
    source: RunTrace, again: Again, agents: Sequence[str], *, door: Door, base: Overrides | None = None
) -> tuple[RunRequest, ...]:
    """Returns the requests, those of the first worker first. Raises: BadInput."""
    plans = variants(source, again, agents)
    seeds = _drawn(again.times) if again.seed is None else [again.seed + number for number in range(again.times)]
    mark, name = new_run_id(), f"{again.in_words}: {brief(source.task)}"
    pairs = [(plan, seed) for plan in plans for seed in seeds]
    alone = len(pairs) == 1
    return tuple(
        rerun_of(
            source,
            plan,
            door=door,
            origins=tuple(range(len(plan.steps))),
            overrides=overrides_of(source, again, seed, base),
        ).model_copy(
            update={
                "purpose": PURPOSE,
                "batch": None if alone else BatchRow(id=mark, row=str(number), name=name, size=len(pairs)),
            }
        )
        for number, (plan, seed) in enumerate(pairs)
    )


def _drawn(count: int) -> list[int]:
    """Returns different seeds, short enough to be read and typed."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[secrets.randbelow(MOST_SEED)] = None
    return list(found)


class RepeatsForecast(Frozen):
    """What all runs together will take, and what one of each worker will do."""

    runs: int
    each: tuple[RerunPreview, ...]
    estimated_tokens: int
    estimated_usd: float | None

    @property
    def cost(self) -> Cost:
        known = sum(preview.cost.known_usd for preview in self.each)
        at_most = any(preview.cost.at_most for preview in self.each)
        return Cost(self.estimated_usd, known * (self.runs // len(self.each)), at_most)


def forecast_repeats(
    source: RunTrace,
    again: Again,
    specs: Sequence[WorkerSpec],
    base: Overrides | None = None,
    conductor: ConductorInfo | None = None,
) -> RepeatsForecast:
    """Estimates the runs, by the code that carries them out. Calls nothing.

    Args:
        base: as in ``repeat_requests``. conductor: as in ``preview``.

    Raises: BadInput.
    """
    seed = 0 if again.seed is None else again.seed
    overrides = overrides_of(source, again, seed, base)
    each = tuple(
        preview(
            source,
            plan,
            specs,
            conductor=conductor,
            origins=tuple(range(len(plan.steps))),
            overrides=overrides,
        )
        for plan in variants(source, again, [spec.name for spec in specs])
    )
    return RepeatsForecast(
        runs=again.runs,
        each=each,
        estimated_tokens=again.times * sum(one.estimated_tokens for one in each),
        estimated_usd=sum_of_costs(one.estimated_usd and one.estimated_usd * again.times for one in each),
    )


class Share(Frozen):
    """A share of the answers with the ends of its 95 % interval (Wilson)."""

    share: float
    low: float
    high: float


class AnswerGroup(Frozen):
    """Answers with one conclusion.

    Attributes:
        conclusion: of the first of them, in a line.
        by: what they have in common: ``value``, ``code``, ``text``, or that all are ``declined`` or ``empty``.
        run_ids: of the runs that gave it, in order.
        as_before: whether the answer of the run that they were made from is one of them.
    """

    conclusion: str
    by: ConclusionKind
    run_ids: tuple[str, ...]
    as_before: bool
    share: Share


class NoAnswer(Frozen):
    """A run that ended without a whole answer."""

    run_id: str
    status: RunStatus
    error: str | None = None


class Tally(Frozen):
    """What one worker did, over its runs.

    Attributes:
        run_ids: of all of its runs, in order. unanswered: those that ended without a whole answer.
        running: how many have not ended.
        groups: the largest first. The share of the first is how far the answers agree.
        cost: what the runs spent together. mean_ms: of the runs that answered; None: none did.
    """

    agent: str
    run_ids: tuple[str, ...]
    running: int
    unanswered: tuple[NoAnswer, ...]
    groups: tuple[AnswerGroup, ...]
    usage: Usage
    cost_usd: float | None
    known_usd: float
    mean_ms: float | None

    @property
    def compared_by(self) -> str:
        """Says what the answers were compared by: ``value``, ``text``, or ``value, else text``."""
        texts = [group.by == "text" for group in self.groups]
        return "text" if texts and all(texts) else "value, else text" if any(texts) else "value"

    def differs_in_wording(self, group: AnswerGroup) -> bool:
        """Whether all that is known of a group, which marks no value, is that its words are not those of another."""
        others = [each.by for each in self.groups if each is not group]
        return group.by == "text" and not {"text", "value"}.isdisjoint(others)

    @property
    def answered(self) -> int:
        return sum(len(group.run_ids) for group in self.groups)

    @property
    def cost(self) -> Cost:
        return Cost(self.cost_usd, self.known_usd)


class Repeats(Frozen):
    """The runs of one batch, by worker. ``simulated``: whether a worker was."""

    step: int
    extent: Extent
    source_run_id: str
    simulated: bool
    tallies: tuple[Tally, ...]

    @property
    def running(self) -> int:
        return sum(tally.running for tally in self.tallies)


def tally(source: RunTrace, traces: Sequence[RunTrace]) -> Repeats:
    """Groups the answers of runs that ``repeat_requests`` asked for. Raises: ValueError if one is not such a run."""
    ordered = sorted(traces, key=_number)
    asked = again_of(ordered[0]) if ordered else None
    if asked is None:
        raise ValueError("these are not runs of one step")
    step, extent = asked
    by_agent: dict[str, list[RunTrace]] = {}
    for trace in ordered:
        by_agent.setdefault(_agent(trace, step), []).append(trace)
    before = _before(source, step, extent)
    return Repeats(
        step=step,
        extent=extent,
        source_run_id=source.run_id,
        simulated=any(trace.simulated for trace in ordered),
        tallies=tuple(_tally(agent, runs, before) for agent, runs in by_agent.items()),
    )


def again_of(trace: RunTrace) -> tuple[int, Extent] | None:
    """Returns which step a run was made to ask afresh, and how far; None: it is not such a run."""
    step = trace.overrides.again
    if step is None:
        return None
    return step, "only" if trace.overrides.last_step == step else "from"


def _number(trace: RunTrace) -> int:
    row = "" if trace.batch is None else trace.batch.row
    return int(row) if row.isdecimal() else 0


def _agent(trace: RunTrace, step: int) -> str:
    workflow = trace.root.workflow or trace.workflow
    return "" if workflow is None or step >= len(workflow.steps) else workflow.steps[step].agent


def _before(source: RunTrace, step: int, extent: Extent) -> tuple[ConclusionKind, str] | None:
    text = source.answer
    if extent == "only":
        text = source.steps[step].output if step < len(source.steps) and source.steps[step].answered else None
    return None if text is None else answer_key(text, asked(source))


def _share(count: int, of: int) -> Share:
    found = wilson(count, of)
    return Share(share=found.rate, low=found.low, high=found.high)


def _tally(agent: str, runs: Sequence[RunTrace], before: tuple[ConclusionKind, str] | None) -> Tally:
    found: dict[tuple[ConclusionKind, str], list[RunTrace]] = {}
    whole = [run for run in runs if run.status == "completed" and run.answer is not None]
    for run in whole:
        found.setdefault(answer_key(run.answer or "", asked(run)), []).append(run)
    costs = [cost_so_far(run) for run in runs]
    groups = [
        AnswerGroup(
            conclusion=conclude(same[0].answer or "", asked(same[0])).text or "an empty answer",
            by=key[0],
            run_ids=tuple(run.run_id for run in same),
            as_before=key == before,
            share=_share(len(same), len(whole)),
        )
        for key, same in sorted(found.items(), key=lambda item: -len(item[1]))
    ]
    took = [run.duration_ms for run in whole if run.duration_ms is not None]
    return Tally(
        agent=agent,
        run_ids=tuple(run.run_id for run in runs),
        running=sum(not run.ended for run in runs),
        unanswered=tuple(
            NoAnswer(run_id=run.run_id, status=run.status, error=run.error)
            for run in runs
            if run.ended and (run.status != "completed" or run.answer is None)
        ),
        groups=tuple(groups),
        usage=sum((run.usage for run in runs), Usage()),
        cost_usd=sum_of_costs(cost.usd for cost in costs),
        known_usd=sum(cost.known_usd for cost in costs),
        mean_ms=sum(took) / len(took) if took else None,
    )


# Plans to choose from.

PLANS_PURPOSE = "plans to choose from"


def plans_requested(
    each: RunRequest, count: int, seed: int | None = None, temperature: float | None = USUAL_TEMPERATURE
) -> tuple[RunRequest, ...]:
    """Returns the requests of ``count`` plans for the task of ``each``, with a mark in common.

    Args:
        seed: of the first plan; the others follow in steps of one, within 64 bits. None: each is drawn afresh.
        temperature: for a Conductor that has none of its own; None: as always.

    Raises: ValueError unless ``count`` is ``LEAST_PLANS`` to ``MOST_PLANS``.
    """
    if not LEAST_PLANS <= count <= MOST_PLANS:
        raise ValueError(f"{LEAST_PLANS} to {MOST_PLANS} plans can be asked for at once, not {count}")
    mark, name = new_run_id(), f"{_name(count)}{brief(each.task)}"
    seeds = _drawn(count) if seed is None else [(seed + number + 2**63) % 2**64 - 2**63 for number in range(count)]
    common = {"plan_only": True, "purpose": PLANS_PURPOSE, "plan_temperature": temperature}
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


def run_of(plan: RunTrace, *, door: Door, seed: int) -> RunRequest:
    """Returns a run of a plan. All plans are run with one ``seed``, so that only the plans differ."""
    return rerun_of(plan, door=door).model_copy(update={"seed": seed})


def batch_of_plans(trace: RunTrace) -> str | None:
    """Returns the batch of plans that ``trace`` is one of; None: it is none."""
    return trace.batch.id if trace.purpose == PLANS_PURPOSE and trace.batch is not None else None


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
    estimate = forecast(workflow, first.pool.workers, Asked.by(first), answer_tokens=answer_tokens)
    known = {"workflow": workflow, "topology": first.root.topology, "forecast": estimate}
    return choice.model_copy(update={**known, "critical_path": len(layers(workflow.all_reads))})


def all_equal(found: Sequence[PlanChoice]) -> bool:
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
