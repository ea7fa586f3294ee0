"""Carries out one round: starts each step as soon as all that it reads is there, and the recursion below it.

Recorded answers that are reused, and those that a person gives, ask no worker. How a step ended is in the trace alone,
so a run that waited goes on from there.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from conductor_core.chat.messages import IN_WORDS, INCOMPLETE, ParentPlan, Usage
from conductor_core.engine.calls import RunState
from conductor_core.engine.planner import ask_conductor, use_given
from conductor_core.engine.pools import also_missing, with_fallbacks
from conductor_core.engine.prompts import Answer, StepInput, digest_text
from conductor_core.engine.step import StepCall
from conductor_core.errors import ConductorError, WorkerRefused, codes_of
from conductor_core.run import events as ev
from conductor_core.run.request import GivenOutput, Overrides
from conductor_core.run.trace import RoundTrace, StepTrace
from conductor_core.run.values import Path, label
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.topology import descendants


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a round has no answer: its last step failed, or waits for this failed step."""

    path: Path
    code: str
    message: str


class Held:
    """A round, or a step of it, cannot go on: all that is left waits for an approval or was denied it, or waits for
    what the client's tools bring."""


HELD = Held()


class RoundRunner:
    """Carries out the workflow of one round, from where its trace says that it stands."""

    def __init__(self, state: RunState, path: Path) -> None:
        self._state, self._path = state, path
        self._running: dict[asyncio.Task[Held | None], int] = {}
        # Steps that cannot go on before the next command: of tools, or with a round of their own that cannot.
        self._held: set[int] = set()
        self._asked_for = False

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
    def _overrides(self) -> Overrides:
        """What is done otherwise with steps of this round: an inner one belongs to the step that opened it."""
        return Overrides() if self._path else self._state.recorder.trace.overrides

    @property
    def _waiting(self) -> list[int]:
        """The steps that are still to be begun, or gone on with after a wait."""
        handled, needed = {*self._running.values(), *self._held}, self._overrides.needed(self._workflow)
        open_steps = (step.index for step in self._round.steps if step.status in ("waiting", "running"))
        return [index for index in open_steps if index in needed and index not in handled]

    @property
    def _denied(self) -> bool:
        return self._state.recorder.trace.denial is not None

    async def run(self) -> Answer | Failure | Held:
        """Runs all steps that can be run. Returns the last step's answer, or why there is none.

        A failed step stops only its descendants. Leaves nothing running. Raises: LimitReached, StoreError.
        """
        tasks: list[asyncio.Task[Held | None]] = []
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
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # errors that come only now are of no interest
        if waits or self._denied:
            return HELD
        chosen = self._overrides.last_step
        last = self._round.steps[-1 if chosen is None else chosen]
        if last.status in ("failed", "skipped"):
            return self._failure(last if last.status == "failed" else self._round.steps[last.because[0][-1]])
        return Answer.of_round(self._round, self._state.request.task)[last.index]

    async def _one_ends(self, decision: "asyncio.Future[None] | None") -> None:
        """Waits until a step ends, or somebody decides. Raises: LimitReached, StoreError."""
        waited: set[asyncio.Future[Any]] = {*self._running} if decision is None else {*self._running, decision}
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted((each for each in self._running if each in done), key=lambda each: self._running[each]):
            index = self._running.pop(task)
            if isinstance(task.result(), Held):
                self._held.add(index)
                if self._round.steps[index].status == "waiting":
                    self._state.approvals.begun.discard((*self._path, index))
            else:
                await self._skip_below(index)
        if self._running or self._held or self._waiting:
            self._state.budget.check()

    async def _ready(self) -> list[tuple[int, StepInput]]:
        """Reuses all that can be reused, then returns the steps that can be called now.

        Given and reused answers come first: a step that may not read one records it as withheld, not as missing.
        """
        self._asked_for = False
        if self._denied:
            return []
        await self._list_tools()
        for index in self._waiting:
            if (given := self._overrides.output_at((index,))) is not None:
                self._give(given)
                await self._skip_below(index)
        while (reused := self._reusable()) is not None:
            self._reuse(*reused)
            await self._skip_below(reused[0])
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

    async def _list_tools(self) -> None:
        """Asks the tool servers of the workers that may be called what they offer: a step's identity covers it."""
        workers = {spec.name: spec for spec in self._state.pool.specs}
        agents = {self._workflow.steps[index].agent for index in self._waiting} & workers.keys()
        await self._state.tools.list_for(spec for agent in sorted(agents) for spec in with_fallbacks(agent, workers))

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
        steps = self._round.steps
        return all(steps[read].answered or steps[read].status in INCOMPLETE for read in steps[index].reads)

    def _step_input(self, index: int) -> StepInput:
        trace = self._state.recorder.trace
        answers = Answer.of_round(self._round, self._state.request.task)
        in_answer = trace.gives_answer(self._path)
        return self._state.step_inputs.of(
            self._workflow, index, answers, self._path, trace.overrides, in_answer=in_answer
        )

    def _give(self, output: GivenOutput) -> None:
        """Records that a person gave the output of a step."""
        recorder = self._state.recorder
        recorder.send(
            ev.StepGiven(
                **recorder.at(),
                path=(output.step,),
                agent=self._workflow.steps[output.step].agent,
                output=output.text,
                output_sha256=digest_text(output.text),
                given=output.given,
            )
        )

    def _reuse(self, index: int, step_input: StepInput, recorded: StepTrace) -> None:
        """Records that an earlier answer stands in for a step."""
        recorder, source = self._state.recorder, self._state.source.origin(recorded)
        answer = {name: getattr(recorded, name) for name in ev.StepReused.model_fields if hasattr(recorded, name)}
        now = {
            **recorder.at(),
            "path": (*self._path, index),
            "agent": self._workflow.steps[index].agent,
            "identity": step_input.identity,
            "messages": step_input.context.messages,
            "granted": step_input.context.granted,
            "withheld": step_input.context.withheld,
            "source_run_id": source.run_id,
            "source_path": source.path,
            "source_imported": source.imported,
            "output_sha256": recorded.output_sha256 or digest_text(recorded.output),
            "finish_reason": recorded.finish_reason or "other",
            "cost_estimated": recorded.at_list_price,
            "duration_ms": recorded.duration_ms or 0.0,
            "passed_on": recorded.ending == "completed" or self._state.on_incomplete == "allow",
        }
        recorder.send(ev.StepReused(**answer | now))

    def _failure(self, step: StepTrace) -> Failure:
        """Says why nothing that reads ``step`` runs: it failed, or its incomplete answer is not passed on."""
        if step.status != "failed":
            why = f"step {label(step.path)} ({step.answered_by or step.agent}): {IN_WORDS[step.ending]}"
            message = f"{why}, and no such output is passed on (on-incomplete {self._state.on_incomplete})"
            return Failure(step.path, f"Answer{step.ending.capitalize()}", message)
        others = ""
        if step.error_code in codes_of(WorkerRefused):
            others = also_missing(step.agent, self._state.pool.specs)
        message = f"step {label(step.path)} ({step.agent}) failed: {step.error or ''}{others}"
        return Failure(step.path, step.error_code or "", message)

    async def _skip_below(self, index: int) -> None:
        """Skips all steps that wait for step ``index``, if its output is not passed on."""
        step, recorder = self._round.steps[index], self._state.recorder
        if step.status != "failed" and (step.ending == "completed" or self._state.on_incomplete == "allow"):
            return
        below = sorted(descendants(self._workflow, index).intersection(self._waiting))
        skipped = [ev.StepSkipped(**recorder.at(), path=(*self._path, each), because=(step.path,)) for each in below]
        if skipped:
            await recorder.emit(*skipped)

    async def _step(self, index: int, step_input: StepInput) -> Held | None:
        """Carries out a step; how it ended is in the trace. Returns ``HELD`` if it cannot go on."""
        state, step, path = self._state, self._workflow.steps[index], (*self._path, index)
        if step_input.parent is not None:
            return await _Recursion(state, path, step, step_input, step_input.parent).run()
        while (ended := await StepCall(state, path, step, step_input).run()) == "called":
            state.budget.check()
        return HELD if ended == "waits" else None


class _Recursion:
    """Carries out a step whose agent is the Conductor: it writes a workflow of its own for the same task.

    The inner call sees what ``step_input`` holds. Three empty lists return the last response.
    """

    def __init__(self, state: RunState, path: Path, step: Step, step_input: StepInput, parent: ParentPlan) -> None:
        self._state, self._path, self._step, self._step_input, self._parent = state, path, step, step_input, parent
        self._started_ms = 0.0

    async def run(self) -> Held | None:
        """Returns ``HELD`` if it cannot go on. Raises: LimitReached, StoreError."""
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
            self._complete("stopped", last)
            return None
        outcome = await RoundRunner(state, self._path).run()
        if isinstance(outcome, Held):
            return outcome
        if isinstance(outcome, Failure):
            await self._fail(outcome.code, outcome.message)
        else:
            self._complete("answered", outcome)
        return None

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

    def _complete(self, how: Literal["answered", "stopped"], inner: Answer) -> None:
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
