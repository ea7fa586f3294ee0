"""Before a re-run: which steps will run, which are reused, why, and what it will about cost."""

from conductor_core.chat import ConductorInfo, Usage
from conductor_core.engine.context import Answer
from conductor_core.engine.limits import estimate_tokens
from conductor_core.engine.pool import Pool
from conductor_core.engine.question import Asker
from conductor_core.engine.reuse import Source, origin
from conductor_core.engine.step import cost_of
from conductor_core.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.workflow.edit import replace_step
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Frozen, Workflow


class StepForecast(Frozen):
    """What will happen to one step.

    Attributes:
        reason: one sentence, for a person.
        estimated_tokens, estimated_usd: of running it, from the source's figures; 0 if it is reused; USD None: unknown.
    """

    index: int
    agent: str
    instruction: str
    reason: str
    estimated_tokens: int = 0
    estimated_usd: float | None = 0.0


class RerunPreview(Frozen):
    """Steps by what will happen to them, each ascending, and the sums of what will run."""

    will_run: tuple[StepForecast, ...]
    will_reuse: tuple[StepForecast, ...]
    estimated_tokens: int
    estimated_usd: float | None


def edit_step(
    workflow: Workflow,
    index: int,
    *,
    instruction: str | None = None,
    agent: str | None = None,
    access: AccessList | None = None,
) -> Workflow:
    """``workflow`` with the given parts of one step changed. Raises: IndexError."""
    if not 0 <= index < len(workflow.steps):
        raise IndexError(f"there is no step {index}: the workflow has {len(workflow.steps)}")
    given = {"instruction": instruction, "agent": agent, "access_list": access}
    changes = {name: value for name, value in given.items() if value is not None}
    return replace_step(workflow, index, workflow.steps[index].model_copy(update=changes))


def preview(
    source: RunTrace,
    workflow: Workflow,
    pool: Pool,
    *,
    conductor: ConductorInfo | None = None,
) -> RerunPreview:
    """What ``RunRequest.rerun(source, workflow)`` will do; nothing is called.

    Exact for all steps that read no step that will run. A step that reads one counts as *will run*, although it is
    reused all the same if the new output turns out byte for byte as before: its reason says so.

    Args:
        workflow: valid for ``pool``.
        conductor: the one that the re-run will use; by default the source's.
    """
    conductor = conductor or source.conductor
    asker = Asker(task=source.task, pool=pool, conductor=conductor, limits=source.limits, seed=source.seed)
    recorded = Source(source)
    answers: dict[int, Answer] = {}
    will_run: list[StepForecast] = []
    will_reuse: list[StepForecast] = []
    for index, step in enumerate(workflow.steps):
        changed = [earlier for earlier in workflow.reads(index) if earlier not in answers]
        found = None
        if changed:
            reason = f"reads step {changed[0]}, whose output will change (if it comes out the same, this is reused)"
        else:
            question = asker.question(workflow, index, answers)
            found = recorded.find(question.identity, (index,))
            reason = _why_run(source, workflow, index) if found is None else _why_reuse(source, found)
        if found is None:
            will_run.append(_forecast(source, workflow, index, reason, pool))
            continue
        digest = found.output_sha256 or ""
        answers[index] = Answer.of((index,), step, source.task, found.output, digest, found.usage)
        will_reuse.append(StepForecast(index=index, agent=step.agent, instruction=step.instruction, reason=reason))
    costs = [forecast.estimated_usd for forecast in will_run]
    return RerunPreview(
        will_run=tuple(will_run),
        will_reuse=tuple(will_reuse),
        estimated_tokens=sum(forecast.estimated_tokens for forecast in will_run),
        estimated_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def _why_reuse(source: RunTrace, found: StepTrace) -> str:
    run_id, path = origin(source.run_id, found)
    return f"unchanged: reuses the answer of step {'.'.join(map(str, path))} of run {run_id}"


def _why_run(source: RunTrace, workflow: Workflow, index: int) -> str:
    """Compares with the step at the same place; all that the step reads is reused."""
    before = source.root.workflow
    if before is None or index >= len(before.steps):
        return "new step"
    then, now = before.steps[index], workflow.steps[index]
    changes = [
        name
        for name, changed in (
            ("agent", then.agent != now.agent),
            ("instruction", then.instruction != now.instruction),
            ("access list", before.reads(index) != workflow.reads(index)),
        )
        if changed
    ]
    if changes:
        return f"{' and '.join(changes)} changed"
    recorded = source.steps[index]
    if not recorded.answered:
        return f"has no answer in run {source.run_id}: it ended {recorded.status} there"
    if now.agent == CONDUCTOR_AGENT:
        return "the plan around it changed, which the Conductor sees"
    if any(before.steps[earlier] != workflow.steps[earlier] for earlier in workflow.reads(index)):
        return "a step it reads changed"
    return "its agent's model or parameters changed"


def _forecast(source: RunTrace, workflow: Workflow, index: int, reason: str, pool: Pool) -> StepForecast:
    """Estimates from the same step of the source if the same agent answered it there, else from the average step."""
    step = workflow.steps[index]
    then = source.steps[index] if index < len(source.steps) else None
    if then is not None and then.answered and then.agent == step.agent:
        usage, cost_usd = _spent(then)
    else:
        finished = [each.usage for each in source.walk() if each.answered and each.round is None]
        count = max(1, len(finished))
        usage = Usage(
            input_tokens=sum(each.input_tokens for each in finished) // count or estimate_tokens(step.instruction),
            output_tokens=sum(each.output_tokens for each in finished) // count,
            estimated=True,
        )
        cost_usd = None if step.agent == CONDUCTOR_AGENT else cost_of(pool.workers[step.agent].spec, usage)
    return StepForecast(
        index=index,
        agent=step.agent,
        instruction=step.instruction,
        reason=reason,
        estimated_tokens=usage.total_tokens,
        estimated_usd=cost_usd,
    )


def _spent(step: StepTrace) -> tuple[Usage, float | None]:
    """What a step took, with all that its inner round took."""
    usage, cost_usd = step.usage, step.cost_usd

    def add(round_: RoundTrace) -> None:
        nonlocal usage, cost_usd
        usage += round_.usage
        for inner in round_.steps:
            usage += inner.usage
            cost_usd = None if cost_usd is None or inner.cost_usd is None else cost_usd + inner.cost_usd
            if inner.round is not None:
                add(inner.round)

    if step.round is not None:
        add(step.round)
    return usage, cost_usd
