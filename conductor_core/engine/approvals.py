"""Holds a run back at its gates, and answers the commands that reach it from outside."""

import asyncio
from collections.abc import Sequence

from conductor_core import events as ev
from conductor_core.actor import Caller
from conductor_core.approval_events import ApprovalOf
from conductor_core.chat import Message, Usage
from conductor_core.commands import Approve, Cancel, Deny, Edit, SentCommand
from conductor_core.endings import INCOMPLETE
from conductor_core.engine.context import Answer
from conductor_core.engine.gate_rules import GateRules, Most
from conductor_core.engine.given_plan import check_given
from conductor_core.engine.identity import digest_text
from conductor_core.engine.recorder import Recorder
from conductor_core.engine.step_input import StepInput, StepInputs
from conductor_core.errors import WorkflowInvalid
from conductor_core.run_facts import label
from conductor_core.run_trace import Approval, RunTrace
from conductor_core.workflow.changes import require_fit
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.topology import topology


class Approvals:
    """The gates of one run that is being carried out. Belongs to its event loop.

    ``admits_...`` asks for an approval where a gate demands one, and returns whether the call may be made. What was
    decided is in the run's trace alone, so a run that waited goes on from its record.

    Attributes:
        decision: done as soon as a command has changed something; then another one takes its place.
        begun: the steps of which no edit may change anything any more.
    """

    def __init__(
        self, recorder: Recorder, rules: GateRules, inputs: StepInputs, interrupted: Sequence[RunTrace]
    ) -> None:
        """``interrupted``: the runs that this one takes up. What was granted there for the same is granted here."""
        self._recorder, self._rules, self._inputs = recorder, rules, inputs
        self._granted_before = [
            (run.run_id, approval) for run in interrupted for approval in run.approvals if approval.status == "granted"
        ]
        self.decision: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun: set[ev.Path] = set()

    @property
    def _trace(self) -> RunTrace:
        return self._recorder.trace

    @property
    def _open(self) -> bool:
        return not self._rules or any(approval.rest for approval in self._trace.approvals)

    def admits_conductor(self, round_path: ev.Path, identity: str | None = None) -> bool:
        """``identity``: of the step whose answer the Conductor plans; None: it plans the task."""
        if self._open:
            return True
        return self._admits(
            "conductor", round_path, self._rules.for_conductor(), identity or self._inputs.task_identity
        )

    def admits_plan(self, round_path: ev.Path, workflow: Workflow) -> bool:
        if self._open:
            return True
        # After an edit, steps of this plan may have run: what they spent is known, and is not spent again.
        steps = self._trace.round_at(round_path).steps
        spent = {step.path[-1] for step in steps if step.status not in ("waiting", "running")}
        if not round_path:
            overrides = self._trace.overrides
            spent |= {*range(len(workflow.steps))} - overrides.needed(workflow)
            spent |= {given.step for given in overrides.outputs}
        most = self._rules.most_of_plan(workflow, spent)
        rules = self._undecided(self._rules.for_plan(round_path, self._with_spent(most)))
        return self._admits("plan", round_path, rules, digest_text(workflow.model_dump_json()), most=most)

    def admits_step(self, path: ev.Path, step: Step, asked: StepInput) -> bool:
        if self._open:
            return True
        messages = asked.context.messages
        most = self._rules.most_of_call(step.agent, messages)
        rules = self._undecided(self._rules.for_step(path, step.agent, self._with_spent(most)))
        return self._admits("step", path, rules, asked.identity, step.agent, messages, most)

    def _with_spent(self, most: Most) -> float | None:
        return None if most[1] is None else self._trace.known_usd + most[1]

    def _undecided(self, rules: tuple[str, ...]) -> tuple[str, ...]:
        """Leaves out a limit in USD that somebody has allowed the run to exceed: one decision counts."""
        allowed = {
            rule
            for approval in self._trace.approvals
            for rule in approval.rules
            if approval.status == "granted" and rule.startswith("usd:")
        }
        return tuple(rule for rule in rules if rule not in allowed)

    def _admits(
        self,
        of: ApprovalOf,
        path: ev.Path,
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
        run_id, at_ms = self._trace.run_id, self._recorder.now_ms()
        requested = ev.ApprovalRequested(
            run_id=run_id,
            at_ms=at_ms,
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
        before = self._granted_already(of, identity)
        if before is None:
            self._recorder.send(requested)
            return False
        source_run_id, grant = before
        by = grant.decided_by or Caller()
        granted = ev.ApprovalGranted(
            run_id=run_id,
            at_ms=at_ms,
            numbers=(number,),
            rest=grant.rest,
            note=grant.note,
            actor=by.actor,
            door=by.door,
            carried_from=grant.carried_from or source_run_id,
        )
        self._recorder.send(requested, granted)
        return True

    def _asked(self, of: ApprovalOf, path: ev.Path, identity: str) -> Approval | None:
        """Returns the last request about the same, unless an edit took its place."""
        for approval in reversed(self._trace.approvals):
            if (approval.of, approval.path, approval.identity) == (of, path, identity):
                return None if approval.status == "replaced" else approval
        return None

    def _granted_already(self, of: ApprovalOf, identity: str) -> tuple[str, Approval] | None:
        for run_id, approval in self._granted_before:
            if approval.rest or (approval.of, approval.identity) == (of, identity):
                return run_id, approval
        return None

    def hear(self, sent: SentCommand) -> None:
        """Answers a command by an event; does nothing if it is answered already, or ends the run."""
        command = sent.command
        if sent.id <= self._trace.heard or isinstance(command, Cancel):
            return
        event = self._edited(sent.id, command) if isinstance(command, Edit) else self._decided(sent.id, command)
        self._recorder.send(event)
        if isinstance(event, ev.PlanEdited):
            self._ask_again(event.round, event.after)
        decided, self.decision = self.decision, asyncio.get_running_loop().create_future()
        decided.set_result(None)

    def _ask_again(self, round_path: ev.Path, workflow: Workflow) -> None:
        """Asks about an edited plan and its steps, as the round itself would as soon as it has a turn."""
        steps, task = self._trace.round_at(round_path).steps, self._inputs.task
        ended = [step for step in steps if step.answered or step.status in INCOMPLETE]
        answers = {step.index: Answer.recorded(step, workflow.steps[step.index], task) for step in ended}
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
                seed = overrides.seed_at(step.path)
                asked = self._inputs.of(workflow, step.index, answers, round_path, seed)
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
            "run_id": self._trace.run_id,
            "at_ms": self._recorder.now_ms(),
            "numbers": numbers,
            "note": command.note,
            "command": number,
            "actor": command.actor,
            "door": command.door,
        }
        if isinstance(command, Deny):
            return ev.ApprovalDenied.model_validate(common)
        return ev.ApprovalGranted.model_validate(common | {"rest": command.rest})

    def _why_not(self, number: int) -> str:
        asked = next((approval for approval in self._trace.approvals if approval.number == number), None)
        if asked is None:
            return f"this run has no request {number}"
        if asked.status == "replaced" or asked.decided_by is None:
            return f"the plan was edited since: request {number}, {asked.what}, is no longer asked"
        return f"{asked.what} was {asked.status} by {asked.decided_by.in_words} before"

    def _edited(self, number: int, command: Edit) -> ev.Event:
        if not self._trace.asked_for:
            return self._refused(number, command, "nothing of this run waits, so its plan cannot be edited any more")
        try:
            return self._edit(number, command)
        except (KeyError, ValueError, WorkflowInvalid) as error:
            what = f"this run has no plan at {label(command.round)}" if isinstance(error, KeyError) else str(error)
            return self._refused(number, command, what)

    def _edit(self, number: int, command: Edit) -> ev.Event:
        """Raises: KeyError, ValueError, WorkflowInvalid."""
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
            task=None if inputs.give_question else inputs.task,
            images=inputs.images_given,
        )
        if command.origins is not None:
            require_fit(before, after, command.origins)
        return ev.PlanEdited(
            run_id=self._trace.run_id,
            at_ms=self._recorder.now_ms(),
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

    def _refused(self, number: int, command: Approve | Deny | Edit, reason: str) -> ev.CommandRefused:
        return ev.CommandRefused(
            run_id=self._trace.run_id,
            at_ms=self._recorder.now_ms(),
            command=number,
            asked=command.kind,
            reason=reason,
            actor=command.actor,
            door=command.door,
        )
