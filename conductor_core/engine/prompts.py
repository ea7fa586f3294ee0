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
from dataclasses import dataclass, field
from typing import Any, Literal

from conductor_core.chat.messages import (
    INCOMPLETE,
    NO_TERMS,
    WHY_EMPTY,
    AnswerRules,
    CallTerms,
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
from conductor_core.chat.tools import allowed
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.engine.pools import images_given
from conductor_core.errors import BadInput, ContentMissing
from conductor_core.run.events import ToolsListed
from conductor_core.run.request import Overrides
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.run.values import Limits, Path, SharedOutput, ToolTurn
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Step, Workflow, gets_task
from conductor_core.workflow.parser import to_lists
from conductor_core.workflow.validation import ImagesGiven

# Identity.


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def worker_identity(
    spec: WorkerSpec,
    messages: Sequence[Message],
    seed: int,
    own_seed: int | None = None,
    terms: CallTerms = NO_TERMS,
) -> str:
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
        | ({"terms": terms.model_dump(mode="json")} if terms else {})
        | _own(own_seed)
    )


def recursion_identity(
    conductor: ConductorInfo,
    parent: ParentPlan,
    asked: "Asked",
    agents: Iterable[WorkerSpec],
    instruction: str,
    bounds: Sequence[int],
    own_seed: int | None = None,
) -> str:
    """Returns the identity of a step that the Conductor answers: all that its inner call is told.

    It leaves out device and dtype, which are unknown before the model is loaded. ``bounds``: the most steps, the levels
    of recursion that are left, and the run's seed.
    """
    fields = {"name", "kind", "model", "constrained"} | ({"prompt_sha256"} if conductor.prompt_sha256 else set())
    return _digest(
        {
            "conductor": conductor.model_dump(mode="json", include=fields),
            "parent": [parent.plan, parent.last_response],
            "task": asked.task,
            "instruction": instruction,
            "agents": [[*_agent(spec), spec.description] for spec in agents],
            "bounds": list(bounds),
        }
        | asked.beside_task
        | _own(own_seed)
    )


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
class Asked:
    """What a run is asked. ``give_question``: every step receives the task, even if its instruction lacks
    ``{question}``. Past turns hold their instructions alone, so the task is told once.

    Attributes:
        system: what a client tells each model that is told the task, and the one that answers.
        terms: for each worker. Their choice and rules bind the step that gives the run's answer alone.
    """

    task: str
    give_question: bool = False
    images: tuple[ImagePart, ...] = ()
    turns_before: tuple[Message, ...] = ()
    system: str = ""
    terms: CallTerms = NO_TERMS

    @classmethod
    def by(cls, run: RunTrace) -> "Asked":
        terms = CallTerms(tools=run.tools, choice=run.tool_choice, rules=run.rules)
        return cls(run.task, run.give_question, run.images, run.turns_before, run.system, terms)

    def terms_of(self, *, answers: bool) -> CallTerms:
        """Returns what a step's worker is asked beside its messages. ``answers``: it gives the run's answer."""
        if answers or not self.terms:
            return self.terms
        return CallTerms(tools=() if self.terms.choice == "none" else self.terms.tools)

    def told_first(self, *, with_task: bool, answers: bool) -> tuple[Message, ...]:
        """Returns what a step is told before all else: by the client, and about the form of the answer."""
        told = [self.system] if self.system.strip() and (with_task or answers) else []
        if answers and (form := form_asked(self.terms.rules)):
            told.append(form)
        return (Message(role="system", content="\n\n".join(told)),) if told else ()

    @property
    def beside_task(self) -> dict[str, object]:
        """What identities cover beside the task. Left out where nothing is, so that identities stay as they were."""
        found: dict[str, object] = {}
        if self.images:
            found["images"] = [image.sha256 for image in self.images]
        if self.turns_before:
            found["turns_before"] = _turns(self.turns_before)
        if self.system:
            found["system"] = self.system
        if self.terms:
            found["terms"] = self.terms.model_dump(mode="json")
        return found

    @property
    def identity(self) -> str:
        """The digest of the task and all that comes with it; of a task alone, that of its text."""
        return _digest({"task": self.task} | self.beside_task) if self.beside_task else digest_text(self.task)

    def images_given(self, workers: Mapping[str, WorkerSpec]) -> ImagesGiven | None:
        """Returns who can be given the images of the conversation; None: there are none."""
        conversation = conversation_of(self.task, self.images, self.turns_before)
        return images_given(conversation, workers, every_step=self.give_question)

    def told(self, instruction: str) -> str:
        """Returns the instruction as it is sent: with the task in it or, if every step receives that, before it."""
        if not self.give_question or QUESTION in instruction:
            return expand(instruction, self.task)
        return f"The task:\n{self.task}\n\nYour part:\n{instruction}"

    def tokens(self, instruction: str, *, answers: bool = False) -> int:
        """Estimates an instruction as it is sent, with what the client tells and all that comes with the task, if it is
        told that. ``answers``: its step gives the run's answer.
        """
        with_task = gets_task(instruction, give_question=self.give_question)
        tokens = estimate_tokens(self.told(instruction))
        tokens += estimate_input_tokens(self.told_first(with_task=with_task, answers=answers))
        if with_task:
            tokens += estimate_input_tokens(self.turns_before) + sum(image.tokens for image in self.images)
        return tokens


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
        step: Step | StepTrace,
        task: str,
        output: str,
        sha256: str,
        usage: Usage = Usage(),  # noqa: B008  frozen
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
    def recorded(cls, step: StepTrace, task: str) -> "Answer":
        return cls.of(
            step.path,
            step,
            task,
            step.output,
            step.output_sha256 or digest_text(step.output),
            step.answer_usage,
            ending=step.ending,
            by=step.answered_by,
            reasoned=bool(step.reasoning),
            given="" if step.given is None else step.given.how,
        )

    @classmethod
    def of_round(cls, round_: RoundTrace, task: str) -> dict[int, "Answer"]:
        """Returns the answers of a round so far, incomplete ones too, by step."""
        ended = (step for step in round_.steps if step.answered or step.status in INCOMPLETE)
        return {step.index: cls.recorded(step, task) for step in ended}

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


def form_asked(rules: AnswerRules) -> str:
    """Says the form that an answer must have, for a model; empty: any."""
    if rules.form == "json":
        return "Answer with one JSON object and nothing else."
    if rules.form == "schema":
        schema = json.dumps(rules.json_schema, ensure_ascii=False)
        return f"Answer with JSON and nothing else. It must fit this JSON Schema:\n{schema}"
    return ""


def build(
    asked: Asked,
    workflow: Workflow,
    index: int,
    answers: Mapping[int, Answer],
    round_path: Path = (),
    turns: Sequence[ToolTurn] = (),
    *,
    gives_answer: bool = False,
) -> Context:
    """Builds the context of step ``index``.

    Args:
        answers: of the earlier steps of this round, by index, with all that the step reads.
        turns: those with which the step begins.
        gives_answer: whether its answer is that of the run.

    Raises: KeyError if an answer that the step reads is not there yet.
    """
    reads = workflow.reads(index)
    instruction = workflow.steps[index].instruction
    with_task = gets_task(instruction, give_question=asked.give_question)
    said: list[Message] = [*asked.told_first(with_task=with_task, answers=gives_answer)]
    said += asked.turns_before if with_task else ()
    for earlier in reads:
        said.append(Message(role="user", content=answers[earlier].instruction))
        said.append(Message(role="assistant", content=answers[earlier].turn))
    content = content_of(asked.told(instruction), asked.images if with_task else ())
    said.append(Message(role="user", content=content))
    said += [message for turn in turns for message in turn.messages]
    return Context(
        messages=tuple(said),
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

NO_OVERRIDES = Overrides()


@dataclass(frozen=True, slots=True)
class StepInput:
    """One step, ready to be called.

    Attributes:
        parent: what an inner Conductor call sees besides the task; None for a step that a worker answers.
        terms: what its worker is asked beside the messages.
        last: the answer that three empty lists return, if the step reads any.
    """

    context: Context
    identity: str
    parent: ParentPlan | None = None
    last: Answer | None = None
    terms: CallTerms = NO_TERMS


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What the steps of a run have in common.

    Attributes:
        given: what is asked. trace: of the run; None: there is none yet. A client may tell it other things meanwhile.
        known: what the pool's tool servers offered before there was a trace.
        workers: by name, in the order of the Conductor's ordinals, without those that the run excludes.
        seed: of the run. pool_seed: of the simulated workers.
    """

    given: Asked
    workers: Mapping[str, WorkerSpec]
    conductor: ConductorInfo | None
    limits: Limits
    seed: int
    pool_seed: int
    trace: RunTrace | None = None
    known: Mapping[str, ToolsListed] = field(default_factory=dict)

    @property
    def asked(self) -> Asked:
        return self.given if self.trace is None else Asked.by(self.trace)

    @property
    def images_given(self) -> ImagesGiven | None:
        return self.asked.images_given(self.workers)

    @property
    def offered(self) -> tuple[WorkerSpec, ...]:
        """Returns the workers that the Conductor may choose, in their order.

        One that chooses roles learns nothing of who sees images, so with images it is offered who does.
        """
        workers, given = tuple(self.workers.values()), self.images_given
        if given is None or self.conductor is None or not self.conductor.seated:
            return workers
        return tuple(worker for worker in workers if worker.name in given.agents)

    def of(
        self,
        workflow: Workflow,
        index: int,
        answers: Mapping[int, Answer],
        round_path: Path = (),
        overrides: Overrides = NO_OVERRIDES,
        *,
        in_answer: bool = True,
    ) -> StepInput:
        """Returns the input of step ``index``, once ``answers`` has all that it reads.

        Args:
            overrides: those of the run. The step, or the step around its round, may have a seed in place of the run's.
            in_answer: whether the round's answer is the run's.

        Raises: KeyError if the pool has no such agent or an answer is missing.
        """
        step = workflow.steps[index]
        path = (*round_path, index)
        own_seed = overrides.seed_at(path)
        if step.agent != CONDUCTOR_AGENT:
            chosen = None if round_path else overrides.last_step
            gives_answer = in_answer and index == (len(workflow.steps) - 1 if chosen is None else chosen)
            turns = overrides.turns_at(path)
            context = build(self.asked, workflow, index, answers, round_path, turns, gives_answer=gives_answer)
            spec = self.workers[step.agent]
            terms = self._with_tools(self.asked.terms_of(answers=gives_answer), spec)
            identity = worker_identity(spec, context.messages, self.pool_seed, own_seed, terms)
            return StepInput(context, identity, terms=terms)
        # As in the paper the inner Conductor call sees the task, the parent's plan (with it this step's instruction)
        # and the last response: the output of the latest step that this one reads, and no other output.
        if self.conductor is None:
            raise KeyError(CONDUCTOR_AGENT)
        from conductor_core.conductors.roles import agents_by_ordinal  # when used: few steps ask the Conductor

        last_read = workflow.reads(index)[-1:]
        last = answers[last_read[0]] if last_read else None
        agents = self.offered
        parent = ParentPlan(
            plan=to_lists(workflow, agents_by_ordinal(self.conductor, agents)),
            last_response="" if last is None else last.turn,
        )
        context = Context(
            messages=(),
            granted=() if last is None else (last.shared(),),
            withheld=withheld(workflow, index, frozenset(last_read), answers, round_path),
        )
        bounds = self.limits.max_steps, self.limits.max_depth - len(round_path) - 1, self.seed
        identity = recursion_identity(self.conductor, parent, self.asked, agents, step.instruction, bounds, own_seed)
        return StepInput(context, identity, parent, last)

    def _with_tools(self, terms: CallTerms, spec: WorkerSpec) -> CallTerms:
        """Adds the tools of the pool that a worker may call. One of the client's of the same name comes first."""
        if not spec.tools or self.asked.terms.choice == "none":
            return terms
        listings = (self.known if self.trace is None else self.trace.listings).values()
        own = {tool.name for tool in terms.tools}
        more = tuple(tool.spec for tool in allowed(spec, (each.listing for each in listings)))
        return terms.model_copy(update={"tools": (*terms.tools, *(tool for tool in more if tool.name not in own))})
