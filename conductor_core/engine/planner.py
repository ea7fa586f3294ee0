"""Has the Conductor write the plan of a round, and names what came in place of a plan."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from conductor_core.chat.messages import Conductor, ParentPlan, PlanFinished, PlanRequest, ReasoningDelta, Usage
from conductor_core.chat.progress import Progress, watching
from conductor_core.chat.usage import estimate_input_tokens, tokens_of
from conductor_core.conductors.roles import agents_by_ordinal
from conductor_core.engine.budgets import LiveCall, longest_plan
from conductor_core.engine.calls import RunState, left_s, name_the_limit, wait_before_retry_s
from conductor_core.engine.recorder import DeltaBuffer, Piece, closing
from conductor_core.errors import ConductorError, ConductorUnavailable, InspectorError, PlanRejected
from conductor_core.privacy import masking
from conductor_core.run import events as ev
from conductor_core.run.values import Alternatives, Path
from conductor_core.settings import Settings
from conductor_core.text import whole_characters
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.source import Notes, Parsed, SourceText, shorten
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import Checked, sentence, validate


def as_written(text: str, finished: PlanFinished) -> str:
    """Returns the whole completion: its text, else what came instead."""
    if finished.refusal:
        return f"{text}{finished.refusal}"
    if text.strip():
        return text
    calls = "\n".join(f"{call.name}({call.arguments})" for call in finished.tool_calls)
    return calls or finished.reasoning or text


def not_a_plan(text: str, finished: PlanFinished, most_tokens: int) -> Parsed | None:
    """Returns why a completion of ``text`` that ended so holds no plan; None: the text can be read.

    ``most_tokens``: the Conductor's token limit.
    """
    said = f": {shorten(finished.refusal, 200)}" if finished.refusal else "."
    if finished.finish_reason == "content_filter":
        found = "plan_filtered", f"A filter of the Conductor's server took the plan away{said}"
    elif finished.refusal or finished.finish_reason == "refusal":
        found = "plan_refused", f"The Conductor refused to write a plan{said}"
    elif text.strip():
        return None
    elif finished.tool_calls:
        names = shorten(", ".join(call.name for call in finished.tool_calls), 80)
        called = f"The Conductor called the tool {names} instead of writing a plan; it has no tools."
        found = "tool_call_for_a_plan", called
    elif finished.finish_reason == "length":
        found = "plan_cut", _past_limit(most_tokens, "there was a plan", "thinks less")
    elif finished.reasoning.strip():
        found = (
            "plan_in_reasoning",
            (
                "All that was written came as reasoning_content, none of it as an answer: turn the server's reasoning "
                "parser off for this model, or choose another."
            ),
        )
    else:
        found = "empty_completion", "The Conductor wrote nothing."
    return _only_fault(*found, as_written(text, finished))


def _only_fault(code: str, said: str, text: str, offset: int = 0) -> Parsed:
    notes = Notes(SourceText(text))
    notes.fault(code, said, offset)
    return notes.parsed(None)


def _past_limit(most_tokens: int, before: str = "the plan was whole", less: str = "writes less before its plan") -> str:
    return (
        f"The completion reached its limit of tokens before {before}: raise max_tokens of the Conductor if the "
        f"conductors file gives one, else CONDUCTOR_PLAN_MAX_TOKENS (now {most_tokens:,}), or choose a Conductor that "
        f"{less}."
    )


_BYTES_PER_TOKEN = 6
"""More than a token has on average, in any language: nothing that keeps the limit of tokens is broken off."""


def _most_bytes(conductor: Conductor, settings: Settings) -> int:
    """Returns how much of a completion is taken, thoughts aside. A server need not keep the limit of tokens."""
    if conductor.info.kind == "local":
        return settings.plan_max_bytes
    return min(settings.plan_max_bytes, _BYTES_PER_TOKEN * settings.plan_max_tokens)


_READ_AT_ONCE = 4096
"""Characters up to which a plan is read on the engine's loop: a few milliseconds at worst, and no thread's switch."""
_MOST_FAULTS_SENT = 10
"""Faults that a Conductor is told before it is asked again: more would crowd the task out of its prompt."""

log = logging.getLogger(__name__)


async def ask_conductor(state: RunState, round_path: Path, parent: ParentPlan | None = None) -> Workflow:
    """Returns the workflow that the Conductor writes for this round; without steps if it ends a recursion.

    Records an unusable completion with its faults and asks the Conductor again, with those faults, as often as the
    settings allow.

    Raises: PlanRejected, ConductorError, LimitReached, StoreError.
    """
    conductor, attempts = state.conductor, state.settings.plan_attempts
    if conductor is None:
        raise ConductorUnavailable("this run has no Conductor: give it one, or a workflow")
    own_seed = state.recorder.trace.overrides.seed_at(round_path)
    request = PlanRequest(
        task=state.request.task,
        agents=state.step_inputs.offered,
        max_steps=state.request.limits.max_steps,
        allow_recursion=len(round_path) < state.request.limits.max_depth,
        parent=parent,
        seed=state.request.seed if own_seed is None else own_seed,
        turns_before=state.request.turns_before,
        system=state.request.system,
        images=len(state.request.all_images),
        temperature=None if round_path else state.request.plan_temperature,
    )
    checked = Checked(workflow=None)
    for attempt in range(1, attempts + 1):
        state.budget.check()
        checked = await _written(state, conductor, request, round_path, attempt)
        if checked.workflow is not None:
            return checked.workflow
        told = tuple(fault.message for fault in checked.faults[:_MOST_FAULTS_SENT])
        more = checked.fault_count - len(told)
        request = request.model_copy(update={"rejected": (*told, f"And {more:,} more.") if more > 0 else told})
    times = "once" if attempts == 1 else f"{attempts} times"
    raise PlanRejected(
        sentence(f"Conductor {conductor.info.name} was asked {times} and wrote no usable workflow", checked)
    )


async def _written(
    state: RunState, conductor: Conductor, request: PlanRequest, round_path: Path, attempt: int
) -> Checked:
    """Returns one completion, read and recorded. Repeats a failed call, as for a worker. Raises: see ``_Writing``."""
    failed, loading = 0, False
    while True:
        writing = _Writing(state, conductor, request, round_path, attempt)
        try:
            return await writing.run(again=loading)
        except ConductorError as error:
            failed += not error.loading
            wait_s = None
            if error.retryable and failed < state.settings.step_attempts:
                wait_s = wait_before_retry_s(error, failed, state.settings, left_s(state))
            if wait_s is None:
                name_the_limit(error, state)
                raise
            # A server that still loads is asked every few seconds: that is said once.
            await writing.failed(error, wait_s, said=loading and error.loading)
            loading = error.loading
            state.budget.check()
            await asyncio.sleep(wait_s)


class _Writing:
    """One attempt of the Conductor: streams its completion into the log, reads, checks and records it."""

    def __init__(
        self, state: RunState, conductor: Conductor, request: PlanRequest, round_path: Path, attempt: int
    ) -> None:
        self._state, self._conductor, self._request = state, conductor, request
        self._round, self._attempt = round_path, attempt
        self._recorder = state.recorder
        self._agents = agents_by_ordinal(conductor.info, request.agents)
        self._text: list[str] = []
        self._output_characters = 0
        self._room = self._most_bytes = _most_bytes(conductor, state.settings)
        self._overlong = False
        self._thought_characters = 0
        self._started_ms = 0.0
        self._first_token_ms: float | None = None
        self._finished: PlanFinished | None = None
        self._call = LiveCall(conductor.info.price, 0)
        self._deltas = DeltaBuffer(state.recorder, state.settings.delta_interval_ms, self._delta_events)

    async def run(self, *, again: bool = False) -> Checked:
        """``again``: its start is recorded already. Raises: ConductorError, LimitReached, StoreError."""
        usage, said_usd = await self._stream(again=again)
        text = "".join(self._text)
        raw = text if self._finished is None else as_written(text, self._finished)
        if len(text) <= _READ_AT_ONCE:
            parsed, checked = self._read(text)
        else:
            try:
                parsed, checked = await asyncio.to_thread(self._read, text)
            except asyncio.CancelledError:
                self._recorder.defer(self._deltas.drain())
                raise
        price = self._conductor.info.price
        cost_usd = price.cost_usd(usage) if said_usd is None and price is not None else said_usd
        self._state.budget.settle(self._round, cost_usd)
        await self._record(raw, parsed, checked, usage, cost_usd, at_list_price=said_usd is None and bool(cost_usd))
        return checked

    async def failed(self, error: ConductorError, wait_s: float, *, said: bool) -> None:
        """Records a failed call that another follows. ``said``: this is recorded already."""
        spent = self._call.usage if self._output_characters else Usage()
        price = self._conductor.info.price
        cost_usd = 0.0 if not spent.total_tokens else None if price is None else price.cost_usd(spent)
        self._state.budget.settle(self._round, cost_usd)
        if said:
            return
        now_ms = self._recorder.now_ms()
        await self._recorder.emit(
            ev.PlanRetried(
                **self._recorder.at(now_ms),
                round=self._round,
                attempt=self._attempt,
                error_code=error.code,
                error=str(error),
                wait_ms=wait_s * 1000,
                partial="".join(self._text),
                usage=spent,
                cost_usd=cost_usd,
                at_list_price=bool(cost_usd),
                duration_ms=now_ms - self._started_ms,
                loading=error.loading,
            )
        )

    def _read(self, text: str) -> tuple[Parsed, Checked]:
        instead = None
        if self._finished is not None:
            instead = not_a_plan(text, self._finished, self._state.settings.plan_max_tokens)
        parsed = instead or (self._broken_off(text) if self._overlong else parse_completion(text))
        cut = self._finished is not None and self._finished.finish_reason == "length"
        if cut and (parsed.steps is None or parsed.faults):
            said = _past_limit(self._state.settings.plan_max_tokens)
            parsed = _only_fault("plan_cut", said, text, len(text))
        checked = validate(
            parsed,
            self._agents,
            max_steps=self._request.max_steps,
            allow_recursion=self._request.allow_recursion,
            allow_stop=self._request.parent is not None,
            task=None if self._state.step_inputs.asked.give_question else self._request.task,
            images=self._state.step_inputs.images_given,
        )
        return parsed, checked

    def _broken_off(self, raw: str) -> Parsed:
        most = self._state.settings.plan_max_bytes
        if self._most_bytes == most:
            said = f"The completion is longer than {most:,} bytes, which no plan needs, and was broken off there."
        else:
            said = _past_limit(self._state.settings.plan_max_tokens)
        return _only_fault("too_large", said, raw, len(raw))

    async def _record(
        self,
        raw: str,
        parsed: Parsed,
        checked: Checked,
        usage: Usage,
        cost_usd: float | None,
        *,
        at_list_price: bool,
    ) -> None:
        streamed = self._deltas.drain()
        now_ms = self._recorder.now_ms()
        common: dict[str, Any] = {
            **self._recorder.at(now_ms),
            "round": self._round,
            "raw": raw,
            "repairs": parsed.repairs,
            "usage": usage,
            "cost_usd": cost_usd,
            "at_list_price": at_list_price,
            "duration_ms": now_ms - self._started_ms,
            "departures": () if self._finished is None else self._finished.departures,
        }
        event: ev.PlanCompleted | ev.PlanRejected
        if checked.workflow is not None:
            finished, text = self._finished, "".join(self._text)
            considered: tuple[Alternatives, ...] = ()
            if finished is not None and finished.choices:
                from conductor_core.conductors.alternatives import read_alternatives  # when used: a given plan has none

                considered = read_alternatives(
                    text, parsed.steps or (), finished.choices, self._agents, by_server=finished.told_by_server
                )
            event = ev.PlanCompleted(
                **common,
                source="conductor",
                workflow=checked.workflow,
                topology=topology(checked.workflow),
                warnings=checked.warnings,
                considered=considered,
                first_token_ms=self._first_token_ms,
            )
        else:
            again = self._attempt < self._state.settings.plan_attempts
            event = ev.PlanRejected(**common, attempt=self._attempt, faults=checked.faults, will_retry=again)
        await self._recorder.emit(*streamed, event)

    async def _stream(self, *, again: bool) -> tuple[Usage, float | None]:
        if (cap := self._state.cap) is None:
            return await self._write(again=again)
        messages = self._conductor.messages(self._request)
        most = longest_plan(messages, self._state.settings.plan_max_tokens)
        async with cap.room(self._conductor.info.price, most) as call:
            call.taken = call.most, call.most_usd  # what breaks off may have taken that
            try:
                usage, said_usd = await self._write(again=again)
            except ConductorError:
                if not self._output_characters:
                    call.taken = Usage(), 0.0
                raise
            if not usage.estimated:
                call.took(usage, said_usd)
            return usage, said_usd

    async def _write(self, *, again: bool) -> tuple[Usage, float | None]:
        """Streams the completion. Returns what it used, and its cost if the provider states one."""
        budget, name = self._state.budget, self._conductor.info.name
        messages = self._conductor.messages(self._request)
        price = self._conductor.info.price
        longest = longest_plan(messages, self._state.settings.plan_max_tokens)
        most_usd = 0.0 if price is None else price.cost_usd(longest)
        await budget.room(self._round, most_usd)
        self._started_ms = self._recorder.now_ms()
        # Counted under the path of the step that opened the round, which makes no other call.
        call = self._call = budget.begin_call(self._round, estimate_input_tokens(messages), price, most_usd)
        if not again:
            try:
                await self._recorder.emit(
                    ev.PlanStarted(
                        **self._recorder.at(self._started_ms),
                        round=self._round,
                        attempt=self._attempt,
                        messages=messages,
                        agents=self._agents,
                    )
                )
            except BaseException:
                budget.settle(self._round)  # nothing was sent
                raise
        ended = False
        try:
            async with closing(self._conductor.write(self._request)) as stream:
                with watching(self._recorder.progress(self._progress_event)):
                    async for item in stream:
                        if isinstance(item, PlanFinished):
                            ended, self._finished = True, item
                            usage = item.usage
                            if usage.estimated and not usage.input_tokens:
                                usage = usage.model_copy(update={"input_tokens": call.input_tokens})
                            call.input_tokens, call.output_tokens = usage.input_tokens, usage.output_tokens
                            return usage, item.cost_usd
                        self._receive(whole_characters(item.text), reasoning=isinstance(item, ReasoningDelta))
                        call.output_tokens = self._tokens()
                        if self._overlong:
                            ended = True
                            return call.usage, None
                        budget.check()
        except ConductorError:
            if not self._output_characters:
                budget.settle(self._round)  # as with a step: what said nothing is not taken to have cost anything
            raise
        except InspectorError:
            raise
        except Exception as error:
            log.exception("conductor %s broke in run %s", name, self._recorder.run_id)
            what = masking.known().text(f"{type(error).__name__}: {error}")
            raise ConductorError(f"conductor {name} broke unexpectedly, see the log: {what}") from error
        finally:
            if not ended:
                self._recorder.defer(self._deltas.drain())
        raise ConductorError(f"the completion of conductor {name} was cut: its stream ended without being finished")

    def _tokens(self) -> int:
        """Returns the estimated tokens so far. Of the completion there are at most as many as it may have."""
        written = tokens_of(self._output_characters - self._thought_characters)
        if self._most_bytes < self._state.settings.plan_max_bytes:
            written = min(written, self._state.settings.plan_max_tokens)
        return tokens_of(self._thought_characters) + written

    def _receive(self, text: str, *, reasoning: bool) -> None:
        """Takes ``text``, and of the completion only as much as there is room for."""
        if reasoning:
            self._thought_characters += len(text)
        else:
            encoded = text.encode()
            if len(encoded) > self._room:
                self._overlong = True
                text = encoded[: self._room].decode(errors="ignore")
            self._room -= len(encoded)
            if self._first_token_ms is None and text:
                self._first_token_ms = self._recorder.now_ms() - self._started_ms
            self._text.append(text)
        self._output_characters += len(text)
        self._deltas.add(text, reasoning=reasoning)

    def _progress_event(self, progress: Progress) -> ev.Event:
        return ev.PlanProgress(**self._recorder.at(), round=self._round, progress=progress)

    def _delta_events(self, pieces: Sequence[Piece]) -> list[ev.Event]:
        at = self._recorder.at()
        return [ev.PlanDelta(**at, round=self._round, text=text, reasoning=reasoning) for reasoning, text in pieces]
