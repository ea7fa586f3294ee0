"""One response of a run, as far as it is, for the writers of all APIs. All of it follows from the run's record.

A run has one response, and one more for each time that it waited for the results of the client's tools.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from conductor_core.chat.messages import AnswerRules, ToolSpec
from conductor_core.run.actor import Actor
from conductor_core.run.request import ClientRequest, TierChoice
from conductor_core.serving.errors import ApiError

# Ids. They name the run and the response, so that any process with the database can find both.

_ID = re.compile(r"[a-z]{2,8}[_-]([0-9a-f]{12})([0-9a-f]{16})_(\d{1,6})(?:_\d{1,6})?")


def made_id(kind: str, run_id: str, *numbers: int) -> str:
    """Returns ``KIND_RUN_NUMBER``, and so on. ``kind``: such as ``resp``, ``msg``, ``rs``, ``fc``, ``call``.

    A call has its own number among all of its run; all else that of the response, and items their place in it.
    """
    return "_".join((kind, run_id.replace("-", ""), *map(str, numbers)))


class Named(NamedTuple):
    run_id: str
    number: int


def named(made: str) -> Named | None:
    """Returns the run and the first number of an id that ``made_id`` made; None: it is none of ours."""
    found = _ID.fullmatch(made)
    return None if found is None else Named(f"{found[1]}-{found[2]}", int(found[3]))


# What a response cost.


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens since the run's last response. ``cached``, ``cache_write`` and ``reasoning`` are subsets.

    ``input_tokens``, ``output_tokens``: of the calls whose text is the answer. ``orchestration_*``: of all else.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    orchestration_input_tokens: int = 0
    orchestration_cached_tokens: int = 0
    orchestration_output_tokens: int = 0

    @property
    def all_input_tokens(self) -> int:
        return self.input_tokens + self.orchestration_input_tokens

    @property
    def all_output_tokens(self) -> int:
        return self.output_tokens + self.orchestration_output_tokens

    @property
    def total_tokens(self) -> int:
        return self.all_input_tokens + self.all_output_tokens


@dataclass(frozen=True, slots=True)
class Row:
    """A plan, or a step, in ``conductor.steps``. ``cost_usd`` None: its price is unknown."""

    name: str
    agent: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


# What was answered.


@dataclass(frozen=True, slots=True)
class Called:
    """A tool that the client is to carry out. ``number``: among all calls of the run, from 0.

    ``arguments``: a JSON object as text; of a custom tool the text itself.
    """

    number: int
    call_id: str
    name: str
    arguments: str
    custom: bool = False


Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
Finish = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One response.

    Attributes:
        number: among those of the run, from 0.
        tools, tool_choice, rules: what the run was asked with.
        system: what the client told as such.
        summaries: of reasoning, one for the plan and each step that ended, in order. Exactly what was streamed.
        text: of the answer. Exactly what was streamed. None: there is none, as beside calls without any.
        finish: None while it is in progress, or if it failed.
        stop_sequence: the text of ``rules.stop`` that ended the answer.
        refusal: what a model said instead of an answer.
        error: why it failed.
        trace_url: where the inspector shows the run.
        simulated: whether a simulated worker answered anything.
        rows: the plan and the steps. They add up to ``spending``.
        actor: who asked.
        tier: why a tiered model chose who answers; None: it is not tiered.
    """

    run_id: str
    number: int
    client: ClientRequest
    created_at: datetime
    status: Status
    trace_url: str
    simulated: bool
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    rules: AnswerRules = field(default_factory=AnswerRules)
    completed_at: datetime | None = None
    summaries: tuple[str, ...] = ()
    text: str | None = None
    calls: tuple[Called, ...] = ()
    finish: Finish | None = None
    stop_sequence: str | None = None
    refusal: str = ""
    error: ApiError | None = None
    spending: Spending = Spending()
    rows: tuple[Row, ...] = ()
    actor: Actor | None = None
    tier: TierChoice | None = None

    @property
    def conductor(self) -> dict[str, object]:
        """What is ours in every shape: which run, and who used what."""
        spent = self.spending
        usage = {
            "input_tokens": spent.all_input_tokens,
            "output_tokens": spent.all_output_tokens,
            "total_tokens": spent.total_tokens,
        }
        steps = [{name: getattr(row, name) for name in Row.__slots__} for row in self.rows]
        return {
            "trace_id": self.run_id,
            "trace_url": self.trace_url,
            "simulated": self.simulated,
            "usage": usage,
            "steps": steps,
            **({} if self.tier is None else {"tier": self.tier.model_dump()}),
        }


# What a stream brings, in order: Began, then Summary and Text in any number (no Summary after a Text), then Ended.


@dataclass(frozen=True, slots=True)
class Began:
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Summary:
    """A piece of the summary ``number`` (from 0). A piece of a later one ends the one before."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Beat:
    """Nothing came for a while: the connection is to be kept."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The whole response. Its summaries and its text are the pieces that came before."""

    outcome: Outcome


Part = Began | Summary | Text | Beat | Ended
