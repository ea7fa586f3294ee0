"""One response of a run, as far as it is, for the writers of all APIs. All of it follows from the run's record.

A run has one response, and one more for each time that it waited for the results of the client's tools.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, NamedTuple

from conductor_core.chat.messages import AnswerRules, ToolCall, ToolSpec, Usage
from conductor_core.engine.step import document_in
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor
from conductor_core.run.events import Event
from conductor_core.run.request import ClientRequest, TierChoice
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace, apply, begin
from conductor_core.run.values import Path, label
from conductor_core.serving.errors import Api, ApiError, until_midnight_s
from conductor_core.serving.reading import custom_input
from conductor_core.workflow.model import CONDUCTOR_AGENT

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


# Telling the responses of a run, event by event: live as it goes on, and again later from its record.


MOST_SUMMARY = 400
"""Characters of a step's output in a summary: the inspector shows all of it."""
WITHDRAWN = "AnswerWithdrawn"

_STATUSES: Mapping[str, tuple[int, str]] = {
    "AnswerNotInForm": (422, "schema_mismatch"),
    "CostCapReached": (429, "insufficient_quota"),
    "LimitReached": (400, "limit_reached"),
    "PromptOverflows": (400, "context_length_exceeded"),
    "WorkerContextOverflow": (400, "context_length_exceeded"),
    "WorkerRateLimited": (429, "rate_limit_exceeded"),
    "Denied": (403, "denied"),
    WITHDRAWN: (500, "answer_withdrawn"),
}
"""What is answered to a run's failure, and the word for programs. All other failures are the server's, 500."""
_FORM_FIELDS: Mapping[Api, str] = {
    "chat": "response_format",
    "responses": "text.format",
    "messages": "output_config.format",
}


@dataclass(slots=True)
class _Response:
    """One response as far as it is.

    Attributes:
        spent: the run's tokens before it. parts: tokens and USD of each plan and step before it.
        begins_answer: whether a piece of the answer came, after which no summary is told.
        withdrawn: whether another text took the place of one that the client was sent.
        kept: how many characters of the text were said before tools of the pool were called. A client that was sent
            them keeps them; the answer follows.
        answers: what the last call of each step used, by its path.
    """

    number: int
    client: ClientRequest
    began_at: datetime
    spent: Usage
    parts: dict[tuple[str, Path], tuple[Usage, float | None]]
    summaries: list[str] = field(default_factory=list)
    streamed: list[str] = field(default_factory=list)
    begins_answer: bool = False
    withdrawn: bool = False
    kept: int = 0
    answers: dict[Path, Usage] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.streamed)


class Telling:
    """Folds a run and tells what its responses bring. Feed it all events, from the first.

    Attributes:
        ended: the responses that are over, in order.
    """

    def __init__(self, first: Event) -> None:
        """Raises: ValueError unless ``first`` is ``run.created`` of a run that came to the endpoint."""
        self.trace = begin(first)
        if self.trace.client is None:
            raise ValueError(f"run {self.trace.run_id} did not come to the endpoint")
        self.ended: list[Outcome] = []
        self._now: _Response | None = self._begun(self.trace.client, first.at_utc)

    @property
    def began(self) -> list[Part]:
        """The first part of the first response."""
        return [Began(self.outcome())]

    @property
    def number(self) -> int:
        """Of the response that is going on; of the last one if none is."""
        return self.ended[-1].number if self._now is None else self._now.number

    def outcome(self) -> Outcome:
        """Returns the response that is going on; the last one if none is."""
        if self._now is None:
            return self.ended[-1]
        return self._outcome(self._now, "in_progress", None)

    def feed(self, event: Event) -> list[Part]:
        """Returns what the event brings."""
        now = self._now
        apply(self.trace, event)
        if now is None:
            if isinstance(event, ev.ToolReturned):
                self._now = self._begun(event.client or self._client, event.at_utc)
                return [Began(self.outcome())]
            return []
        match event:
            case ev.PlanCompleted() if not now.begins_answer:
                return self._summarised(now, _plan_summary(self.trace.round_at(event.round)))
            case ev.StepDelta() if not event.reasoning and self._streams(event.path):
                return self._said(now, event.text)
            case ev.StepRetried() if self._streams(event.path):
                self._withdrawn(now)
            case ev.ToolCalled():
                now.answers[event.path] = event.usage
                if event.ours and self._streams(event.path):
                    return self._said_before_tools(now)
            case ev.StepCompleted() | ev.StepReused() | ev.StepGiven():
                return self._step_ended(now, event)
            case ev.RunWaiting() if event.waits_for == "tool_results":
                return self._ended(now, event)
            case _ if event.kind in ev.FINAL_KINDS:
                return self._ended(now, event)
        return []

    # Parts.

    @property
    def _client(self) -> ClientRequest:
        client = self.trace.client
        if client is None:
            raise ValueError("the run did not come to the endpoint")
        return client

    def _begun(self, client: ClientRequest, at: datetime) -> _Response:
        parts = {_key(part): (part.usage, part.cost_usd) for part in _parts(self.trace)}
        return _Response(len(self.ended), client, at, self.trace.usage, parts)

    def _streams(self, path: Path) -> bool:
        """Whether what this step writes is the answer, and can be sent as it comes: its form is not checked."""
        trace = self.trace
        return trace.rules.form == "text" and trace.gives_answer(path) and trace.step_at(path).agent != CONDUCTOR_AGENT

    def _summarised(self, now: _Response, text: str) -> list[Part]:
        if not now.client.summaries:
            return []
        now.summaries.append(text)
        return [Summary(len(now.summaries) - 1, text)]

    def _said(self, now: _Response, text: str) -> list[Part]:
        if not text:
            return []
        now.begins_answer = True
        now.streamed.append(text)
        return [Text(text)]

    def _step_ended(self, now: _Response, event: ev.StepCompleted | ev.StepReused | ev.StepGiven) -> list[Part]:
        trace, path = self.trace, event.path
        step = trace.step_at(path)
        if isinstance(event, ev.StepCompleted):
            now.answers[path] = event.usage
        if not trace.gives_answer(path):
            return [] if now.begins_answer else self._summarised(now, _step_summary(step))
        if len(path) > 1 and step.agent == CONDUCTOR_AGENT:
            return []
        whole = document_in(step.output) if trace.rules.form != "text" else step.output
        if not whole.startswith(now.text[now.kept :]):
            self._withdrawn(now)
        return [] if now.withdrawn else self._said(now, whole[len(now.text) - now.kept :])

    def _said_before_tools(self, now: _Response) -> list[Part]:
        """What a worker says before it calls tools of the pool is no answer. A client that was sent it keeps it."""
        if not now.client.stream:
            now.streamed.clear()
            return []
        parts = self._said(now, "\n\n") if now.text[now.kept :].strip() else []
        now.kept = len(now.text)
        return parts

    def _withdrawn(self, now: _Response) -> None:
        """Another text takes the place of what was written so far. What a client was sent cannot be taken back."""
        if now.client.stream:
            now.withdrawn |= len(now.text) > now.kept
        else:
            now.streamed.clear()

    # Ends.

    def _ended(self, now: _Response, event: Event) -> list[Part]:
        status, finish, error = self._end(now, event)
        outcome = self._outcome(now, status, finish, error)
        outcome = replace(outcome, completed_at=event.at_utc)
        self.ended.append(outcome)
        self._now = None
        return [Ended(outcome)]

    def _end(self, now: _Response, event: Event) -> tuple[Status, Finish | None, ApiError | None]:
        trace = self.trace
        if now.withdrawn and isinstance(event, ev.RunCompleted):
            said = "the answer broke off after its beginning was sent, and another one took its place: see the trace"
            return "failed", None, self._error(WITHDRAWN, said)
        match event:
            case ev.RunWaiting():
                return "completed", "tool_calls", None
            case ev.RunCompleted():
                return self._completed(event)
            case ev.RunFailed():
                return "failed", None, self._error(event.error_code, event.error)
            case ev.RunDenied():
                return "failed", None, self._error("Denied", event.error)
            case ev.RunCancelled():
                by = "" if trace.ended_by is None else f" by {trace.ended_by.in_words}"
                return (
                    "cancelled",
                    None,
                    ApiError(409, f"The run was cancelled{by}.", code="cancelled", may_retry=False),
                )
        return "failed", None, self._error("Interrupted", "the server stopped in the middle of the run")

    def _completed(self, event: ev.RunCompleted) -> tuple[Status, Finish | None, ApiError | None]:
        match event.ending:
            case "cut":
                return "incomplete", "length", None
            case "filtered":
                return "incomplete", "content_filter", None
        return "completed", "stop", None

    def _error(self, code: str, message: str) -> ApiError:
        status, word = _STATUSES.get(code, (500, _snake(code)))
        if code == "CostCapReached":
            figures = message.partition(": ")[2].partition(". ")[0]
            message = f"this key's day leaves no room for the next call: {figures}; ask again after midnight UTC"
        paid = self.trace.usage.total_tokens > 0
        return ApiError(
            status,
            f"{message[:1].upper()}{message[1:]}",
            code=word,
            param=_FORM_FIELDS[self._client.api] if word == "schema_mismatch" else None,
            retry_after_s=until_midnight_s() if code == "CostCapReached" else None,
            may_retry=not paid and status not in (400, 403, 422),
            run_id=self.trace.run_id,
        )

    def _outcome(self, now: _Response, status: Status, finish: Finish | None, error: ApiError | None = None) -> Outcome:
        trace = self.trace
        calls = self._calls() if finish == "tool_calls" else ()
        answered = status in ("completed", "incomplete") and not calls
        last = _answering(trace) if answered else None
        return Outcome(
            run_id=trace.run_id,
            number=now.number,
            client=now.client,
            created_at=now.began_at,
            status=status,
            trace_url="",
            simulated=trace.simulated,
            actor=trace.actor,
            tier=trace.tier,
            system=trace.system,
            tools=trace.tools,
            tool_choice=trace.tool_choice,
            rules=trace.rules,
            summaries=tuple(now.summaries),
            text=now.text if answered else now.text or None,
            calls=calls,
            finish=finish,
            stop_sequence=None if last is None else last.stop_text,
            refusal="" if last is None else last.refusal,
            error=error,
            spending=self._spending(now, status, calls=bool(calls)),
            rows=self._rows(now),
        )

    def _calls(self) -> tuple[Called, ...]:
        custom = {tool.name for tool in self.trace.tools if tool.custom}
        open_calls = self.trace.open_calls
        return tuple(
            Called(_number_of(call), call.call_id, call.name, custom_input(call.arguments), custom=True)
            if call.name in custom
            else Called(_number_of(call), call.call_id, call.name, call.arguments)
            for call in sorted(open_calls, key=_number_of)
        )

    def _spending(self, now: _Response, status: Status, *, calls: bool) -> Spending:
        """Returns what was spent since the last response. What is no answer's is orchestration, within the total."""
        trace = self.trace
        read = trace.usage.input_tokens - now.spent.input_tokens
        wrote = trace.usage.output_tokens - now.spent.output_tokens
        cached = (trace.usage.cached_input_tokens or 0) - (now.spent.cached_input_tokens or 0)
        answer = Usage()
        if calls:
            paths = {step.path for step in trace.walk() if step.open_calls}
            for usage in (usage for path, usage in now.answers.items() if path in paths):
                answer += usage
        elif status in ("completed", "incomplete"):
            last = _answering(trace)
            answer = now.answers.get(last.path, Usage()) if last is not None and last.reused_from is None else Usage()
        own_read, own_wrote = min(answer.input_tokens, read), min(answer.output_tokens, wrote)
        own_cached = min(answer.cached_input_tokens or 0, own_read, cached)
        return Spending(
            input_tokens=own_read,
            output_tokens=own_wrote,
            cached_tokens=own_cached,
            cache_write_tokens=min(answer.cache_write_tokens or 0, own_read - own_cached),
            reasoning_tokens=min(answer.reasoning_tokens or 0, own_wrote),
            orchestration_input_tokens=read - own_read,
            orchestration_cached_tokens=min(cached - own_cached, read - own_read),
            orchestration_output_tokens=wrote - own_wrote,
        )

    def _rows(self, now: _Response) -> tuple[Row, ...]:
        """Returns a row for each plan and step that spent anything since the last response."""
        rows = []
        specs = {spec.name: spec for spec in self.trace.pool.workers}
        info = self.trace.conductor
        for part in _parts(self.trace):
            usage, cost_usd = now.parts.get(_key(part), (Usage(), 0.0))
            read = part.usage.input_tokens - usage.input_tokens
            wrote = part.usage.output_tokens - usage.output_tokens
            if not read and not wrote and part.cost_usd == cost_usd:
                continue
            if isinstance(part, RoundTrace):
                name = f"plan of step {label(part.path)}" if part.path else "plan"
                agent, model = CONDUCTOR_AGENT, "" if info is None else info.model
            else:
                agent = part.answered_by or part.asked
                model = part.model or (specs[agent].model if agent in specs else "")
                name = f"step {label(part.path)}"
            known = None if part.cost_usd is None or cost_usd is None else max(0.0, part.cost_usd - cost_usd)
            rows.append(Row(name, agent, model, read, wrote, known))
        return tuple(rows)


def told(events: Iterable[Event]) -> Telling:
    """Returns the telling of a run after these events. Raises: ValueError, see ``Telling``."""
    found: Telling | None = None
    for event in events:
        if found is None:
            found = Telling(event)
        else:
            found.feed(event)
    if found is None:
        raise ValueError("no events")
    return found


def _parts(trace: RunTrace) -> Iterable[RoundTrace | StepTrace]:
    """Returns the plans and steps of which this run paid."""
    yield from trace.root.rounds()
    yield from (step for step in trace.walk() if step.reused_from is None and step.given is None)


def _key(part: RoundTrace | StepTrace) -> tuple[str, Path]:
    return ("plan" if isinstance(part, RoundTrace) else "step", part.path)


def _answering(trace: RunTrace) -> StepTrace | None:
    """Returns the step whose worker wrote the run's answer; None: there is none yet."""
    step = trace.last
    while step is not None and step.agent == CONDUCTOR_AGENT:
        above = trace.round_at(step.path[:-1])
        if step.round is not None and step.round.steps:
            step = step.round.steps[-1]
        else:  # the Conductor kept the last response
            step = above.steps[step.reads[-1]] if step.reads else None
    return step


def _number_of(call: ToolCall) -> int:
    return int(call.call_id.rpartition("_")[2])


def _plan_summary(round_: RoundTrace) -> str:
    steps = () if round_.workflow is None else round_.workflow.steps
    lines = [
        f"{index}. {step.agent}, reads {', '.join(map(str, reads)) or 'nothing'}: {_short(step.instruction, 200)}"
        for index, (step, reads) in enumerate(zip(steps, (each.reads for each in round_.steps), strict=True))
    ]
    count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    what = f"Plan of step {label(round_.path)}" if round_.path else "Plan"
    return "\n".join((f"**{what}: {count}**", *lines))


def _step_summary(step: StepTrace) -> str:
    return f"**Step {label(step.path)}, {step.answered_by or step.agent}**\n{_short(step.output, MOST_SUMMARY)}"


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _snake(code: str) -> str:
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in code).lstrip("_")
