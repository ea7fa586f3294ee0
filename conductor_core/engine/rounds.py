"""Carries out one round: starts each step as soon as all that it reads is there, and the recursion below it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from conductor_core import events as ev
from conductor_core.chat import ParentPlan, Usage
from conductor_core.endings import IN_WORDS, OnIncomplete
from conductor_core.engine.context import Answer
from conductor_core.engine.identity import digest_text
from conductor_core.engine.missing_keys import also_missing
from conductor_core.engine.planning import ask_conductor, use_given
from conductor_core.engine.reuse import origin
from conductor_core.engine.state import RunState
from conductor_core.engine.step import StepCall
from conductor_core.engine.step_input import StepInput
from conductor_core.errors import ConductorError, WorkerRefused, codes_of
from conductor_core.run_facts import label
from conductor_core.trace import StepTrace
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.topology import descendants


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a round has no answer: its last step failed, or waits for this failed step."""

    path: ev.Path
    code: str
    message: str


async def cancel_all(tasks: Iterable["asyncio.Task[Answer | None]"]) -> None:
    """Cancels ``tasks`` and waits until each has ended. Ignores errors that come only now."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class RoundRunner:
    """Carries out one workflow.

    Attributes:
        answers: the answers so far, by step index.
    """

    def __init__(self, state: RunState, path: ev.Path, workflow: Workflow) -> None:
        self._state, self._path, self._workflow = state, path, workflow
        self._waiting = dict.fromkeys(range(len(workflow.steps)))
        self._failures: dict[int, Failure] = {}
        self.answers: dict[int, Answer] = {}

    async def run(self) -> Answer | Failure:
        """Runs all steps that can be run. Returns the last step's answer, or why there is none.

        A failed step stops only its descendants. Leaves nothing running. Raises: LimitReached, StoreError.
        """
        running: dict[asyncio.Task[Answer | None], int] = {}
        tasks: list[asyncio.Task[Answer | None]] = []
        try:
            while True:
                for index, step_input in await self._ready():
                    task = asyncio.create_task(self._step(index, step_input), name=f"step {(*self._path, index)}")
                    running[task] = index
                    tasks.append(task)
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda each: running[each]):
                    await self._ended(running.pop(task), task.result())
                if running or self._waiting:
                    self._state.budget.check()
        finally:
            await cancel_all(tasks)
        last = len(self._workflow.steps) - 1
        return self._failures.get(last) or self.answers[last]

    async def _ready(self) -> list[tuple[int, StepInput]]:
        """Reuses all that can be reused, then returns the steps that can be called now.

        Reused answers come first: a step that may not read one records it as withheld, not as missing.
        """
        while (reused := self._reusable()) is not None:
            index, step_input, recorded = reused
            del self._waiting[index]
            path = (*self._path, index)
            await self._take(index, await _reuse(self._state, path, self._workflow.steps[index], step_input, recorded))
        ready = [(index, self._step_input(index)) for index in self._waiting if self._can_be_asked(index)]
        for index, _ in ready:
            del self._waiting[index]
        return ready

    def _reusable(self) -> tuple[int, StepInput, StepTrace] | None:
        """Returns the first step that waits for nothing and has a recorded answer."""
        if self._state.source.empty:
            return None
        for index in self._waiting:
            if self._can_be_asked(index):
                step_input = self._step_input(index)
                recorded = self._state.source.find(step_input.identity, (*self._path, index))
                if recorded is not None:
                    return index, step_input, recorded
        return None

    def _can_be_asked(self, index: int) -> bool:
        return all(earlier in self.answers for earlier in self._workflow.reads(index))

    def _step_input(self, index: int) -> StepInput:
        return self._state.step_inputs.of(self._workflow, index, self.answers, self._path)

    async def _ended(self, index: int, answer: Answer | None) -> None:
        path = (*self._path, index)
        if answer is not None:
            await self._take(index, answer)
            return
        failed = self._state.recorder.trace.step_at(path)
        others = ""
        if failed.error_code in codes_of(WorkerRefused):
            others = also_missing(failed.agent, self._state.pool.specs)
        message = f"step {label(path)} ({failed.agent}) failed: {failed.error or ''}{others}"
        failure = self._failures[index] = Failure(path, failed.error_code or "", message)
        await self._skip_below(index, failure)

    async def _take(self, index: int, answer: Answer) -> None:
        self.answers[index] = answer
        policy = self._state.on_incomplete
        if answer.ending != "completed" and policy != "allow":
            await self._skip_below(index, _not_passed_on((*self._path, index), answer, policy))

    async def _skip_below(self, index: int, failure: Failure) -> None:
        """Skips all steps that wait for step ``index``, whose output is not passed on."""
        below = [each for each in sorted(descendants(self._workflow, index)) if each in self._waiting]
        for each in below:
            del self._waiting[each]
            self._failures[each] = failure
        if below:
            recorder = self._state.recorder
            await recorder.emit(
                *(
                    ev.StepSkipped(
                        run_id=recorder.run_id,
                        at_ms=recorder.now_ms(),
                        path=(*self._path, each),
                        because=(failure.path,),
                    )
                    for each in below
                )
            )

    async def _step(self, index: int, step_input: StepInput) -> Answer | None:
        state, step, path = self._state, self._workflow.steps[index], (*self._path, index)
        if step_input.parent is not None:
            return await _Recursion(state, path, step, step_input, step_input.parent).run()
        return await StepCall(state, path, step, step_input).run()


async def _reuse(state: RunState, path: ev.Path, step: Step, step_input: StepInput, recorded: StepTrace) -> Answer:
    """Records that an earlier answer stands in for the step at ``path``, and returns it. Raises: StoreError."""
    recorder = state.recorder
    source_run_id, source_path = origin(state.source.run_id, recorded)
    digest = recorded.output_sha256 or digest_text(recorded.output)
    await recorder.emit(
        ev.StepReused(
            run_id=recorder.run_id,
            at_ms=recorder.now_ms(),
            path=path,
            agent=step.agent,
            identity=step_input.identity,
            messages=step_input.context.messages,
            granted=step_input.context.granted,
            withheld=step_input.context.withheld,
            source_run_id=source_run_id,
            source_path=source_path,
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
        )
    )
    task, ending, by = state.request.task, recorded.ending, recorded.answered_by
    reasoned = bool(recorded.reasoning)
    return Answer.of(path, step, task, recorded.output, digest, recorded.usage, ending=ending, by=by, reasoned=reasoned)


class _Recursion:
    """Carries out a step whose agent is the Conductor: it writes a workflow of its own for the same task.

    The inner call sees what ``step_input`` holds. Three empty lists return the last response.
    """

    def __init__(self, state: RunState, path: ev.Path, step: Step, step_input: StepInput, parent: ParentPlan) -> None:
        self._state, self._path, self._step, self._step_input, self._parent = state, path, step, step_input, parent
        self._started_ms = 0.0

    async def run(self) -> Answer | None:
        """Raises: LimitReached, StoreError."""
        state, recorder, last = self._state, self._state.recorder, self._step_input.last
        self._started_ms = recorder.now_ms()
        await recorder.emit(
            ev.StepStarted(
                run_id=recorder.run_id,
                at_ms=self._started_ms,
                path=self._path,
                agent=self._step.agent,
                identity=self._step_input.identity,
                messages=(),
                granted=self._step_input.context.granted,
                withheld=self._step_input.context.withheld,
            ),
            ev.RecursionEntered(run_id=recorder.run_id, at_ms=self._started_ms, path=self._path, depth=len(self._path)),
        )
        try:
            workflow = await self._plan()
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
            return await self._complete("stopped", last)
        outcome = await RoundRunner(state, self._path, workflow).run()
        if isinstance(outcome, Failure):
            await self._fail(outcome.code, outcome.message)
            return None
        return await self._complete("answered", outcome)

    async def _plan(self) -> Workflow:
        recorded = self._state.source.inner_workflow(self._step_input.identity)
        if recorded is None:
            return await ask_conductor(self._state, self._path, self._parent)
        await use_given(self._state, self._path, recorded, ())
        return recorded

    async def _fail(self, code: str, message: str) -> None:
        recorder, now_ms = self._state.recorder, self._state.recorder.now_ms()
        await recorder.emit(
            ev.RecursionLeft(run_id=recorder.run_id, at_ms=now_ms, path=self._path, how="failed"),
            ev.StepFailed(
                run_id=recorder.run_id,
                at_ms=now_ms,
                path=self._path,
                error_code=code,
                error=message,
                duration_ms=now_ms - self._started_ms,
            ),
        )

    async def _complete(self, how: Literal["answered", "stopped"], inner: Answer) -> Answer:
        """Records the step without usage of its own: the inner plan and steps count themselves."""
        recorder, now_ms = self._state.recorder, self._state.recorder.now_ms()
        answered = recorder.trace.step_at(inner.path)
        await recorder.emit(
            ev.RecursionLeft(run_id=recorder.run_id, at_ms=now_ms, path=self._path, how=how),
            ev.StepCompleted(
                run_id=recorder.run_id,
                at_ms=now_ms,
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


def _not_passed_on(path: ev.Path, answer: Answer, policy: OnIncomplete) -> Failure:
    """Returns why the steps below ``path`` are not run."""
    why = f"step {label(path)} ({answer.agent}): {IN_WORDS[answer.ending]}, and no such output is passed on"
    return Failure(path, f"Answer{answer.ending.capitalize()}", f"{why} (on-incomplete {policy})")
