"""Estimates what a plan will cost before it runs, and what a run's plan costs with other access lists.

The other lists are ``"all"`` in every step, and none. Tokens are estimated as in ``chat.usage``, prices are the pool's,
and a step without an answer counts as the average of those with one. Every output is taken to stay as long as it is
recorded.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from conductor_core.chat.messages import ImagePart, Message, Usage, WorkerSpec, sum_of_costs
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.engine.prompts import Answer, build, expand, instruction_with_task
from conductor_core.engine.rerun import RerunPreview, Rounds, StepForecast
from conductor_core.engine.step import cost_of
from conductor_core.run.costs import Cost
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.run.values import Path
from conductor_core.workflow.model import CONDUCTOR_AGENT, Frozen, Workflow, gets_task, readable

Lists = Literal["planned", "all", "none"]
_TURN_TOKENS = 4  # as in ``estimate_input_tokens``


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
    estimates = _Estimates(trace)
    if not estimates.answered:
        return None
    return WhatIf(
        planned=estimates.variant("planned"),
        everything=estimates.variant("all"),
        nothing=estimates.variant("none"),
        assumed=estimates.assumed,
    )


class _Estimates:
    def __init__(self, trace: RunTrace) -> None:
        self._trace = trace
        self._specs = {spec.name: spec for spec in trace.pool.workers}
        steps = list(trace.walk())
        self.answered = [step for step in steps if step.output_sha256 is not None]
        self.assumed = tuple(step.path for step in steps if step.output_sha256 is None)
        self._shown = {step.path: self._turn_tokens(step) for step in self.answered}
        self._paid = {step.path: _output_tokens(step) for step in self.answered if step.agent != CONDUCTOR_AGENT}

    def variant(self, lists: Lists) -> Variant:
        usages: list[Usage] = []
        costs: list[float | None] = []
        for round_ in self._trace.root.rounds():
            for step in round_.steps:
                if step.agent == CONDUCTOR_AGENT:
                    continue
                paid = self._paid.get(step.path, _mean(list(self._paid.values())))
                usage = Usage(input_tokens=self._input(round_, step, lists), output_tokens=paid, estimated=True)
                spec = self._specs.get(step.answered_by or step.agent)
                usages.append(usage)
                costs.append(None if spec is None else cost_of(spec, usage))
        return Variant(
            lists=lists,
            usage=sum(usages, Usage(estimated=True)),
            cost_usd=sum_of_costs(costs),
            known_usd=sum(cost or 0.0 for cost in costs),
        )

    def _input(self, round_: RoundTrace, step: StepTrace, lists: Lists) -> int:
        trace, every = self._trace, self._trace.give_question
        text = instruction_with_task(step.instruction, trace.task, give_question=every)
        tokens = estimate_tokens(text) + _TURN_TOKENS
        if gets_task(step.instruction, give_question=every):
            tokens += estimate_input_tokens(trace.turns_before) + sum(image.tokens for image in trace.images)
        planned = readable(step.access_list, step.index)
        reads = planned if lists == "planned" else tuple(range(step.index)) if lists == "all" else ()
        for index in reads:
            earlier = round_.steps[index]
            shown = self._shown.get(earlier.path, _mean(list(self._shown.values())))
            tokens += estimate_tokens(expand(earlier.instruction, trace.task)) + shown + 2 * _TURN_TOKENS
        return tokens

    def _turn_tokens(self, step: StepTrace) -> int:
        round_ = self._trace.round_at(step.path[:-1])
        if round_.workflow is None:
            raise ValueError(f"a step without a plan: {step.path}")
        return estimate_tokens(Answer.recorded(step, round_.workflow.steps[step.index], self._trace.task).turn)


def _output_tokens(step: StepTrace) -> int:
    """Returns the tokens of one answer. The record of a step that was called again holds the sum of its calls."""
    if step.attempts or not step.usage.output_tokens:
        return estimate_tokens(step.output + step.reasoning)
    return step.usage.output_tokens


def _mean(counts: list[int]) -> int:
    return sum(counts) // len(counts) if counts else 0


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
    task: str,
    *,
    answer_tokens: int = ANSWER_TOKENS,
    give_question: bool = False,
    images: tuple[ImagePart, ...] = (),
    turns_before: tuple[Message, ...] = (),
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
        context = build(
            task, workflow, index, answers, (), give_question=give_question, images=images, turns_before=turns_before
        )
        spec = workers.get(step.agent)
        written = _written(spec, answer_tokens)
        usage = Usage(input_tokens=estimate_input_tokens(context.messages), output_tokens=written, estimated=True)
        standing_in = "x" * (4 * min(written, _LONGEST_ANSWER))
        answers[index] = Answer.of((index,), step, task, standing_in, "", usage)
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


def _written(spec: WorkerSpec | None, answer_tokens: int) -> int:
    if spec is None:
        return answer_tokens
    limits = (spec.params.get(name) for name in ("max_tokens", "max_completion_tokens"))
    return min([answer_tokens, *(limit for limit in limits if isinstance(limit, int) and limit > 0)])
