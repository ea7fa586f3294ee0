"""A plan as it is exported: the workflow, all that decides what its steps are sent, and words of its pictures."""

import re
from dataclasses import dataclass

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label
from conductor_core.workflow.model import Workflow


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan with its pool.

    Attributes:
        workers: of the pool, in the order of the ordinals of ``model_id``.
        source: where it comes from, in words, for instance ``run 0f3a``.
        give_question: whether every step receives the task.
        has_images: whether images came with the task or with a turn before it.
        turns_before: the turns of the conversation before the task.
        imported: whether a file from elsewhere named the workers. A script of such a plan is refused.
        inner: the rounds that recursive steps opened, each with the path of its step; only pictures show them.
    """

    task: str
    workflow: Workflow
    workers: tuple[WorkerSpec, ...]
    source: str
    give_question: bool = False
    has_images: bool = False
    turns_before: tuple[Message, ...] = ()
    imported: bool = False
    inner: tuple[tuple[Path, Workflow], ...] = ()

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self.workers)

    @property
    def simulated(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self.workers if worker.simulated)

    @property
    def rounds(self) -> tuple[tuple[Path, Workflow], ...]:
        """The plan itself under ``()``, then the inner rounds."""
        return (((), self.workflow), *self.inner)


def plan_of(trace: RunTrace) -> Plan:
    """Returns the plan of a run, as it was last edited. Raises: BadInput if the run has none."""
    workflow = trace.root.workflow or trace.workflow
    if workflow is None or not workflow.steps:
        raise BadInput(f"run {trace.run_id} has no plan to export: its Conductor wrote none that can be used")
    conversation = trace.conversation
    return Plan(
        task=trace.task,
        workflow=workflow,
        workers=trace.pool.workers,
        source=source_of(trace),
        give_question=trace.give_question,
        has_images=any(not isinstance(turn.content, str) for turn in conversation),
        turns_before=trace.turns_before,
        imported=trace.imported is not None,
        inner=inner_plans(trace),
    )


def source_of(trace: RunTrace) -> str:
    """Says which run a plan is of, and which outputs a person gave there: nobody's plan says that by itself."""
    given = "".join(
        f", where a person {'wrote' if each.given.how == 'written' else 'pinned'} the output of step {each.step}"
        for each in trace.overrides.outputs
    )
    return f"run {trace.run_id}{given}"


def inner_plans(trace: RunTrace) -> tuple[tuple[Path, Workflow], ...]:
    """Returns the plans of the rounds that recursive steps opened, each with the path of its step."""
    return tuple((round_.path, round_.workflow) for round_ in trace.root.rounds() if round_.path and round_.workflow)


_NOT_SHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff]+"
)


def shortened(text: str, most: int) -> str:
    """Returns the text on one line of at most ``most`` characters, without characters that control or hide text."""
    line = " ".join(_NOT_SHOWN.sub(" ", text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def round_title(path: Path) -> str:
    return f"The plan that step {label(path)} asked for"
