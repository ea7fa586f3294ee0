"""The records that the store returns besides traces."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from conductor_core.chat.messages import Usage
from conductor_core.run.actor import Caller
from conductor_core.run.costs import Cost
from conductor_core.run.events import Event
from conductor_core.run.trace import RunStatus, UnreadableStatus
from conductor_core.run.values import Conclusion
from conductor_core.workflow.model import CONDUCTOR_AGENT, Frozen

ErasedStatus = Literal["erased"]
ERASED: ErasedStatus = "erased"
"""The status of a run in lists whose text was destroyed."""


SEALED_COLUMNS = ("task", "error")
"""The columns of ``runs`` that hold text of a task or an answer. All others stay in plain sight."""
OF_TOOLS = "the client's tools: "
"""What ``RunSummary.asked_for`` begins with where a run waits for tools. That of an approval never does."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and its place in the log. ``sequence`` grows with each event, over all runs."""

    sequence: int
    event: Event


@dataclass(frozen=True, slots=True)
class RawEvent:
    """An event as it is stored, perhaps damaged. ``payload`` should be its JSON in UTF-8."""

    sequence: int
    kind: str
    at_utc: str
    payload: bytes


class RunSummary(Frozen):
    """A run in a list. The defaults are for a run of which nothing else can be read.

    Attributes:
        status: ``damaged``, ``too_new`` or ``key_away`` if the run cannot be read to its end. ``damage`` then says what
            is wrong, where, and what to do; the other fields hold what can still be read. ``erased`` if its text was
            destroyed; ``damage`` then says who did so and when.
        created_at_utc: None if it cannot be read. purpose: as in ``RunCreated``.
        sequence: of its ``run.created``. Give the last run's to ``Store.runs(before=...)`` for the next page.
        agents: of its steps, each once, in order of appearance.
        steps: of all rounds. ``steps_*`` count the steps that ended so, ``steps_failed`` also those that ended without
            a whole answer.
        cost_usd: None if some price is unknown, also of a running call. known_usd: of what has a price.
        cost_estimated: whether the cost is computed from estimated tokens; False where it is unknown.
        asked_for: what of it waits for an approval, in words, while other steps of it may still run; else the client's
            tools for which it waits; None: nothing.
        duration_ms: None while it runs.
        batch_id, batch_row: its place in a file of tasks; None for a run that came alone.
        imported: whether it came as a file, and this database did not carry it out. imported_answers: whether it reuses
            answers of a run that did. recorded: whether the file is one of this program's own.
        conversation_id: of the run that began the conversation; None: it is in none, or began one.
        about_run_id: the run that it shadows or judges; None: none.
        named: its plan, or what was changed since its parent (``analysis.changes``). conclusion: of its answer.
            answer_key: equal for answers that say the same. These only where a list asks for them: no table has them,
            so they go with the run's events.
    """

    run_id: str
    sequence: int
    created_at_utc: datetime | None = None
    status: RunStatus | UnreadableStatus | ErasedStatus = "damaged"
    task: str = ""
    caller: Caller = Caller()
    purpose: str = ""
    conductor: str | None = None
    pool: str = ""
    parent_run_id: str | None = None
    simulated: bool = False
    plan_only: bool = False
    topology: str | None = None
    agents: tuple[str, ...] = ()
    steps: int = 0
    steps_completed: int = 0
    steps_reused: int = 0
    steps_failed: int = 0
    usage: Usage = Usage()
    cost_usd: float | None = None
    known_usd: float = 0.0
    cost_estimated: bool = False
    asked_for: str | None = None
    duration_ms: float | None = None
    error: str | None = None
    damage: str | None = None
    batch_id: str | None = None
    batch_row: str | None = None
    imported: bool = False
    imported_answers: bool = False
    recorded: bool = False
    conversation_id: str | None = None
    about_run_id: str | None = None
    named: str = ""
    conclusion: Conclusion | None = None
    answer_key: str = ""

    @property
    def cost(self) -> Cost:
        return Cost(self.cost_usd, self.known_usd)

    @property
    def waits(self) -> str | None:
        """What it waits for, as a sentence without its end; None: nothing."""
        if self.asked_for is None:
            return None
        of_tools = self.asked_for.startswith(OF_TOOLS)
        return f"Waits for {'' if of_tools else 'an approval of '}{self.asked_for}"

    @property
    def waits_short(self) -> str:
        """The same in few words, for a list."""
        waits = self.asked_for or ""
        return f"for {waits.removeprefix(OF_TOOLS)}" if waits.startswith(OF_TOOLS) else "for approval" if waits else ""

    @property
    def steps_in_words(self) -> str:
        """The number of steps. Where one asks the Conductor, it says that its round's steps are counted, too."""
        return f"{self.steps} with rounds" if CONDUCTOR_AGENT in self.agents else str(self.steps)


class BatchSummary(Frozen):
    """A batch in a list.

    Attributes:
        sequence: of its first run's ``run.created``. Give the last batch's to ``Store.batches(before=...)``.
        created_at_utc: None if it cannot be read.
        name: of the file of tasks. size: how many tasks it held.
        statuses: how many of its tasks have each status, that of a task's latest run. Tasks without a run are left out.
        runs: how many runs it has: more than tasks if some were resumed.
        cost_usd: of all its runs; None if some price is unknown. known_usd: of what has a price.
        cost_estimated: whether a part of the cost is estimated; False where ``cost_usd`` is None.
    """

    batch_id: str
    sequence: int
    created_at_utc: datetime | None
    name: str
    size: int
    statuses: dict[str, int]
    runs: int
    simulated: bool
    usage: Usage
    cost_usd: float | None
    known_usd: float
    cost_estimated: bool

    @property
    def cost(self) -> Cost:
        return Cost(self.cost_usd, self.known_usd)

    @property
    def not_begun(self) -> int:
        return max(0, self.size - sum(self.statuses.values()))
