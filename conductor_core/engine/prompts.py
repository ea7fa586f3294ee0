"""What a step sees: messages built from its access list alone, and the identity that follows from them.

As in the paper (section 3), each accessed step stands as a past turn, its instruction as the user's and its output as
the assistant's, in the order of the workflow; the step's own instruction comes last. An empty output
is replaced by a note that says why it is empty. No other text reaches the worker: neither the outputs of steps outside
the list, nor reasoning, nor the partial text of a failed attempt, nor anything of another round.

``{question}`` in an instruction stands for the task, because a small Conductor cannot copy text. It is filled in once,
in instructions only: a ``{question}`` that the task or an output happens to contain stays as it is. A run may be set to
tell every step the task; then it stands before an instruction that does not say ``{question}``.

The images that come with the task, and the turns of the conversation before it, go to the steps that receive the task,
and to no other. Their bytes are loaded just before a worker gets them.

A step's identity is a digest of all that determines its answer. ``StepInputs`` gives messages, granted outputs and
identity, the same to running and to preview.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from conductor_core.chat.messages import (
    WHY_EMPTY,
    ConductorInfo,
    Ending,
    ImagePart,
    LoadedImage,
    Message,
    ParentPlan,
    Usage,
    WorkerSpec,
    content_of,
    conversation_of,
    identity_of,
    images_in,
)
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.conductors.roles import agents_by_ordinal
from conductor_core.engine.pools import images_given
from conductor_core.errors import BadInput, ContentMissing
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import Limits, Path, SharedOutput
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Step, Workflow, gets_task
from conductor_core.workflow.parser import to_lists
from conductor_core.workflow.validation import ImagesGiven

# Identity.


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def worker_identity(spec: WorkerSpec, messages: Sequence[Message], seed: int, own_seed: int | None = None) -> str:
    """Returns the identity of a step that a worker answers.

    It leaves out prices, time limits and keys, which do not change an answer. The seed counts for simulated workers
    only; a seed of the step's own (``own_seed``) for all workers: with another one, the answer is another one.
    """
    return _digest(
        {
            "agent": _agent(spec),
            "messages": _turns(messages),
            "seed": seed if spec.simulated else None,
        }
        | _own(own_seed)
    )


def recursion_identity(
    conductor: ConductorInfo,
    parent: ParentPlan,
    task: str,
    agents: Sequence[WorkerSpec],
    *,
    instruction: str,
    max_steps: int,
    depth_left: int,
    seed: int,
    images: Sequence[ImagePart] = (),
    turns_before: Sequence[Message] = (),
    own_seed: int | None = None,
) -> str:
    """Returns the identity of a step that the Conductor answers: all that its inner call is told.

    It leaves out device and dtype, which are unknown before the model is loaded.
    """
    fields = {"name", "kind", "model", "constrained"} | ({"prompt_sha256"} if conductor.prompt_sha256 else set())
    asked = conductor.model_dump(mode="json", include=fields)
    return _digest(
        {
            "conductor": asked,
            "parent": [parent.plan, parent.last_response],
            "task": task,
            "instruction": instruction,
            "agents": [[*_agent(spec), spec.description] for spec in agents],
            "bounds": [max_steps, depth_left, seed],
        }
        | _beside_task(images, turns_before)
        | _own(own_seed)
    )


def task_identity(task: str, images: Sequence[ImagePart] = (), turns_before: Sequence[Message] = ()) -> str:
    """Returns the digest of a task and all that comes with it; of a task alone, that of its text."""
    beside = _beside_task(images, turns_before)
    return _digest({"task": task} | beside) if beside else digest_text(task)


def _beside_task(images: Sequence[ImagePart], turns_before: Sequence[Message]) -> dict[str, object]:
    """Returns what comes with the task. Left out where nothing does, so that identities stay as they were."""
    found: dict[str, object] = {}
    if images:
        found["images"] = [image.sha256 for image in images]
    if turns_before:
        found["turns_before"] = _turns(turns_before)
    return found


def _own(seed: int | None) -> dict[str, object]:
    """Returns a step's own seed. Left out where there is none, so that identities stay as they were."""
    return {} if seed is None else {"own_seed": seed}


def _turns(messages: Sequence[Message]) -> list[list[object]]:
    return [[message.role, identity_of(message.content)] for message in messages]


def _agent(spec: WorkerSpec) -> list[Any]:
    asked = [spec.name, spec.provider, spec.model, spec.base_url, dict(spec.params)]
    return [*asked, "with reasoning"] if spec.pass_reasoning else asked


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    return digest_text(canonical)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a finished step passes on.

    Attributes:
        agent: who wrote it. It may be another worker than the step's own.
        instruction: with the task filled in.
        sha256: of ``output`` in UTF-8.
        tokens: the provider's count of the output's tokens, else our estimate.
        ending: how the answer ended.
        given: whether a person wrote or pinned it.
    """

    path: Path
    agent: str
    instruction: str
    output: str
    sha256: str
    tokens: int
    ending: Ending = "completed"
    given: Literal["", "written", "pinned"] = ""

    @classmethod
    def of(
        cls,
        path: Path,
        step: Step,
        task: str,
        output: str,
        sha256: str,
        usage: Usage,
        *,
        ending: Ending = "completed",
        by: str | None = None,
        reasoned: bool = False,
        given: Literal["", "written", "pinned"] = "",
    ) -> "Answer":
        """Returns the answer of ``step``. ``usage``: of its call; ``by``: another worker, which wrote it.

        ``reasoned``: the usage also counts reasoning, which is not passed on.
        """
        counted = usage.output_tokens and not usage.estimated and not reasoned
        return cls(
            path=path,
            agent=by or step.agent,
            instruction=expand(step.instruction, task),
            output=output,
            sha256=sha256,
            tokens=usage.output_tokens if counted else estimate_tokens(output),
            ending=ending,
            given=given,
        )

    @classmethod
    def recorded(cls, trace: StepTrace, step: Step, task: str) -> "Answer":
        # Of a step that was called again, the record has the sum of its calls alone.
        unknown = trace.round is not None or any(each.usage.total_tokens for each in trace.attempts)
        return cls.of(
            trace.path,
            step,
            task,
            trace.output,
            trace.output_sha256 or digest_text(trace.output),
            Usage() if unknown else trace.usage,
            ending=trace.ending,
            by=trace.answered_by,
            reasoned=bool(trace.reasoning),
            given="" if trace.given is None else trace.given.how,
        )

    @property
    def turn(self) -> str:
        """The text as a past turn. An empty answer becomes a note: some providers refuse an empty turn."""
        return self.output if self.output.strip() else f"[This step brought no output: {WHY_EMPTY[self.ending]}.]"

    def shared(self) -> SharedOutput:
        return SharedOutput(
            path=self.path,
            agent=self.agent,
            sha256=self.sha256,
            characters=len(self.output),
            tokens=self.tokens,
            given=self.given,
        )


@dataclass(frozen=True, slots=True)
class Context:
    """The messages of one step, and which earlier outputs of its round are in them (granted) or not (withheld)."""

    messages: tuple[Message, ...]
    granted: tuple[SharedOutput, ...]
    withheld: tuple[SharedOutput, ...]


def expand(instruction: str, task: str) -> str:
    """Returns ``instruction`` with the task in place of each ``{question}``."""
    return instruction.replace(QUESTION, task)


def instruction_with_task(instruction: str, task: str, *, give_question: bool) -> str:
    """Returns the instruction as it is sent: with the task in it or, if every step receives the task, before it."""
    if not give_question or QUESTION in instruction:
        return expand(instruction, task)
    return f"The task:\n{task}\n\nYour part:\n{instruction}"


def build(
    task: str,
    workflow: Workflow,
    index: int,
    answers: Mapping[int, Answer],
    round_path: Path = (),
    *,
    give_question: bool = False,
    images: Sequence[ImagePart] = (),
    turns_before: Sequence[Message] = (),
) -> Context:
    """Builds the context of step ``index``.

    Args:
        images, turns_before: what comes with the task, and the conversation before it.
        give_question: whether a step receives the task even if its instruction lacks ``{question}``. Past turns hold
            their instructions alone, so the task is told once.
        answers: the answers of the earlier steps of this round, by index, with all that the step reads.

    Raises: KeyError if a step that it reads has no answer yet.
    """
    reads = workflow.reads(index)
    instruction = workflow.steps[index].instruction
    with_task = gets_task(instruction, give_question=give_question)
    turns: list[Message] = list(turns_before) if with_task else []
    for earlier in reads:
        turns.append(Message(role="user", content=answers[earlier].instruction))
        turns.append(Message(role="assistant", content=answers[earlier].turn))
    text = instruction_with_task(instruction, task, give_question=give_question)
    turns.append(Message(role="user", content=content_of(text, images if with_task else ())))
    return Context(
        messages=tuple(turns),
        granted=tuple(answers[earlier].shared() for earlier in reads),
        withheld=withheld(workflow, index, frozenset(reads), answers, round_path),
    )


def withheld(
    workflow: Workflow, index: int, granted: frozenset[int], answers: Mapping[int, Answer], round_path: Path
) -> tuple[SharedOutput, ...]:
    """Returns every earlier step of the round that is not ``granted``. One without an output has no digest."""
    return tuple(
        answers[earlier].shared()
        if earlier in answers
        else SharedOutput(path=(*round_path, earlier), agent=step.agent, sha256="", characters=0, tokens=0)
        for earlier, step in enumerate(workflow.steps[:index])
        if earlier not in granted
    )


# Images.

ReadContent = Callable[[str], tuple[str, bytes]]
"""Returns the media type and bytes of a content by its digest. Blocks. Raises: ContentMissing, StoreError."""


async def loaded(messages: tuple[Message, ...], read: ReadContent | None) -> tuple[Message, ...]:
    """Returns ``messages`` with the bytes of their images. Raises: ContentMissing, StoreError."""
    if not any(images_in(message.content) for message in messages):
        return messages
    return await asyncio.to_thread(lambda: tuple(_loaded(message, read) for message in messages))


def require_contents(images: Iterable[ImagePart], read: ReadContent | None) -> None:
    """Raises: BadInput if the bytes of an image are not kept; StoreError."""
    for image in images:
        try:
            _load(image, read)
        except ContentMissing as error:
            raise BadInput(f"{image.described} cannot be used: {error}") from error


def _loaded(message: Message, read: ReadContent | None) -> Message:
    if isinstance(message.content, str):
        return message
    parts = (_load(part, read) if isinstance(part, ImagePart) else part for part in message.content)
    return message.model_copy(update={"content": tuple(parts)})


def _load(image: ImagePart, read: ReadContent | None) -> LoadedImage:
    if read is None:
        raise ContentMissing("nothing is kept here that it could be read from")
    return LoadedImage(**image.model_dump(), data=read(image.sha256)[1])


# All that a step is asked.


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
        give_question: whether every step receives the task.
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
        context = build(
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
            withheld=withheld(workflow, index, frozenset(last_read), answers, round_path),
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


def told_tokens(of: StepInputs | RunTrace, instruction: str) -> int:
    """Estimates the tokens of an instruction as it is sent, with all that comes with the task if it is told that."""
    tokens = estimate_tokens(instruction_with_task(instruction, of.task, give_question=of.give_question))
    if gets_task(instruction, give_question=of.give_question):
        tokens += estimate_input_tokens(of.turns_before) + sum(image.tokens for image in of.images)
    return tokens
