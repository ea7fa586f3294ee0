"""Builds what a step is asked: messages, granted outputs, identity. Running and preview use the same code."""

from collections.abc import Mapping
from dataclasses import dataclass

from conductor_core.chat import ConductorInfo, Message, ParentPlan, WorkerSpec, conversation_of
from conductor_core.conductors.seating import agents_by_ordinal
from conductor_core.engine import context as ctx
from conductor_core.engine.context import Answer, Context
from conductor_core.engine.identity import recursion_identity, task_identity, worker_identity
from conductor_core.engine.image_rules import images_given
from conductor_core.events import Limits, Path
from conductor_core.message_parts import ImagePart
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.printer import to_lists
from conductor_core.workflow.validation import ImagesGiven


@dataclass(frozen=True, slots=True)
class StepInput:
    """One step, ready to be called.

    Attributes:
        parent: what an inner Conductor call sees besides the task; None for a step that a worker answers.
        last: the answer that three empty lists return, if the step reads any.
    """

    context: Context
    identity: str
    parent: ParentPlan | None = None
    last: Answer | None = None


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What the steps of a run have in common.

    Attributes:
        workers: by name, in the order of the Conductor's ordinals, without those that the run excludes.
        seed: of the run. pool_seed: of the simulated workers.
        give_question: whether every step is told the task.
        images, turns_before: what comes with the task, and the turns of the conversation before it.
    """

    task: str
    workers: Mapping[str, WorkerSpec]
    conductor: ConductorInfo | None
    limits: Limits
    seed: int
    pool_seed: int
    give_question: bool = False
    images: tuple[ImagePart, ...] = ()
    turns_before: tuple[Message, ...] = ()

    @property
    def images_given(self) -> ImagesGiven | None:
        """Who can be given the images of the conversation; None: there are none."""
        conversation = conversation_of(self.task, self.images, self.turns_before)
        return images_given(conversation, self.workers, every_step=self.give_question)

    @property
    def task_identity(self) -> str:
        """The digest of the task and all that comes with it."""
        return task_identity(self.task, self.images, self.turns_before)

    def of(
        self,
        workflow: Workflow,
        index: int,
        answers: Mapping[int, Answer],
        round_path: Path = (),
        own_seed: int | None = None,
    ) -> StepInput:
        """Returns the input of step ``index``, once ``answers`` has all that it reads.

        Args:
            own_seed: the seed that this step, or the step around its round, is asked with in place of the run's.

        Raises: KeyError if the pool has no such agent or an answer is missing.
        """
        if workflow.steps[index].agent == CONDUCTOR_AGENT:
            return self._recursion(workflow, index, answers, round_path, own_seed)
        context = ctx.build(
            self.task,
            workflow,
            index,
            answers,
            round_path,
            give_question=self.give_question,
            images=self.images,
            turns_before=self.turns_before,
        )
        spec = self.workers[workflow.steps[index].agent]
        return StepInput(context, worker_identity(spec, context.messages, self.pool_seed, own_seed))

    def _recursion(
        self,
        workflow: Workflow,
        index: int,
        answers: Mapping[int, Answer],
        round_path: Path,
        own_seed: int | None,
    ) -> StepInput:
        """As in the paper the inner Conductor call sees the task, the parent's plan (with it this step's instruction)
        and the last response: the output of the latest step that this one reads, and no other output."""
        if self.conductor is None:
            raise KeyError(CONDUCTOR_AGENT)
        last_read = workflow.reads(index)[-1:]
        last = answers[last_read[0]] if last_read else None
        parent = ParentPlan(
            plan=to_lists(workflow, agents_by_ordinal(self.conductor, tuple(self.workers.values()))),
            last_response="" if last is None else last.turn,
        )
        context = Context(
            messages=(),
            granted=() if last is None else (last.shared(),),
            withheld=ctx.withheld(workflow, index, frozenset(last_read), answers, round_path),
        )
        identity = recursion_identity(
            self.conductor,
            parent,
            self.task,
            tuple(self.workers.values()),
            instruction=workflow.steps[index].instruction,
            max_steps=self.limits.max_steps,
            depth_left=self.limits.max_depth - len(round_path) - 1,
            seed=self.seed,
            images=self.images,
            turns_before=self.turns_before,
            own_seed=own_seed,
        )
        return StepInput(context, identity, parent, last)
