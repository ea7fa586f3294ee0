"""A run's request: all that a run is asked to do, as one value that ``run.created`` records whole and JSON can carry.

It has gates, the rules by which a run waits for an approval before anything leaves; and overrides, what the run does
otherwise with single steps than its plan says: steps asked afresh, outputs given by a person. Overrides name steps by
their index in the first round of the run. All that an inner round does belongs to the step that opened it.

Ids of runs sort by time, cannot be guessed, and are safe in URLs and file names.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, NonNegativeInt, model_validator

from conductor_core.chat.messages import (
    AnswerRules,
    ImagePart,
    Message,
    OnIncomplete,
    ToolSpec,
    conversation_of,
    images_in,
)
from conductor_core.errors import BadInput
from conductor_core.run.actor import Actor, Caller, Caused, Door, local_actor
from conductor_core.run.values import BatchRow, Limits, Path, PoolInfo, ToolTurn, label
from conductor_core.workflow.edits import Origins, compare
from conductor_core.workflow.model import Frozen, Workflow

MOST_SEED = 2**31 - 1
"""The largest seed that every provider of ours takes."""
MOST_CHARACTERS = 4_000_000
"""A given output is no longer than this; a worker's is bounded alike (``WorkerSpec.max_output_bytes``)."""

How = Literal["written", "pinned"]
"""``written``: a person wrote the output. ``pinned``: a worker did, and a person holds it fast."""


class StepSeed(Frozen):
    """A step that is asked with a seed of its own, although an answer with another seed may be recorded.

    The seed is part of the step's identity. So the answer is asked for once, and then reused as any other.
    """

    step: NonNegativeInt
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)]


class Given(Caused):
    """Who gave an output, and where it came from.

    Attributes:
        how: see ``How``.
        source_run_id, source_path: where a worker wrote a pinned output; None for a written one. source_imported:
            whether that run was imported, so that only its file says who wrote it.
    """

    how: How
    source_run_id: str | None = None
    source_path: Path | None = None
    source_imported: bool = False

    @property
    def in_words(self) -> str:
        """Words for people: ``written by ada (uid 1000, not signed in), cli``."""
        if self.how == "written" or self.source_run_id is None or self.source_path is None:
            return f"{self.how} by {self.caller.in_words}"
        run = f"{'imported ' if self.source_imported else ''}run {self.source_run_id}"
        return f"step {label(self.source_path)} of {run}, pinned by {self.caller.in_words}"


def written_by(caller: Caller) -> Given:
    return Given(how="written", actor=caller.actor, door=caller.door)


class GivenOutput(Frozen):
    """An output that stands in for a step's answer. The step's worker is not asked, whatever the step would see."""

    step: NonNegativeInt
    text: Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS)]
    given: Given


class GivenTurns(Frozen):
    """Turns of an earlier run with which a step begins: its worker is asked what follows them.

    ``below``: where it is in the rounds that ``step`` opened; empty: it is ``step`` itself.
    """

    step: NonNegativeInt
    below: Path = ()
    turns: Annotated[tuple[ToolTurn, ...], Field(min_length=1)]


_Named = TypeVar("_Named", StepSeed, GivenOutput, GivenTurns)


class Overrides(Frozen):
    """Attributes:
    seeds: one at most for each step.
    outputs: one at most for each step.
    last_step: the run ends with this step's answer, and carries out only what that needs. None: the plan's last.
    again: the step that the run was made to ask afresh. It is for people: ``seeds`` say what is done.
    turns: one at most for each step, those of inner rounds too.
    """

    seeds: tuple[StepSeed, ...] = ()
    outputs: tuple[GivenOutput, ...] = ()
    turns: tuple[GivenTurns, ...] = ()
    last_step: NonNegativeInt | None = None
    again: NonNegativeInt | None = None

    @model_validator(mode="after")
    def _once(self) -> Self:
        named: tuple[tuple[list[Path], str], ...] = (
            ([(one.step,) for one in self.seeds], "seeds"),
            ([(one.step,) for one in self.outputs], "outputs"),
            ([(one.step, *one.below) for one in self.turns], "beginnings"),
        )
        for paths, what in named:
            if twice := sorted({path for path in paths if paths.count(path) > 1}):
                raise ValueError(f"step {label(twice[0])} has two {what}")
        return self

    def __bool__(self) -> bool:
        return bool(self.seeds or self.outputs or self.turns) or self.last_step is not None

    def seed_at(self, path: Path) -> int | None:
        """Returns the seed of the step, or of the round, at ``path``; None: the run's."""
        return next((each.seed for each in self.seeds if path and each.step == path[0]), None)

    def output_at(self, path: Path) -> GivenOutput | None:
        """Returns the output that is given to the step at ``path``, if one is. Steps of inner rounds have none."""
        return next((each for each in self.outputs if path == (each.step,)), None)

    def turns_at(self, path: Path) -> tuple[ToolTurn, ...]:
        """Returns the turns with which the step at ``path`` begins."""
        return next((each.turns for each in self.turns if path == (each.step, *each.below)), ())

    def needed(self, workflow: Workflow) -> frozenset[int]:
        """Returns the steps that are carried out: all, or those that the answer of ``last_step`` needs."""
        if self.last_step is None:
            return frozenset(range(len(workflow.steps)))
        needed: set[int] = set()
        ahead = [self.last_step]
        while ahead:
            step = ahead.pop()
            if step not in needed:
                needed.add(step)
                ahead += () if self.output_at((step,)) else workflow.reads(step)
        return frozenset(needed)

    def with_seeds(self, seeds: Mapping[int, int]) -> "Overrides":
        """Returns these with seeds by step, which take the place of the steps' former ones."""
        kept = [each for each in self.seeds if each.step not in seeds]
        new = [StepSeed(step=step, seed=seed) for step, seed in seeds.items()]
        return self.model_copy(update={"seeds": tuple(sorted([*kept, *new], key=_step))})

    def with_output(self, step: int, text: str, given: Given) -> "Overrides":
        """Returns these with an output for a step, in the place of a former one. Raises: ValueError if it is empty."""
        kept = [each for each in self.outputs if each.step != step]
        outputs = sorted([*kept, GivenOutput(step=step, text=text, given=given)], key=_step)
        return self.model_copy(update={"outputs": tuple(outputs)})

    def without_output(self, step: int) -> "Overrides":
        return self.model_copy(update={"outputs": tuple(each for each in self.outputs if each.step != step)})

    def moved(self, before: Workflow, after: Workflow, origins: Origins | None = None) -> "Overrides":
        """Returns these for an edited plan: each stays with its step, and goes with it if that was removed.

        Args:
            origins: which step of ``before`` each step of ``after`` is; by default found by content.

        Raises: ValueError if ``origins`` does not fit.
        """
        if not self:
            return self
        number_now = compare(before, after, origins).number_now
        return Overrides(
            seeds=_renumbered(self.seeds, number_now),
            outputs=_renumbered(self.outputs, number_now),
            turns=_renumbered(self.turns, number_now),
            last_step=None if self.last_step is None else number_now(self.last_step),
            again=None if self.again is None else number_now(self.again),
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Says in a few words each what is done otherwise: ``step 1: output written by ada (...)``."""
        fresh = [] if self.again is None else [f"step {self.again} asked afresh"]
        ends = [] if self.last_step is None else [f"ends with step {self.last_step}"]
        given = [f"step {each.step}: output {each.given.how} by {each.given.caller.in_words}" for each in self.outputs]
        return (*fresh, *ends, *given)

    def fault(self, workflow: Workflow) -> str | None:
        """Returns why these do not fit a plan, in a sentence; None: they do."""
        count = len(workflow.steps)
        named = [
            *(("a seed of its own", each.step) for each in self.seeds),
            *(("a given output", each.step) for each in self.outputs),
            *(("turns to begin with", each.step) for each in self.turns),
            *(() if self.last_step is None else (("the last answer", self.last_step),)),
        ]
        for what, step in named:
            if step >= count:
                return f"step {step} is to have {what}, but the steps of this plan are 0 to {count - 1}"
        return None


def _step(each: StepSeed | GivenOutput | GivenTurns) -> int:
    return each.step


def _renumbered(each: Sequence[_Named], number_now: Callable[[int], int | None]) -> tuple[_Named, ...]:
    numbered = [(number_now(one.step), one) for one in each]
    return tuple(sorted((one.model_copy(update={"step": now}) for now, one in numbered if now is not None), key=_step))


# Gates.

FORMS = "plan, steps, step:N, usd:X, provider:NAME or tools"


class Gate(Frozen):
    """One rule. ``read_gate`` reads what ``str`` writes.

    Attributes:
        rule: ``plan`` asks before any worker of the first plan is called; ``steps`` before every step; ``step`` before
            the step ``number`` of the first plan; ``usd`` when the highest possible cost exceeds ``usd``, or cannot be
            told; ``provider`` before anything goes to ``provider``: a provider's kind, or a server's host;
            ``tools`` before each call of a tool that has effects.
    """

    rule: Literal["plan", "steps", "step", "usd", "provider", "tools"]
    number: NonNegativeInt | None = None
    usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    provider: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        values = {"step": self.number, "usd": self.usd, "provider": self.provider}
        if any((value is not None) != (name == self.rule) for name, value in values.items()):
            raise ValueError(f"a gate is {FORMS}")
        return self

    def __str__(self) -> str:
        match self.rule:
            case "step":
                return f"step:{self.number}"
            case "usd":
                return f"usd:{self.usd:g}"
            case "provider":
                return f"provider:{self.provider}"
        return self.rule


def read_gate(text: str) -> Gate:
    """Raises: BadInput if ``text`` is not a gate."""
    rule, _, value = text.strip().partition(":")
    names = {"step": "number", "usd": "usd", "provider": "provider"}
    try:
        given = {names[rule]: value.strip() or None} if rule in names else {}
        if rule not in names and value:
            raise ValueError
        return Gate.model_validate({"rule": rule} | given)
    except ValueError as error:
        raise BadInput(f"unknown gate {text!r}; choose {FORMS}") from error


# Ids.

_lock = threading.Lock()
_last_ms = 0


def tool_call_id(run_id: str, number: int) -> str:
    """Returns the id of a call of a tool, ``number`` counting those of its run from 0. It names the run."""
    return f"call_{run_id.replace('-', '')}_{number}"


def brief(task: str) -> str:
    line = " ".join(task.split())
    return line if len(line) <= 80 else f"{line[:80]}…"


def file_part(run_id: str) -> str:
    """Returns a run's part of the name of a file about it. An id comes from a database, and may be any text there."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:24]


def new_run_id() -> str:
    """Returns ``TTTTTTTTTTTT-RRRRRRRRRRRRRRRR``: 48 bits of Unix milliseconds, then 64 random bits, in hexadecimal.

    The ids of one process sort in the order in which they were made, even within one millisecond (the time in the id
    then runs ahead) and if the clock is set back.
    """
    global _last_ms
    with _lock:
        _last_ms = max(_last_ms + 1, time.time_ns() // 1_000_000)
        return f"{_last_ms:012x}-{secrets.token_hex(8)}"


# The request.

MOST_IMAGES = 8
"""More images than this cannot come with one task."""
MOST_TEMPERATURE = 2.0
"""What servers take at most."""
USUAL_TEMPERATURE = 0.7
REPLAY_PURPOSE = "blame"
"""The purpose of a run that replays another to find what decided its answer. Lists of a person's runs leave it out."""
TOUR_PURPOSE = "tour"
PASS_PURPOSE, SHADOW_PURPOSE, JUDGE_PURPOSE = "pass-through", "shadow", "judge"
"""The purposes of a client's request that was forwarded unchanged; of the Conductor's run of the same request, which
the client never sees; and of the question to a worker which of two answers is better."""
BESIDE_PURPOSES = (PASS_PURPOSE, SHADOW_PURPOSE, JUDGE_PURPOSE)
"""The purposes of runs that come with a client's traffic, a hundred for each that a person asks for."""
UNLISTED_PURPOSES = (REPLAY_PURPOSE, *BESIDE_PURPOSES)
"""The purposes of runs that lists of a person's runs leave out."""
LEAST_PLANS, USUAL_PLANS, MOST_PLANS = 2, 4, 8
"""How many plans can be asked for at once, for one task."""


class ClientRequest(Frozen):
    """How a request reached the endpoint (``conductor_core.serving``), so that its answer can be told again.

    Attributes:
        model: the served model's id, as asked for.
        stream: whether the answer is sent as it comes. store: whether the response can be retrieved later.
        summaries: whether the client is told of plan and steps as summaries of reasoning.
        echoed: fields of the request that the answer repeats.
    """

    api: Literal["chat", "responses", "messages"]
    model: str
    stream: bool = False
    store: bool = True
    summaries: bool = True
    previous_response_id: str | None = None
    echoed: Mapping[str, Any] = Field(default_factory=dict)


TIER_REASONS = {
    "tools": "it has tools",
    "images": "it has images",
    "format": "it demands JSON",
    "conversation": "its conversation is long",
    "effort": "it asks for more effort",
    "excluded": "the cheap worker is excluded",
}
"""Why a request of a tiered model goes to the Conductor whatever its text, in words for people."""


class TierChoice(Frozen):
    """Why a request went to one cheap worker, or to the Conductor.

    Attributes:
        easy: whether it went to the cheap ``worker``.
        probability: that the cheap worker's answer is good enough, as the classifier says.
        threshold: from which on a request is easy. classifier_sha256: of the classifier's file.
        reason: why it went to the Conductor whatever the probability (``TIER_REASONS``); empty: by the probability.
    """

    easy: bool
    worker: str
    probability: Annotated[float, Field(ge=0, le=1)]
    threshold: Annotated[float, Field(ge=0, le=1)]
    classifier_sha256: str = ""
    reason: str = ""

    @property
    def in_words(self) -> str:
        """Words for people: ``easy, to fast: probability 0.91, threshold 0.80``."""
        chance = f"probability {self.probability:.2f}, threshold {self.threshold:.2f}"
        if self.easy:
            return f"easy, to {self.worker} alone: {chance}"
        return f"to the Conductor: {TIER_REASONS.get(self.reason, self.reason) or chance}"


class WhatIsAsked(BaseModel):
    """What a run is asked, in its request and in its trace.

    Attributes:
        task: the last turn of the conversation, which a user said.
        images: come with the task.
        turns_before: the turns of the conversation before the task.
        workflow: carried out as given; None if the Conductor writes one.
        plan_only: whether the run ends when it has a plan.
        parent_run_id: the run of which this is a re-run or a resume. Identical steps reuse its answers.
        resumed: whether this run resumes its parent where that was interrupted.
        batch: its place in a file of tasks; None for a run that came alone.
        gates: when the run waits for an approval.
        actor, door: who asks, and through which door.
        purpose: what the run is for besides its task, for instance an evaluation; empty if somebody asked for it.
        plan_temperature: what a Conductor without a temperature of its own writes its first plan with; None: as always.
        overrides: what is done otherwise with single steps of ``workflow``: asked afresh, given, or the last.
        system: what a client tells every model that is told the task, and the one that answers.
        tools: the client's own, which every worker is offered. tool_choice: as ``ToolOffer.choice``; what it demands
            holds for the first turn of the step that answers.
        rules: what the answer has to be.
        client: how the request came to the endpoint; None: it did not.
        conversation_id: of the run that began the conversation; None: it is in none, or begins one.
        about_run_id: the run that this one shadows or judges, see ``SHADOW_PURPOSE``.
        tier: why a tiered model of the endpoint chose who answers; None: it was not chosen so.
    """

    task: str
    images: tuple[ImagePart, ...] = Field(default=(), max_length=MOST_IMAGES)
    turns_before: tuple[Message, ...] = ()
    workflow: Workflow | None = None
    limits: Limits = Limits()
    seed: int = 0
    plan_only: bool = False
    parent_run_id: str | None = None
    resumed: bool = False
    batch: BatchRow | None = None
    gates: tuple[Gate, ...] = ()
    actor: Actor | None = None
    door: Door | None = None
    purpose: str = ""
    plan_temperature: float | None = Field(None, ge=0, le=MOST_TEMPERATURE, allow_inf_nan=False)
    overrides: Overrides = Overrides()
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    rules: AnswerRules = AnswerRules()
    client: ClientRequest | None = None
    conversation_id: str | None = None
    about_run_id: str | None = None
    tier: TierChoice | None = None

    @property
    def caller(self) -> Caller:
        return Caller(actor=self.actor, door=self.door)

    @property
    def conversation(self) -> tuple[Message, ...]:
        return conversation_of(self.task, self.images, self.turns_before)


class RunRequest(Caused, WhatIsAsked):
    """One run. A process that has the database and the run's id can carry it out.

    Attributes:
        conductor: as the user named it; None if the request brings a workflow instead.
        pool: ``rehearsal``, ``paper``, a TOML file, or the recorded pool of another run; None for the settings' pool.
        taken_up: runs that the parent itself resumed, latest first. Their answers are reused, too.
        origins: which step of the parent's plan each step of ``workflow`` is; None if that is unknown.
        excluded: workers of the pool that this run must not use.
        on_incomplete, give_question: what happens to a step with an incomplete answer, and whether every step is told
            the task; None if the pool decides.
    """

    run_id: str = Field(default_factory=new_run_id)
    conductor: str | None = None
    pool: str | PoolInfo | None = None
    taken_up: tuple[str, ...] = ()
    origins: Origins | None = None
    excluded: tuple[str, ...] = ()
    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None
    actor: Actor | None = Field(default_factory=local_actor)
    door: Door | None = "cli"

    @property
    def all_images(self) -> tuple[ImagePart, ...]:
        """The images of the whole conversation, each once."""
        if not self.images and not self.turns_before:
            return ()
        found = (image for turn in self.conversation for image in images_in(turn.content))
        return tuple({image.sha256: image for image in found}.values())
