"""Answers what clients ask by runs: begins one or takes one up, and tells how it goes on, until the response ends.

A request with results of tools takes up the run that waits for them, found by the ids of its calls. The same results
again bring what they brought before, and nobody is asked twice; other results begin a new run where the first one was.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic import ValidationError

from conductor_core.chat.messages import (
    ImagePart,
    LoadedImage,
    Message,
    TextPart,
    ToolResultPart,
    images_in,
    parts_of,
)
from conductor_core.chat.servers import servers
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.host import EngineHost
from conductor_core.engine.pools import pool_info
from conductor_core.engine.request import RunRecords, asks_conductor, rerun_of, resume_of
from conductor_core.errors import RunHasEnded, UnknownRun
from conductor_core.run import events as ev
from conductor_core.run.actor import THE_PROGRAM, Caller
from conductor_core.run.commands import Command, ToolResults
from conductor_core.run.events import Event
from conductor_core.run.request import MOST_IMAGES, ClientRequest, GivenTurns, Overrides, RunRequest
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import ToldAnew
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Ended, Outcome, Part, Telling, named, told
from conductor_core.serving.reading import Asked
from conductor_core.serving.responses import input_system
from conductor_core.serving.served_models import ServedModel, ServedModels, tiered
from conductor_core.settings import Settings
from conductor_core.text import whole_characters

REMEMBERED = 4096
"""Answers by which the next request of a conversation is known to belong to it, and requests whose client left."""
_ATTEMPTS = 3
_MOST_BRANCHES = 100
"""Runs that went on from other results, among which the one is looked for that went on from the same."""


class Stored(Protocol):
    @property
    def event(self) -> Event: ...


class Records(RunRecords, Protocol):
    """Where runs are kept."""

    def events(self, run_id: str) -> Sequence[Stored]:
        """Blocks. Raises: UnknownRun, RunUnreadable, StoreError."""

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Stored]]: ...

    def keep_images(self, images: Sequence[LoadedImage]) -> None: ...

    def as_kept(self, command: Command) -> Command:
        """A command without what is hidden from records, as recorded ones are. Blocks. Raises: StoreError."""

    def copies(self, run_id: str) -> list[str]:
        """The re-runs of a run. Blocks. Raises: StoreError."""


class Turn:
    """One response that is being made, or was made."""

    def __init__(self, turns: "Turns", run_id: str, number: int, caller: Caller, key: str | None = None) -> None:
        self.run_id, self.number = run_id, number
        self._turns, self._caller, self._key = turns, caller, key

    async def parts(self) -> AsyncGenerator[list[Part]]:
        """Yields how the response goes on, what came together at once; the last part is ``Ended``, also if the run
        fails.

        Closing it before its end cancels the run, unless another request still waits for the same: the client has left.
        Raises: StoreError, RunUnreadable.
        """
        whole = False
        telling: Telling | None = None
        self._turns.listeners[self.run_id] += 1
        try:
            async with aclosing(self._turns.follow(self.run_id)) as groups:
                async for group in groups:
                    told: list[Part] = []
                    for stored in group:
                        if telling is None:
                            telling = Telling(stored.event)
                            parts = telling.began
                        else:
                            parts = telling.feed(stored.event)
                        if parts and telling.number == self.number:
                            told += parts
                            if isinstance(parts[-1], Ended):
                                whole = True
                                self._turns.remember(telling.trace, parts[-1].outcome)
                                yield told
                                return
                    if told:
                        yield told
        finally:
            self._turns.listeners[self.run_id] -= 1
            if not self._turns.listeners[self.run_id]:
                del self._turns.listeners[self.run_id]
            if not whole and self.run_id not in self._turns.listeners:
                await self._turns.left(self.run_id, self._caller, self._key)

    def revoke(self) -> None:
        """Has the record say, should the run be cancelled, that its client did not do that: its key was revoked."""
        self._caller = Caller(actor=THE_PROGRAM, door="api")

    async def outcome(self) -> Outcome:
        """Waits for the end. Cancelling it cancels the run."""
        async with aclosing(self.parts()) as groups:
            async for group in groups:
                if isinstance(group[-1], Ended):
                    return group[-1].outcome
        raise ApiError(500, "The run has no end.", code="no_end", may_retry=False, run_id=self.run_id)


class Turns:
    """Begins and finds responses.

    Attributes:
        listeners: how many requests wait for a response of each run.
    """

    def __init__(self, host: EngineHost, records: Records, settings: Settings, models: ServedModels) -> None:
        self._host, self._records, self._settings, self._models = host, records, settings, models
        self.listeners: Counter[str] = Counter()
        self._branching = asyncio.Lock()
        self._conversations: OrderedDict[str, str] = OrderedDict()
        self._left: OrderedDict[str, str] = OrderedDict()

    async def begin(self, asked: Asked, caller: Caller, excluded: tuple[str, ...], cap: CostCap | None) -> Turn:
        """Returns when the run's beginning, or the results of its tools, are durable.

        Args:
            excluded: providers that the caller's key keeps out.

        Raises: ApiError; BadInput, StoreError.
        """
        tried = 0
        while asked.results:
            waiting = await asyncio.to_thread(self._called, asked, caller)
            if waiting is None:
                break
            turn = await self._take_up(asked, caller, waiting, cap)
            if isinstance(turn, Turn):
                return turn
            if turn is not None:
                return await self._branch(*turn, asked, caller, cap)
            # Another request was quicker: look again what it made of the run.
            if (tried := tried + 1) == _ATTEMPTS:
                raise _not_taken_up(waiting.trace.run_id)
        model = self._models.get(asked.model)
        if model is None:
            raise ApiError(
                404, f"The model '{asked.model[:80]}' does not exist.", code="model_not_found", param="model"
            )
        key = _key_of(asked, caller)
        before = self._left.pop(key, None)

        def start() -> str:  # in one thread: to change threads takes longer than some of what is done there
            request = self._request(asked, caller, model, excluded)
            return self._start(request if before is None else self._again(before, request), asked, cap)

        return Turn(self, await asyncio.to_thread(start), 0, caller, key)

    def _start(self, request: RunRequest, asked: Asked, cap: CostCap | None) -> str:
        """Blocks. Raises: BadInput, also if what the caller's key may spend in a day cannot be kept with these
        workers; StoreError."""
        images = [image for turn in asked.turns for image in images_in(turn.content)]
        loaded = [image for image in images if isinstance(image, LoadedImage)]
        if loaded:
            self._records.keep_images(loaded)
        if cap is not None:
            ref = self._settings.pool if request.pool is None else request.pool
            cap.check_workers(pool_info(ref, self._settings, request.excluded).workers)
        return self._host.start(request, cap)

    async def _branch(
        self, request: RunRequest, as_kept: RunRequest, asked: Asked, caller: Caller, cap: CostCap | None
    ) -> Turn:
        """Goes on from other results than a run was given; if that was asked before, with the run that did.

        ``as_kept``: the request as its record would have it.
        """
        async with self._branching:
            run_id = await asyncio.to_thread(self._branch_of, as_kept, caller)
            if run_id is not None:
                return Turn(self, run_id, 0, caller)
            return Turn(self, await asyncio.to_thread(self._start, request, asked, cap), 0, caller)

    def _branch_of(self, request: RunRequest, caller: Caller) -> str | None:
        for run_id in reversed(self._records.copies(request.parent_run_id or "")[-_MOST_BRANCHES:]):
            try:
                trace = self._records.read(run_id)
            except UnknownRun:  # deleted meanwhile
                continue
            same = all(getattr(trace, name) == getattr(request, name) for name in ("overrides", *ToldAnew.model_fields))
            if same and trace.client is not None and _is_of(trace, caller) and not _was_stopped(trace):
                return run_id
        return None

    def outcomes(self, run_id: str) -> list[Outcome]:
        """Returns all responses of a run, the last one perhaps in progress. Blocks.

        Raises: ApiError 404, StoreError.
        """
        try:
            telling = told(stored.event for stored in self._records.events(run_id))
        except (UnknownRun, ValueError):
            raise ApiError(404, "There is no such response.", code="not_found") from None
        last = telling.outcome()
        return telling.ended if telling.ended and telling.ended[-1].number == last.number else [*telling.ended, last]

    def run(self, run_id: str) -> RunTrace:
        """Returns a run as it is now. Blocks. Raises: UnknownRun, StoreError."""
        return self._records.read(run_id)

    def recorded(self, run_id: str, number: int) -> Outcome:
        """Returns a response from the record. Blocks. Raises: ApiError 404, StoreError."""
        found = self.outcomes(run_id)
        if number >= len(found):
            raise ApiError(404, "There is no such response.", code="not_found")
        return found[number]

    def input_of(self, run_id: str, number: int) -> tuple[Message, ...]:
        """Returns what a response was asked, the whole conversation, with its images. Blocks. Raises: as ``outcomes``.

        Of a later response of a run, it is what the tools brought.
        """
        returned = [s.event for s in self._records.events(run_id) if isinstance(s.event, ev.ToolReturned)]
        if number == 0:
            conversation = self._records.read(run_id).conversation
        elif number <= len(returned):
            event = returned[number - 1]
            said = (TextPart(text=event.said),) if event.said else ()
            conversation = (Message(role="user", content=(*event.results, *said)),)
        else:
            raise ApiError(404, "There is no such response.", code="not_found")
        return tuple(turn.model_copy(update={"content": self._loaded(turn)}) for turn in conversation)

    def _loaded(self, turn: Message) -> Any:
        if isinstance(turn.content, str):
            return turn.content
        return tuple(
            LoadedImage(**part.model_dump(), data=self._records.content(part.sha256)[1])
            if isinstance(part, ImagePart)
            else part
            for part in turn.content
        )

    async def cancel(self, run_id: str, caller: Caller) -> None:
        await asyncio.to_thread(self._host.cancel, run_id, caller)

    # What goes on.

    def follow(self, run_id: str) -> AsyncGenerator[Sequence[Stored]]:
        return self._records.follow(run_id)

    async def left(self, run_id: str, caller: Caller, key: str | None) -> None:
        """Ends the run of a client that has left. Should it ask the same again, what is finished is not paid twice."""
        if key is not None:
            _remember(self._left, key, run_id)
        await asyncio.shield(asyncio.create_task(self.cancel(run_id, caller)))

    def remember(self, trace: RunTrace, outcome: Outcome) -> None:
        """Remembers an answer, by which the next request of its conversation is known."""
        if outcome.text and outcome.status == "completed":
            self.remember_answer(trace, outcome.text)

    def remember_answer(self, asked: RunRequest | RunTrace, answer: str) -> None:
        mark = _mark(asked.caller, asked.task, answer)
        _remember(self._conversations, mark, asked.conversation_id or asked.run_id)

    # A new run.

    def _request(self, asked: Asked, caller: Caller, model: ServedModel, excluded: tuple[str, ...]) -> RunRequest:
        before, told_before, conversation_id = self._previous(asked, caller)
        turns = (*before, *(without_contents(turn) for turn in asked.turns))
        task, images, turns_before = task_of(turns)
        if conversation_id is None:
            conversation_id = self.conversation_of(caller, turns_before)
        conductor = model.conductor or self._settings.conductor
        needs_conductor = asks_conductor(asked.workflow)
        if needs_conductor and excluded and not servers(self._host.conductor_info(conductor)).isdisjoint(excluded):
            message = "The Conductor of this model is at a provider that this key excludes: ask another model."
            raise ApiError(403, message, code="providers_excluded")
        limits = self._models.limits(model, asked.effort)
        if asked.workflow is not None:
            limits = limits.model_copy(update={"max_steps": max(limits.max_steps, len(asked.workflow.steps))})
        try:
            request = RunRequest(
                task=task,
                images=images,
                turns_before=turns_before,
                workflow=asked.workflow,
                conductor=conductor if needs_conductor else None,
                pool=model.pool,
                limits=limits,
                seed=self._settings.seed,
                excluded=(*dict.fromkeys((*asked.excluded, *self._kept_out(model, excluded, asked.excluded))),),
                system="\n\n".join(filter(None, (asked.system, told_before))),
                tools=asked.tools,
                tool_choice=asked.tool_choice,
                rules=asked.rules,
                client=_client_of(asked, model),
                conversation_id=conversation_id,
                actor=caller.actor,
                door=caller.door,
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ApiError(400, f"{first['loc'][0] if first['loc'] else 'request'}: {first['msg']}") from None
        if model.tiers is None or asked.workflow is not None:
            return request
        return tiered(request, model.tiers, self._models.classifiers, asked.effort, request.excluded)

    def _kept_out(self, model: ServedModel, providers: Collection[str], named_too: Collection[str]) -> list[str]:
        """Returns the workers at providers that the caller's key keeps out. Raises: ApiError 403 if none is left."""
        if not providers:
            return []
        pool = pool_info(model.pool or self._settings.pool, self._settings)
        out = [spec.name for spec in pool.workers if not servers(spec).isdisjoint(providers)]
        if not {spec.name for spec in pool.workers} - {*out, *named_too}:
            message = "No worker is left that this key allows: all are at providers that it excludes."
            raise ApiError(403, message, code="providers_excluded")
        return out

    def _previous(self, asked: Asked, caller: Caller) -> tuple[tuple[Message, ...], str, str | None]:
        """Returns the conversation that ``previous_response_id`` names, its system messages, and its id.

        The instructions of an earlier request do not hold for this one.
        """
        if asked.previous_response_id is None:
            return (), "", None
        found = named(asked.previous_response_id)
        gone = ApiError(
            400,
            f"Previous response with id '{asked.previous_response_id[:80]}' not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
        if found is None:
            raise gone
        try:
            outcomes = self.outcomes(found.run_id)
            trace = self._records.read(found.run_id)
        except (ApiError, UnknownRun):
            raise gone from None
        if found.number >= len(outcomes) or not _is_of(trace, caller):
            raise gone
        outcome = outcomes[found.number]
        if not outcome.client.store:
            raise gone
        if outcome.calls:
            ids = ", ".join(call.call_id for call in outcome.calls)
            raise ApiError(400, f"No tool output found for {ids}.", code="missing_tool_output", param="messages")
        if outcome.status == "in_progress":
            raise ApiError(400, "The previous response is still in progress.", param="previous_response_id")
        said = (Message(role="assistant", content=outcome.text),) if outcome.text else ()
        told = input_system(trace.system, outcomes[0].client.echoed)
        return (*trace.conversation, *said), told, trace.conversation_id or trace.run_id

    def conversation_of(self, caller: Caller, turns_before: Sequence[Message]) -> str | None:
        """Returns the id of the conversation that has these turns; None: it is not known."""
        answers = [place for place, turn in enumerate(turns_before) if turn.role == "assistant"]
        for place in reversed(answers):
            before = next((turn for turn in reversed(turns_before[:place]) if turn.role == "user"), None)
            if before is not None:
                mark = _mark(caller, _text_of(before), _text_of(turns_before[place]))
                if (found := self._conversations.get(mark)) is not None:
                    return found
        return None

    def _again(self, run_id: str, request: RunRequest) -> RunRequest:
        """Returns the request of a client that left and asks the same again, as one that resumes its first run."""
        trace = self._records.read(run_id)
        if trace.status != "cancelled":
            return request
        again = resume_of(trace, door="api")
        same = {name: getattr(request, name) for name in ("actor", "client", "conversation_id")}
        same |= {"tier": trace.tier}
        return again.model_copy(update=same)

    # A run that waits for tools.

    def _called(self, asked: Asked, caller: Caller) -> "_Waiting | None":
        """Returns the run that called the tools whose results came; None: they are history of another server.

        Raises: ApiError 400 for two results of one call.
        """
        found = {known.run_id for result in asked.results if (known := named(result.call_id)) is not None}
        for run_id in sorted(found):
            try:
                trace = self._records.read(run_id)
            except UnknownRun:
                continue
            if trace.client is not None and _is_of(trace, caller):
                ids = {call.call_id for step in trace.walk() for turn in step.turns for call in turn.calls}
                results = dict.fromkeys(result for result in asked.results if result.call_id in ids)
                if results:
                    return _Waiting(trace, _one_for_each(results), _said_beside(asked))
        return None

    async def _take_up(
        self, asked: Asked, caller: Caller, waiting: "_Waiting", cap: CostCap | None
    ) -> Turn | tuple[RunRequest, RunRequest] | None:
        """Returns the response that the results bring, or the request of a run that goes on from them, and the same as
        its record would have it.

        None: another request changed the run meanwhile. Raises: ApiError 400 if some of the results are missing.
        """
        trace, brought = waiting.trace, {result.call_id for result in waiting.results}
        still = {call.call_id for call in trace.open_calls}
        if brought & still:
            if missing := sorted(still - brought):
                message = f"No tool output found for {', '.join(missing)}: send the results of all calls together."
                raise ApiError(400, message, code="missing_tool_output", param="messages")
            with self._host.taking_up(trace.run_id, cap):
                sent = await self._send(asked, caller, waiting, still)
            return Turn(self, trace.run_id, waiting.number_of_wait(still) + 1, caller) if sent else None
        group = waiting.group_of(brought)
        missing = sorted(group - brought)
        if missing:
            message = f"No tool output found for {', '.join(missing)}: send the results of all calls together."
            raise ApiError(400, message, code="missing_tool_output", param="messages")
        number = waiting.number_of_wait(group) + 1
        told, before = await asyncio.to_thread(self._told, trace.run_id, number)
        says = _says(asked, before)
        kept = await asyncio.to_thread(self._kept, waiting, says)
        if kept.same_as_recorded(group) and kept.says == told:
            outcomes = await asyncio.to_thread(self.outcomes, trace.run_id)
            if number < len(outcomes) - 1 or not _was_stopped(trace):
                return Turn(self, trace.run_id, number, caller)
        return self._other_run(asked, caller, waiting, group, says), self._other_run(
            asked, caller, kept, group, kept.says or says
        )

    def _kept(self, waiting: "_Waiting", says: ToldAnew) -> "_Waiting":
        """Returns results and what is said with them as records have them, where some texts are hidden. Blocks."""
        command = ToolResults(run_id=waiting.trace.run_id, results=waiting.results, said=waiting.said, anew=says)
        kept = self._records.as_kept(command)
        if not isinstance(kept, ToolResults):
            raise TypeError(f"a command of kind {kept.kind} was kept for results of tools")
        return replace(waiting, results=kept.results, said=kept.said, says=kept.anew)

    def _told(self, run_id: str, number: int) -> tuple[ToldAnew, "_Before"]:
        """Returns what held for the response ``number`` of a run, and what its request went on from. Blocks."""
        request = self._records.created(run_id).request
        told = ToldAnew(
            system=request.system, tools=request.tools, tool_choice=request.tool_choice, rules=request.rules
        )
        client, before = request.client, _Before(told.system, {})
        returned = [s.event for s in self._records.events(run_id) if isinstance(s.event, ev.ToolReturned)]
        for event in returned[:number]:
            before = _Before(told.system, {} if client is None else client.echoed)
            told, client = event.anew or told, event.client or client
        return told, before

    async def _send(self, asked: Asked, caller: Caller, waiting: "_Waiting", ids: Collection[str]) -> bool:
        """Sends results to the run that waits for them. Returns False if another request was quicker."""
        run_id = waiting.trace.run_id
        command = ToolResults(
            run_id=run_id,
            results=tuple(result for result in waiting.results if result.call_id in ids),
            said=waiting.said,
            anew=await asyncio.to_thread(self._anew, asked, waiting),
            client=_client_of(asked, self._models.get(asked.model)),
            actor=caller.actor,
            door=caller.door,
        )
        try:
            number = await asyncio.to_thread(self._records.send, command)
        except RunHasEnded:
            return False
        events = self._records.follow(run_id)
        try:
            async for group in events:
                for stored in group:
                    event = stored.event
                    if isinstance(event, ev.ToolReturned) and event.command == number:
                        return True
                    if isinstance(event, ev.CommandRefused) and event.command == number:
                        return False
        finally:
            await events.aclose()
        return False

    def _anew(self, asked: Asked, waiting: "_Waiting") -> ToldAnew | None:
        """Returns what a request with results tells its run anew, as a handoff to another agent does; None: nothing."""
        trace = waiting.trace
        now = _says(asked, _Before(trace.system, {} if trace.client is None else trace.client.echoed))
        before = ToldAnew(system=trace.system, tools=trace.tools, tool_choice=trace.tool_choice, rules=trace.rules)
        demands = asked.tool_choice not in ("auto", "none")
        return now if demands or self._kept(waiting, now).says != before else None

    def _other_run(
        self, asked: Asked, caller: Caller, waiting: "_Waiting", group: Collection[str], told: ToldAnew
    ) -> RunRequest:
        """Returns a run that goes on from other results than its parent did, or told anew, where that waited."""
        trace, given = waiting.trace, []
        results = {result.call_id: result for result in waiting.results}
        for step in trace.steps:
            for place, turn in enumerate(step.turns):
                if turn.calls[0].call_id not in group:
                    continue
                brought = tuple(results[call.call_id] for call in turn.calls)
                now = turn.model_copy(update={"results": brought, "said": waiting.said})
                given.append(GivenTurns(step=step.index, turns=(*step.turns[:place], now)))
        overrides = Overrides(turns=tuple(given))
        request = rerun_of(trace, door="api", overrides=overrides)
        more = {
            "actor": caller.actor,
            "client": _client_of(asked, self._models.get(asked.model)),
            "conversation_id": trace.conversation_id or trace.run_id,
            **{name: getattr(told, name) for name in ToldAnew.model_fields},
        }
        return request.model_copy(update=more)


@dataclass(frozen=True)
class _Before:
    """What a request with results goes on from: the system text that held, and what its client's fields were."""

    system: str
    echoed: Mapping[str, Any]


@dataclass(frozen=True)
class _Waiting:
    """A run that called tools, and results that came for it.

    Attributes:
        said: what the client said beside them. says: what it tells the run with them; None: not asked yet.
    """

    trace: RunTrace
    results: tuple[ToolResultPart, ...]
    said: str
    says: ToldAnew | None = None

    def _waits(self) -> list[set[str]]:
        """Returns the calls of each wait of the run, in order: those of one wait returned together."""
        waits: dict[float | None, set[str]] = {}
        for _, turn in self._turns():
            waits.setdefault(turn.returned_ms, set()).update(call.call_id for call in turn.calls)
        return [waits[at] for at in sorted(waits, key=lambda at: float("inf") if at is None else at)]

    def _turns(self) -> Iterable[tuple[StepTrace, Any]]:
        return ((step, turn) for step in self.trace.walk() if step.reused_from is None for turn in step.turns)

    def group_of(self, ids: Collection[str]) -> set[str]:
        """Returns all calls of the last wait that any of ``ids`` belongs to."""
        return next(group for group in reversed(self._waits()) if not group.isdisjoint(ids))

    def number_of_wait(self, group: Collection[str]) -> int:
        return self._waits().index(set(group))

    def same_as_recorded(self, group: Collection[str]) -> bool:
        if any(turn.said != self.said for _, turn in self._turns() if turn.calls[0].call_id in group):
            return False
        recorded = {
            result.call_id: result
            for _, turn in self._turns()
            for result in turn.results or ()
            if result.call_id in group
        }
        return all(recorded.get(result.call_id) == result for result in self.results if result.call_id in group)


# Words and marks.


def _one_for_each(results: Collection[ToolResultPart]) -> tuple[ToolResultPart, ...]:
    """Raises: ApiError 400 if one call has two results."""
    counted = Counter(result.call_id for result in results)
    if twice := next((call_id for call_id, times in counted.items() if times > 1), None):
        raise ApiError(
            400,
            f"Two different outputs for {twice}: send one for each call.",
            code="duplicate_tool_output",
            param="messages",
        )
    return tuple(results)


def _client_of(asked: Asked, model: ServedModel | None) -> ClientRequest:
    usual = True if model is None else model.summaries
    return ClientRequest(
        api=asked.api,
        model=asked.model,
        stream=asked.stream,
        store=asked.store,
        summaries=usual if asked.summaries is None else asked.summaries,
        previous_response_id=asked.previous_response_id,
        echoed=asked.echoed,
    )


def _says(asked: Asked, before: _Before) -> ToldAnew:
    """Returns what a request says beside its results. The system messages of a previous response hold on."""
    system = asked.system
    if asked.previous_response_id is not None:
        system = "\n\n".join(filter(None, (system, input_system(before.system, before.echoed))))
    return ToldAnew(system=system, tools=asked.tools, tool_choice=asked.tool_choice, rules=asked.rules)


def _not_taken_up(run_id: str) -> ApiError:
    message = f"Run {run_id} waits for these results and cannot go on here: its page says why."
    return ApiError(409, message, code="run_not_taken_up", may_retry=False, run_id=run_id)


def _was_stopped(trace: RunTrace) -> bool:
    """Whether the run is to be asked for again: it was stopped from outside, or its key had spent what a day allows."""
    return trace.status in ("cancelled", "interrupted") or trace.error_code == "CostCapReached"


def _is_of(trace: RunTrace, caller: Caller) -> bool:
    """Whether the same account, or the same key, caused the run."""
    theirs, ours = trace.actor, caller.actor
    return theirs is not None and ours is not None and (theirs.kind, theirs.id) == (ours.kind, ours.id)


def without_contents(turn: Message) -> Message:
    """Returns a turn as records have it: of an image its digest."""
    if isinstance(turn.content, str):
        return turn
    parts = (ImagePart.of(part) if isinstance(part, LoadedImage) else part for part in turn.content)
    return turn.model_copy(update={"content": tuple(parts)})


def task_of(turns: Sequence[Message]) -> tuple[str, tuple[ImagePart, ...], tuple[Message, ...]]:
    """Returns the task, its images, and the turns before it: the task is the user's last turn.

    If the conversation ends with results of tools that nobody here called, what the user asked last is the task again.
    """
    last = turns[-1]
    text, images = _text_of(last), images_in(last.content)
    others = [part for part in parts_of(last.content) if not isinstance(part, TextPart | ImagePart)]
    if not others:
        return _checked(text, images), images, tuple(turns[:-1])
    asked_before = (_text_of(turn) for turn in reversed(turns[:-1]) if turn.role == "user" and _text_of(turn).strip())
    task = text if text.strip() else next(asked_before, "")
    before = Message(role="user", content=(*others, *images)) if text.strip() else last
    return _checked(task, images), (), (*turns[:-1], before)


def _checked(task: str, images: Sequence[ImagePart]) -> str:
    if not task.strip():
        what = "The last message has an image and no text" if images else "The last message is empty"
        raise ApiError(400, f"{what}: say what is to be done.", param="messages")
    if len(images) > MOST_IMAGES:
        raise ApiError(400, f"A message may have at most {MOST_IMAGES} images.", param="messages")
    return whole_characters(task)


def _text_of(turn: Message) -> str:
    if isinstance(turn.content, str):
        return turn.content
    return "\n\n".join(part.text for part in turn.content if isinstance(part, TextPart))


def _said_beside(asked: Asked) -> str:
    """Returns what the user said beside the results: after the assistant's last turn."""
    texts: list[str] = []
    for turn in reversed(asked.turns):
        if turn.role != "user":
            break
        if text := _text_of(turn):
            texts.insert(0, text)
    return "\n\n".join(texts)


def _mark(caller: Caller, question: str, answer: str) -> str:
    who = "" if caller.actor is None else f"{caller.actor.kind} {caller.actor.id}"
    return hashlib.sha256("\0".join((who, question.strip(), answer.strip())).encode("utf-8", "replace")).hexdigest()


def _key_of(asked: Asked, caller: Caller) -> str:
    """Returns a digest of a request, by which a repeated one is known."""
    who = "" if caller.actor is None else f"{caller.actor.kind} {caller.actor.id}"
    return hashlib.sha256(f"{who}\0{asked!r}".encode("utf-8", "replace")).hexdigest()


def _remember(known: "OrderedDict[str, str]", key: str, run_id: str) -> None:
    known[key] = run_id
    known.move_to_end(key)
    if len(known) > REMEMBERED:
        known.popitem(last=False)
