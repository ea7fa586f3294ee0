"""Value objects of events: limits, the pool, a place in a batch, a shared output."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, NonNegativeFloat, NonNegativeInt

from conductor_core.chat.messages import (
    AnswerRules,
    Message,
    OnIncomplete,
    Part,
    PrecisionChoice,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    Usage,
    WorkerSpec,
)
from conductor_core.chat.tools import ToolOutcome, ToolServerSpec
from conductor_core.errors import BadInput
from conductor_core.run.actor import Caused
from conductor_core.workflow.model import Frozen

Path = tuple[int, ...]
"""The path of a step or of a round; see ``events``."""


def label(path: Path) -> str:
    """Returns a step's name: ``2``, or ``2.0`` for step 0 of the round that step 2 opened."""
    return ".".join(map(str, path))


def round_name(path: Path) -> str:
    """Returns ``round 1`` for the first round, ``round 2`` for one that a step of it opened."""
    return f"round {len(path) + 1}"


class ToldAnew(Frozen):
    """What a client tells a run anew as its tools return. It holds for all calls from then on.

    Attributes: as in ``WhatIsAsked``.
    """

    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    rules: AnswerRules = AnswerRules()

    def messages(self, before: Sequence[Message]) -> tuple[Message, ...]:
        """Returns the messages of a step with this system text in the place of the former one."""
        told = (Message(role="system", content=self.system),) if self.system.strip() else ()
        return (*told, *(before[1:] if before and before[0].role == "system" else before))


class ToolRun(Frozen):
    """A call that a tool server of the pool was to carry out.

    Attributes:
        server, tool: by the server's own names. effects: whether the tool changes something.
        outcome: None: it was sent, and has not ended.
        sent_at_utc: None: it was never sent. sent_ms: when, by the run's clock.
        duration_ms: of the call. size_bytes: of the whole result.
    """

    call_id: str
    server: str
    tool: str
    effects: bool
    outcome: ToolOutcome | None = None
    sent_at_utc: AwareDatetime | None = None
    sent_ms: NonNegativeFloat | None = None
    duration_ms: NonNegativeFloat | None = None
    size_bytes: NonNegativeInt = 0


class ToolTurn(Frozen):
    """One turn of a step whose worker called tools instead of answering, and what they brought.

    Attributes:
        text: what the worker said beside. calls: with the ids by which their results come.
        ours: the ids of the calls that tool servers of the pool carry out; all others are the client's.
        ran: what became of those, in the order in which they were sent.
        partial: the results that are there while others are waited for.
        results: of all calls, in any order; None: some are waited for. said: what the client added to them.
        anew: what the client told anew with them; None: nothing.
        agent: who was asked; None: the step's own worker.
        called_ms, returned_ms: when, by the run's clock, which stands while the run waits.
        called_at_utc, returned_at_utc: when; None: nobody knows.
    """

    text: str = ""
    calls: tuple[ToolCall, ...]
    ours: tuple[str, ...] = ()
    ran: tuple[ToolRun, ...] = ()
    partial: tuple[ToolResultPart, ...] = ()
    results: tuple[ToolResultPart, ...] | None = None
    said: str = ""
    anew: ToldAnew | None = None
    agent: str | None = None
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    called_ms: NonNegativeFloat = 0.0
    returned_ms: NonNegativeFloat | None = None
    called_at_utc: AwareDatetime | None = None
    returned_at_utc: AwareDatetime | None = None

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls whose results are not there, the client's and ours."""
        there = {result.call_id for result in (self.partial if self.results is None else self.results)}
        return tuple(call for call in self.calls if call.call_id not in there)

    def ran_of(self, call_id: str) -> ToolRun | None:
        return next((each for each in self.ran if each.call_id == call_id), None)

    def with_results(self, more: Sequence[ToolResultPart]) -> "ToolTurn":
        """Returns the turn with further results; it has ``results`` as soon as none is missing."""
        there = (*self.partial, *more)
        whole = {result.call_id for result in there} >= {call.call_id for call in self.calls}
        changed = {"partial": (), "results": there} if whole else {"partial": there}
        return self.model_copy(update=changed)

    @property
    def waited_ms(self) -> float | None:
        """How long the tools took; None: nobody knows."""
        if self.called_at_utc is None or self.returned_at_utc is None:
            return None
        return max(0.0, (self.returned_at_utc - self.called_at_utc).total_seconds() * 1000)

    @property
    def call_message(self) -> Message:
        """What the worker said and called, as it is told it again."""
        text: tuple[Part, ...] = (TextPart(text=self.text),) if self.text.strip() else ()
        calls = tuple(ToolCallPart(call_id=c.call_id, name=c.name, arguments=c.arguments) for c in self.calls)
        return Message(role="assistant", content=(*text, *calls))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turn as the worker is told it. Raises: ValueError while it waits for results."""
        if self.results is None:
            raise ValueError("the tools of this turn have not returned")
        by_id = {result.call_id: result for result in self.results}
        results = tuple(by_id[call.call_id] for call in self.calls)
        said: tuple[Part, ...] = (TextPart(text=self.said),) if self.said.strip() else ()
        return self.call_message, Message(role="user", content=(*results, *said))


class Limits(Frozen):
    """What a run may spend. None: no limit."""

    max_steps: int = 5
    max_tokens: int | None = None
    max_usd: float | None = None
    max_seconds: float | None = 600
    max_depth: int = 1


class PoolInfo(Frozen):
    """The pool as it was when the run began. ``excluded``: the pool's workers that this run may not use.

    ``tools``: its tool servers.
    """

    name: str
    workers: tuple[WorkerSpec, ...]
    excluded: tuple[str, ...] = ()
    tools: tuple[ToolServerSpec, ...] = ()

    def without(self, names: Collection[str]) -> "PoolInfo":
        """Leaves out the workers named. Raises: BadInput for a name that is not there, or if none is left."""
        has = [spec.name for spec in self.workers]
        if unknown := [name for name in names if name not in has]:
            raise BadInput(f"the pool {self.name} has no worker {', '.join(unknown)}; it has {', '.join(has)}")
        left = tuple(spec for spec in self.workers if spec.name not in names)
        if not left:
            raise BadInput(f"no worker of the pool {self.name} is left: all are excluded")
        excluded = (*self.excluded, *dict.fromkeys(names))
        return PoolInfo(name=self.name, workers=left, excluded=excluded, tools=self.tools)


class PoolFile(NamedTuple):
    """What a pool file says. The options are None where the file leaves them to the settings.

    Attributes:
        workers: in the file's order, which is the order of their ordinals.
        on_incomplete: what happens to a step whose answer is not whole. give_question: tell every step the task.
        tools: the tool servers, with the sandbox if a worker may call it.
    """

    workers: tuple[WorkerSpec, ...]
    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None
    tools: tuple[ToolServerSpec, ...] = ()


class Alternative(Frozen):
    """What a plan could have said at one place.

    Attributes:
        value: a worker's name; for an access list ``none``, ``all`` or ``some``; ``other`` for all that is left.
        probability: of 1, by the Conductor's own model (temperature 1) among all that its grammar allowed; with a
            ``rest`` among those that a server named.
    """

    value: str
    probability: NonNegativeFloat


class Alternatives(Frozen):
    """What the Conductor considered at one choice of its plan, likeliest first; see ``conductors.alternatives``.

    ``rest``: where a server told the probabilities, how much of 1 lay on tokens that it did not name or that are no
    such choice; the options are shares of what is left. None: our own model told them all.
    """

    step: NonNegativeInt
    field: Literal["agent", "access_list"]
    options: tuple[Alternative, ...]
    rest: NonNegativeFloat | None = None


class BatchRow(Frozen):
    """The place of a run in a batch: a file of tasks that were given at once.

    Attributes:
        id: of the batch. row: the task's own id in the file.
        name: of the file. size: how many tasks it held.
        max_usd: budget of all its runs together; None for no budget.
        concurrency: how many of its runs went on at once.
        precision: what its Conductor's weights were asked to be kept in.
    """

    id: str
    row: str
    name: str
    size: NonNegativeInt
    max_usd: NonNegativeFloat | None = None
    concurrency: NonNegativeInt | None = None
    precision: PrecisionChoice | None = None


class Imported(Caused):
    """Where a run came from that this database did not carry out. All but the time and the caller is the file's word.

    Attributes:
        run_id: its id there. written_by: the program that wrote the file.
        redactions: how many passages were hidden in the file.
        recorded: it is one of the runs that come with the program, which put it into a new database.
        actor, door: who imported it.
    """

    run_id: str
    written_by: str
    written_at_utc: datetime
    imported_at_utc: datetime
    redactions: NonNegativeInt = 0
    recorded: bool = False


class SharedOutput(Frozen):
    """An earlier output that a step was given or denied, with its digest as proof.

    Attributes:
        sha256: of the output in UTF-8; empty for a withheld step that had no output yet.
        tokens: the provider's count of the output's tokens, else our estimate.
        given: whether a person wrote or pinned it, so that ``agent`` is whose place it takes; ``""``: nobody did.
    """

    path: Path
    agent: str
    sha256: str
    characters: NonNegativeInt
    tokens: NonNegativeInt
    given: Literal["", "written", "pinned"] = ""

    @property
    def there(self) -> bool:
        """Whether there was an output. One that did not exist yet could not be withheld."""
        return self.sha256 != ""


ConclusionKind = Literal["value", "code", "text", "declined", "empty"]


@dataclass(frozen=True)
class Conclusion:
    """The conclusion of a model's text, in a line; see ``analysis.conclusion``.

    Attributes:
        kind: ``value``: what the text itself marks as its answer, or all of a short text; ``code``: the name of what
            its code defines; ``text``: it marks no value; ``declined``: it says that it cannot answer; ``empty``.
        text: one line without markup, at most 300 characters: the value or name, how a text begins,
            or the sentence that declines; "" for ``empty`` alone.
        formula: a ``value`` that is one formula as it was written, without its delimiters; else "".
    """

    kind: ConclusionKind
    text: str
    formula: str = ""

    @property
    def headline(self) -> str:
        """What may be shown large: a marked value, or what code defines; else ""."""
        return self.text if self.kind in ("value", "code") else ""
