"""Carries out one run from its request to its final event: plan, rounds, budgets, cancellation, failure of the log.

A round starts each step as soon as all that it reads is there, and the recursion below it. Recorded answers that are
reused, and those that a person gives, ask no worker. How a step ended is in the trace alone, so a run that waited goes
on from there.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from conductor_core import __version__
from conductor_core.chat.messages import IN_WORDS, INCOMPLETE, Conductor, ParentPlan, Usage
from conductor_core.engine.approvals import Approvals, Stop, check_providers, check_steps
from conductor_core.engine.budgets import Budget, CostCap
from conductor_core.engine.calls import ConcurrencyLimits, RunState, ToolCalls
from conductor_core.engine.pools import Pool, also_missing, images_given, require_image_worker, with_fallbacks
from conductor_core.engine.prompts import (
    Answer,
    Asked,
    ReadContent,
    StepInput,
    StepInputs,
    digest_text,
    require_contents,
)
from conductor_core.engine.recorder import Recorder
from conductor_core.engine.request import EarlierAnswers, ReadTrace
from conductor_core.engine.step import StepCall
from conductor_core.errors import (
    BadInput,
    ConductorError,
    InspectorError,
    LimitReached,
    StoreError,
    WorkerRefused,
    codes_of,
)
from conductor_core.privacy import masking
from conductor_core.run import events as ev
from conductor_core.run.actor import THE_PROGRAM, Caller
from conductor_core.run.commands import SentCommand
from conductor_core.run.events import EventSink
from conductor_core.run.request import GivenOutput, Overrides, RunRequest
from conductor_core.run.trace import Approval, RoundTrace, RunTrace, StepTrace, begin
from conductor_core.run.values import Path, label
from conductor_core.settings import Settings
from conductor_core.text import whole_characters
from conductor_core.workflow.edits import require_fit
from conductor_core.workflow.model import Fault, Step, Workflow
from conductor_core.workflow.topology import descendants, topology
from conductor_core.workflow.validation import check_given


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


def _use_given(
    state: RunState,
    round_path: Path,
    workflow: Workflow,
    warnings: tuple[Fault, ...],
    before: Workflow | None = None,
) -> None:
    """Records a plan that is given, not written now. ``before``: the plan before a person changed it.

    Does not wait until it is durable: a step's start is later in the log, and nothing leaves before that is durable.
    """
    recorder = state.recorder
    written = workflow if before is None else before
    events: list[ev.Event] = [
        ev.PlanCompleted(
            **recorder.at(),
            round=round_path,
            source="file" if state.request.parent_run_id is None else "parent",
            workflow=written,
            topology=topology(written),
            warnings=warnings if before is None else (),
        )
    ]
    if before is not None:
        events.append(
            ev.PlanEdited(
                **recorder.at(),
                round=round_path,
                actor=state.request.actor,
                door=state.request.door,
                before=before,
                after=workflow,
                origins=state.request.origins,
                topology=topology(workflow),
                warnings=warnings,
            )
        )
    recorder.send(*events)


async def _ask_conductor(state: RunState, round_path: Path, parent: ParentPlan | None = None) -> Workflow:
    """See ``planner.ask_conductor``."""
    from conductor_core.engine.planner import ask_conductor  # when used: a run of a given workflow asks no Conductor

    return await ask_conductor(state, round_path, parent)


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
        if workflow is None and recorded is not None:
            _use_given(state, self._path, recorded, ())
        try:
            workflow = workflow or recorded or await _ask_conductor(state, self._path, self._parent)
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


log = logging.getLogger(__name__)

SETTLE_S = 0.7
"""How long a stopped run waits for its connections to close before its end is written, so that it ends in a second."""


class Engine:
    """Carries out any number of runs at once on one event loop."""

    def __init__(
        self,
        sink: EventSink,
        settings: Settings,
        read_trace: ReadTrace | None = None,
        read_content: ReadContent | None = None,
    ) -> None:
        """Args:
        read_trace: reads the runs that others build on; None: this engine has no such runs.
        read_content: reads the images of tasks; None: none comes with a task here.
        """
        self._sink = sink
        self._read_trace = read_trace
        self._read_content = read_content
        self._settings = settings
        self._concurrency = ConcurrencyLimits()

    async def run(self, request: RunRequest, conductor: Conductor | None, pool: Pool) -> RunTrace:
        """Carries out one run and returns its trace. A failed run has the status ``failed``.

        Raises: BadInput before anything is written; StoreError if the log fails: then the record lacks what came later.
            If cancelled (with a ``Stop`` as the message), it writes ``run.cancelled`` first.
        """
        return await (await self.create(request, conductor, pool)).run()

    async def create(self, request: RunRequest, conductor: Conductor | None, pool: Pool) -> "Execution":
        """Checks the request and writes ``run.created``. Raises: BadInput, WorkflowInvalid, StoreError."""
        earlier = await asyncio.to_thread(self.earlier, request) if request.parent_run_id is not None else ()
        if request.all_images:
            await asyncio.to_thread(self.require_contents, request)
        checked = check(request, conductor, pool, earlier)
        await self._sink.append(checked.created)
        return self.begin(checked)

    def earlier(self, request: RunRequest) -> tuple[RunTrace, ...]:
        """Reads the runs whose answers stand in for identical steps: the parent, then those that it took up.

        Blocks. Raises: BadInput, UnknownRun, RunUnreadable, StoreError.
        """
        if request.parent_run_id is None:
            return ()
        if self._read_trace is None:
            raise BadInput(f"run {request.parent_run_id} cannot be read here, so no run can build on it")
        return tuple(map(self._read_trace, (request.parent_run_id, *request.taken_up)))

    def require_contents(self, request: RunRequest) -> None:
        """Blocks. Raises: BadInput if an image of the request is not kept; StoreError."""
        require_contents(request.all_images, self._read_content)

    def begin(self, checked: "CheckedRequest") -> "Execution":
        """Returns the execution of a run whose ``created`` is written. Call it on the loop that carries it out."""
        request, conductor, pool = checked.request, checked.conductor, checked.pool
        trace = begin(checked.created) if checked.trace is None else checked.trace
        recorder = Recorder(self._sink, trace, checked.epoch_s)
        inputs = StepInputs(
            given=Asked.by(trace),
            trace=trace,
            workers={spec.name: spec for spec in pool.specs},
            conductor=trace.conductor if conductor is None else conductor.info,
            limits=request.limits,
            seed=request.seed,
            pool_seed=pool.seed,
        )
        interrupted = checked.earlier if request.resumed else ()
        approvals = Approvals(recorder, request.gates, inputs, self._settings.plan_max_tokens, interrupted)
        state = RunState(
            request=request,
            settings=self._settings,
            conductor=conductor,
            pool=pool,
            step_inputs=inputs,
            recorder=recorder,
            budget=Budget(request.limits, trace),
            source=EarlierAnswers(*checked.earlier, resumed=request.resumed),
            concurrency=self._concurrency,
            approvals=approvals,
            tools=ToolCalls(recorder, approvals, pool.tool_servers, checked.earlier),
            on_incomplete=checked.created.on_incomplete,
            cap=checked.cap,
            read_content=self._read_content,
        )
        return Execution(state, checked.plan)


End = TypeVar("End", ev.RunCompleted, ev.RunFailed, ev.RunCancelled, ev.RunDenied)

_NO_STEPS_YET = "a run whose plan is still to be written has no steps to ask afresh, to give or to end with"

_Plan = tuple[Workflow, tuple[Fault, ...], Workflow | None] | None
"""A given workflow, its warnings, and what it was before an edit; None: it has to be written."""


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that can be carried out, of which nothing is written yet.

    Attributes:
        pool: without the workers that the request excludes.
        created: the first event, to be written before anything else happens.
        trace: the run as it is recorded, if it waited, and is to be resumed; None: it is new.
        epoch_s: when its clock showed zero, or would have, had it not stood, by ``time.monotonic``.
        earlier: the runs whose answers stand in for identical steps.
        cap: what this run and others may spend together.
    """

    request: RunRequest
    conductor: Conductor | None
    pool: Pool
    plan: _Plan
    created: ev.RunCreated
    epoch_s: float
    earlier: tuple[RunTrace, ...] = ()
    cap: CostCap | None = None
    trace: RunTrace | None = None


def check(
    request: RunRequest,
    conductor: Conductor | None,
    pool: Pool,
    earlier: tuple[RunTrace, ...] = (),
    cap: CostCap | None = None,
) -> CheckedRequest:
    """Checks in any thread whether the request can be carried out. Raises: BadInput, WorkflowInvalid."""
    if conductor is not None and request.conductor is None:
        request = request.model_copy(update={"conductor": conductor.info.name})
    if cap is not None and conductor is not None:
        cap.check_conductor(conductor.info)
    pool = pool.without(request.excluded)
    give_question = pool.give_question if request.give_question is None else request.give_question
    check_providers(request.gates, pool.specs, None if conductor is None else conductor.info)
    # A re-run keeps its gates, also those before steps that an edit removed.
    check_steps(request.gates, request.limits.max_steps, None if request.parent_run_id else request.workflow)
    plan = _given_plan(request, conductor, pool, earlier, give_question=give_question)
    created = ev.RunCreated(
        run_id=request.run_id,
        request=request,
        conductor=None if conductor is None else conductor.info,
        pool=pool.info,
        simulated=pool.simulated,
        app_version=__version__,
        on_incomplete=request.on_incomplete or pool.on_incomplete,
        give_question=give_question,
    )
    return CheckedRequest(request, conductor, pool, plan, created, time.monotonic(), earlier, cap)


def _given_plan(
    request: RunRequest, conductor: Conductor | None, pool: Pool, earlier: tuple[RunTrace, ...], *, give_question: bool
) -> _Plan:
    """Returns the given workflow, its warnings, and the workflow before an edit; None: a Conductor writes it.

    Raises: BadInput, WorkflowInvalid.
    """
    specs = {spec.name: spec for spec in pool.specs}
    images = images_given(request.conversation, specs, every_step=give_question)
    require_image_worker(images, pool.specs, pool.name)
    workflow, overrides = request.workflow, request.overrides
    steps = () if workflow is None else workflow.steps
    for text in (*(turn.text for turn in request.conversation), *(step.instruction for step in steps)):
        if whole_characters(text) != text:
            raise BadInput("the task, an earlier turn or an instruction is not valid Unicode (unpaired surrogate)")
    if overrides and (workflow is None or (fault := overrides.fault(workflow))):
        raise BadInput(fault if workflow is not None and fault else _NO_STEPS_YET)
    if workflow is None:
        if conductor is None:
            raise BadInput("a run needs a workflow, or a Conductor to write one")
        if not request.task.strip():
            raise BadInput("the task is empty: say what is to be done")
        return None
    checked = check_given(
        workflow,
        tuple(pool.workers),
        max_steps=request.limits.max_steps,
        allow_recursion=conductor is not None and request.limits.max_depth > 0,
        task=None if give_question else request.task,
        images=images,
    )
    before = earlier[0].root.workflow if earlier else None
    if before is not None and request.origins is not None:
        try:
            require_fit(before, workflow, request.origins)
        except ValueError as error:
            raise BadInput(str(error)) from error
    return workflow, checked.warnings, None if before == workflow else before


class Execution:
    """One run whose ``run.created`` is written."""

    def __init__(self, state: RunState, plan: _Plan) -> None:
        self._state, self._plan = state, plan
        self._recorder = state.recorder

    @property
    def run_id(self) -> str:
        return self._recorder.run_id

    @property
    def trace(self) -> RunTrace:
        return self._recorder.trace

    async def resume(self, commands: Sequence[SentCommand]) -> None:
        """Makes a run that waited this process's own, and answers ``commands``, all or nothing.

        Raises: EventOutOfOrder if another process was quicker; StoreError.
        """

        def send() -> None:
            self._recorder.send(ev.RunTaken(**self._recorder.at()))
            for sent in commands:
                self._state.approvals.apply_command(sent)

        await self._recorder.together(send)

    def apply_command(self, sent: SentCommand) -> None:
        """Answers a command to this run. Once the run has ended or waits, it does nothing."""
        if not self._recorder.closed:
            self._state.approvals.apply_command(sent)

    async def run(self) -> RunTrace:
        """See ``Engine.run``. Returns also when the run waits."""
        while True:
            self._decision = self._state.approvals.decision
            body = asyncio.create_task(self._body(), name=f"run {self.run_id}")
            max_seconds = self._state.request.limits.max_seconds
            left_s = None if max_seconds is None else max(0.0, max_seconds - self._recorder.now_ms() / 1000)
            first_to_end: set[asyncio.Future[Any]] = {body, self._recorder.broken}
            try:
                await asyncio.wait(first_to_end, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as error:
                stop = next((arg for arg in error.args if isinstance(arg, Stop)), Stop(Caller(actor=THE_PROGRAM)))
                await _to_the_end(self._conclude(body, stop))
                raise
            await _to_the_end(self._conclude(body))
            if self._recorder.closed:
                return self.trace

    async def _body(self) -> Answer | Failure | Held | None:
        """Returns the answer, or why there is none; None after *Plan only*. Goes on where the trace stands."""
        state, request = self._state, self._state.request
        if self.trace.root.workflow is None:
            if self._plan is not None:
                workflow, warnings, before = self._plan
                _use_given(state, (), workflow, warnings, before)
            elif state.approvals.admits_conductor(()):
                await _ask_conductor(state, ())
            else:
                return HELD
        if request.plan_only:
            return None
        return await RoundRunner(state, ()).run()

    async def _conclude(self, body: "asyncio.Task[Answer | Failure | Held | None]", stop: Stop | None = None) -> None:
        """Stops what still runs and writes the final event, or that the run waits.

        Writes nothing if somebody has decided since the body found that it is held. Raises: StoreError.
        """
        recorder, broken = self._recorder, self._recorder.broken
        if not body.done() or (stop is not None and _held(body)):
            body.cancel()
            await asyncio.wait({body}, timeout=SETTLE_S)
            if not body.done():
                log.warning("run %s: a connection did not close within %g s", self.run_id, SETTLE_S)
            if broken.done():
                outcome: ev.Event = self._failed(broken.result())
            elif stop is not None:
                outcome = self._end(
                    ev.RunCancelled, command=stop.command, actor=stop.caller.actor, door=stop.caller.door
                )
            else:
                most = f"{self._state.request.limits.max_seconds:g} s, planning included"
                outcome = self._failed(LimitReached(f"the time limit of this run is reached: {most}", limit="seconds"))
        elif broken.done():
            outcome = self._failed(broken.result())
        elif _held(body) and self.trace.denial is None and self._decision.done():
            return None
        else:
            outcome = self._ended(body)
        if body.done() and not body.cancelled():
            body.exception()  # Heard: an error that came after the run was stopped is of no more interest.
        if not broken.done():
            try:
                return await recorder.end(outcome)
            except StoreError as error:
                outcome = self._failed(error)
        with contextlib.suppress(StoreError):
            # The log may take one small event again; if not, the run stays without an end, and the caller is told.
            await recorder.end(outcome)
        cause = broken.result()
        raise cause if isinstance(cause, InspectorError) else StoreError(f"the log broke: {cause}") from cause

    def _ended(self, body: "asyncio.Task[Answer | Failure | Held | None]") -> ev.Event:
        if body.cancelled():
            return self._failed(RuntimeError("a step was cancelled by no one"))
        error = body.exception()
        if error is not None:
            return self._failed(error)
        result, denial = body.result(), self.trace.denial
        if denial is not None:
            return self._denied(denial)
        if isinstance(result, Held):
            return ev.RunWaiting(**self._recorder.at(), waits_for=self.trace.waits_for)
        if isinstance(result, Failure):
            return self._failure(result.code, result.message)
        if result is None:
            return self._end(ev.RunCompleted, answer=None, ending="completed")
        return self._end(ev.RunCompleted, answer=result.output, ending=result.ending)

    def _denied(self, denial: Approval) -> ev.RunDenied:
        by = denial.decided_by or Caller()
        why = f": {denial.note}" if denial.note else ""
        error = f"{denial.what} was denied by {by.in_words}{why}"
        return self._end(ev.RunDenied, actor=by.actor, door=by.door, error=error)

    def _failed(self, error: BaseException) -> ev.RunFailed:
        if isinstance(error, InspectorError):
            return self._failure(error.code, str(error))
        log.error("the engine broke in run %s", self.run_id, exc_info=error)
        name = type(error).__name__
        what = masking.known().text(f"{name}: {error}")
        return self._failure(name, f"the engine broke unexpectedly, see the log: {what}")

    def _failure(self, code: str, message: str) -> ev.RunFailed:
        return self._end(ev.RunFailed, error_code=code, error=message)

    def _end(self, kind: type[End], **fields: Any) -> End:
        usage, cost = self._state.budget.total()
        now_ms = self._recorder.now_ms()
        spent = {"usage": usage, "cost_usd": cost.usd, "known_usd": cost.known_usd}
        if kind is not ev.RunCompleted:
            fields["broken_off"] = self._state.budget.broken_off()
        return kind(**self._recorder.at(now_ms), duration_ms=now_ms, **spent, **fields)


def _held(body: "asyncio.Task[Answer | Failure | Held | None]") -> bool:
    return not body.cancelled() and body.exception() is None and isinstance(body.result(), Held)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Awaits ``work`` even if cancelled, so that a run always gets its end; raises the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
