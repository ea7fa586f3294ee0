"""Carries runs out, and shows them as they happen: progress and waits on stderr, the answer on stdout."""

import asyncio
import signal
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from conductor_core.chat.messages import IN_WORDS as ENDINGS_IN_WORDS
from conductor_core.chat.messages import INCOMPLETE, Departure
from conductor_core.chat.progress import Progress, time_left
from conductor_core.chat.tools import called_name, dotted
from conductor_core.cli.inputs import named_again
from conductor_core.cli.options import Options
from conductor_core.cli.output import labels, one_line, print_json
from conductor_core.errors import BadInput, InspectorError, StoreError, advice
from conductor_core.formats import run_word, seconds, step_word, tool_outcome
from conductor_core.privacy.detectors import in_words
from conductor_core.privacy.masking import known_and_set
from conductor_core.run import events as ev
from conductor_core.run.actor import Caller, local_caller
from conductor_core.run.costs import IN_WORDS, Cost, basis, cost_of_call, cost_so_far, in_list, spent_on
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import Approval, RunTrace, StepTrace, apply, begin
from conductor_core.run.values import Path, PoolInfo, label, round_name
from conductor_core.text import plain
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow

if TYPE_CHECKING:
    from conductor_core.engine.host import EngineHost
    from storage import Store


def lines(event: ev.ApprovalEvent, trace: RunTrace, db: str | None = None) -> list[str]:
    """Returns what the event means; ``trace`` is the run after it, ``db`` its database if that was named."""
    match event:
        case ev.ApprovalRequested():
            return [f"gate {', '.join(event.rules)} · {asked(trace.approvals[event.number - 1])}"]
        case ev.ApprovalGranted() | ev.ApprovalDenied():
            decided = [trace.approvals[number - 1] for number in event.numbers]
            what = ", ".join(each.what for each in decided)
            how = "denied" if isinstance(event, ev.ApprovalDenied) else "approved"
            rest = ", and all that follows," if isinstance(event, ev.ApprovalGranted) and event.rest else ""
            before = isinstance(event, ev.ApprovalGranted) and event.carried_from
            where = f" in run {before} already" if before else ""
            note = f": {one_line(event.note, 300)}" if event.note else ""
            return [f"{what}{rest} {how} by {one_line(event.caller.in_words, 60)}{where}{note}"]
        case ev.CommandRefused():
            return [f"refused to {event.asked}: {one_line(event.reason, 400)}"]
        case ev.RunWaiting():
            return [waits(trace, db)]


def asked(approval: Approval) -> str:
    """Says what an approval is asked for: what, which worker, and at what cost at most; of a tool what it is given."""
    if approval.of == "tool":
        return f"{one_line(approval.wish, 160)} with {one_line(approval.arguments, 400) or 'no arguments'}"
    to = f" to {one_line(approval.agent, 40)}" if approval.agent else ""
    cost = Cost(approval.most_usd, approval.most_usd or 0.0)
    most = "" if approval.of == "conductor" else f", at most {approval.most.total_tokens:,} tokens, {cost.in_line}"
    return f"{approval.what}{to}{most}"


def waits(trace: RunTrace, db: str | None = None) -> str:
    """Says that a run waits, and what to do. ``db``: its database, if that was named."""
    if not trace.asked_for:
        tools = ", ".join(one_line(call.name, 40) for call in trace.open_calls)
        return f"run {trace.run_id} waits for what its client's tools bring: {tools}"
    what = ", ".join(approval.what for approval in trace.asked_for)
    again = named_again(trace.run_id, db)
    return f"run {trace.run_id} waits for an approval of {what}: conductor approve {again}, or deny"


_AT = "%Y-%m-%d %H:%M:%S UTC"


def record_lines(trace: RunTrace) -> Iterator[str]:
    """Yields a line for each request with its decision, and for each command that was refused."""
    for approval in trace.approvals:
        rules = ", ".join(approval.rules)
        yield f"{approval.number}  {approval.requested_at_utc:{_AT}}  {asked(approval)} · gate {rules}"
        if approval.decided_by is None or approval.decided_at_utc is None:
            yield f"   {'replaced by an edit' if approval.status == 'replaced' else approval.status}"
            continue
        rest = ", and all that follows" if approval.rest else ""
        where = f" in run {approval.carried_from}" if approval.carried_from else ""
        note = f": {one_line(approval.note, 300)}" if approval.note else ""
        how = "approved" if approval.status == "granted" else approval.status
        by = who(trace, approval.decided_by)
        taken_over = "taken over, " if approval.carried_from else ""
        yield f"   {approval.decided_at_utc:{_AT}}  {taken_over}{how}{rest} by {by}{where}{note}"
    for refused in trace.refused:
        by = who(trace, refused.caller)
        yield f"-  {refused.at_utc:{_AT}}  refused to {refused.asked}, asked by {by}: {one_line(refused.reason, 300)}"


def who(trace: RunTrace, caller: Caller) -> str:
    """Returns who caused something in a run. Of an imported run that is its file's word, if it did not come with us."""
    own = trace.imported is None or trace.imported.recorded
    return f"{one_line(caller.in_words, 60)}{'' if own else ' (says the file)'}"


_REPORT_EVERY_MS = 5_000
_LONG_S = 10.0


class ProgressView:
    """Prints the events of one run.

    Args:
        quiet: print nothing but why there is no answer, or that a simulated one is.
        answer: the answer goes to stdout, and is streamed there if that is a terminal.
        trace: the run as it stands, of which only what follows is shown; None: all is shown.
        db: the run's database, if it was named: the commands that are advised name it, too.

    ``answer_shown`` is the part of the answer that stdout has seen.
    """

    def __init__(self, *, quiet: bool, answer: bool, trace: RunTrace | None = None, db: str | None = None) -> None:
        self._quiet = quiet
        self._db = db
        self._answer = answer
        self._stream = answer and sys.stdout.isatty()
        self._trace = None if trace is None else trace.model_copy(deep=True)
        self._writing_plan = False
        self._reported: dict[tuple[bool, Path], tuple[str, float]] = {}
        self.answer_shown = ""

    def show(self, event: ev.Event) -> None:
        if self._trace is None:
            self._trace = begin(event)
        else:
            apply(self._trace, event)
        if self.answer_shown and event.kind in ev.FINAL_KINDS:
            print(flush=True)
        if not self._quiet:
            self._print(event, self._trace)
        elif isinstance(event, ev.RunWaiting):
            self._say(waits(self._trace, self._db))
        elif event.kind in ev.FINAL_KINDS and self._trace.status == "completed":
            if self._answer and self._trace.simulated:
                self._say("simulated workers")
        elif event.kind in ev.FINAL_KINDS and self._trace.status != "planned":
            self._say(summary(self._trace))
        if self._stream:
            self._print_answer(event, self._trace)

    def _say(self, line: str) -> None:
        if self._writing_plan:
            self._writing_plan = False
            line = f"\n{line}"
        print(line, file=sys.stderr, flush=True)

    def _say_each(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(line)

    def _print(self, event: ev.Event, trace: RunTrace) -> None:
        if isinstance(event, ev.PlanEvent):
            self._print_plan(event, trace)
        elif isinstance(event, ev.StepProgress):
            self._print_progress(event)
        elif isinstance(event, ev.StepEvent):
            if line := _step_line(event, trace):
                self._say(line)
            if isinstance(event, ev.StepCompleted):
                self._say_each(_notes(event.departures))
        elif isinstance(event, ev.FinalEvent):
            self._say(summary(trace))
            if trace.error_code is not None or trace.status in INCOMPLETE:
                code = trace.error_code or f"Answer{trace.status.capitalize()}"
                planned = trace.root.workflow is not None
                again = named_again(trace.run_id, self._db)
                self._say(f"  {advice(code, again, trace.error or '', planned=planned)}")
        elif isinstance(event, ev.RunCreated):
            self._say(_created(event))
        elif isinstance(event, ev.RunTaken):
            self._say("resumed")
        elif isinstance(event, ev.TextRedacted):
            taken_out = in_words({each.what: each.count for each in event.taken_out})
            self._say(f"hidden before it was stored, in {event.of}: {taken_out}")
        elif isinstance(event, ev.ApprovalEvent):
            self._say_each(lines(event, trace, self._db))
        elif isinstance(event, ev.ToolReturned):
            self._say(f"the client's tools returned ({len(event.results)})")
        elif isinstance(event, ev.ToolsListed):
            listing = event.listing
            offers = f"offers {', '.join(tool.tool for tool in listing.tools) or 'no tool'}"
            said = listing.fault or f"{offers}{', in the run that this one resumes' if event.recorded else ''}"
            self._say(f"tool server {listing.server}: {one_line(said, 400)}")
        else:
            assert_never(event)

    def _print_progress(self, event: ev.StepProgress | ev.PlanProgress) -> None:
        """Prints a line when a phase begins, then one every few seconds.

        A plan that is being written shows itself: one line says how long it may take, if that is long.
        """
        of_plan = isinstance(event, ev.PlanProgress)
        place = event.round if isinstance(event, ev.PlanProgress) else event.path
        phase, at_ms = event.progress.phase, event.at_ms
        last = self._reported.get((of_plan, place))
        writes = event.progress.writes
        again = last is not None and last[0] == phase and at_ms - last[1] < _REPORT_EVERY_MS
        if again or (writes and last is None):
            return
        if of_plan and writes and (last is None or last[0] == "writing" or (event.progress.left_s or 0) < _LONG_S):
            return
        self._reported[of_plan, place] = ("writing" if of_plan and writes else phase, at_ms)
        head = "the Conductor" if of_plan else f"step {label(place)}"
        self._say(f"{head} · {doing(event.progress)}")

    def _print_plan(self, event: ev.PlanEvent, trace: RunTrace) -> None:
        of_step = f" of step {label(event.round)}" if event.round else ""
        match event:
            case ev.PlanProgress():
                self._print_progress(event)
            case ev.PlanStarted():
                again = f", attempt {event.attempt}" if event.attempt > 1 else ""
                self._say(f"plan{of_step} · the Conductor writes{again}")
            case ev.PlanDelta():
                # The plans of inner rounds may be written at once, and are shown when whole.
                if not event.round and not event.reasoning:
                    self._writing_plan = True
                    print(plain(event.text), end="", file=sys.stderr, flush=True)
            case ev.PlanCompleted():
                took = f" ({event.source})"
                if event.source == "conductor":
                    took = f" in {seconds(event.duration_ms)} · {_plan_spent(event)}"
                self._say(f"plan{of_step} · {event.topology}{took}")
                self._say_each(f"  repaired: {one_line(repair, 400)}" for repair in event.repairs)
                self._say_each(workflow_lines(event.workflow))
                self._say_each(f"  warning: {one_line(warning.message, 400)}" for warning in event.warnings)
                self._say_each(_notes(event.departures))
            case ev.PlanRejected():
                again = ", the Conductor is asked again" if event.will_retry else ""
                self._say(f"plan{of_step} · rejected{again} · {_plan_spent(event)}")
                self._say_each(f"  {one_line(fault.message, 400)}" for fault in event.faults)
                self._say_each(_notes(event.departures))
            case ev.PlanRetried():
                self._say(f"plan{of_step} · {plan_retried(event)}")
            case ev.PlanEdited():
                who = one_line(event.caller.in_words, 60)
                self._say(f"plan{of_step} · edited by {who}: {event.topology or trace.root.topology}")
                self._say_each(f"  changed: {one_line(said, 300)}" for said in trace.round_at(event.round).edits)
                self._say_each(workflow_lines(event.after))
            case _:
                assert_never(event)

    def _print_answer(self, event: ev.Event, trace: RunTrace) -> None:
        """Streams the last step's text as soon as nothing else can print in between."""
        last, plan = trace.last, trace.root.workflow
        if last is None or plan is None:
            return
        others = trace.overrides.needed(plan) - {last.index}
        if any(trace.steps[index].status in ("waiting", "running") for index in others):
            return
        if isinstance(event, ev.StepRetried) and event.path == last.path:
            print("\n", file=sys.stderr)
            self.answer_shown = ""
        elif last.output.startswith(self.answer_shown):
            print(plain(last.output[len(self.answer_shown) :]), end="", flush=True)
            self.answer_shown = last.output


def workflow_lines(workflow: Workflow) -> list[str]:
    width = max((len(one_line(step.agent, 40)) for step in workflow.steps), default=0)
    return [
        f"  {index}  {one_line(step.agent, 40):<{width}}  reads {labels(tuple((i,) for i in workflow.reads(index))):<8}"
        f"  {one_line(step.instruction)}"
        for index, step in enumerate(workflow.steps)
    ]


def summary(trace: RunTrace) -> str:
    """Says how a run ended, on one line."""
    tokens = f"{trace.usage.total_tokens} tokens"
    spent = " ".join(filter(None, (f"{tokens} · {cost_so_far(trace).in_line}", IN_WORDS[basis(trace)])))
    simulated = " · simulated" if trace.simulated else ""
    why = ""
    if trace.error is not None:
        why = f": {one_line(trace.error, 1000)}"
    elif trace.status == "cancelled" and trace.ended_by:
        why = f" by {one_line(trace.ended_by.in_words, 80)}"
    elif trace.status in INCOMPLETE and trace.last is not None:
        why = f": {_ending_words(trace.last)}"
    return f"run {trace.run_id} · {run_word(trace.status)}{why} · {seconds(trace.duration_ms)} · {spent}{simulated}"


def _notes(departures: Iterable[Departure]) -> Iterator[str]:
    """Yields how a call departed from what was configured, or its answer from what its protocol says."""
    return (f"  note: {one_line(departure.in_words, 400)}" for departure in departures)


def _plan_spent(event: ev.PlanCompleted | ev.PlanRejected) -> str:
    estimated = bool(event.at_list_price) and event.usage.estimated
    return f"{event.usage.total_tokens} tokens · {in_list(cost_of_call(event), estimated=estimated)}"


def _created(event: ev.RunCreated) -> str:
    conductor = "" if event.conductor is None else f" · Conductor {one_line(event.conductor.name)}"
    simulated = " · simulated workers" if event.simulated else ""
    asked, parent = event.request, ""
    if asked.parent_run_id is not None:
        parent = f" · {'resumes' if asked.resumed else 're-run of'} {asked.parent_run_id}"
    return f"run {event.run_id}{conductor} · pool {one_line(event.pool.name)}{simulated}{parent}"


def doing(progress: Progress) -> str:
    rate = f", {progress.per_s:.1f} tokens/s" if progress.per_s else ""
    left = f", {time_left(progress.left_s)}" if progress.left_s is not None else ""
    match progress.phase:
        case "loading" | "converting":
            share = f"{100 * progress.done // progress.total} %" if progress.total else "the first bytes"
            return f"{progress.phase} the model, {share} of {progress.total / 1e6:,.0f} MB{left}"
        case "reading":
            return f"reading the prompt, {progress.done:,} of {progress.total:,} tokens{rate}{left}"
    return f"{progress.phase}, {progress.done:,} tokens{rate}{left}"


def _step_line(event: ev.StepEvent, trace: RunTrace) -> str | None:
    step = trace.step_at(event.path)
    head = f"step {label(step.path)} · {one_line(step.agent, 40)} ·"
    match event:
        case ev.StepStarted():
            withheld = tuple(shared.path for shared in event.withheld if shared.there)
            parts = [f"reads {labels(tuple(shared.path for shared in event.granted))}"]
            parts += [f"{labels(withheld)} withheld"] if withheld else []
            return f"{head} started, {', '.join(parts)}"
        case ev.StepRetried():
            return f"{head} {call_retried(step, event)}"
        case ev.ToolCalled():
            names = (called_name(c.name) if c.call_id in event.ours else c.name for c in event.calls)
            return f"{head} calls {', '.join(one_line(name, 80) for name in names)}"
        case ev.ToolSent():
            named = one_line(dotted(event.server, event.tool), 80)
            return f"{head} {named} is called{', which has effects' if event.effects else ''}"
        case ev.ToolRan():
            called = dotted(event.server, event.tool)
            took = f" after {seconds(event.duration_ms)}" if event.duration_ms else ""
            return f"{head} {one_line(called, 80)}: {tool_outcome(event.outcome)}{took}"
        case ev.StepCompleted():
            cut = f" · incomplete ({event.finish_reason})" if event.incomplete and event.ending == "completed" else ""
            spent = spent_on(trace, step)
            whole = step.round is not None
            took, usage = seconds(event.duration_ms), (spent if whole else event).usage
            paid = spent.cost if whole else replace(cost_of_call(event), at_most=spent.cost_at_most)
            cost = in_list(paid, estimated=spent.at_list_price and usage.estimated)
            how = f" · {ended}" if (ended := how_ended(step)) else ""
            return f"{head} {step_word(step.ending)} in {took} · {usage.output_tokens} tokens out · {cost}{cut}{how}"
        case ev.StepFailed():
            return f"{head} failed: {one_line(event.error, 1000)}"
        case ev.StepSkipped():
            because = f": needs step {labels(event.because)}" if event.because else ""
            return f"{head} skipped{because}"
        case ev.StepReused():
            return f"{head} reused from step {label(event.source_path)} of run {event.source_run_id}"
        case ev.StepGiven():
            return f"{head} not asked: {one_line(event.given.in_words, 200)}"
        case ev.RecursionEntered():
            return f"{head} asks the Conductor: {round_name(event.path)}"
        case ev.RecursionLeft():
            return f"{head} {round_name(event.path)} {event.how}"
        case ev.StepDelta() | ev.StepProgress():
            return None
        case _:
            assert_never(event)


# A call that brought no whole answer, and what was done about it.


def call_retried(step: StepTrace, attempt: ev.StepRetried) -> str:
    """Says what was wrong with a call of ``step``, and what followed it."""
    who = f"{one_line(attempt.agent, 40)}: " if attempt.agent else ""
    if attempt.loading:
        return f"{who}the server is loading its model, asked again until it answers: {one_line(attempt.error, 400)}"
    failed = "" if attempt.error_code.startswith("Answer") else " failed"
    said = f" ({one_line(attempt.refusal, 400)})" if attempt.refusal else ""
    return f"{who}attempt {attempt.attempt}{failed}: {one_line(attempt.error, 400)}{said}; {_then(step, attempt)}"


def plan_retried(attempt: ev.PlanRetried) -> str:
    """Says how a call of a Conductor failed before it was made again."""
    if attempt.loading:
        return f"the server is loading its model, asked again until it answers: {one_line(attempt.error, 400)}"
    return f"the call failed: {one_line(attempt.error, 400)}; again in {seconds(attempt.wait_ms)}"


def _then(step: StepTrace, attempt: ev.StepRetried) -> str:
    match attempt.then:
        case "more_tokens":
            return f"again, with up to {attempt.then_max_tokens:,} tokens"
        case "fallback":
            return f"{one_line(attempt.then_agent or step.agent, 40)} is asked instead"
        case "kept":
            return "the earlier answer is kept"
        case "again":
            return "told so, and asked again" if attempt.correction else f"again in {seconds(attempt.wait_ms)}"


def how_ended(step: StepTrace) -> str:
    """Says how the answer of ``step`` ended, unless it is whole, and who gave it, if another worker did."""
    parts = [f"by {one_line(step.answered_by, 40)}"] if step.answered_by else []
    if step.ending != "completed":
        parts.append(_ending_words(step))
    return " · ".join(parts)


def _ending_words(step: StepTrace) -> str:
    """Says how an answer ended, and what was said or called in its place."""
    said = f": {one_line(step.refusal, 1000)}" if step.refusal else ""
    called = ", ".join(f"{one_line(tool.name, 80)}({one_line(tool.arguments, 400)})" for tool in step.tool_calls)
    return f"{ENDINGS_IN_WORDS[step.ending]}{said}{f'; it called {called}, and nothing was called' if called else ''}"


# Carrying out runs: who would not answer, what is shown until they end, and what a signal does meanwhile.


def ready(
    request: RunRequest, given: Options, *, only_answering: bool = False, agents: Collection[str] | None = None
) -> RunRequest:
    """Returns ``request``; if ``only_answering``, without the workers that would not answer.

    Asks all at once, for a few seconds at most. Says what fails; the run begins all the same, because a server may
    come up later and a plan may not need a worker. ``agents``: the names of those who will be called; None: the agents
    of the request's workflow, or of one still to be written.

    Raises: BadInput for what certainly cannot work, such as a Conductor whose key is not set.
    """
    planned = agents is not None or request.workflow is not None
    if agents is None:
        agents = () if request.workflow is None else {step.agent for step in request.workflow.steps}
    anybody = not planned or CONDUCTOR_AGENT in agents
    # Imported when used: commands that only show runs do without.
    from conductor_core.engine.pools import read_specs

    pool = given.settings.pool if request.pool is None else request.pool
    offered = pool.workers if isinstance(pool, PoolInfo) else read_specs(pool, given.settings)
    specs = [spec for spec in offered if spec.name not in request.excluded and (anybody or spec.name in agents)]
    if request.plan_only:
        specs = []
    needed = request.conductor if anybody else None
    if needed in (None, "tiny") and all(spec.simulated for spec in specs):
        return request
    # Imported here so that a run that asks nobody over a network loads no clients.
    from conductor_core.engine.preflight import preflight

    found = preflight(needed, specs, request.limits, given.settings, request.task)
    if found.impossible is not None:
        raise BadInput(found.impossible)
    leaving_out = only_answering and found.some_worker
    given.say(*(f"warning: {one_line(part.detail, 400)}" for part in found.failing))
    if found.failing_workers and found.some_worker and not (only_answering or planned):
        # Only `run` lets a Conductor choose among workers, and it has the option.
        given.say("note: the plan may ask them all the same; --only-what-answers leaves them out")
    # A batch whose budget cannot see a part is refused elsewhere, because nobody watches its many runs.
    asked = found.of_those_that_answer if leaving_out else found
    if asked.budget_warning is not None and request.task:
        given.say(f"warning: {one_line(asked.budget_warning, 600)}")
    if not only_answering or not found.failing_workers:
        return request
    if not leaving_out:
        raise BadInput("--only-what-answers: no worker answers, see above; start a server or take another pool")
    given.say(f"left out: {one_line(', '.join(found.failing_workers), 400)}")
    return request.model_copy(update={"excluded": (*request.excluded, *found.failing_workers)})


class RunStopped(InspectorError):
    """The log failed and the run stopped. What was logged before is kept."""

    def __init__(self, cause: InspectorError) -> None:
        super().__init__(f"the run stopped: {cause}")
        self._code = cause.code

    @property
    def code(self) -> str:
        return self._code


def watch(
    store: "Store",
    host: "EngineHost",
    run_id: str,
    view: ProgressView,
    *,
    after: int = 0,
    until_it_waits: bool = False,
) -> tuple[RunTrace, int]:
    """Shows a run of ``host`` until it has ended. Ctrl-C or SIGTERM cancels it, a second one ends the program.

    Args:
        after: the sequence of the last event that ``view`` knows.

    Returns the trace and the exit code. Raises: RunStopped if the log failed, and could not even take the run's end.
    """
    try:
        return asyncio.run(_watch(store, host, run_id, _show(store, run_id, view, after, until_it_waits)))
    except StoreError as error:
        raise RunStopped(error) from error


async def _watch(
    store: "Store", host: "EngineHost", run_id: str, shown: Coroutine[Any, Any, None]
) -> tuple[RunTrace, int]:
    with stopping(lambda: host.cancel(run_id, local_caller("cli"))) as stopped_by:
        ended = asyncio.get_running_loop().run_in_executor(None, host.wait, run_id)
        showing = asyncio.create_task(shown)
        try:
            first_to_end: set[asyncio.Future[Any]] = {ended, showing}
            await asyncio.wait(first_to_end, return_when=asyncio.FIRST_COMPLETED)
            if showing.done() and showing.exception() is not None:
                host.cancel(run_id, local_caller("cli"))  # nobody can see it any more
            try:
                trace = await ended
            except StoreError:
                trace, _ = store.trace(run_id)
                if not trace.ended:
                    raise
            await showing
            if trace.status == "waiting":
                trace = store.read(run_id)  # after the wait, any process may have carried it out
        finally:
            showing.cancel()
    if stopped_by and trace.status == "cancelled":
        return trace, stopped_by[0]
    return trace, exit_code(trace)


def exit_code(trace: RunTrace) -> int:
    """Returns 0 for a run that is done, 3 for one that waits, 1 for any other end."""
    return 0 if trace.status in ("completed", "planned") else 3 if trace.status == "waiting" else 1


def follow(store: "Store", run_id: str, view: ProgressView, after: int) -> None:
    """Shows a run that another process carries out, until it has ended or waits. Ctrl-C only stops the showing."""
    asyncio.run(_show(store, run_id, view, after, until_it_waits=True))


async def _show(store: "Store", run_id: str, view: ProgressView, after: int, until_it_waits: bool) -> None:
    async with aclosing(store.follow(run_id, after)) as groups:
        async for group in groups:
            for stored in group:
                view.show(stored.event)
                if until_it_waits and stored.event.kind == "run.waiting":
                    return


def print_outcome(trace: RunTrace, view: ProgressView, *, as_json: bool) -> None:
    """Prints what is left to print of a run that was watched: its document, or its answer if stdout lacks it."""
    if as_json:
        from conductor_core.analysis import documents  # a person's terminal needs none

        print_json(documents.run_document(trace))
    elif trace.answer is not None and view.answer_shown != (answer := known_and_set().text(trace.answer)):
        print(plain(answer))


# Runs that are carried out at once.


async def all_ended(
    host: "EngineHost", run_ids: Sequence[str], what: str, given: Options
) -> tuple[list[RunTrace], int]:
    """Waits for all runs. Ctrl-C or SIGTERM cancels those that have not ended.

    Returns them, and the exit code of a signal, else 0. ``what``: the word for them, in the plural.
    """

    def cancel() -> None:
        for run_id in run_ids:
            host.cancel(run_id, local_caller("cli"))

    loop, done = asyncio.get_running_loop(), 0

    def on_done(_: object) -> None:
        nonlocal done
        done += 1
        given.say(f"{done} of {len(run_ids)} {what}")

    with ThreadPoolExecutor(len(run_ids), what) as threads, stopping(cancel) as stopped_by:
        waiting = [loop.run_in_executor(threads, host.wait, run_id) for run_id in run_ids]
        for each in waiting:
            each.add_done_callback(on_done)
        traces = await asyncio.gather(*waiting)
    return list(traces), stopped_by[0] if stopped_by else 0


class Stoppable(Protocol):
    def run(self) -> None: ...
    def stop(self) -> None: ...


async def until_stopped(work: Stoppable) -> int:
    """Returns when the work is done, or was stopped by Ctrl-C or SIGTERM: the exit code of that signal, else 0."""
    with stopping(work.stop) as stopped_by:
        await asyncio.to_thread(work.run)
    return stopped_by[0] if stopped_by else 0


# Signals.

_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Calls ``stop`` at the first SIGINT or SIGTERM; a second one ends the program. Needs a running event loop.

    Yields a list: empty at first, it holds the exit code from the first signal on.
    """
    loop = asyncio.get_running_loop()
    codes: list[int] = []

    def on_signal(number: signal.Signals) -> None:
        if codes:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        codes.append(_EXIT_CODES[number])
        stop()

    for number in _EXIT_CODES:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield codes
    finally:
        for number in _EXIT_CODES:
            loop.remove_signal_handler(number)
