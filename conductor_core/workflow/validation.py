"""Checks a workflow against the rules: all faults at once, each with its place; and warnings, which stop nothing.

Codes are stable: scripts and the page rely on them.
"""

import difflib
from collections.abc import Sequence

from conductor_core.errors import BadInput
from conductor_core.workflow.lint import findings
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Fault, Frozen, Place, Step, Workflow, readable
from conductor_core.workflow.source import MOST_NOTES, Parsed, Position, RawStep, shorten

UNTOLD = "task_untold"
"""The warning that one click can mend."""
_MOST_NAMES = 12
_MOST_STEPS_WARNED = 40
"""More than any limit allows: a longer plan has a fault anyway, and who reads whom is quadratic."""


class Checked(Frozen):
    """The outcome. ``workflow`` is None if and only if there are faults.

    Attributes:
        faults: the first ``MOST_NOTES``; if there are more, a last one of the code ``more_faults`` says how many.
        fault_count: how many there are in all.
    """

    workflow: Workflow | None
    faults: tuple[Fault, ...] = ()
    fault_count: int = 0
    warnings: tuple[Fault, ...] = ()


class WorkflowInvalid(BadInput):
    """A workflow that cannot be used. ``faults`` has all that is wrong with it."""

    def __init__(self, message: str, faults: Sequence[Fault]) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class ImagesGiven(Frozen):
    """Images that come with the task, and who can be given them.

    Attributes:
        agents: the workers that accept images.
        every_step: whether every step receives the task, even if its instruction lacks ``{question}``.
    """

    agents: frozenset[str]
    every_step: bool = False


def validate(
    subject: Parsed | Workflow,
    agents: Sequence[str | None],
    *,
    max_steps: int,
    allow_recursion: bool = False,
    allow_stop: bool | None = None,
    task: str | None = None,
    images: ImagesGiven | None = None,
) -> Checked:
    """Checks ``subject`` and resolves its agents to names.

    Args:
        subject: as parsed (its own faults come first in the result) or already a workflow (then without places).
        agents: names by ordinal, None for an ordinal that nobody has.
        max_steps: the most steps allowed.
        allow_recursion: whether the Conductor itself, ordinal ``len(agents)``, may be an agent.
        allow_stop: whether no steps at all is the end of a recursion, not a fault; as ``allow_recursion`` if None.
        task: what the steps are to do, to be warned where none of those that matter is told it; None: they are told it
            anyway, or nobody asks.
        images: those that come with the task; None: there are none.
    """
    stop_allowed = allow_recursion if allow_stop is None else allow_stop
    parsed = subject if isinstance(subject, Parsed) else Parsed(steps=tuple(_raw(step) for step in subject.steps))
    steps = parsed.steps or ()
    check = _Check(steps, agents, allow_recursion)
    if parsed.is_stop and not stop_allowed:
        check.fault("empty_workflow", "The workflow has no steps.", None, "workflow", parsed.at)
    count = len(steps) + parsed.more_steps
    if count > max_steps or parsed.more_steps:
        first = min(max_steps, len(steps) - 1)
        message = f"The workflow has {count} steps; at most {min(max_steps, len(steps))} are allowed."
        check.fault("too_many_steps", message, first, "workflow", steps[first].position("workflow"))
    names = [check.step(index) for index in range(len(steps))]
    if images is not None and not parsed.is_stop:
        check.images(names, images)
    faults = (*parsed.faults, *check.faults)
    fault_count = len(faults) + parsed.more_faults + check.more_faults
    if fault_count > MOST_NOTES:
        faults = (*faults[:MOST_NOTES], _more(fault_count - MOST_NOTES))
    if parsed.steps is None and not faults:
        raise ValueError("nothing was read, and no fault says why")
    warnings = (*_warnings(steps, names), *(() if task is None else _untold(steps, names, task)))
    if faults:
        return Checked(workflow=None, faults=faults, fault_count=fault_count, warnings=warnings)
    return Checked(workflow=_workflow(steps, names), warnings=warnings)


def _raw(step: Step) -> RawStep:
    return RawStep(instruction=step.instruction, agent=step.agent, access_list=step.access_list)


def _workflow(steps: Sequence[RawStep], names: Sequence[str | None]) -> Workflow:
    complete: list[Step] = []
    for raw, name in zip(steps, names, strict=True):
        if raw.instruction is None or name is None or raw.access_list is None:
            raise ValueError("a part of a step is missing without a fault")
        complete.append(Step(instruction=raw.instruction, agent=name, access_list=raw.access_list))
    return Workflow(steps=tuple(complete))


class _Check:
    """The faults of one workflow, step by step."""

    def __init__(self, steps: Sequence[RawStep], agents: Sequence[str | None], allow_recursion: bool) -> None:
        self.faults: list[Fault] = []
        self.more_faults = 0
        self._steps = steps
        self._agents = agents
        self._allow_recursion = allow_recursion

    @property
    def full(self) -> bool:
        """Whether a further fault is only counted: its message need not be made."""
        return len(self.faults) >= MOST_NOTES

    def fault(self, code: str, message: str, step: int | None, field: Place, at: Position | None) -> None:
        if self.full:
            self.more_faults += 1
            return
        self.faults.append(_fault(code, message, step, field, at))

    def step(self, index: int) -> str | None:
        """Checks one step. The name of its agent, None if there is no such agent or it was not readable."""
        raw = self._steps[index]
        if raw.instruction is not None and not raw.instruction.strip():
            message = f"Step {index} has an empty instruction."
            self.fault("empty_instruction", message, index, "instruction", raw.instruction_at)
        if raw.access_list is not None and raw.access_list != "all":
            for read in dict.fromkeys(raw.access_list):
                self._reference(index, read)
        return None if raw.agent is None else self._agent(index, raw.agent)

    def images(self, names: Sequence[str | None], given: ImagesGiven) -> None:
        """Checks that every step that is given the images can take them, and that one is given them."""
        seen = False
        for index, (raw, name) in enumerate(zip(self._steps, names, strict=True)):
            with_task = given.every_step or raw.instruction is None or QUESTION in raw.instruction
            seen = seen or with_task or name in (None, CONDUCTOR_AGENT)
            if not with_task or name in (None, CONDUCTOR_AGENT) or name in given.agents:
                continue
            able = ", ".join(agent for agent in self._agents if agent in given.agents)
            message = f"Step {index} is given the task's image, which {name} does not accept; {able} would."
            self.fault("image_not_accepted", message, index, "agent", raw.agent_at)
        if self._steps and not seen:
            message = f"No step is given the task's image: write {QUESTION} in the instruction of one."
            self.fault("image_not_given", message, 0, "instruction", self._steps[0].instruction_at)

    def _agent(self, index: int, agent: int | str) -> str | None:
        if isinstance(agent, str):
            if agent in self._agents or (agent == CONDUCTOR_AGENT and self._allow_recursion):
                return agent
        elif 0 <= agent < len(self._agents) and self._agents[agent] is not None:
            return self._agents[agent]
        elif agent == len(self._agents) and self._allow_recursion:
            return CONDUCTOR_AGENT
        hint = "" if self.full else self._hint(agent)
        message = f"Step {index}: the pool has no agent {shorten(str(agent), 80)}{hint}"
        self.fault("unknown_agent", message, index, "agent", self._steps[index].agent_at)
        return None

    def _hint(self, agent: int | str) -> str:
        """What would be right: a close match, and what the pool has."""
        close = ""
        if isinstance(agent, str):
            names = {name.casefold(): name for name in self._agents if name is not None}
            matches = difflib.get_close_matches(agent[:80].casefold(), list(names), n=1)
            close = f"; did you mean {names[matches[0]]}?" if matches else ""
        own = agent in (CONDUCTOR_AGENT, len(self._agents)) and not self._allow_recursion
        off = " (the Conductor itself cannot be asked here: recursion is off at this depth)" if own else ""
        offered = [f"{ordinal} {name}" for ordinal, name in enumerate(self._agents) if name is not None]
        more = [f"and {len(offered) - _MOST_NAMES} more"] if len(offered) > _MOST_NAMES else []
        listed = offered[:_MOST_NAMES] + more
        has = f"It has {', '.join(listed)}." if listed else "It is empty."
        return f"{off}{close or '.'} {has}"

    def _reference(self, index: int, read: int) -> None:
        count, place = len(self._steps), self._steps[index].access_list_at
        if read < 0:
            code, why = "negative_index", "indices start at 0"
        elif read >= count:
            code, why = "out_of_range", f"the last step is {count - 1}"
        elif read == index:
            code, why = "self_reference", "a step cannot read its own output"
        elif read > index:
            code, why = "forward_reference", f"only earlier steps can be read{_earlier(index)}"
        else:
            return
        self.fault(code, f"Step {index} reads step {read}: {why}.", index, "access_list", place)


def _more(count: int) -> Fault:
    return _fault("more_faults", f"And {count:,} more.", None, "workflow", None)


def _earlier(index: int) -> str:
    """Which steps step ``index`` may read."""
    if index == 0:
        return ", and there is none before step 0"
    return ", that is step 0" if index == 1 else f", that is steps 0 to {index - 1}"


def _warnings(steps: Sequence[RawStep], names: Sequence[str | None]) -> list[Fault]:
    """What is doubtful, as far as the steps are readable: no access list may be missing, or all would be guesses."""
    if not 2 <= len(steps) <= _MOST_STEPS_WARNED or any(raw.access_list is None for raw in steps):
        return []
    return list(findings(steps, names, _reads(steps)))


def _untold(steps: Sequence[RawStep], names: Sequence[str | None], task: str) -> list[Fault]:
    """Where no step that leads to the answer receives the task: the steps that begin, each of which could be."""
    if not 1 <= len(steps) <= _MOST_STEPS_WARNED or any(raw.access_list is None for raw in steps):
        return []
    reads = _reads(steps)
    counts = {len(steps) - 1}
    for index in range(len(steps) - 1, -1, -1):
        if index in counts:
            counts.update(reads[index])
    named = " ".join(task.split())
    for index in counts:
        instruction = steps[index].instruction
        # The Conductor itself is always told; an instruction that cannot be read may say it.
        if instruction is None or names[index] == CONDUCTOR_AGENT or QUESTION in instruction:
            return []
        if named and named in " ".join(instruction.split()):
            return []
    elsewhere = any(QUESTION in (raw.instruction or "") for raw in steps)
    where = "only steps whose output does not reach the answer say" if elsewhere else "no instruction says"
    return [
        _fault(
            UNTOLD,
            f"Step {index} does not receive the task, nor does any step that leads to the answer: {where} {QUESTION}.",
            index,
            "instruction",
            steps[index].instruction_at,
        )
        for index in sorted(counts)
        if not reads[index]
    ]


def _reads(steps: Sequence[RawStep]) -> list[tuple[int, ...]]:
    return [readable(raw.access_list or (), index) for index, raw in enumerate(steps)]


def _fault(code: str, message: str, step: int | None, field: Place, at: Position | None) -> Fault:
    line, column = (at.line, at.column) if at else (None, None)
    return Fault(code=code, message=message, step=step, field=field, line=line, column=column)


# All codes: ``FAULTS`` keep a workflow from running; ``WARNINGS`` do not.

FAULTS = {
    # What was written in the place of a plan.
    "plan_refused": "The Conductor refused to write a plan.",
    "plan_filtered": "A filter of the Conductor's server took the plan away.",
    "plan_in_reasoning": "The completion is all reasoning, without a plan.",
    "tool_call_for_a_plan": "The Conductor called a tool; it was offered none.",
    "plan_cut": "The completion reached its limit of tokens before there was a plan.",
    "empty_completion": "The Conductor wrote nothing.",
    # What could not be read.
    "no_workflow": "The text holds neither the three lists nor a workflow in JSON.",
    "missing_list": "One or two of the lists model_id, subtasks and access_list are not there.",
    "cut_off": "The text ends in the middle of a list.",
    "unclosed_string": "A string has no closing quote before the next list begins.",
    "unclosed_list": "A list has no closing bracket and what follows it cannot belong to it.",
    "not_an_agent": "An entry of model_id is neither a number nor a name.",
    "not_text": "An entry of subtasks is not a string.",
    "bad_access": 'An entry of access_list is neither [], "all" nor a list of step indices.',
    "too_deep": "Brackets are nested deeper than a workflow ever needs.",
    "too_large": "The text or a list is longer, or holds more, than this program reads.",
    "bad_json": "A workflow file is not valid JSON.",
    "not_a_workflow": "A workflow file's JSON has another shape than a workflow.",
    "unknown_key": "A workflow file has a key that means nothing here.",
    "missing_key": "A step of a workflow file lacks a key.",
    "duplicate_key": "A workflow file gives the same key twice.",
    "bad_task": "The task of a workflow file is not a string.",
    # What breaks a rule.
    "empty_workflow": "The plan has no steps, and no recursion is open that three empty lists could end.",
    "too_many_steps": "The plan has more steps than the limit.",
    "unequal_lengths": "The three lists have different lengths.",
    "empty_instruction": "An instruction is empty or only white space.",
    "unknown_agent": "The pool has no such agent.",
    "self_reference": "A step reads its own output.",
    "forward_reference": "A step reads the output of a later step.",
    "out_of_range": "A step reads a step that does not exist.",
    "negative_index": "A step reads a negative index.",
    "image_not_accepted": "A step is given the task's image, and its worker accepts none.",
    "image_not_given": "No step is given the task's image.",
    # What there is too much of to be told.
    "more_faults": "The plan has more faults than those listed; the last one says how many.",
}

WARNINGS = {
    "unread_output": "No later step reads this step's output, and it is not the answer.",
    "off_the_answers_path": "Only steps that do not lead to the answer read this step's output.",
    "verifier_sees_nothing": "A step is to check an earlier result, and its access list does not grant it.",
    "grants_more_than_named": "An access list grants more than the steps, or the plan, that the instruction names.",
    "task_untold": "No step that leads to the answer receives the task.",
    "answer_reads_nothing": "The last step, whose output is the answer, reads none of the others.",
    "duplicate_step": "A step has the same agent, instruction and inputs as an earlier one, and none reads both.",
}
