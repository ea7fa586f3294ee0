"""Checks a workflow against the rules: all faults at once, each with its place; and warnings, which stop nothing.

Codes are stable: scripts and the page rely on them.
"""

import difflib
import re
from collections.abc import Iterator, Sequence

from conductor_core.errors import BadInput
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Fault, Frozen, Step, Workflow, readable
from conductor_core.workflow.source import MOST_NOTES, Faults, Parsed, RawStep, fault_of, shorten

Reads = Sequence[tuple[int, ...]]

_LONGEST_READ = 2000
_THING = (
    r"(?:answer|solution|result|calculation|computation|working|derivation|proof|code|function|attempt|draft|output"
    r"|response|translation|summary|conclusion|finding)"
)
_MADE = rf"{_THING}s?"
_PLAN = r"(?:plan|outline|approach|strategy)"
# Everything here is bounded: who writes an instruction may be a model, and must not be able to keep us busy.
_BEFORE_THE_VERB = (
    r"\W{0,9}(?:(?:please|now|then|finally|carefully|independently|critically),?\s{1,9}){0,3}"
    r"(?:as an? [\w ]{1,40},\s{0,9})?"
)
_VERIFIES = re.compile(
    rf"{_BEFORE_THE_VERB}(?:verify|(?:double-|re-?)?check|review|validate|audit|inspect|critique|proofread|referee"
    rf"|(?:go over|look over|find (?:any |the )?(?:mistakes?|errors?|flaws?) in)) [^.:;{{]{{0,60}}?"
    rf"\b(?:{_MADE}|steps? \d{1, 6})\b",
    re.IGNORECASE,
)
_PLANS = re.compile(
    rf"^{_BEFORE_THE_VERB}(?:plan|outline|sketch|break|decompose|split|divide|lay out|devise|name the|list the"
    rf"|(?:make|write|draft|give|set|propose|produce|create) (?:\w+ ){{0,3}}{_PLAN})\b"
    r"|\b(?:do not|don't|without) (?:yet )?(?:solv|calculat|comput|answer)\w*",
    re.IGNORECASE,
)
_FOLLOWS_PLAN = re.compile(
    rf"{_BEFORE_THE_VERB}(?:follow|carry out|execute|implement|apply|work through) (?:only |just )?the {_PLAN}\b",
    re.IGNORECASE,
)
# "Solve it: step 1 reads the file" counts the parts of a task of its own; "the output of step 1" names a step.
_NAMED = re.compile(
    r"\b(?:of|from|in|by|per|using|use|see|follow|check|verify|review|read|compare|improve|revise)\s{1,9}"
    r"(?:only |just )?steps?\s{1,9}(\d{1,6}(?:\s{0,9}(?:,|and|or|&|to)\s{0,9}\d{1,6}){0,40})"
    r"|\bstep\s{1,9}(\d{1,6})['’]s\b",
    re.IGNORECASE,
)
_MORE = re.compile(
    rf"\b(?:all|every|each|both|other|others|rest|earlier|previous|prior|preceding|above|everything|{_THING}s"
    r"|opinions|candidates|context)\b",
    re.IGNORECASE,
)


def findings(steps: Sequence[RawStep], names: Sequence[str | None], reads: Reads) -> Iterator[Fault]:
    """Yields what is doubtful in a plan of two steps or more, whose access lists are all readable.

    Args:
        names: of the agents; None for one that there is not.
        reads: for each step the earlier steps that it reads.
    """
    yield from _unread(steps, reads)
    yield from _duplicates(steps, names, reads)
    for index, raw in enumerate(steps):
        # A recursive step sees the last response alone, whatever its access list grants.
        if raw.instruction is None or index == 0 or names[index] == CONDUCTOR_AGENT:
            continue
        words = raw.instruction[:_LONGEST_READ]
        if said := _blind_verifier(steps, index, words, reads):
            yield fault_of(raw.position("access_list"), "verifier_sees_nothing", said, index, "access_list")
        elif said := _granted_too_much(steps, index, words, reads[index]):
            yield fault_of(raw.position("access_list"), "grants_more_than_named", said, index, "access_list")


def _unread(steps: Sequence[RawStep], reads: Reads) -> Iterator[Fault]:
    """Yields outputs that nobody reads, and outputs that are read but never reach the answer."""
    last = len(steps) - 1
    read = frozenset[int]().union(*reads)
    leading = {last}
    for index in range(last, -1, -1):
        if index in leading:
            leading.update(reads[index])
    for index, raw in enumerate(steps[:last]):
        if index not in read:
            said = f"No step reads the output of step {index}, and it is not the answer: let a later step read it, or "
            said += f"remove step {index}."
            yield fault_of(raw.position("workflow"), "unread_output", said, index, "workflow")
        elif index not in leading and reads[last]:
            readers = [reader for reader in range(last) if index in reads[reader]]
            read_it, does = ("reads it", "it does") if len(readers) == 1 else ("read it", "they do")
            said = (
                f"The answer does not rest on step {index}: only {_steps(readers)} {read_it}, and {does} not lead to "
                "the answer. Let a step that does read it, or remove it."
            )
            yield fault_of(raw.position("workflow"), "off_the_answers_path", said, index, "workflow")
    if not reads[last]:
        said = f"Step {last} gives the answer but reads none of the other steps: let it read those that it rests on."
        yield fault_of(steps[last].position("access_list"), "answer_reads_nothing", said, last, "access_list")


def _duplicates(steps: Sequence[RawStep], names: Sequence[str | None], reads: Reads) -> Iterator[Fault]:
    """Yields equal steps, unless a later step reads both: then they are attempts to choose from."""
    first: dict[tuple[str, str, tuple[int, ...]], int] = {}
    for index, (raw, name) in enumerate(zip(steps, names, strict=True)):
        if name is None or raw.instruction is None:
            continue
        earlier = first.setdefault((name, " ".join(raw.instruction.split()), reads[index]), index)
        compared = any(earlier in later and index in later for later in reads[index + 1 :])
        if earlier != index and not compared:
            said = (
                f"Step {index} repeats step {earlier}: same agent, instruction and inputs. Remove one, or let a later "
                f"step compare both."
            )
            yield fault_of(raw.position("workflow"), "duplicate_step", said, index, "workflow")


def _blind_verifier(steps: Sequence[RawStep], index: int, words: str, reads: Reads) -> str | None:
    """Says what a verifier cannot see; None: this step verifies nothing earlier, or sees it."""
    if not _VERIFIES.match(words):
        return None
    named = _named(re.split("[.:;{]", words, maxsplit=1)[0], index)
    if named and not named & set(reads[index]) and not {step - 1 for step in named} & set(reads[index]):
        return f"Step {index} is to check {_steps(sorted(named))} but cannot see it: add it to the access list."
    if not reads[index]:
        return (
            f"Step {index} is to check an earlier result but sees none: let it read the step that it checks, for "
            f"instance step {index - 1}."
        )
    made = [earlier for earlier in range(index) if not _plans(steps[earlier])]
    if made and not set(made) & set(reads[index]):
        return (
            f"Step {index} is to check a result but sees only the plan ({_steps(reads[index])}): let it read the step "
            f"that it checks, for instance step {made[-1]}."
        )
    return None


def _granted_too_much(steps: Sequence[RawStep], index: int, words: str, reads: tuple[int, ...]) -> str | None:
    """Says what an access list grants beyond what the instruction names; None: nothing, or the words are not plain."""
    spoken = words.replace(QUESTION, " ")
    named = _named(spoken, index)
    if named:
        beyond = [step for step in reads if step not in named]
        of = _steps(sorted(named))
        # Numbers that do not fit step indices from 0 may count from 1.
        plain = named <= set(reads) and not _MORE.search(_NAMED.sub(" ", spoken))
    else:
        beyond = [step for step in reads if not _plans(steps[step])]
        of = "the plan"
        follows = _FOLLOWS_PLAN.match(spoken)
        plain = follows is not None and len(beyond) < len(reads) and not _MORE.search(_without_place(spoken))
    if not beyond or not plain:
        return None
    return (
        f"Step {index} speaks of {of} alone, but its access list also grants {_steps(beyond)}: take that out, or say "
        f"in the instruction what it is for."
    )


def _without_place(spoken: str) -> str:
    """Leaves out the "above" of "the plan above"."""
    return re.sub(
        rf"\b({_PLAN})\s+above\b|\b(?:earlier|previous|above)\s+({_PLAN})\b", " ", spoken, flags=re.IGNORECASE
    )


def _named(words: str, index: int) -> set[int]:
    """Returns the earlier steps that the words name by number; empty if a number is none of an earlier step."""
    numbers: set[int] = set()
    for found in _NAMED.finditer(words):
        if "to" in (found.group(1) or ""):
            return set()
        numbers.update(int(number) for number in re.findall(r"\d+", found.group(1) or found.group(2)))
    return numbers if all(number < index for number in numbers) else set()


def _plans(raw: RawStep) -> bool:
    return raw.instruction is not None and _PLANS.search(raw.instruction[:_LONGEST_READ]) is not None


def _steps(indices: Sequence[int]) -> str:
    """Returns ``step 1`` or ``steps 0, 2 and 3``."""
    *first, last = map(str, indices)
    return f"steps {', '.join(first)} and {last}" if first else f"step {last}"


# Rules.

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
    if isinstance(subject, Workflow):
        subject = Parsed(steps=tuple(RawStep(**dict(step)) for step in subject.steps))
    steps = subject.steps or ()
    check = _Check(steps, agents, allow_recursion)
    if subject.is_stop and not stop_allowed:
        check.fault_at(subject.at, "empty_workflow", "The workflow has no steps.", None, "workflow")
    count = len(steps) + subject.more_steps
    if count > max_steps or subject.more_steps:
        first = min(max_steps, len(steps) - 1)
        message = f"The workflow has {count} steps; at most {min(max_steps, len(steps))} are allowed."
        check.fault_at(steps[first].position("workflow"), "too_many_steps", message, first, "workflow")
    names = [check.step(index) for index in range(len(steps))]
    if images is not None and not subject.is_stop:
        check.images(names, images)
    faults = (*subject.faults, *check.faults)
    fault_count = len(faults) + subject.more_faults + check.more_faults
    if fault_count > MOST_NOTES:
        more = f"And {fault_count - MOST_NOTES:,} more."
        faults = (*faults[:MOST_NOTES], Fault(code="more_faults", message=more))
    if subject.steps is None and not faults:
        raise ValueError("nothing was read, and no fault says why")
    warnings = (*_warnings(steps, names), *(() if task is None else _untold(steps, names, task)))
    if faults:
        return Checked(workflow=None, faults=faults, fault_count=fault_count, warnings=warnings)
    return Checked(workflow=_workflow(steps, names), warnings=warnings)


def _workflow(steps: Sequence[RawStep], names: Sequence[str | None]) -> Workflow:
    complete: list[Step] = []
    for raw, name in zip(steps, names, strict=True):
        if raw.instruction is None or name is None or raw.access_list is None:
            raise ValueError("a part of a step is missing without a fault")
        complete.append(Step(instruction=raw.instruction, agent=name, access_list=raw.access_list))
    return Workflow(steps=tuple(complete))


class _Check(Faults):
    """The faults of one workflow, step by step."""

    def __init__(self, steps: Sequence[RawStep], agents: Sequence[str | None], allow_recursion: bool) -> None:
        super().__init__()
        self._steps = steps
        self._agents = agents
        self._allow_recursion = allow_recursion

    def step(self, index: int) -> str | None:
        """Checks one step. The name of its agent, None if there is no such agent or it was not readable."""
        raw = self._steps[index]
        if raw.instruction is not None and not raw.instruction.strip():
            message = f"Step {index} has an empty instruction."
            self.fault_at(raw.instruction_at, "empty_instruction", message, index, "instruction")
        if raw.access_list is not None and raw.access_list != "all":
            for read in dict.fromkeys(raw.access_list):
                self._reference(index, read)
        return None if raw.agent is None else self._agent(index, raw.agent)

    def images(self, names: Sequence[str | None], given: ImagesGiven) -> None:
        seen = False
        for index, (raw, name) in enumerate(zip(self._steps, names, strict=True)):
            with_task = given.every_step or raw.instruction is None or QUESTION in raw.instruction
            seen = seen or with_task or name in (None, CONDUCTOR_AGENT)
            if not with_task or name in (None, CONDUCTOR_AGENT) or name in given.agents:
                continue
            able = ", ".join(agent for agent in self._agents if agent in given.agents)
            message = f"Step {index} is given the task's image, which {name} does not accept; {able} would."
            self.fault_at(raw.agent_at, "image_not_accepted", message, index, "agent")
        if self._steps and not seen:
            message = f"No step is given the task's image: write {QUESTION} in the instruction of one."
            self.fault_at(self._steps[0].instruction_at, "image_not_given", message, 0, "instruction")

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
        self.fault_at(self._steps[index].agent_at, "unknown_agent", message, index, "agent")
        return None

    def _hint(self, agent: int | str) -> str:
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
        self.fault_at(place, code, f"Step {index} reads step {read}: {why}.", index, "access_list")


def _earlier(index: int) -> str:
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
        fault_of(
            steps[index].instruction_at,
            UNTOLD,
            f"Step {index} does not receive the task, nor does any step that leads to the answer: {where} {QUESTION}.",
            index,
            "instruction",
        )
        for index in sorted(counts)
        if not reads[index]
    ]


def _reads(steps: Sequence[RawStep]) -> list[tuple[int, ...]]:
    return [readable(raw.access_list or (), index) for index, raw in enumerate(steps)]


# Plans that a person gave.


def check_given(
    workflow: Workflow,
    agents: tuple[str, ...],
    *,
    max_steps: int,
    allow_recursion: bool,
    task: str | None = None,
    images: ImagesGiven | None = None,
) -> Checked:
    """Checks a workflow that a person gave, before it is carried out.

    Args:
        agents: names in the pool's order.
        task: None: every step receives the task anyway.
        images: those that come with the task.

    Raises: WorkflowInvalid, with every fault.
    """
    checked = validate(
        workflow,
        agents,
        max_steps=max_steps,
        allow_recursion=allow_recursion,
        allow_stop=False,
        task=task,
        images=images,
    )
    if checked.faults:
        raise WorkflowInvalid(sentence("the workflow cannot be run", checked), checked.faults)
    return checked


def sentence(beginning: str, checked: Checked) -> str:
    """Returns ``beginning`` with the first fault, and how many more there are."""
    more = f" (and {checked.fault_count - 1:,} more)" if checked.fault_count > 1 else ""
    return f"{beginning}: {checked.faults[0].message}{more}"
