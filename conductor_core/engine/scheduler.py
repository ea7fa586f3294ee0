"""Carries out one round: starts each step as soon as all that it reads is there, and the recursion below it.

Recorded answers that are reused, and those that a person gives, ask no worker.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from conductor_core.chat.messages import IN_WORDS, INCOMPLETE, OnIncomplete, ParentPlan, Usage
from conductor_core.engine.calls import RunState
from conductor_core.engine.planner import ask_conductor, use_given
from conductor_core.engine.pools import also_missing
from conductor_core.engine.prompts import Answer, StepInput, digest_text
from conductor_core.engine.step import StepCall
from conductor_core.errors import ConductorError, WorkerRefused, codes_of
from conductor_core.run import events as ev
from conductor_core.run.request import GivenOutput, Overrides
from conductor_core.run.trace import RoundTrace, StepTrace
from conductor_core.run.values import Path, label
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.topology import descendants


def give(state: RunState, output: GivenOutput, step: Step) -> Answer:
    """Records that a person gave the output of a step of the first round, and returns it as the step's answer."""
    recorder, digest = state.recorder, digest_text(output.text)
    recorder.send(
        ev.StepGiven(
            **recorder.at(),
            path=(output.step,),
            agent=step.agent,
            output=output.text,
            output_sha256=digest,
            given=output.given,
        )
    )
    return Answer.of((output.step,), step, state.request.task, output.text, digest, Usage(), given=output.given.how)


def reuse(state: RunState, path: Path, step: Step, step_input: StepInput, recorded: StepTrace) -> Answer:
    """Records that an earlier answer stands in for the step at ``path``, and returns it."""
    recorder = state.recorder
    source = state.source.origin(recorded)
    digest = recorded.output_sha256 or digest_text(recorded.output)
    recorder.send(
        ev.StepReused(
            **recorder.at(),
            path=path,
            agent=step.agent,
            identity=step_input.identity,
            messages=step_input.context.messages,
            granted=step_input.context.granted,
            withheld=step_input.context.withheld,
            source_run_id=source.run_id,
            source_path=source.path,
            source_imported=source.imported,
            output=recorded.output,
            output_sha256=digest,
            finish_reason=recorded.finish_reason or "other",
            incomplete=recorded.incomplete,
            usage=recorded.usage,
            cost_usd=recorded.cost_usd,
            cost_estimated=recorded.at_list_price,
            model=recorded.model,
            duration_ms=recorded.duration_ms or 0.0,
            ending=recorded.ending,
            refusal=recorded.refusal,
            tool_calls=recorded.tool_calls,
            answered_by=recorded.answered_by,
            passed_on=recorded.ending == "completed" or state.on_incomplete == "allow",
            reasoning=recorded.reasoning,
            departures=recorded.departures,
            weights=recorded.weights,
        )
    )
    task, ending, by = state.request.task, recorded.ending, recorded.answered_by
    reasoned = bool(recorded.reasoning)
    return Answer.of(path, step, task, recorded.output, digest, recorded.usage, ending=ending, by=by, reasoned=reasoned)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a round has no answer: its last step failed, or waits for this failed step."""

    path: Path
    code: str
    message: str


class Held:
    """A round, or the step that opened it, cannot go on: all that is left waits for an approval, or was denied it."""


HELD = Held()


async def cancel_all(tasks: "Iterable[asyncio.Task[Answer | Held | None]]") -> None:
    """Cancels ``tasks`` and waits until each has ended. Ignores errors that come only now."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class RoundRunner:
    """Carries out the workflow of one round, from where its trace says that it stands.

    Attributes:
        answers: the answers so far, by step index.
    """

    def __init__(self, state: RunState, path: Path) -> None:
        self._state, self._path = state, path
        self._failures: dict[int, Failure] = {}
        self._running: dict[asyncio.Task[Answer | Held | None], int] = {}
        # Steps that opened a round of their own which cannot go on before the next decision.
        self._held: set[int] = set()
        self._asked_for = False
        self.answers: dict[int, Answer] = {}
        self._read_trace()

    @property
    def _round(self) -> RoundTrace:
        return self._state.recorder.trace.round_at(self._path)

    @property
    def _workflow(self) -> Workflow:
        workflow = self._round.workflow
        if workflow is None:
            raise RuntimeError(f"round {self._path} has no plan yet")
        return workflow

    @property
    def _waiting(self) -> list[int]:
        """The steps that are still to be begun, or gone on with after a wait."""
        handled = {*self._running.values(), *self.answers, *self._failures, *self._held}
        needed = self._needed
        return [step.index for step in self._round.steps if step.index not in handled and step.index in needed]

    @property
    def _overrides(self) -> Overrides:
        return self._state.recorder.trace.overrides

    @property
    def _needed(self) -> Collection[int]:
        if self._path or self._overrides.last_step is None:
            return range(len(self._workflow.steps))
        return self._overrides.needed(self._workflow)

    @property
    def _last(self) -> int:
        """The step whose answer is the round's."""
        last = None if self._path else self._overrides.last_step
        return len(self._workflow.steps) - 1 if last is None else last

    def _read_trace(self) -> None:
        steps, policy = self._round.steps, self._state.on_incomplete
        for index, step in enumerate(steps):
            if step.answered or step.status in INCOMPLETE:
                self.answers[index] = Answer.recorded(step, self._workflow.steps[index], self._state.request.task)
            elif step.status == "failed":
                self._failures[index] = self._failure_of(step)
            elif step.status == "skipped":
                above = self._round.steps[step.because[0][-1]]
                why = self._failures.get(above.index)
                self._failures[index] = why or _not_passed_on(above.path, self.answers[above.index], policy)

    async def run(self) -> Answer | Failure | Held:
        """Runs all steps that can be run. Returns the last step's answer, or why there is none.

        A failed step stops only its descendants. Leaves nothing running. Raises: LimitReached, StoreError.
        """
        tasks: list[asyncio.Task[Answer | Held | None]] = []
        try:
            while True:
                decision = self._state.approvals.decision
                for index, step_input in await self._ready():
                    self._state.approvals.begun.add((*self._path, index))
                    task = asyncio.create_task(self._step(index, step_input), name=f"step {(*self._path, index)}")
                    self._running[task] = index
                    tasks.append(task)
                waits = self._asked_for or bool(self._held)
                if not self._running and not (waits and decision.done()):
                    break
                await self._one_ends(decision if waits else None)
                if decision.done():
                    self._held.clear()
        finally:
            await cancel_all(tasks)
        if waits or self._denied:
            return HELD
        return self._failures.get(self._last) or self.answers[self._last]

    @property
    def _denied(self) -> bool:
        return self._state.recorder.trace.denial is not None

    async def _one_ends(self, decision: "asyncio.Future[None] | None") -> None:
        """Waits until a step ends, or somebody decides. Raises: LimitReached, StoreError."""
        waited: set[asyncio.Future[Any]] = {*self._running} if decision is None else {*self._running, decision}
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted((each for each in self._running if each in done), key=lambda each: self._running[each]):
            await self._ended(self._running.pop(task), task.result())
        if self._running or self._held or self._waiting:
            self._state.budget.check()

    async def _ready(self) -> list[tuple[int, StepInput]]:
        """Reuses all that can be reused, then returns the steps that can be called now.

        Given and reused answers come first: a step that may not read one records it as withheld, not as missing.
        """
        self._asked_for = False
        if self._denied:
            return []
        for index in self._waiting:
            if (given := self._overrides.output_at((*self._path, index))) is not None:
                await self._accept(index, give(self._state, given, self._workflow.steps[index]))
        while (reused := self._reusable()) is not None:
            index, step_input, recorded = reused
            path = (*self._path, index)
            await self._accept(index, reuse(self._state, path, self._workflow.steps[index], step_input, recorded))
        can_be_asked = [index for index in self._waiting if self._can_be_asked(index)]
        if not can_be_asked:
            return []
        approvals, workflow = self._state.approvals, self._workflow
        if not approvals.admits_plan(self._path, workflow):
            self._asked_for = True
            return []
        ready = []
        for index in can_be_asked:
            step_input = self._step_input(index)
            begun = self._round.steps[index].status == "running"
            if begun or approvals.admits_step((*self._path, index), workflow.steps[index], step_input):
                ready.append((index, step_input))
            else:
                self._asked_for = True
        return ready

    def _reusable(self) -> tuple[int, StepInput, StepTrace] | None:
        """Returns the first step that waits for nothing and has a recorded answer."""
        if self._state.source.empty:
            return None
        for index in self._waiting:
            if self._can_be_asked(index) and self._round.steps[index].status == "waiting":
                step_input = self._step_input(index)
                recorded = self._state.source.find(step_input.identity, (*self._path, index))
                if recorded is not None:
                    return index, step_input, recorded
        return None

    def _can_be_asked(self, index: int) -> bool:
        return self.answers.keys() >= set(self._round.steps[index].reads)

    def _step_input(self, index: int) -> StepInput:
        seed = self._overrides.seed_at((*self._path, index))
        return self._state.step_inputs.of(self._workflow, index, self.answers, self._path, seed)

    async def _ended(self, index: int, answer: Answer | Held | None) -> None:
        if isinstance(answer, Held):
            self._held.add(index)
            if self._round.steps[index].status == "waiting":
                self._state.approvals.begun.discard((*self._path, index))
        elif answer is not None:
            await self._accept(index, answer)
        else:
            failure = self._failures[index] = self._failure_of(self._round.steps[index])
            await self._skip_below(index, failure)

    def _failure_of(self, failed: StepTrace) -> Failure:
        others = ""
        if failed.error_code in codes_of(WorkerRefused):
            others = also_missing(failed.agent, self._state.pool.specs)
        message = f"step {label(failed.path)} ({failed.agent}) failed: {failed.error or ''}{others}"
        return Failure(failed.path, failed.error_code or "", message)

    async def _accept(self, index: int, answer: Answer) -> None:
        self.answers[index] = answer
        policy = self._state.on_incomplete
        if answer.ending != "completed" and policy != "allow":
            await self._skip_below(index, _not_passed_on((*self._path, index), answer, policy))

    async def _skip_below(self, index: int, failure: Failure) -> None:
        """Skips all steps that wait for step ``index``, whose output is not passed on."""
        waiting = self._waiting
        below = [each for each in sorted(descendants(self._workflow, index)) if each in waiting]
        self._failures |= dict.fromkeys(below, failure)
        if below:
            recorder = self._state.recorder
            await recorder.emit(
                *(
                    ev.StepSkipped(
                        **recorder.at(),
                        path=(*self._path, each),
                        because=(failure.path,),
                    )
                    for each in below
                )
            )

    async def _step(self, index: int, step_input: StepInput) -> Answer | Held | None:
        state, step, path = self._state, self._workflow.steps[index], (*self._path, index)
        if step_input.parent is not None:
            return await _Recursion(state, path, step, step_input, step_input.parent).run()
        return await StepCall(state, path, step, step_input).run()


class _Recursion:
    """Carries out a step whose agent is the Conductor: it writes a workflow of its own for the same task.

    The inner call sees what ``step_input`` holds. Three empty lists return the last response.
    """

    def __init__(self, state: RunState, path: Path, step: Step, step_input: StepInput, parent: ParentPlan) -> None:
        self._state, self._path, self._step, self._step_input, self._parent = state, path, step, step_input, parent
        self._started_ms = 0.0

    async def run(self) -> Answer | Held | None:
        """Raises: LimitReached, StoreError."""
        state, last = self._state, self._step_input.last
        known = state.recorder.trace.step_at(self._path).round
        workflow = None if known is None else known.workflow
        recorded = state.source.inner_workflow(self._step_input.identity)
        asks = workflow is None and recorded is None
        if asks and not state.approvals.admits_conductor(self._path, self._step_input.identity):
            return HELD
        await self._start()
        try:
            workflow = workflow or await self._plan(recorded)
        except ConductorError as error:
            await self._fail(error.code, str(error))
            return None
        if not workflow.steps:
            if last is None:
                await self._fail(
                    "NothingToReturn",
                    "the Conductor ended the recursion with three empty lists, but this step reads no earlier step "
                    "whose answer could be returned: give it an access list",
                )
                return None
            return self._complete("stopped", last)
        outcome = await RoundRunner(state, self._path).run()
        if isinstance(outcome, Held):
            return outcome
        if isinstance(outcome, Failure):
            await self._fail(outcome.code, outcome.message)
            return None
        return self._complete("answered", outcome)

    async def _start(self) -> None:
        """Records the start, unless the step began before a wait."""
        recorder = self._state.recorder
        began_ms = recorder.trace.step_at(self._path).started_ms
        self._started_ms = recorder.now_ms() if began_ms is None else began_ms
        if began_ms is not None:
            return
        await recorder.emit(
            ev.StepStarted(
                **recorder.at(self._started_ms),
                path=self._path,
                agent=self._step.agent,
                identity=self._step_input.identity,
                messages=(),
                granted=self._step_input.context.granted,
                withheld=self._step_input.context.withheld,
            ),
            ev.RecursionEntered(**recorder.at(self._started_ms), path=self._path, depth=len(self._path)),
        )

    async def _plan(self, recorded: Workflow | None) -> Workflow:
        """Raises: ConductorError, LimitReached, StoreError."""
        if recorded is None:
            return await ask_conductor(self._state, self._path, self._parent)
        use_given(self._state, self._path, recorded, ())
        return recorded

    async def _fail(self, code: str, message: str) -> None:
        recorder, now_ms = self._state.recorder, self._state.recorder.now_ms()
        await recorder.emit(
            ev.RecursionLeft(**recorder.at(now_ms), path=self._path, how="failed"),
            ev.StepFailed(
                **recorder.at(now_ms),
                path=self._path,
                error_code=code,
                error=message,
                duration_ms=now_ms - self._started_ms,
            ),
        )

    def _complete(self, how: Literal["answered", "stopped"], inner: Answer) -> Answer:
        """Records the step without usage of its own: the inner plan and steps count themselves."""
        recorder, now_ms = self._state.recorder, self._state.recorder.now_ms()
        answered = recorder.trace.step_at(inner.path)
        recorder.send(
            ev.RecursionLeft(**recorder.at(now_ms), path=self._path, how=how),
            ev.StepCompleted(
                **recorder.at(now_ms),
                path=self._path,
                output=inner.output,
                output_sha256=inner.sha256,
                finish_reason=answered.finish_reason or "other",
                incomplete=answered.incomplete,
                usage=Usage(),
                cost_usd=0.0,
                duration_ms=now_ms - self._started_ms,
                ending=inner.ending,
                refusal=answered.refusal,
                tool_calls=answered.tool_calls,
                passed_on=inner.ending == "completed" or self._state.on_incomplete == "allow",
            ),
        )
        task, ending = self._state.request.task, inner.ending
        return Answer.of(self._path, self._step, task, inner.output, inner.sha256, Usage(), ending=ending)


def _not_passed_on(path: Path, answer: Answer, policy: OnIncomplete) -> Failure:
    why = f"step {label(path)} ({answer.agent}): {IN_WORDS[answer.ending]}, and no such output is passed on"
    return Failure(path, f"Answer{answer.ending.capitalize()}", f"{why} (on-incomplete {policy})")
