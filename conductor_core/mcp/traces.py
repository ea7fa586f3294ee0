"""What the tools answer: documents about runs, each of a bounded size, and only of runs that the caller may see.

Behind a service key these are the runs that this key caused. Another's run is unknown, and told apart from one that
does not exist by nothing: both are looked for by one query, before a trace is read. All that models wrote is data: JSON
strings, whole characters, without the keys that this process knows.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python

from conductor_core.analysis.compare import comparison_document
from conductor_core.analysis.documents import cost_document, waiting_document
from conductor_core.chat.messages import Message, TextPart, ToolResultPart, Usage, parts_of
from conductor_core.errors import BadInput, UnknownRun
from conductor_core.formats import RUN_STATUSES
from conductor_core.privacy.masking import known_and_set
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.costs import cost_of_part, cost_so_far
from conductor_core.run.trace import RoundTrace, RunTrace, RunUnreadable, StepTrace, unreadable_status
from conductor_core.run.values import Path, SharedOutput, ToolTurn, label
from conductor_core.text import whole_characters
from storage.search.failures import ASKED, KINDS, By, Kind, Narrowed
from storage.search.filters import Filters, end_of
from storage.store import Store

Document = dict[str, Any]

MOST_CHARACTERS = 50_000
"""Of the texts of one answer."""
MOST_ANSWER_BYTES = 400_000
"""Of a whole answer, as JSON."""
_STEPS = 50
_BRIEF, _TASK, _ITEMS = 400, 2_000, 400
_CATCH_UP_S = 2.0
_CUTS = (4_000, 1_000, 200, 40)
NO_SUCH_RUN = "no such run: search_runs lists the runs that you may read"


# What is asked. The descriptions are for agents.


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


RunId = Field(min_length=1, max_length=100, description="The run's id, as search_runs tells it.")
Since = Field(None, max_length=40, description="Only runs that began on or after this day (2026-01-31) or time, UTC.")
Until = Field(None, max_length=40, description="Only runs that began up to this day, with it, or before this time.")
CursorOf = Field(None, max_length=20, pattern=r"^[0-9]{1,18}$", description="`next_cursor` of the page before.")


def _known(status: str) -> str:
    if status not in RUN_STATUSES:
        raise ValueError(f"choose one of {', '.join(RUN_STATUSES)}")
    return status


Status = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(RUN_STATUSES)})]


class SearchRuns(_Asked):
    text: str = Field("", max_length=1_000, description='All words must occur; "a phrase" in quotation marks; word*.')
    status: Status | None = None
    since: str | None = Since
    limit: int = Field(20, ge=1, le=50)
    cursor: str | None = CursorOf


class ReadRun(_Asked):
    run_id: str = RunId
    first_step: int = Field(0, ge=0, le=10**6, description=f"Skip so many steps; {_STEPS} are told at once.")
    answer_offset: int = Field(0, ge=0, le=10**9, description="Skip so many characters of the answer.")


class ReadStep(_Asked):
    run_id: str = RunId
    step: str = Field(
        max_length=100,
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})*$",
        description="As read_run names it: 2, or 2.0 for step 0 of the round that step 2 opened.",
    )
    part: Literal["messages", "granted", "withheld", "turns", "attempts", "output"] | None = Field(
        None, description="Only this part; by default all, in this order."
    )
    offset: int = Field(0, ge=0, le=10**12, description="`next_offset` of the answer before.")
    limit: int = Field(20_000, ge=1, le=MOST_CHARACTERS, description="Characters of texts that are told at once.")


class CompareRuns(_Asked):
    run_ids: list[str] = Field(min_length=2, max_length=8, description="Different runs, the first is compared with.")


class Costs(_Asked):
    run_id: str | None = Field(None, min_length=1, max_length=100, description="Of this run; else sums over a time.")
    since: str | None = Since
    until: str | None = Until


class Failures(_Asked):
    kind: Kind | None = None
    worker: str | None = Field(None, max_length=200)
    model: str | None = Field(None, max_length=200, description="The served model that the client asked.")
    purpose: str = Field(ASKED, max_length=80, description="`asked`: what clients and people asked for; `*`: any.")
    by: By = "kind"
    since: str | None = Since
    until: str | None = Until
    limit: int = Field(20, ge=1, le=50)
    cursor: str | None = CursorOf


class NotThere(BadInput):
    """What is asked for does not exist, or not for this caller."""


class Traces:
    """Answers one caller. Any thread may ask. Every method raises InspectorError; no text of ``asked`` is half a
    character."""

    def __init__(self, store: Store, caller: Caller) -> None:
        self._store, self._caller = store, caller
        actor = caller.actor
        self._key: Actor | None = actor if actor is not None and actor.kind == "service" else None
        self._indexing = threading.Lock()

    # Runs.

    def search_runs(self, asked: SearchRuns) -> Document:
        self._catch_up()
        values: dict[str, str] = {} if asked.status is None else {"status": asked.status}
        only = self._filters(asked.since, None, values)
        before = None if asked.cursor is None else int(asked.cursor)
        search = self._store.search
        if asked.text.strip():
            page = search.texts(asked.text, only, None, before, asked.limit)
            names = [name for name in only.names if name != "actor"]
            self._store.access_log.searched(asked.text, names, "mcp search_runs", self._caller)
            mine = [hit for hit in page.hits if self._is_visible(hit.run_id)]
            self._store.access_log.viewed(dict.fromkeys(hit.run_id for hit in mine), "mcp search_runs", self._caller)
            runs: list[Document] = [
                {
                    "run_id": hit.run_id,
                    "status": hit.status,
                    "created_at_utc": hit.created_at_utc,
                    "simulated": hit.simulated,
                    "task": _cut(hit.task, _BRIEF),
                    "found": "".join(piece for piece, _ in hit.snippet),
                    "places": [{"field": at.field, "step": at.path} for at in hit.places[:10]],
                }
                for hit in mine
            ]
            return bounded(runs=runs, next_cursor=_cursor(page.before), **self._lag())
        found = search.runs(only, before, asked.limit)
        runs = [
            {
                "run_id": run.run_id,
                "status": run.status,
                "created_at_utc": run.created_at_utc,
                "simulated": run.simulated,
                "task": _cut(run.task, _BRIEF),
                "steps": run.steps,
                "tokens": run.usage.total_tokens,
                "cost": str(run.cost),
            }
            for run in found
            if self._is_visible(run.run_id)
        ]
        more = _cursor(found[-1].sequence if len(found) == asked.limit else None)
        return bounded(runs=runs, next_cursor=more, **self._lag())

    def read_run(self, asked: ReadRun) -> Document:
        trace, fault = self._trace(asked.run_id, "read_run")
        steps = list(trace.walk())
        shown = steps[asked.first_step : asked.first_step + _STEPS]
        answer = _safe(trace.answer or "")
        told = answer[asked.answer_offset : asked.answer_offset + MOST_CHARACTERS]
        more = [f"{step_hint(trace.run_id)} tells a step's exact messages, tools, attempts and output"] if steps else []
        after = asked.first_step + len(shown)
        if after < len(steps):
            more.append(f"{len(steps) - after} more steps: read_run with first_step={after}")
        end = asked.answer_offset + len(told)
        if end < len(answer):
            more.append(f"{len(answer) - end} more characters of the answer: read_run with answer_offset={end}")
        return bounded(
            run_id=trace.run_id,
            status=trace.status if fault is None else unreadable_status(fault),
            damage=None if fault is None else f"told as far as it can be read: {fault}",
            simulated=trace.simulated,
            created_at_utc=trace.created_at_utc,
            purpose=trace.purpose,
            asked_model=None if trace.client is None else trace.client.model,
            parent_run_id=trace.parent_run_id,
            task=_cut(trace.task, _TASK),
            conductor=None if trace.conductor is None else trace.conductor.name,
            plan=_plan_of(trace.root),
            step_count=len(steps),
            steps=[_step(trace, step) for step in shown],
            answer=None if trace.answer is None else told,
            answer_characters=len(answer),
            error=None if trace.error_code is None else {"code": trace.error_code, "message": trace.error},
            waiting=waiting_document(trace) if trace.status == "waiting" else None,
            usage=_tokens(trace.usage),
            **cost_document(cost_so_far(trace)),
            cost=cost_so_far(trace).in_line,
            duration_ms=trace.duration_ms,
            more=more,
        )

    def read_step(self, asked: ReadStep) -> Document:
        trace, fault = self._trace(asked.run_id, "read_step")
        try:
            step = trace.step_at(_path(asked.step))
        except KeyError:
            raise NotThere(f"run {trace.run_id} has no step {asked.step}: read_run lists its steps") from None
        items = [item for item in _items(step) if asked.part in (None, item[0])]
        shown, after, total = _window(items, asked.offset, asked.limit)
        return bounded(
            run_id=trace.run_id,
            step=label(step.path),
            agent=step.agent,
            status=step.shown_status,
            access_list=step.access_list,
            damage=None if fault is None else f"told as far as it can be read: {fault}",
            items=shown,
            size=total,
            next_offset=after,
            more=[] if after is None else [f"the rest: read_step with offset={after}"],
        )

    def compare_runs(self, asked: CompareRuns) -> Document:
        found = [self._trace(run_id, "compare_runs") for run_id in asked.run_ids]
        traces = [trace for trace, _ in found]
        if len({trace.run_id for trace in traces}) < len(traces):
            raise BadInput("a run is named twice; give different runs to compare")
        for trace, fault in found:
            if fault is not None:
                raise BadInput(f"run {trace.run_id} cannot be compared: {fault}")
        return bounded(**comparison_document(traces))

    # Sums.

    def costs(self, asked: Costs) -> Document:
        if asked.run_id is not None:
            trace, fault = self._trace(asked.run_id, "costs")
            return bounded(**_costs(trace), damage=None if fault is None else str(fault))
        self._catch_up()
        rows = self._store.search.spending(self._filters(asked.since, asked.until))
        newest = rows[-_ITEMS:]
        return bounded(
            since=asked.since,
            until=asked.until,
            rows=[
                row.model_dump(mode="json", exclude={"actor"}) | ({} if self._key else {"person": row.person})
                for row in newest
            ],
            calls=sum(row.calls for row in rows),
            tokens=sum(row.tokens for row in rows),
            known_usd=sum(row.known_usd for row in rows if not row.simulated),
            unpriced_calls=sum(row.unpriced for row in rows if not row.simulated),
            more=[f"{len(rows) - len(newest)} older rows: ask for less time"] if len(rows) > len(newest) else [],
            **self._lag(),
        )

    def failures(self, asked: Failures) -> Document:
        self._catch_up()
        narrowed = Narrowed(kind=asked.kind, agent=asked.worker, served=asked.model, purpose=asked.purpose)
        before = None if asked.cursor is None else int(asked.cursor)
        with self._store.search.catalogue(self._filters(asked.since, asked.until), narrowed) as catalogue:
            counts, page = catalogue.counts(asked.by)[:_ITEMS], catalogue.requests(before, asked.limit)
        requests = [row for row in page if self._is_visible(row.run_id)]
        self._store.access_log.viewed(dict.fromkeys(row.run_id for row in requests), "mcp failures", self._caller)
        return bounded(
            kinds={name: means for name, (_, _, means) in KINDS.items()},
            by=asked.by,
            counts=[count.model_dump(mode="json") for count in counts],
            requests=[
                row.model_dump(mode="json", exclude={"cursor", "task"}) | {"task": _cut(row.task, _BRIEF)}
                for row in requests
            ],
            next_cursor=_cursor(page[-1].cursor if len(page) == asked.limit else None),
            **self._lag(),
        )

    # Who may see what.

    def _is_visible(self, run_id: str) -> bool:
        return self._key is None or self._store.service_keys.asked_for(run_id, self._key)

    def _trace(self, asked: str, what: str) -> tuple[RunTrace, RunUnreadable | None]:
        """Raises: NotThere; RunUnreadable if nothing of the run can be read."""
        run_id, fault = asked, None
        if not self._is_visible(run_id):
            raise NotThere(NO_SUCH_RUN)
        try:
            run_id = run_id if self._key is not None else self._store.resolve(run_id)
            trace, _ = self._store.trace(run_id)
        except UnknownRun:
            raise NotThere(NO_SUCH_RUN) from None
        except RunUnreadable as error:
            if error.trace is None:
                raise
            trace, fault = error.trace, error
        if self._key is not None and (trace.actor is None or trace.actor.id != self._key.id or trace.imported):
            raise NotThere(NO_SUCH_RUN)  # its row says otherwise than its events
        self._store.access_log.viewed([run_id], f"mcp {what}", self._caller)
        return trace, fault

    def _filters(self, since: str | None, until: str | None, values: dict[str, str] | None = None) -> Filters:
        own = {} if self._key is None else {"actor": self._key.id}
        return Filters(values={**(values or {}), **own}, since_utc=_moment(since), until_utc=_end(until))

    # Answers.

    def _catch_up(self) -> None:
        """Takes runs into the index that have just ended, for a moment."""
        if self._store.refusal is None and self._indexing.acquire(blocking=False):
            stop = threading.Event()
            timer = threading.Timer(_CATCH_UP_S, stop.set)
            timer.start()
            try:
                self._store.search.catch_up(stop=stop)
            finally:
                timer.cancel()
                self._indexing.release()

    def _lag(self) -> Document:
        """Says what the index does not have; not to a key, which may not know how many runs of others there are."""
        return {} if self._key is not None else {"not_searched": self._store.search.lag().in_words or None}


def step_hint(run_id: str) -> str:
    return f"read_step with run_id={run_id} and step=N"


# Parts of documents.


def _cut(text: str, most: int) -> str:
    """Returns the beginning of a text, and how long it is."""
    safe = _safe(text[: 4 * most + 1_000])
    return safe if len(text) <= most else f"{safe[:most]}… [{len(text):,} characters]"


def _safe(text: str) -> str:
    return known_and_set().text(whole_characters(text))


def _cursor(number: int | None) -> str | None:
    return None if number is None else str(number)


def _moment(typed: str | None) -> datetime | None:
    if typed is None:
        return None
    try:
        moment = datetime.fromisoformat(typed)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(f"{typed!r} is not a date (2026-01-31) or an ISO 8601 time") from None


def _end(typed: str | None) -> datetime | None:
    with suppress(ValueError):
        return None if typed is None else end_of(date.fromisoformat(typed))
    return _moment(typed)


def _path(step: str) -> Path:
    return tuple(map(int, step.split(".")))


def _tokens(usage: Usage) -> Document:
    return {"input": usage.input_tokens, "output": usage.output_tokens, "estimated": usage.estimated}


def _plan_of(round_: RoundTrace) -> Document:
    return {
        "status": round_.status,
        "source": round_.source,
        "topology": round_.topology,
        "repairs": [_cut(each, _BRIEF) for each in round_.repairs[:20]],
        "warnings": [_cut(each.message, _BRIEF) for each in round_.warnings[:20]],
        "rejected": [
            {"attempt": plan.attempt, "faults": [_cut(each.message, _BRIEF) for each in plan.faults[:20]]}
            for plan in round_.rejected[:20]
        ],
        "failed_calls": [_failed(call.error_code, call.error) for call in round_.retries[:20]],
        "raw": _cut(round_.raw, _TASK),
    }


def _failed(code: str, message: str) -> Document:
    return {"code": code, "message": _cut(message, _BRIEF)}


def _step(trace: RunTrace, step: StepTrace) -> Document:
    cost = cost_of_part(trace, step)
    return {
        "step": label(step.path),
        "agent": step.agent,
        "answered_by": step.answered_by,
        "instruction": _cut(step.instruction, _BRIEF),
        "access_list": step.access_list,
        "reads": [label((*step.path[:-1], index)) for index in step.reads],
        "status": step.shown_status,
        "output": _cut(step.output, _BRIEF),
        "output_characters": len(step.output),
        "error": None if step.error_code is None else _failed(step.error_code, step.error or ""),
        "attempts_failed": len(step.attempts),
        "tool_turns": len(step.turns),
        "reused_from": None if step.reused_from is None else step.reused_from.run_id,
        "opened_round": step.round is not None,
        "tokens": _tokens(step.usage),
        "cost_usd": cost.usd,
        "cost": cost.in_line,
        "duration_ms": step.duration_ms,
    }


def _costs(trace: RunTrace) -> Document:
    parts: list[tuple[str, str, Any]] = [(label(each.path), "conductor", each) for each in trace.root.rounds()]
    parts += [(label(step.path), step.asked, step) for step in trace.walk()]
    workers: dict[str, list[Any]] = {}
    rows = []
    for path, agent, part in parts:
        cost = cost_of_part(trace, part)
        if not part.usage.total_tokens and not cost.known_usd and cost.usd is not None:
            continue
        plan = isinstance(part, RoundTrace)
        rows.append(
            {
                "part": ("plan" if plan else "step") + (f" {path}" if path else ""),
                "agent": agent,
                "tokens": _tokens(part.usage),
                "cost_usd": cost.usd,
                "known_usd": cost.known_usd,
                "cost": cost.in_line,
            }
        )
        workers.setdefault(agent, []).append((part.usage, cost))
    return {
        "run_id": trace.run_id,
        "status": trace.status,
        "simulated": trace.simulated,
        "parts": rows[: 2 * _ITEMS],
        "workers": [
            {
                "agent": agent,
                "calls": len(spent),
                "tokens": _tokens(sum((usage for usage, _ in spent), Usage())),
                "known_usd": sum(cost.known_usd for _, cost in spent),
                "all_priced": all(cost.usd is not None for _, cost in spent),
            }
            for agent, spent in list(workers.items())[:_ITEMS]
        ],
        "usage": _tokens(trace.usage),
        **cost_document(cost_so_far(trace)),
        "cost": cost_so_far(trace).in_line,
        "duration_ms": trace.duration_ms,
    }


# The parts of a step, as one row of texts.

_Item = tuple[str, Document, str]
"""The part that it belongs to, its facts, and its text, which is told in pieces."""


def _items(step: StepTrace) -> Iterator[_Item]:
    for number, message in enumerate(step.messages):
        yield from _message(number, message)
    yield from (("granted", _shared(each), "") for each in step.granted)
    yield from (("withheld", _shared(each), "") for each in step.withheld)
    for number, turn in enumerate(step.turns):
        yield from (("turns", {"turn": number, **facts}, text) for facts, text in _turn(turn))
    for attempt in step.attempts:
        facts = {
            "attempt": attempt.attempt,
            "agent": attempt.agent or step.agent,
            "error_code": attempt.error_code,
            "then": attempt.then,
            "then_agent": attempt.then_agent,
            "wait_ms": attempt.wait_ms,
        }
        yield "attempts", {**facts, "is": "error"}, attempt.error
        if attempt.partial:
            yield "attempts", {**facts, "is": "partial answer"}, attempt.partial
        if attempt.correction:
            yield "attempts", {**facts, "is": "what the worker was told"}, attempt.correction
    ending = step.ending if step.error is None else None
    answered = {"finish_reason": step.finish_reason, "ending": ending, "model": step.model}
    yield "output", {"is": "output", **answered, "sha256": step.output_sha256}, step.output
    for name, text in (("reasoning", step.reasoning), ("refusal", step.refusal), ("error", step.error or "")):
        if text:
            yield "output", {"is": name}, text
    for call in step.tool_calls:
        yield "output", {"is": "tool call", "name": _cut(call.name, _BRIEF), "call_id": call.call_id}, call.arguments


def _message(number: int, message: Message) -> Iterator[_Item]:
    parts = parts_of(message.content)
    for index, part in enumerate(parts):
        facts: Document = {"message": number, "role": message.role}
        if len(parts) > 1 or not isinstance(part, TextPart):
            facts |= {"part_of_message": index, "kind": part.kind}
        match part:
            case TextPart():
                yield "messages", facts, part.text
            case ToolResultPart():
                yield "messages", facts | {"call_id": part.call_id, "is_error": part.is_error}, part.text
            case _:
                yield "messages", facts, json.dumps(part.model_dump(mode="json", exclude={"kind"}))


def _shared(output: SharedOutput) -> Document:
    facts: Document = output.model_dump(mode="json", exclude={"path"})
    return {"step": label(output.path), **facts, "agent": _cut(output.agent, _BRIEF)}


def _turn(turn: ToolTurn) -> Iterator[tuple[Document, str]]:
    yield {"is": "text", "agent": turn.agent}, turn.text
    for call in turn.calls:
        whose, ran = "pool" if call.call_id in turn.ours else "client", turn.ran_of(call.call_id)
        facts = {"is": "call", "name": _cut(call.name, _BRIEF), "call_id": call.call_id, "tools_of": whose}
        if ran is not None:
            facts |= ran.model_dump(mode="json", include={"server", "tool", "outcome", "duration_ms"})
        yield facts, call.arguments
    for result in turn.partial if turn.results is None else turn.results:
        yield {"is": "result", "call_id": result.call_id, "is_error": result.is_error}, result.text
    if turn.said:
        yield {"is": "said by the client"}, turn.said


def _window(items: Sequence[_Item], offset: int, limit: int) -> tuple[list[Document], int | None, int]:
    """Returns the items from ``offset`` on with ``limit`` characters of texts, where they go on, and the size of all.

    Each item counts as its characters and one more, so that items without a text have a place.
    """
    shown: list[Document] = []
    total = sum(len(text) + 1 for _, _, text in items)
    at, left, after = 0, limit, None
    for part, facts, whole in items:
        begin, end = at, at + len(whole) + 1
        at = end
        if end <= offset:
            continue
        if left <= 0 or len(shown) == _ITEMS:
            after = begin
            break
        text, skipped = _safe(whole), max(0, offset - begin)
        piece = text[skipped : skipped + left]
        if skipped + len(piece) >= len(whole):  # a hidden key may read longer than it was
            piece = text[skipped:]
        left -= len(piece) + 1
        shown.append({"part": part, **facts, "text": piece, "offset": skipped, "characters": len(text)})
        if skipped + len(piece) < len(text):
            after = begin + skipped + len(piece)
            break
    return shown, after, total


# The size of a whole answer.


def bounded(**document: Any) -> Document:
    """Returns a document as JSON has it, safe to send; where it is too large, long texts are cut, then long lists."""
    plain: Document = _plain(to_jsonable_python(document), MOST_CHARACTERS, 10**6)
    for cut in _CUTS:
        if _size(plain) <= MOST_ANSWER_BYTES:
            return plain
        plain = {**_plain(plain, cut, _ITEMS if cut > _CUTS[-1] else 20), "cut": True}
    return plain if _size(plain) <= MOST_ANSWER_BYTES else {"cut": True, "error": "too large to be told at once"}


def _size(document: Document) -> int:
    return len(json.dumps(document, ensure_ascii=False).encode())


def _plain(value: Any, text: int, items: int) -> Any:
    match value:
        case str():
            safe = _safe(value)
            return safe if len(safe) <= text else f"{safe[:text]}… [cut: {len(safe):,} characters; read_step tells all]"
        case dict():
            return {_plain(str(name), text, items): _plain(each, text, items) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each, text, items) for each in value[:items]]
    return value
