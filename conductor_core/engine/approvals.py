"""Gates and commands of a run: holds it back at its gates, and answers what reaches it from outside.

A gate asks which worker a call would go to, and what it could cost at most. A command is answered by
whichever process carries the run out.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from conductor_core.chat.messages import (
    ConductorInfo,
    Message,
    ToolCall,
    ToolCallPart,
    Usage,
    WorkerSpec,
    sum_of_costs,
)
from conductor_core.chat.servers import servers
from conductor_core.chat.usage import estimate_input_tokens
from conductor_core.engine.budgets import longest_answer
from conductor_core.engine.pools import with_fallbacks
from conductor_core.engine.prompts import Answer, StepInput, StepInputs, digest_text
from conductor_core.engine.recorder import At, Recorder
from conductor_core.engine.request import RunRecords
from conductor_core.errors import BadInput, EventOutOfOrder
from conductor_core.run import events as ev
from conductor_core.run.actor import Caller
from conductor_core.run.commands import Approve, Cancel, Command, Deny, Edit, SentCommand, ToolResults, Unproven
from conductor_core.run.events import ApprovalOf, Event, EventSink
from conductor_core.run.request import Gate
from conductor_core.run.trace import AT_REST, Approval, RunTrace
from conductor_core.run.values import Path, label
from conductor_core.workflow.edits import require_fit
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import WorkflowInvalid, check_given

# Gates.

Most = tuple[Usage, float | None]
"""The highest number of tokens that something may use without a repeated call, by estimate, and their cost in USD;
None: a price is unknown."""


def most_of_plan(workflow: Workflow, inputs: StepInputs, plan_max_tokens: int, spent: Collection[int] = ()) -> Most:
    """Returns the highest cost of all steps but ``spent``. An inner plan of the Conductor is not in it."""
    mosts = []
    for index, step in enumerate(workflow.steps):
        if index not in spent:
            read = [workflow.steps[earlier].agent for earlier in workflow.reads(index)]
            tokens = inputs.asked.tokens(step.instruction)
            tokens += sum(_longest(agent, inputs, plan_max_tokens) for agent in read)
            mosts.append(_most(step.agent, tokens, inputs, plan_max_tokens))
    usage = sum((usage for usage, _ in mosts), Usage(estimated=True))
    return usage, sum_of_costs(usd for _, usd in mosts)


def _longest(agent: str, inputs: StepInputs, plan_max_tokens: int) -> int:
    return plan_max_tokens if agent == CONDUCTOR_AGENT else longest_answer(inputs.workers[agent])


def _most(agent: str, input_tokens: int, inputs: StepInputs, plan_max_tokens: int) -> Most:
    """Returns the highest cost of one call. A fallback may make it."""
    output_tokens = _longest(agent, inputs, plan_max_tokens)
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, estimated=True)
    prices = [spec.price for spec in with_fallbacks(agent, inputs.workers)]
    if agent == CONDUCTOR_AGENT:
        prices = [None if inputs.conductor is None else inputs.conductor.price]
    costs = [None if price is None else price.cost_usd(usage) for price in prices]
    return usage, None if None in costs else max(cost or 0.0 for cost in costs)


def check_providers(gates: Iterable[Gate], workers: Iterable[WorkerSpec], conductor: ConductorInfo | None) -> None:
    """Raises: BadInput for a gate that could hold nothing back, because nothing of the run goes to its provider."""
    known = {server for spec in workers for server in servers(spec)}
    known |= set() if conductor is None else servers(conductor)
    for gate in gates:
        if gate.rule == "provider" and not _at(gate, known):
            raise BadInput(f"gate {gate}: nothing of this run goes there; it goes to {', '.join(sorted(known))}")


def check_steps(gates: Iterable[Gate], max_steps: int, workflow: Workflow | None) -> None:
    """Raises: BadInput for a gate before a step that the plan cannot have. ``workflow``: the plan, if it is known."""
    steps = max_steps if workflow is None else len(workflow.steps)
    for gate in gates:
        if gate.number is not None and gate.number >= steps:
            has = f"a plan of this run has at most {steps}" if workflow is None else f"the workflow has {steps}"
            raise BadInput(f"gate {gate}: unknown step; steps count from 0, and {has}")


def _at(gate: Gate, servers: Collection[str]) -> bool:
    if gate.provider is None:
        return False
    named = gate.provider.lower().replace("[", "").replace("]", "")  # of an IPv6 address
    host, colon, port = named.partition(":")
    return named in servers or f"{host.rstrip('.')}{colon}{port}" in servers


def _exceeds(gate: Gate, most_usd: float | None) -> bool:
    return gate.usd is not None and (most_usd is None or most_usd > gate.usd)


class Approvals:
    """The gates of one run that is being carried out. Belongs to its event loop.

    ``admits_...`` asks for an approval where a gate demands one, and returns whether the call may be made. What was
    decided is in the run's trace alone, so a run that waited goes on from its record.

    Attributes:
        decision: done as soon as a command has changed something; then another one takes its place.
        begun: the steps of which no edit may change anything any more.
    """

    def __init__(
        self,
        recorder: Recorder,
        gates: Sequence[Gate],
        inputs: StepInputs,
        plan_max_tokens: int,
        interrupted: Sequence[RunTrace] = (),
    ) -> None:
        """``interrupted``: the runs that this one resumes. What was granted there for the same is granted here.

        What was granted in an imported run is its file's word, so it grants nothing.
        """
        self._recorder, self._gates, self._inputs = recorder, gates, inputs
        self._plan_max_tokens = plan_max_tokens
        self._granted_before = [
            (run.run_id, approval)
            for run in interrupted
            if run.imported is None
            for approval in run.approvals
            if approval.status == "granted"
        ]
        self.decision: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun: set[Path] = set()

    @property
    def _trace(self) -> RunTrace:
        return self._recorder.trace

    @property
    def _open(self) -> bool:
        return not self._gates or any(approval.rest for approval in self._trace.approvals)

    def admits_conductor(self, round_path: Path, identity: str | None = None) -> bool:
        """``identity``: of the step whose answer the Conductor plans; None: it plans the task."""
        if self._open:
            return True
        conductor = self._inputs.conductor
        at = {"local"} if conductor is None else servers(conductor)
        rules = self._that(lambda gate: _at(gate, at))
        return self._admits("conductor", round_path, rules, identity or self._inputs.asked.identity)

    def admits_plan(self, round_path: Path, workflow: Workflow) -> bool:
        if self._open:
            return True
        # After an edit, steps of this plan may have run: what they spent is known, and is not spent again.
        steps = self._trace.round_at(round_path).steps
        spent = {step.path[-1] for step in steps if step.status not in ("waiting", "running")}
        if not round_path:
            overrides = self._trace.overrides
            spent |= {*range(len(workflow.steps))} - overrides.needed(workflow)
            spent |= {given.step for given in overrides.outputs}
        most = most_of_plan(workflow, self._inputs, self._plan_max_tokens, spent)
        most_usd = self._with_spent(most)
        rules = self._that(lambda gate: (gate.rule == "plan" and not round_path) or _exceeds(gate, most_usd))
        return self._admits("plan", round_path, rules, digest_text(workflow.model_dump_json()), most=most)

    def admits_step(self, path: Path, step: Step, asked: StepInput) -> bool:
        if self._open:
            return True
        messages = asked.context.messages
        most = _most(step.agent, estimate_input_tokens(messages), self._inputs, self._plan_max_tokens)
        most_usd = self._with_spent(most)
        # The Conductor is asked about where it is called, and for each step of its own plan.
        called = () if step.agent == CONDUCTOR_AGENT else with_fallbacks(step.agent, self._inputs.workers)
        at = {server for spec in called for server in servers(spec)}
        rules = self._that(
            lambda gate: (
                gate.rule == "steps"
                or (gate.rule == "step" and path == (gate.number,))
                or _at(gate, at)
                or _exceeds(gate, most_usd)
            )
        )
        return self._admits("step", path, rules, asked.identity, step.agent, messages, most)

    def admits_tool(self, path: Path, call: ToolCall) -> bool:
        """Whether a call of a tool that has effects may leave."""
        if self._open:
            return True
        part = ToolCallPart(call_id=call.call_id, name=call.name, arguments=call.arguments)
        said = (Message(role="assistant", content=(part,)),)
        rules = self._that(lambda gate: gate.rule == "tools")
        return self._admits("tool", path, rules, call.call_id, call.name, said, (Usage(), 0.0))

    def _with_spent(self, most: Most) -> float | None:
        return None if most[1] is None else self._trace.known_usd + most[1]

    def _that(self, holds: Callable[[Gate], bool]) -> tuple[str, ...]:
        """Returns the gates that hold. A limit in USD does so until somebody lets the run exceed it."""
        exceeded = {rule for each in self._trace.approvals if each.status == "granted" for rule in each.rules}
        rules = (str(gate) for gate in self._gates if holds(gate))
        return tuple(rule for rule in rules if not rule.startswith("usd:") or rule not in exceeded)

    def _admits(
        self,
        of: ApprovalOf,
        path: Path,
        rules: tuple[str, ...],
        identity: str,
        agent: str = "",
        messages: tuple[Message, ...] = (),
        most: Most | None = None,
    ) -> bool:
        asked = self._asked(of, path, identity)
        if asked is not None:
            return asked.status == "granted"
        if not rules:
            return True
        number = len(self._trace.approvals) + 1
        usage, most_usd = most or (Usage(estimated=True), None)
        at = self._recorder.at()
        requested = ev.ApprovalRequested(
            **at,
            number=number,
            of=of,
            path=path,
            rules=rules,
            identity=identity,
            agent=agent,
            messages=messages,
            most=usage,
            most_usd=most_usd,
        )
        same = (
            each for each in self._granted_before if each[1].rest or (each[1].of, each[1].identity) == (of, identity)
        )
        if (before := next(same, None)) is None:
            self._recorder.send(requested)
            return False
        source_run_id, grant = before
        by = grant.decided_by or Caller()
        granted = ev.ApprovalGranted(
            **at,
            numbers=(number,),
            rest=grant.rest,
            note=grant.note,
            actor=by.actor,
            door=by.door,
            carried_from=grant.carried_from or source_run_id,
        )
        self._recorder.send(requested, granted)
        return True

    def _asked(self, of: ApprovalOf, path: Path, identity: str) -> Approval | None:
        """Returns the last request about the same, unless an edit took its place."""
        for approval in reversed(self._trace.approvals):
            if (approval.of, approval.path, approval.identity) == (of, path, identity):
                return None if approval.status == "replaced" else approval
        return None

    def apply_command(self, sent: SentCommand) -> None:
        """Answers a command by an event; does nothing if it is answered already, or ends the run."""
        command = sent.command
        if sent.id <= self._trace.last_command or isinstance(command, Cancel):
            return
        if isinstance(command, Unproven):
            event: ev.Event = self._refused(sent.id, command, command.reason)
        elif isinstance(command, Edit):
            try:
                event = self._edited(sent.id, command)
            except KeyError:
                event = self._refused(sent.id, command, f"this run has no plan at {label(command.round)}")
            except (ValueError, WorkflowInvalid) as error:
                event = self._refused(sent.id, command, str(error))
        elif isinstance(command, ToolResults):
            event = self._returned(sent.id, command)
        else:
            event = self._decided(sent.id, command)
        self._recorder.send(event)
        if isinstance(event, ev.PlanEdited):
            self._ask_again(event.round, event.after)
        decided, self.decision = self.decision, asyncio.get_running_loop().create_future()
        decided.set_result(None)

    def _ask_again(self, round_path: Path, workflow: Workflow) -> None:
        """Asks about an edited plan and its steps, as the round itself would as soon as it has a turn."""
        steps = self._trace.round_at(round_path).steps
        answers = Answer.of_round(self._trace.round_at(round_path), self._inputs.asked.task)
        overrides = self._trace.overrides
        needed = frozenset(range(len(steps))) if round_path else overrides.needed(workflow)
        waiting = [
            step
            for step in steps
            if step.status == "waiting"
            and step.path not in self.begun
            and step.index in needed
            and overrides.output_at(step.path) is None
        ]
        can_be_asked = [step for step in waiting if all(read in answers for read in step.reads)]
        if can_be_asked and self.admits_plan(round_path, workflow):
            for step in can_be_asked:
                in_answer = self._trace.gives_answer(round_path)
                asked = self._inputs.of(workflow, step.index, answers, round_path, overrides, in_answer=in_answer)
                self.admits_step(step.path, workflow.steps[step.index], asked)

    def _decided(self, number: int, command: Approve | Deny) -> ev.Event:
        still = [approval.number for approval in self._trace.asked_for]
        numbers = tuple(still) if command.numbers is None else command.numbers
        edit = command.after_edit if isinstance(command, Approve) else None
        if any(refused.command == edit for refused in self._trace.refused):
            return self._refused(number, command, "the edit that it is for was refused")
        for each in numbers:
            if each not in still:
                return self._refused(number, command, self._why_not(each))
        if not numbers:
            return self._refused(number, command, "nothing of this run waits for an approval")
        common = {
            **self._recorder.at(),
            "numbers": numbers,
            "note": command.note,
            "command": number,
            "actor": command.actor,
            "door": command.door,
        }
        if isinstance(command, Deny):
            return ev.ApprovalDenied.model_validate(common)
        return ev.ApprovalGranted.model_validate(common | {"rest": command.rest})

    def _returned(self, number: int, command: ToolResults) -> ev.Event:
        called = sorted(call.call_id for call in self._trace.open_calls)
        brought = sorted(result.call_id for result in command.results)
        if not called:
            return self._refused(number, command, "no tool of this run is waited for")
        if called != brought:
            return self._refused(number, command, f"the run waits for the results of {', '.join(called)}")
        return ev.ToolReturned(
            **self._recorder.at(),
            results=command.results,
            said=command.said,
            anew=command.anew,
            command=number,
            client=command.client,
            actor=command.actor,
            door=command.door,
        )

    def _why_not(self, number: int) -> str:
        asked = next((approval for approval in self._trace.approvals if approval.number == number), None)
        if asked is None:
            return f"this run has no request {number}"
        if asked.status == "replaced" or asked.decided_by is None:
            return f"the plan was edited since: request {number}, {asked.what}, is no longer asked"
        return f"{asked.what} was {asked.status} by {asked.decided_by.in_words} before"

    def _edited(self, number: int, command: Edit) -> ev.Event:
        """Raises: KeyError, ValueError, WorkflowInvalid."""
        if not self._trace.asked_for:
            raise ValueError("nothing in this run waits, so its plan can no longer be edited")
        round_, inputs = self._trace.round_at(command.round), self._inputs
        before, after = round_.workflow, command.workflow
        if before is None:
            raise KeyError(command.round)
        if command.edited is not None and command.edited != before:
            raise ValueError("the plan was edited by somebody else meanwhile")
        for step in round_.steps:
            if step.status == "waiting" and step.path not in self.begun:
                continue
            if step.index >= len(after.steps) or after.steps[step.index] != before.steps[step.index]:
                raise ValueError(f"step {label(step.path)} has begun: change only steps that have not run")
        deeper = inputs.conductor is not None and len(command.round) < inputs.limits.max_depth
        checked = check_given(
            after,
            tuple(inputs.workers),
            max_steps=inputs.limits.max_steps,
            allow_recursion=deeper,
            task=None if inputs.asked.give_question else inputs.asked.task,
            images=inputs.images_given,
        )
        if command.origins is not None:
            require_fit(before, after, command.origins)
        return ev.PlanEdited(
            **self._recorder.at(),
            round=command.round,
            actor=command.actor,
            door=command.door,
            before=before,
            after=after,
            origins=command.origins,
            topology=topology(after),
            warnings=checked.warnings,
            command=number,
        )

    def _refused(
        self, number: int, command: Approve | Deny | Edit | ToolResults | Unproven, reason: str
    ) -> ev.CommandRefused:
        return _refusal(number, command, reason, self._recorder.at())


# Commands.


class Stop(NamedTuple):
    """Why a run's task is cancelled. ``command``: the id of the command that asked for it; None: there was none."""

    caller: Caller
    command: int | None = None


def cancel(records: RunRecords, sink: EventSink, run_id: str, caller: Caller) -> None:
    """Has a run end. One that waits ends at once; the process that carries out any other hears of it.

    Raises: UnknownRun, RunHasEnded, StoreError.
    """
    number = records.send(Cancel(run_id=run_id, actor=caller.actor, door=caller.door))
    trace = records.read(run_id)
    if trace.status in AT_REST:
        at: At = {"run_id": run_id, "at_ms": trace.last_at_ms}
        ended = ev.RunCancelled(
            **at,
            duration_ms=trace.last_at_ms,
            usage=trace.usage,
            cost_usd=trace.cost_usd,
            known_usd=trace.known_usd,
            actor=caller.actor,
            door=caller.door,
            command=number,
        )
        with suppress(EventOutOfOrder):  # a process has just taken it up, and hears the command
            sink.append_and_wait(ev.RunTaken(**at), ended)


def refusals(trace: RunTrace, commands: Sequence[SentCommand], reason: str) -> list[Event]:
    """Returns the events by which a run that waits refuses ``commands``, and waits on."""
    at: At = {"run_id": trace.run_id, "at_ms": trace.last_at_ms}
    refused = [
        _refusal(sent.id, sent.command, sent.command.reason if isinstance(sent.command, Unproven) else reason, at)
        for sent in commands
    ]
    return [ev.RunTaken(**at), *refused, ev.RunWaiting(**at, waits_for=trace.waits_for)]


def _refusal(number: int, command: Command | Unproven, reason: str, at: At) -> ev.CommandRefused:
    return ev.CommandRefused(
        **at,
        command=number,
        asked=command.kind,
        reason=reason,
        unproven=isinstance(command, Unproven),
        actor=command.actor,
        door=command.door,
    )
