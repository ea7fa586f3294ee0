"""Estimates what a plan will cost before it runs, and what a run's plan costs with other access lists.

The other lists are ``"all"`` in every step, and none. Tokens are estimated as in ``chat.usage``, prices are the pool's,
and a step without an answer counts as the average of those with one. Every output is taken to stay as long as it is
recorded.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from conductor_core.chat.messages import INCOMPLETE, ConductorInfo, Message, Usage, WorkerSpec, sum_of_costs
from conductor_core.chat.tools import NOT_SENT
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.engine.budgets import ASSUMED_OUTPUT_TOKENS, answer_limit, longest_answer, longest_question
from conductor_core.engine.prompts import Answer, Asked, StepInputs, build, digest_text, expand
from conductor_core.engine.request import EarlierAnswers, carried, origin, whole
from conductor_core.engine.step import cost_of
from conductor_core.run.costs import Cost, spent_on
from conductor_core.run.request import GivenOutput, Overrides
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import Path, label
from conductor_core.workflow.edits import Origins, compare, replace_step
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Frozen, Step, Workflow, readable

_TURN_TOKENS = 4  # as in ``estimate_input_tokens``


class StepForecast(Frozen):
    """What will happen to one step.

    Attributes:
        before: the step's index in the source's plan; None: the step is new.
        reason: a few words for people.
        reused_run_id, reused_path: where the reused answer came from. reused_imported: whether that run was imported.
        given: whether a person wrote or pinned its output; empty: nobody did.
        estimated_tokens, estimated_usd: of running it, from the source's figures; 0 if it is reused; USD None: unknown.
        at_most: whether those figures were only a bound, as in ``StepTrace``.
        effects: of a step that will run, the tools with effects that it called in the source, as ``files.write``.
    """

    index: int
    agent: str
    instruction: str
    before: int | None = None
    reason: str
    reused_run_id: str | None = None
    reused_path: Path | None = None
    reused_imported: bool = False
    given: Literal["", "written", "pinned"] = ""
    estimated_tokens: int = 0
    estimated_usd: float | None = 0.0
    at_most: bool = False
    effects: tuple[str, ...] = ()


class Rounds(Frozen):
    """The least and the most that recorded rounds spent; None: none is recorded.

    ``usd`` is None also if a price is unknown.
    """

    tokens: tuple[int, int] | None = None
    usd: tuple[float, float] | None = None


class RerunPreview(Frozen):
    """The steps that will run and those that are reused, each ascending, and the sums of those that will run.

    A step whose output a person gives counts as reused. ``will_skip``: the run ends before these, or without them.
    ``rounds_on_top``: how many steps that will run ask the Conductor, without a recorded round. These rounds are in no
    sum; ``rounds`` says what others spent. ``most_usd``: what a single call may cost at most, where prices are known.
    """

    will_run: tuple[StepForecast, ...]
    will_reuse: tuple[StepForecast, ...]
    will_skip: tuple[int, ...] = ()
    estimated_tokens: int
    estimated_usd: float | None
    rounds_on_top: int = 0
    rounds: Rounds = Rounds()
    most_usd: float = 0.0

    @property
    def effects_again(self) -> str:
        """Says which tools with effects steps that run again called in the source; empty: none."""
        said = [f"step {each.index} called {', '.join(each.effects)}" for each in self.will_run if each.effects]
        have = "has" if sum(len(each.effects) for each in self.will_run) == 1 else "have"
        return f"runs again: {'; '.join(said)}, which {have} effects: that may happen again" if said else ""

    @property
    def on_top(self) -> str:
        """Says that the rounds of steps that ask the Conductor come on top of the estimate; empty: there are none."""
        if not self.rounds_on_top:
            return ""
        what = "a round" if self.rounds_on_top == 1 else f"{self.rounds_on_top} rounds"
        what += f" of the Conductor {'comes' if self.rounds_on_top == 1 else 'come'} on top"
        if self.rounds.tokens is None:
            return f"{what}: none is recorded"
        least, most = self.rounds.tokens
        tokens = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        usd = ""
        if self.rounds.usd is not None:
            low, high = (str(Cost(each, each)) for each in self.rounds.usd)
            usd = f", {low}" if low == high else f", {low} to {high}"
        return f"{what}, by the recorded ones {tokens} tokens{usd} each"

    @property
    def cost(self) -> Cost:
        known = sum(step.estimated_usd or 0.0 for step in self.will_run)
        return Cost(self.estimated_usd, known, any(step.at_most for step in self.will_run))


def edit_step(
    workflow: Workflow,
    index: int,
    *,
    instruction: str | None = None,
    agent: str | None = None,
    access: AccessList | None = None,
) -> Workflow:
    """Returns ``workflow`` with the given parts of one step changed. Raises: IndexError."""
    workflow.require(index)
    given = {"instruction": instruction, "agent": agent, "access_list": access}
    changes = {name: value for name, value in given.items() if value is not None}
    return replace_step(workflow, index, workflow.steps[index].model_copy(update=changes))


def preview(
    source: RunTrace,
    workflow: Workflow,
    specs: Sequence[WorkerSpec],
    *,
    conductor: ConductorInfo | None = None,
    origins: Origins | None = None,
    overrides: Overrides | None = None,
) -> RerunPreview:
    """Predicts what ``rerun_of`` of the same arguments will do. Calls nothing.

    The forecast is exact for steps that read no step that will run. A step that reads one counts as *will run*. It is
    still reused if the new output is the same byte for byte; its reason says so.

    Args:
        workflow: valid for ``specs``, the workers that the re-run may call.
        conductor: the one that the re-run will use; by default the source's.
        origins: which step of the source's plan each step is, if known; by default steps are matched by content.
        overrides: of the steps of ``workflow``; by default those of ``source``.

    Raises: ValueError if ``origins`` does not fit.
    """
    conductor = conductor or source.conductor
    overrides = carried(source, workflow, origins) if overrides is None else overrides
    workers = {spec.name: spec for spec in specs}
    step_inputs = StepInputs(
        Asked.by(source), workers, conductor, source.limits, source.seed, source.seed, known=source.listings
    )
    looked_up = _LookedUp(source, workflow, origins, overrides)
    needed = overrides.needed(workflow)
    answers: dict[int, Answer] = {}
    will_run: list[StepForecast] = []
    will_reuse: list[StepForecast] = []
    for index, step in enumerate(workflow.steps):
        if index not in needed:
            continue
        if (given := overrides.output_at((index,))) is not None:
            digest, how = digest_text(given.text), given.given.how
            answers[index] = Answer.of((index,), step, source.task, given.text, digest, given=how)
            will_reuse.append(looked_up.give(index, given))
            continue
        rerun = [earlier for earlier in workflow.reads(index) if earlier not in answers]
        found = None
        if not rerun:
            step_input = step_inputs.of(workflow, index, answers, (), overrides)
            found = looked_up.recorded.find(step_input.identity, (index,))
        if found is None:
            will_run.append(_forecast(looked_up, index, looked_up.why_run(index, rerun), workers))
            continue
        digest = found.output_sha256 or ""
        answers[index] = Answer.of(
            (index,), step, source.task, found.output, digest, found.usage, reasoned=bool(found.reasoning)
        )
        will_reuse.append(looked_up.reuse(index, found))
    return RerunPreview(
        will_run=tuple(will_run),
        will_reuse=tuple(will_reuse),
        will_skip=tuple(index for index in range(len(workflow.steps)) if index not in needed),
        estimated_tokens=sum(forecast.estimated_tokens for forecast in will_run),
        estimated_usd=sum_of_costs(forecast.estimated_usd for forecast in will_run),
        rounds_on_top=sum(
            forecast.agent == CONDUCTOR_AGENT and looked_up.answered_before(forecast.index, CONDUCTOR_AGENT) is None
            for forecast in will_run
        ),
        rounds=recorded_rounds([source]),
        most_usd=max((_most_usd(looked_up, forecast.index, answers, workers) for forecast in will_run), default=0.0),
    )


def recorded_rounds(runs: Iterable[RunTrace]) -> Rounds:
    spent = [spent_on(run, step) for run in runs for step in run.walk() if step.round is not None and step.answered]
    if not spent:
        return Rounds()
    tokens = [each.usage.total_tokens for each in spent]
    usd = [each.cost_usd for each in spent if each.cost_usd is not None]
    return Rounds(tokens=(min(tokens), max(tokens)), usd=(min(usd), max(usd)) if len(usd) == len(spent) else None)


class _LookedUp:
    """An edited workflow and the run that it was made from: which step is which, what is recorded, and why."""

    def __init__(self, source: RunTrace, workflow: Workflow, origins: Origins | None, overrides: Overrides) -> None:
        self.source, self.workflow, self.overrides = source, workflow, overrides
        self.recorded = EarlierAnswers(source)
        self.changes = compare(source.root.workflow or Workflow(steps=()), workflow, origins)
        self._asked = {(step.agent, step.instruction) for step in source.walk() if step.answered}

    def before(self, index: int) -> StepTrace | None:
        place = self.changes.steps[index].before
        return None if place is None or place >= len(self.source.steps) else self.source.steps[place]

    def answered_before(self, index: int, agent: str) -> StepTrace | None:
        """Returns what step ``index`` was in the source, if ``agent`` answered it there."""
        then = self.before(index)
        return then if then is not None and then.answered and then.agent == agent else None

    def forecast(self, index: int, reason: str, **more: Any) -> StepForecast:
        step, before = self.workflow.steps[index], self.changes.steps[index].before
        told = {"index": index, "agent": step.agent, "instruction": step.instruction, "before": before}
        return StepForecast(**told, reason=reason, **more)

    def reuse(self, index: int, found: StepTrace) -> StepForecast:
        source = origin(self.source, found)
        return self.forecast(
            index,
            self._why_reuse(index, found),
            reused_run_id=source.run_id,
            reused_path=source.path,
            reused_imported=source.imported,
        )

    def give(self, index: int, output: GivenOutput) -> StepForecast:
        given, pinned = output.given, output.given.how == "pinned"
        return self.forecast(
            index,
            f"its output is {given.how} by {given.caller.in_words}",
            reused_run_id=given.source_run_id if pinned else None,
            reused_path=given.source_path if pinned else None,
            reused_imported=pinned and given.source_imported,
            given=given.how,
        )

    def read_more(self, index: int, finished: Sequence[StepTrace]) -> int:
        """Estimates how many tokens step ``index`` reads more than its source did; negative: fewer."""
        change = self.changes.steps[index]
        gained = sum(self._read(self.workflow.steps[each], self.before(each), finished) for each in change.gained)
        lost = [self.source.steps[each] for each in change.lost if each < len(self.source.steps)]
        return gained - sum(self._read(each, each, finished) for each in lost)

    def reads(self, index: int, finished: Sequence[StepTrace]) -> int:
        steps = self.workflow.steps
        told = Asked.by(self.source).tokens(steps[index].instruction) + _TURN_TOKENS
        return told + sum(self._read(steps[each], self.before(each), finished) for each in self.workflow.reads(index))

    def _read(self, step: Step | StepTrace, recorded: StepTrace | None, finished: Sequence[StepTrace]) -> int:
        """Estimates the tokens of two turns: what ``step`` was told, and its output or one of average length."""
        counted = [recorded] if recorded is not None and recorded.answered else finished
        # As others read them: without reasoning, and of the last call alone.
        output = sum(Answer.recorded(each, self.source.task).tokens for each in counted) // max(1, len(counted))
        return estimate_tokens(expand(step.instruction, self.source.task)) + output + 2 * _TURN_TOKENS

    def _given_otherwise(self, index: int) -> bool:
        given, before = self.overrides.output_at((index,)), self.before(index)
        return given is not None and (before is None or before.output != given.text)

    def _asked_afresh(self, index: int) -> bool:
        seed, before = self.overrides.seed_at((index,)), self.before(index)
        return seed is not None and (before is None or seed != self.source.overrides.seed_at(before.path))

    def _why_reuse(self, index: int, found: StepTrace) -> str:
        change = self.changes.steps[index]
        if change.before is None or found.path != (change.before,):
            return f"asks what step {label(found.path)} asked"
        if change.moved or change.before != index:
            return f"{'moved, else ' if change.moved else ''}unchanged, was step {change.before}"
        return "unchanged"

    def why_run(self, index: int, rerun: Sequence[int]) -> str:
        """Returns why step ``index`` runs. ``rerun``: the steps that it reads and that will run."""
        step, change = self.workflow.steps[index], self.changes.steps[index]
        own = "new step" if change.new else self.changes.in_words(index)
        if self._asked_afresh(index):
            own = f"{own}; asked afresh" if own else "asked afresh"
        if rerun:
            upstream = f"reads step {rerun[0]}, which runs"
            asked = (step.agent, step.instruction) in self._asked or step.agent == CONDUCTOR_AGENT
            if asked and not self._asked_afresh(index):
                upstream += " (if that comes out the same, this is reused)"
            return f"{own}; {upstream}" if own else upstream
        if own and (change.new or change.changed or self._asked_afresh(index)):
            return own
        recorded = self.before(index)
        if recorded is not None and not whole(recorded) and (recorded.answered or recorded.status in INCOMPLETE):
            ended: str = recorded.status
            if recorded.answered:
                ended = "cut off" if recorded.incomplete else "empty"
            return f"its answer was {ended} in run {self.source.run_id}, so it is asked again"
        if recorded is not None and recorded.given is not None:
            return "its output is no longer set by hand"
        if recorded is None or not recorded.answered:
            ended = "" if recorded is None else f": it ended {recorded.status} there"
            return f"has no answer in run {self.source.run_id}{ended}"
        if step.agent == CONDUCTOR_AGENT:
            return "the plan around it changed, which the Conductor sees"
        for earlier in self.workflow.reads(index):
            if self._given_otherwise(earlier):
                return f"reads step {earlier}, whose output a person gave"
        if any(self.changes.steps[earlier].changed for earlier in self.workflow.reads(index)):
            return "a step it reads changed"
        return "its agent's model or parameters changed"


def _most_usd(
    looked_up: _LookedUp, index: int, answers: Mapping[int, Answer], workers: Mapping[str, WorkerSpec]
) -> float:
    """Returns what the step's call may cost at most: no answer has more tokens than its worker may write."""
    workflow, task = looked_up.workflow, looked_up.source.task
    spec = workers.get(workflow.steps[index].agent)
    if spec is None or spec.price is None:
        return 0.0
    told = [
        *looked_up.source.conversation,
        Message(role="user", content=expand(workflow.steps[index].instruction, task)),
    ]
    read = 0
    for earlier in workflow.reads(index):
        step = workflow.steps[earlier]
        told.append(Message(role="user", content=expand(step.instruction, task)))
        if earlier in answers:
            told.append(Message(role="assistant", content=answers[earlier].turn))
        else:
            read += ASSUMED_OUTPUT_TOKENS if step.agent not in workers else longest_answer(workers[step.agent])
    return spec.price.cost_usd(Usage(input_tokens=longest_question(told) + read, output_tokens=longest_answer(spec)))


def _forecast(looked_up: _LookedUp, index: int, reason: str, workers: Mapping[str, WorkerSpec]) -> StepForecast:
    """Estimates from the source's step if the same agent answered it there, with what it reads more or less now.

    Else from what the step reads, and the average answer.
    """
    step, then = looked_up.workflow.steps[index], looked_up.before(index)
    finished = [each for each in looked_up.source.walk() if each.answered and each.round is None]
    if then is not None and then.answered and then.agent == step.agent:
        spent = spent_on(looked_up.source, then)
        usage, cost_usd, at_most = spent.usage, spent.cost_usd, spent.cost_at_most
        if step.agent != CONDUCTOR_AGENT:
            more = looked_up.read_more(index, finished)
            input_tokens = max(0, usage.input_tokens + more)
            if cost_usd is not None and (price := workers[step.agent].price) is not None:
                sign = 1 if more > 0 else -1
                cost_usd = max(0.0, cost_usd + sign * price.cost_usd(Usage(input_tokens=abs(more))))
            usage = usage.model_copy(update={"input_tokens": input_tokens})
    else:
        count = max(1, len(finished))
        mean = sum(each.usage.input_tokens for each in finished) // count or estimate_tokens(step.instruction)
        usage = Usage(
            input_tokens=mean if step.agent == CONDUCTOR_AGENT else looked_up.reads(index, finished),
            output_tokens=sum(each.usage.output_tokens for each in finished) // count,
            estimated=True,
        )
        cost_usd = None if step.agent == CONDUCTOR_AGENT else cost_of(workers[step.agent], usage)
        at_most = False
    effects = () if then is None else _effects(looked_up, index, then, workers.get(step.agent))
    return looked_up.forecast(
        index, reason, estimated_tokens=usage.total_tokens, estimated_usd=cost_usd, at_most=at_most, effects=effects
    )


def _effects(looked_up: _LookedUp, index: int, then: StepTrace, spec: WorkerSpec | None) -> tuple[str, ...]:
    """Returns the tools with effects that a step called, with its rounds, as far as ``spec`` may call them again.

    A step that goes on from its recorded turns calls none of them again.
    """
    given, before = looked_up.overrides, looked_up.source.overrides
    steps = [
        step
        for step in (then, *(() if then.round is None else then.round.walk()))
        if then.path != (index,) or len(given.turns_at(step.path)) < len(before.turns_at(step.path)) + len(step.turns)
    ]
    called = (
        f"{ran.server}.{ran.tool}"
        for step in steps
        for turn in step.turns
        for ran in turn.ran
        if ran.effects and ran.sent_at_utc is not None and ran.outcome not in NOT_SENT
    )
    return tuple(
        tool for tool in dict.fromkeys(called) if spec is None or {tool, tool.partition(".")[0]} & set(spec.tools)
    )


# What other access lists would cost.

Lists = Literal["planned", "all", "none"]


class Variant(Frozen):
    """The worker calls of a plan with some access lists.

    Attributes:
        usage: by estimate. cost_usd: None if the price of a call is unknown. known_usd: of the calls with a price.
    """

    lists: Lists
    usage: Usage
    cost_usd: float | None
    known_usd: float

    @property
    def cost(self) -> Cost:
        return Cost(self.cost_usd, self.known_usd)


class WhatIf(Frozen):
    """Attributes: assumed: paths of steps without an answer, which count with the average of the others."""

    planned: Variant
    everything: Variant
    nothing: Variant
    assumed: tuple[Path, ...] = ()

    @property
    def variants(self) -> tuple[Variant, ...]:
        return self.nothing, self.planned, self.everything


def what_if(trace: RunTrace) -> WhatIf | None:
    """Estimates the variants, in every round of the run. The calls of the Conductor are in none of them.

    Returns None if no step has an answer: then nothing says how long the outputs are.
    """
    steps, asked = list(trace.walk()), Asked.by(trace)
    answered = [step for step in steps if step.output_sha256 is not None]
    if not answered:
        return None
    specs = {spec.name: spec for spec in trace.pool.workers}
    shown = {step.path: estimate_tokens(Answer.recorded(step, trace.task).turn) for step in answered}
    paid = {
        step.path: step.answer_usage.output_tokens or estimate_tokens(step.output + step.reasoning)
        for step in answered
        if step.agent != CONDUCTOR_AGENT
    }
    mean_shown, mean_paid = (sum(each.values()) // max(1, len(each)) for each in (shown, paid))

    def variant(lists: Lists) -> Variant:
        usages: list[Usage] = []
        costs: list[float | None] = []
        for step in (each for each in steps if each.agent != CONDUCTOR_AGENT):
            listed: AccessList = step.access_list if lists == "planned" else "all" if lists == "all" else ()
            read = asked.tokens(step.instruction, answers=trace.gives_answer(step.path)) + _TURN_TOKENS
            for index in readable(listed, step.index):
                earlier = trace.step_at((*step.path[:-1], index))
                told = estimate_tokens(expand(earlier.instruction, trace.task))
                read += told + shown.get(earlier.path, mean_shown) + 2 * _TURN_TOKENS
            written = paid.get(step.path, mean_paid)
            usages.append(Usage(input_tokens=read, output_tokens=written, estimated=True))
            spec = specs.get(step.answered_by or step.agent)
            costs.append(None if spec is None else cost_of(spec, usages[-1]))
        return Variant(
            lists=lists,
            usage=sum(usages, Usage(estimated=True)),
            cost_usd=sum_of_costs(costs),
            known_usd=sum(cost or 0.0 for cost in costs),
        )

    return WhatIf(
        planned=variant("planned"),
        everything=variant("all"),
        nothing=variant("none"),
        assumed=tuple(step.path for step in steps if step.output_sha256 is None),
    )


# Before a run.

ANSWER_TOKENS = 400
"""The tokens of an answer where no earlier run says how long answers are."""
_LONGEST_ANSWER = 20_000


class EarlierRun(Protocol):
    """What the list of runs says of one."""

    @property
    def pool(self) -> str: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def steps_completed(self) -> int: ...


def usual_answer_tokens(pool: str, runs: Iterable[EarlierRun]) -> int:
    """Returns the mean tokens of an answer in those of ``runs`` that this pool answered; else ``ANSWER_TOKENS``."""
    known = [run for run in runs if run.pool == pool and run.steps_completed and run.usage.output_tokens]
    answers = sum(run.steps_completed for run in known)
    return max(1, sum(run.usage.output_tokens for run in known) // answers) if answers else ANSWER_TOKENS


def forecast(
    workflow: Workflow,
    specs: Sequence[WorkerSpec],
    asked: Asked,
    *,
    answer_tokens: int = ANSWER_TOKENS,
    rounds: Rounds = Rounds(),  # noqa: B008  frozen
) -> RerunPreview:
    """Predicts the tokens and the cost of a new run of ``workflow``, in which every step runs. Calls nothing.

    What a step reads is exact but for the answers in it. Each answer counts as ``answer_tokens``, or as the most that
    its worker may write where that is less. An inner round of the Conductor counts as one answer, at an unknown cost;
    it comes on top, as the preview says.

    Args:
        workflow: valid for ``specs``. rounds: what recorded rounds spent.
    """
    workers = {spec.name: spec for spec in specs}
    answers: dict[int, Answer] = {}
    steps: list[StepForecast] = []
    for index, step in enumerate(workflow.steps):
        context = build(asked, workflow, index, answers)
        spec = workers.get(step.agent)
        written = min(answer_tokens, (spec and answer_limit(spec)) or answer_tokens)
        usage = Usage(input_tokens=estimate_input_tokens(context.messages), output_tokens=written, estimated=True)
        standing_in = "x" * (4 * min(written, _LONGEST_ANSWER))
        answers[index] = Answer.of((index,), step, asked.task, standing_in, "", usage)
        steps.append(
            StepForecast(
                index=index,
                agent=step.agent,
                instruction=step.instruction,
                reason=f"about {usage.total_tokens:,} tokens",
                estimated_tokens=usage.total_tokens,
                estimated_usd=None if spec is None or step.agent == CONDUCTOR_AGENT else cost_of(spec, usage),
            )
        )
    return RerunPreview(
        will_run=tuple(steps),
        will_reuse=(),
        estimated_tokens=sum(step.estimated_tokens for step in steps),
        estimated_usd=sum_of_costs(step.estimated_usd for step in steps),
        rounds_on_top=sum(step.agent == CONDUCTOR_AGENT for step in steps),
        rounds=rounds,
    )
