"""Carries out one step: calls its worker, streams the answer, repeats failed calls, records the end.

What a client demands of the answer is kept whatever a server does: its form, and the texts before which it ends.

A worker that calls tools ends a turn of the step. What tool servers of the pool are to do is done at once; for the
client's tools the step waits. Then it goes on with what they brought.
"""

import asyncio
import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from conductor_core.chat.messages import (
    HERE,
    IN_WORDS,
    AnswerRules,
    CallTerms,
    Finished,
    Message,
    ReasoningDelta,
    TextWasReasoning,
    ToolCall,
    Usage,
    WorkerSpec,
)
from conductor_core.chat.progress import Progress, watching
from conductor_core.chat.tools import MOST_TOOL_TURNS
from conductor_core.chat.usage import estimate_input_tokens, tokens_of
from conductor_core.engine.budgets import LiveCall, longest_usd
from conductor_core.engine.calls import CallSequence, NextCall, RunState, name_the_limit
from conductor_core.engine.prompts import StepInput, digest_text, loaded
from conductor_core.engine.recorder import DeltaBuffer, Piece, closing
from conductor_core.errors import (
    ContentMissing,
    InspectorError,
    WorkerError,
    WorkerFailed,
    WorkerFiltered,
    WorkerRefused,
    WorkerStreamCut,
    WorkerTimedOut,
    WorkerToolsAway,
)
from conductor_core.privacy import masking
from conductor_core.run import events as ev
from conductor_core.run.request import tool_call_id
from conductor_core.run.trace import StepTrace
from conductor_core.run.values import Path
from conductor_core.text import whole_characters
from conductor_core.workflow.model import Step

_FENCE = re.compile(r"\s*```[A-Za-z]*\s*\n(?P<inside>.*?)\n?\s*```\s*", re.DOTALL)
PATTERN_S = 0.2
MOST_SAID = 600
"""Characters of a fault that a model is told."""


def document_in(text: str) -> str:
    """Returns the JSON of an answer, without the fence that many models put around it."""
    fenced = _FENCE.fullmatch(text)
    return (text if fenced is None else fenced["inside"]).strip()


def form_fault(text: str, rules: AnswerRules) -> str | None:
    """Returns why an answer has not the form asked for, in a sentence; None: it has."""
    if rules.form == "text":
        return None
    try:
        said = json.loads(document_in(text))
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"[:MOST_SAID]
    if rules.form == "json":
        return None if isinstance(said, dict) else "it is not a JSON object"
    # Imported when used: most answers have no form.
    from jsonschema.exceptions import SchemaError, best_match
    from referencing.exceptions import Unresolvable

    try:
        found = best_match(_validator()(dict(rules.json_schema or {})).iter_errors(said))
    except (SchemaError, Unresolvable, RecursionError) as error:
        return f"the schema itself cannot be checked: {type(error).__name__}"
    if found is None:
        return None
    return f"at {found.json_path} it does not fit the schema: {found.message}"[:MOST_SAID]


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    return extend(Draft202012Validator, {"pattern": _pattern})


def _pattern(validator: Any, pattern: str, said: Any, _schema: object) -> Iterator[Exception]:
    """Checks a client's pattern for a moment only: some take longer than anybody waits."""
    import regex
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(said, "string"):
        return
    try:
        found = regex.search(pattern, said, timeout=PATTERN_S)
    except TimeoutError:
        yield ValidationError(f"the pattern {pattern!r} takes too long to check")
    except regex.error:
        yield ValidationError(f"the pattern {pattern!r} cannot be read")
    else:
        if found is None:
            yield ValidationError(f"{said!r} does not match {pattern!r}")


def correction(fault: str) -> str:
    """Returns what a model is told whose answer has not the form asked for."""
    return f"That is not the form asked for: {fault}. Write the answer again, as JSON alone."


class StopTexts:
    """Ends an answer before the first of some texts. ``hit``: which one came; None: none has."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(filter(None, texts))
        self._most_held = max(map(len, self._texts), default=1) - 1
        self._held = ""
        self.hit: str | None = None

    def feed(self, text: str) -> str:
        """Returns what of the answer can be shown now: not what may be the beginning of such a text."""
        if not self._texts or self.hit is not None:
            return "" if self.hit is not None else text
        said = self._held + text
        found = min(
            ((at, stop) for stop in self._texts if (at := said.find(stop)) >= 0), key=lambda each: each[0], default=None
        )
        if found is not None:
            self.hit, self._held = found[1], ""
            return said[: found[0]]
        held = self._beginning_in(said)
        self._held = said[len(said) - held :] if held else ""
        return said[: len(said) - held]

    def rest(self) -> str:
        """Returns what was held back: nothing follows."""
        rest, self._held = self._held, ""
        return rest

    def _beginning_in(self, said: str) -> int:
        """Returns how many characters at the end of ``said`` may begin such a text."""
        for held in range(min(self._most_held, len(said)), 0, -1):
            if any(stop.startswith(said[len(said) - held :]) for stop in self._texts):
                return held
        return 0


# Calls of tools that a small model of this machine wrote as text: its template knows tools, the model only half.


_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_BEGINNINGS = ("{", "[", "<", "`")
MOST_HELD = 20_000
"""Characters that are held back at most: a longer text is an answer."""


def may_be_calls(text: str) -> bool:
    """Whether a text that is not whole may be nothing but calls: then it is not shown yet."""
    said = text.lstrip()
    return len(text) < MOST_HELD and (not said or said.startswith(_BEGINNINGS))


def written_calls(text: str, names: Collection[str]) -> tuple[ToolCall, ...]:
    """Returns the calls that a whole text consists of, all of tools called ``names``; none if it is anything else.

    A call that such a model writes again and again is one call.
    """
    said = text.strip()
    if tagged := _TAGGED.findall(said):
        if _TAGGED.sub("", said).strip():
            return ()
        read = [_read(each) for each in tagged]
    else:
        found = _one_after_another(document_in(said))
        read = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    calls = [_call(each, names) for each in read]
    return tuple(dict.fromkeys(call for call in calls if call is not None)) if all(calls) else ()


def _one_after_another(text: str) -> list[Any]:
    """Returns the documents that a text consists of, with white space between them; ``[None]`` if it does not."""
    found: list[Any] = []
    at, decoder = 0, json.JSONDecoder()
    try:
        while at < len(text):
            document, at = decoder.raw_decode(text, at)
            found.append(document)
            at += len(text[at:]) - len(text[at:].lstrip())
    except (ValueError, RecursionError):
        return [None]
    return found


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _call(read: Any, names: Collection[str]) -> ToolCall | None:
    if not isinstance(read, dict) or read.keys() - {"name", "arguments", "parameters", "type", "id"}:
        return None
    arguments = read.get("arguments", read.get("parameters"))
    if read.get("name") not in names or not isinstance(arguments, dict):
        return None
    return ToolCall(name=read["name"], arguments=json.dumps(arguments, ensure_ascii=False))


log = logging.getLogger(__name__)


def cost_of(spec: WorkerSpec, usage: Usage) -> float | None:
    """Returns the USD by the worker's price; None: the price is unknown."""
    return None if spec.price is None else spec.price.cost_usd(usage)


@dataclass(frozen=True, slots=True)
class _Brought:
    """What a call brought without a complete answer. It is kept if no later call does better.

    Attributes:
        agent: who wrote it; None: the step's own worker.
        reasoning: all of it, if some came as the answer's text; None: it came apart.
        paid: whether its spending is recorded already.
    """

    finished: Finished
    output: str
    agent: str | None
    reasoning: str | None = None
    paid: bool = False


class StepCall:
    """Calls workers for one step, and records everything, with its answer or that it failed for good."""

    def __init__(self, state: RunState, path: Path, step: Step, step_input: StepInput) -> None:
        self._state, self._path, self._step, self._step_input = state, path, step, step_input
        self._recorder, self._budget = state.recorder, state.budget
        known = self._trace
        asked = known.turns[-1].agent if known.turns else None
        seed = state.recorder.trace.overrides.seed_at(path)
        self._sequence = CallSequence(state, asked or step.agent, seed, limited=bool(step_input.terms.rules.max_tokens))
        self._told = step_input.context.messages + tuple(
            message for turn in known.turns if turn.results is not None for message in turn.messages
        )
        self._input_tokens = estimate_input_tokens(self._told)
        self._live = LiveCall(self._spec.price, self._input_tokens)
        self._deltas = DeltaBuffer(state.recorder, state.settings.delta_interval_ms, self._delta_events)
        self._begun = known.started_ms is not None
        self._started_ms = known.started_ms or 0.0
        self._corrected = False
        self._asked = False
        self._calls = 0
        self._brought: _Brought | None = None
        self._loading = False
        self._begin_attempt()

    @property
    def _trace(self) -> StepTrace:
        return self._state.recorder.trace.step_at(self._path)

    @property
    def _terms(self) -> CallTerms:
        """What the worker is asked beside its messages. A tool is demanded in the first turn only.

        A fallback is offered what the step's own worker is, as far as it may call that itself.
        """
        terms = self._step_input.terms
        if self._other is not None and (own := self._own_tools):
            allowed = self._state.tools.of_worker(self._spec)
            tools = tuple(tool for tool in terms.tools if tool.name not in own or tool.name in allowed)
            terms = terms.model_copy(update={"tools": tools})
        turns = self._trace.turns
        again = terms.choice not in ("auto", "none") and turns and turns[-1].anew is None
        return terms.model_copy(update={"choice": "auto"}) if again else terms

    @property
    def _own_tools(self) -> frozenset[str]:
        """The names of the tools that the pool's tool servers carry out for the step, and not the client."""
        client = {tool.name for tool in self._recorder.trace.tools}
        return frozenset(self._state.tools.of_worker(self._state.pool.workers[self._step.agent].spec)) - client

    async def run(self) -> Literal["ended", "called", "waits"]:
        """Returns ``called`` if the worker called tools: call it again, on a new object, to carry them out and go on.
        ``waits``: results of tools are not there, and somebody else has to bring them or to admit the call.

        If cancelled, closes the connection and keeps what has streamed. Raises: StoreError, LimitReached.
        """
        if self._trace.turn_is_open:
            return "called" if await self._state.tools.carry_out(self._path) else "waits"
        try:
            while True:
                self._calls += 1
                try:
                    finished = await self._attempt()
                except WorkerFiltered as error:
                    finished = Finished(finish_reason="content_filter", usage=self._spent(error), refusal=str(error))
                except WorkerError as error:
                    if await self._go_on_after(error):
                        continue
                    if self._brought is not None:
                        self._complete(self._brought)
                    return "ended"
                except InspectorError:
                    raise
                except (Exception, asyncio.CancelledError) as error:
                    if isinstance(error, asyncio.CancelledError) and _asked_to_stop():
                        raise
                    log.exception(
                        "worker %s broke in step %s of run %s", self._spec.name, self._path, self._recorder.run_id
                    )
                    name = type(error).__name__
                    message = f"worker {self._spec.name} broke unexpectedly, see the log: {name}: {error}"
                    await self._fail(name, masking.known().text(message), self._spent(None))
                    return "ended"
                if self._calls_tools(finished):
                    return await self._call_tools(finished)
                reasoning = "".join(self._reasoning) if self._moved else None
                brought = _Brought(finished, "".join(self._text), self._other, reasoning)
                if await self._in_another_form(brought) or await self._better_than(brought):
                    continue
                if (fault := self._form_fault(brought)) is not None:
                    message = f"worker {self._spec.name} gave no answer in the form asked for: {fault}"
                    await self._fail("AnswerNotInForm", message, finished.usage or self._live.usage, finished.cost_usd)
                else:
                    self._complete(brought)
                return "ended"
        finally:
            self._recorder.defer(self._deltas.drain())
            await self._sequence.aclose()

    @property
    def _spec(self) -> WorkerSpec:
        return self._sequence.worker.spec

    @property
    def _other(self) -> str | None:
        """The worker that is called now, if it is not the step's own."""
        return None if self._sequence.agent == self._step.agent else self._sequence.agent

    def _begin_attempt(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._moved = False
        self._output_characters = 0
        self._first_token_ms: float | None = None
        self._stops = StopTexts(self._step_input.terms.rules.stop)
        self._may_write_calls = bool(self._step_input.terms.tools) and self._spec.provider in HERE
        self._held = ""

    async def _attempt(self) -> Finished:
        """Makes one call, once the shared cost cap has room for it. Raises: WorkerError."""
        async with self._state.concurrency.of(self._spec):
            cap = self._state.cap
            if cap is None:
                return await self._call()
            async with cap.call(self._spec, self._told) as call:
                call.taken = call.most, call.most_usd  # what is stopped from outside may have taken that
                try:
                    finished = await self._call()
                except BaseException as error:
                    began = self._spent(error).total_tokens if isinstance(error, WorkerError) else self._asked
                    if not began:
                        call.taken = Usage(), 0.0
                    raise
                call.took(finished.usage or call.most, finished.cost_usd)
                return finished

    async def _call(self) -> Finished:
        """Makes one call, from its first byte to its last chunk. Raises: WorkerError."""
        self._asked = False
        price, messages = self._spec.price, self._told
        most_usd = 0.0 if price is None else longest_usd(price, self._spec, messages)
        await self._budget.room(self._path, most_usd)
        if not self._begun:
            await self._start()
        if (fault := self._state.tools.fault(self._spec)) is not None:
            raise WorkerToolsAway(f"worker {self._spec.name} was not asked: {fault}")
        try:
            messages = await loaded(messages, self._state.read_content)
        except ContentMissing as error:
            raise WorkerRefused(f"worker {self._spec.name} was not asked: {error}") from error
        self._begin_attempt()
        self._live = self._budget.begin_call(self._path, self._input_tokens, price, most_usd)
        self._asked = True
        terms, worker = self._terms, self._sequence.worker
        answer = worker.answer(messages, terms) if terms else worker.answer(messages)
        try:
            async with asyncio.timeout(self._spec.timeout_s) as limit, closing(answer) as stream:
                with watching(self._recorder.progress(self._progress_event)):
                    async for chunk in stream:
                        if isinstance(chunk, Finished):
                            return self._checked(self._with_written_calls(chunk))
                        if isinstance(chunk, TextWasReasoning):
                            self._reasoning, self._text = [*self._reasoning, *self._text], []
                            self._moved = True
                            continue
                        if isinstance(chunk, ReasoningDelta):
                            self._receive(whole_characters(chunk.text), reasoning=True)
                            continue
                        self._say(self._stops.feed(whole_characters(chunk.text)))
                        if self._stops.hit is not None:
                            ended = Finished(finish_reason="stop", stop_text=self._stops.hit)
                            return self._with_written_calls(ended)
        except BaseException as error:
            # What was held back is text: the call broke off, so it is no call of a tool.
            self._output_characters += len(self._held)
            self._text.append(self._held)
            self._deltas.add(self._held)
            self._held, self._may_write_calls = "", False
            if not isinstance(error, TimeoutError) or not limit.expired():
                raise
            raise WorkerTimedOut(
                f"worker {self._spec.name} gave no complete answer within {self._spec.timeout_s:g} s"
            ) from error
        raise WorkerStreamCut(
            f"the answer of worker {self._spec.name} was cut: its stream ended without a finish_reason"
        )

    def _checked(self, finished: Finished) -> Finished:
        """Raises: WorkerFailed if the worker called an offered tool with arguments that are no JSON object."""
        for call in finished.tool_calls if self._calls_tools(finished) else ():
            if not isinstance(_read(call.arguments or "{}"), dict):
                raise WorkerFailed(
                    f"worker {self._spec.name} called the tool {call.name} with arguments that are no JSON object"
                )
        return finished

    def _calls_tools(self, finished: Finished) -> bool:
        """Whether the answer is to call tools.

        Of a tool that nobody offered the worker is told so, if it may call tools of the pool or called another one
        rightly. Else its calls are noted, and nobody carries them out.
        """
        offered = {tool.name for tool in self._terms.tools}
        ended = finished.finish_reason in ("tool_calls", "stop", "other") and not finished.refusal
        right = [call.name in offered for call in finished.tool_calls]
        return ended and (any(right) or (bool(right) and bool(self._own_tools & offered)))

    async def _call_tools(self, finished: Finished) -> Literal["ended", "called"]:
        """Records the calls, durably: only then may anybody learn of them."""
        usage = finished.usage or self._live.usage
        if self._turns >= MOST_TOOL_TURNS:
            message = f"worker {self._spec.name} called tools {self._turns} times in this step without an answer"
            await self._fail("TooManyToolCalls", message, usage, finished.cost_usd)
            return "ended"
        cost_usd = self._cost(usage, finished.cost_usd)
        self._budget.settle(self._path, cost_usd)
        client = {tool.name for tool in self._terms.tools} - self._own_tools
        first = self._recorder.trace.tools_called
        calls = tuple(
            call.model_copy(update={"call_id": tool_call_id(self._recorder.run_id, first + place)})
            for place, call in enumerate(finished.tool_calls)
        )
        await self._recorder.emit(
            *self._deltas.drain(),
            ev.ToolCalled(
                **self._recorder.at(),
                path=self._path,
                text="".join(self._text),
                reasoning="".join(self._reasoning) if self._moved else None,
                calls=calls,
                ours=tuple(call.call_id for call in calls if call.name not in client),
                agent=self._other,
                model=finished.model,
                usage=usage,
                cost_usd=cost_usd,
                cost_estimated=finished.cost_usd is None and cost_usd is not None,
                departures=finished.departures,
                weights=finished.weights,
            ),
        )
        return "called"

    @property
    def _turns(self) -> int:
        """How often the step called tools of the pool so far, in the run that it goes on from, too."""
        before = self._recorder.trace.overrides.turns_at(self._path)
        return sum(bool(turn.ours) for turn in (*before, *self._trace.turns))

    def _form_fault(self, brought: _Brought) -> str | None:
        if brought.finished.ending(brought.output) not in ("completed", "cut"):
            return None
        return form_fault(brought.output, self._step_input.terms.rules)

    async def _in_another_form(self, brought: _Brought) -> bool:
        """Asks once more, saying what is wrong, for an answer that has not the form asked for."""
        fault = None if self._corrected else self._form_fault(brought)
        if fault is None:
            return False
        self._corrected = True
        finished, said = brought.finished, correction(fault)
        usage = finished.usage or self._live.usage
        cost_usd = self._cost(usage, finished.cost_usd)
        self._budget.settle(self._path, cost_usd)
        then = NextCall("again")
        await self._retry(
            "AnswerNotInForm", f"the answer has not the form asked for: {fault}", brought.agent, then, usage, cost_usd,
            finished=finished, correction=said,
        )  # fmt: skip
        wrong = Message(role="assistant", content=brought.output if brought.output.strip() else "[no answer]")
        self._told = (*self._told, wrong, Message(role="user", content=said))
        self._input_tokens = estimate_input_tokens(self._told)
        await self._wait(then)
        return True

    async def _go_on_after(self, error: WorkerError) -> bool:
        """Records a failed call, and waits if another follows. Returns False if none does.

        Then the step has ended, or what an earlier call brought is kept.
        """
        agent, usage = self._other, self._spent(error)
        cost_usd = self._cost(usage)
        then = self._sequence.after_error(error)
        if then is None and self._brought is None:
            name_the_limit(error, self._state)
            await self._fail(error.code, str(error), usage)
            return False
        self._budget.settle(self._path, cost_usd)
        # A server that still loads is asked every few seconds: that is said once.
        said = error.loading and self._loading and then is not None and then.how == "again"
        self._loading = error.loading
        if not said:
            await self._retry(error.code, str(error), agent, then, usage, cost_usd, loading=error.loading)
        await self._wait(then)
        return then is not None

    async def _better_than(self, brought: _Brought) -> bool:
        """Whether an incomplete answer is asked for again. Then it records what was brought so far."""
        self._loading = False
        finished = brought.finished
        ending = finished.ending(brought.output)
        if ending == "completed":
            return False
        usage = finished.usage or self._live.usage
        cost_usd = self._cost(usage, finished.cost_usd)
        then = self._sequence.after_ending(ending, usage.output_tokens)
        if then is None:
            return False
        self._brought = replace(brought, paid=True)
        self._budget.settle(self._path, cost_usd)
        code = f"Answer{ending.capitalize()}"
        await self._retry(code, IN_WORDS[ending], brought.agent, then, usage, cost_usd, finished=finished)
        await self._wait(then)
        return True

    async def _wait(self, then: NextCall | None) -> None:
        self._begin_attempt()
        self._budget.check()
        if then is not None:
            await asyncio.sleep(then.wait_s)

    async def _start(self) -> None:
        self._begun = True
        self._budget.start_step()
        self._started_ms = self._recorder.now_ms()
        await self._recorder.emit(
            ev.StepStarted(
                **self._recorder.at(self._started_ms),
                path=self._path,
                agent=self._step.agent,
                identity=self._step_input.identity,
                messages=self._step_input.context.messages,
                granted=self._step_input.context.granted,
                withheld=self._step_input.context.withheld,
            )
        )

    def _say(self, text: str) -> None:
        """Takes a piece of the answer. What may be calls of tools, written as text, is held back until it is whole."""
        if self._may_write_calls:
            text = self._held + text
            self._held = text if may_be_calls(text) else ""
            if self._held:
                self._count(len(text))
                return
            self._may_write_calls = False
        self._receive(text, reasoning=False)

    def _with_written_calls(self, finished: Finished) -> Finished:
        """Takes the rest of the answer, unless it is nothing but calls of tools that the model wrote as text."""
        rest, names = self._stops.rest(), {tool.name for tool in self._terms.tools}
        self._held += rest if self._may_write_calls else ""
        if self._may_write_calls and not finished.tool_calls and (calls := written_calls(self._held, names)):
            return finished.model_copy(update={"tool_calls": calls, "finish_reason": "tool_calls"})
        self._receive(self._held if self._may_write_calls else rest, reasoning=False)
        return finished

    def _receive(self, text: str, *, reasoning: bool) -> None:
        if not text:
            return
        if self._first_token_ms is None:
            self._first_token_ms = self._recorder.now_ms() - self._started_ms
        (self._reasoning if reasoning else self._text).append(text)
        self._output_characters += len(text)
        self._deltas.add(text, reasoning=reasoning)
        self._count(0)

    def _count(self, held: int) -> None:
        """Counts what was written so far, ``held`` characters of it not shown yet. Raises: LimitReached."""
        self._live.output_tokens = tokens_of(self._output_characters + held)
        self._budget.check()

    def _progress_event(self, progress: Progress) -> ev.Event:
        return ev.StepProgress(**self._recorder.at(), path=self._path, progress=progress)

    def _delta_events(self, pieces: Sequence[Piece]) -> list[ev.Event]:
        at, tokens = self._recorder.at(), self._live.output_tokens
        return [
            ev.StepDelta(**at, path=self._path, text=text, reasoning=reasoning, output_tokens=tokens)
            for reasoning, text in pieces
        ]

    def _spent(self, error: WorkerError | None) -> Usage:
        """Returns the estimated usage of a failed attempt if the provider began to answer, or may have; else none."""
        began = self._output_characters > 0 or isinstance(error, WorkerTimedOut | WorkerStreamCut)
        return self._live.usage if began else Usage()

    def _cost(self, usage: Usage, said_usd: float | None = None) -> float | None:
        """Returns the USD of a call: as the provider states it, else by price; None: unknown."""
        if said_usd is not None:
            return said_usd
        return 0.0 if usage.total_tokens == 0 else cost_of(self._spec, usage)

    async def _retry(
        self,
        code: str,
        error: str,
        agent: str | None,
        then: NextCall | None,
        usage: Usage,
        cost_usd: float | None,
        *,
        finished: Finished | None = None,
        loading: bool = False,
        correction: str = "",
    ) -> None:
        """Records a call that another follows, or after which an earlier one is kept. ``agent``: the worker called."""
        await self._recorder.emit(
            *self._deltas.drain(),
            ev.StepRetried(
                **self._recorder.at(),
                path=self._path,
                attempt=self._calls,
                error_code=code,
                error=error,
                wait_ms=0.0 if then is None else then.wait_s * 1000,
                partial="".join(self._text),
                usage=usage,
                cost_usd=cost_usd,
                agent=agent,
                then="kept" if then is None else then.how,
                then_agent=None if then is None else self._other,
                then_max_tokens=None if then is None else then.max_tokens,
                refusal="" if finished is None else finished.refusal,
                tool_calls=() if finished is None else finished.tool_calls,
                loading=loading,
                correction=correction,
            ),
        )

    async def _fail(self, code: str, message: str, usage: Usage, said_usd: float | None = None) -> None:
        streamed, cost_usd = self._deltas.drain(), self._cost(usage, said_usd)
        self._budget.settle(self._path, cost_usd)
        now_ms = self._recorder.now_ms()
        await self._recorder.emit(
            *streamed,
            ev.StepFailed(
                **self._recorder.at(now_ms),
                path=self._path,
                error_code=code,
                error=message,
                partial="".join(self._text),
                attempts=self._calls,
                usage=usage,
                cost_usd=cost_usd,
                duration_ms=now_ms - self._started_ms,
            ),
        )

    def _complete(self, brought: _Brought) -> None:
        """Records the answer. Steps that read it send nothing before it is durable: their start is durable first."""
        finished, output, streamed = brought.finished, brought.output, self._deltas.drain()
        ending = finished.ending(output)
        usage = Usage() if brought.paid else finished.usage or self._live.usage
        cost_usd = 0.0 if brought.paid else self._cost(usage, finished.cost_usd)
        if not brought.paid:
            self._budget.settle(self._path, cost_usd)
        digest = digest_text(output)
        now_ms = self._recorder.now_ms()
        self._recorder.send(
            *streamed,
            ev.StepCompleted(
                **self._recorder.at(now_ms),
                path=self._path,
                output=output,
                output_sha256=digest,
                finish_reason=finished.finish_reason,
                incomplete=ending != "completed",
                usage=usage,
                cost_usd=cost_usd,
                cost_estimated=not brought.paid and finished.cost_usd is None and cost_usd is not None,
                model=finished.model,
                attempts=self._calls,
                first_token_ms=None if brought.paid else self._first_token_ms,
                duration_ms=now_ms - self._started_ms,
                ending=ending,
                refusal=finished.refusal,
                tool_calls=finished.tool_calls,
                answered_by=brought.agent,
                passed_on=ending == "completed" or self._state.on_incomplete == "allow",
                reasoning=brought.reasoning,
                departures=finished.departures,
                weights=finished.weights,
                stop_text=finished.stop_text,
            ),
        )


def _asked_to_stop() -> bool:
    """Whether this task was cancelled from outside. If not, the worker raised ``CancelledError`` by mistake."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
