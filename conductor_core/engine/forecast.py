"""Estimates what a plan will cost before anything of it has run."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from conductor_core.chat import Message, Usage, WorkerSpec, sum_of_costs
from conductor_core.engine.context import Answer, build
from conductor_core.engine.rerun import RerunPreview, StepForecast
from conductor_core.engine.step import cost_of
from conductor_core.message_parts import ImagePart
from conductor_core.token_estimates import estimate_input_tokens
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow

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
) -> RerunPreview:
    """Predicts the tokens and the cost of a new run of ``workflow``, in which every step runs. Calls nothing.

    What a step reads is exact but for the answers in it. Each answer counts as ``answer_tokens``, or as the most that
    its worker may write where that is less. An inner round of the Conductor counts as one answer, at an unknown cost.

    Args:
        workflow: valid for ``specs``.
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
    )


def _written(spec: WorkerSpec | None, answer_tokens: int) -> int:
    if spec is None:
        return answer_tokens
    limits = (spec.params.get(name) for name in ("max_tokens", "max_completion_tokens"))
    return min([answer_tokens, *(limit for limit in limits if isinstance(limit, int) and limit > 0)])
