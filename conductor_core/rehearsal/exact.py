"""Computes the exact chance that a workflow answers a rehearsal task: it weighs every outcome of the steps.

The chance is over the workers' seeds. Runs of the workflow with ``RehearsalWorker`` tend to it, because both draw from
the same rules (``skills.decide``); this module only enumerates which outputs a step can meet. Two calls with the same
worker and the same messages have one outcome, as the workers are deterministic; any other two are independent.

The chance depends on the task's family, its difficulty and the number of wrong answers that it invites, and on the
workflow's agents, what its instructions ask for, and who reads whom. The caches have these as keys.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from conductor_core.errors import BadInput
from conductor_core.rehearsal import skills
from conductor_core.rehearsal.families import Difficulty, RehearsalTask, recognise
from conductor_core.rehearsal.families.family import TAILS
from conductor_core.rehearsal.worker import ELSEWHERE, own_words, read_own_words
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Workflow


class Ending(NamedTuple):
    """A text's manner, and whether its answer is right; None if it gives none."""

    manner: skills.Manner
    right: bool | None


class _Instruction(NamedTuple):
    role: skills.Role
    wording: skills.Wording
    question: bool


class _Call(NamedTuple):
    """One distinct call of a worker. ``reads``: places of earlier calls, one for each turn in its messages.

    ``question``: whether the task is in view, in its own instruction or in that of a granted turn.
    ``recorded``: what was drawn, if that is known; then ``reads`` is empty.
    """

    agent: str
    role: skills.Role
    wording: skills.Wording
    question: bool
    reads: tuple[int, ...]
    recorded: skills.Branch | None = None


class _Kept(NamedTuple):
    """What later steps can use of an output by ``author``: an answer, perhaps checked; a plan; or neither."""

    answer: int | None
    checked: bool
    plan: skills.PlanInView
    author: str


def success_chance(
    task: RehearsalTask, workflow: Workflow, recorded: Mapping[int, skills.Branch] | None = None
) -> float:
    """Returns the chance that the text of the last step gives the right answer to ``task``.

    A step of the Conductor itself hands on the last output that it reads, as if the recursion were ended at once.

    Args:
        workflow: agents are names of ``PROFILES`` or ``CONDUCTOR_AGENT``; not validated otherwise.
        recorded: for a replay in which some steps keep what they drew (``RehearsalWorker.drawn``), and all others draw
            anew, each with a seed of its own, so that no two share an outcome.
    Raises: BadInput if an agent is no rehearsal worker.
    """
    return sum(chance for ending, chance in endings(task, workflow, recorded).items() if ending.right)


def endings(
    task: RehearsalTask, workflow: Workflow, recorded: Mapping[int, skills.Branch] | None = None
) -> dict[Ending, float]:
    """Returns all that the last step's text can be, with its chance. Without steps or anything handed on it is empty.

    ``recorded``: as for ``success_chance``. Raises: BadInput if an agent is no rehearsal worker.
    """
    calls = _Calls(task, recorded)
    last = calls.add(workflow)
    if last is None:
        return {}
    outcome = _outcomes(task.family, task.difficulty, len(task.solution.slips), *_needed(calls.distinct, (last,)))
    return {ending: chance for (ending,), chance in outcome}


def second_round(task: RehearsalTask, first: Workflow, inner: Workflow) -> dict[Ending, tuple[float, float]]:
    """Returns for each way in which the first round may end: (its chance, the chance that ``inner`` is right then).

    The workers of ``inner`` see its own steps only. Still the rounds depend on each other: a call that is repeated word
    for word has the same outcome again. ``inner`` without steps ends the recursion: the first answer stands.

    Raises: BadInput if an agent is no rehearsal worker, or ``first`` ends without a text.
    """
    calls = _Calls(task)
    before = calls.add(first)
    if before is None:
        raise BadInput("the first round ends without a text, so there is no last response")
    after = calls.add(inner) if inner.steps else before
    if after is None:
        return {ending: (chance, 0.0) for ending, chance in endings(task, first).items()}
    slips = len(task.solution.slips)
    joint = _outcomes(task.family, task.difficulty, slips, *_needed(calls.distinct, (before, after)))
    chances: dict[Ending, float] = {}
    successes: dict[Ending, float] = {}
    for (ending, final), chance in joint:
        chances[ending] = chances.get(ending, 0.0) + chance
        successes[ending] = successes.get(ending, 0.0) + chance * bool(final.right)
    return {ending: (chance, successes[ending] / chance) for ending, chance in chances.items() if chance > 0}


class _Calls:
    """The distinct calls of one or more rounds, numbered in the order in which they can be made.

    Args:
        recorded: what some steps drew. Then each step is a call of its own. None: equal calls have one outcome.
    """

    def __init__(self, task: RehearsalTask, recorded: Mapping[int, skills.Branch] | None = None) -> None:
        self._task, self._recorded = task, recorded
        self.distinct: list[_Call] = []
        self._known: dict[object, int] = {}

    def add(self, workflow: Workflow) -> int | None:
        """Adds a round's calls. Returns the call whose output is the workflow's; None if it has none."""
        outputs: list[int | None] = []
        instructions = [_read(step.instruction, self._task) for step in workflow.steps]
        for index, step in enumerate(workflow.steps):
            # A step that handed on nothing has failed, and what reads it is not carried out.
            reads = workflow.reads(index)
            granted = [outputs[earlier] for earlier in reads]
            if step.agent == CONDUCTOR_AGENT:
                outputs.append(granted[-1] if granted else None)
            elif any(each is None for each in granted):
                outputs.append(None)
            else:
                question = instructions[index].question or any(instructions[earlier].question for earlier in reads)
                turns = tuple((workflow.steps[earlier].instruction, outputs[earlier]) for earlier in reads)
                call = _Call(
                    step.agent,
                    instructions[index].role,
                    instructions[index].wording,
                    question,
                    tuple(each for each in granted if each is not None),
                )
                if self._recorded is None:
                    outputs.append(self._numbered((step.agent, step.instruction, turns), call))
                else:
                    drawn = self._recorded.get(index)
                    kept = call if drawn is None else call._replace(reads=(), recorded=drawn)
                    outputs.append(self._numbered(index, kept))
        return outputs[-1] if outputs else None

    def _numbered(self, messages: object, call: _Call) -> int:
        if call.agent not in skills.BY_NAME:
            raise BadInput(f"no rehearsal worker {call.agent!r}; there are: {', '.join(skills.BY_NAME)}")
        number = self._known.setdefault(messages, len(self.distinct))
        if number == len(self.distinct):
            self.distinct.append(call)
        return number


# The task alone in an instruction, neither grown into a word nor followed by a tail, which would belong to it.
_PLAIN_MACRO = re.compile(
    rf"(?<![\w{{]){re.escape(QUESTION)}(?!\w)(?!\s+(?:{'|'.join(map(re.escape, TAILS))}))", re.IGNORECASE
)


def _read(instruction: str, task: RehearsalTask) -> _Instruction:
    if instruction.count(QUESTION) == 1 and _PLAIN_MACRO.search(instruction):
        common = _read_around(instruction)
        if common is not None:
            return common
    expanded = instruction.replace(QUESTION, task.question)
    found = recognise(expanded)
    return _Instruction(*read_own_words(own_words(expanded, found)), found is not None)


@lru_cache(maxsize=50_000)
def _read_around(instruction: str) -> _Instruction | None:
    """Reads the instruction with any task in its place; None if its own words hold another question."""
    words = instruction.replace(QUESTION, ELSEWHERE)
    return _Instruction(*read_own_words(words), True) if recognise(words) is None else None


def _needed(calls: Sequence[_Call], targets: Sequence[int]) -> tuple[tuple[_Call, ...], tuple[int, ...]]:
    """Returns ``calls`` and ``targets`` without what no target depends on, renumbered."""
    wanted = set(targets)
    for number in range(len(calls) - 1, -1, -1):
        if number in wanted:
            wanted.update(calls[number].reads)
    place = {number: place for place, number in enumerate(sorted(wanted))}
    kept = tuple(calls[n]._replace(reads=tuple(place[read] for read in calls[n].reads)) for n in place)
    return kept, tuple(place[target] for target in targets)


@lru_cache(maxsize=200_000)
def _outcomes(
    family: str, difficulty: Difficulty, slips: int, calls: tuple[_Call, ...], targets: tuple[int, ...]
) -> tuple[tuple[tuple[Ending, ...], float], ...]:
    """Returns every joint ending of the ``targets`` with its chance.

    A state holds what is known of the calls that something still reads, and the endings of the targets.
    """
    last_read = {read: number for number, call in enumerate(calls) for read in call.reads}
    states: dict[tuple[tuple[_Kept, ...], tuple[Ending, ...]], float] = {((), ()): 1.0}
    live: list[int] = []
    # A recorded answer has its own number, by which it is told from others, and keeps it.
    keeps = any(call.recorded is not None for call in calls)
    for number, call in enumerate(calls):
        places = [live.index(read) for read in call.reads]
        stays = [place for place, each in enumerate(live) if last_read[each] > number]
        is_read, is_target = number in last_read, number in targets
        grown: dict[tuple[tuple[_Kept, ...], tuple[Ending, ...]], float] = {}
        for (kept, ended), weight in states.items():
            sight = _sight(call, [kept[place] for place in places])
            carried = tuple(kept[place] for place in stays)
            for chance, made, ending in _merged(
                call.agent, family, difficulty, slips, sight, call.recorded, is_read=is_read, is_target=is_target
            ):
                known = (*carried, *made)
                state = (known if keeps else _relabelled(known), (*ended, *ending))
                grown[state] = grown.get(state, 0.0) + weight * chance
        states = grown
        live = [live[place] for place in stays] + ([number] if is_read else [])
    in_order = sorted(set(targets))
    found: dict[tuple[Ending, ...], float] = {}
    for (_, ended), chance in states.items():
        joint = tuple(ended[in_order.index(target)] for target in targets)
        found[joint] = found.get(joint, 0.0) + chance
    return tuple(found.items())


@lru_cache(maxsize=200_000)
def _relabelled(kept: tuple[_Kept, ...]) -> tuple[_Kept, ...]:
    """Numbers wrong answers in order of appearance: they are equally likely, so only which are the same matters."""
    numbers: dict[int, int] = {skills.RIGHT: skills.RIGHT}
    return tuple(
        each if each.answer is None else each._replace(answer=numbers.setdefault(each.answer, len(numbers)))
        for each in kept
    )


def _sight(call: _Call, read: Iterable[_Kept]) -> skills.Sight:
    plan: skills.PlanInView = None
    given = []
    for each in read:
        if each.plan is not None and call.question:
            plan = "good" if "good" in (plan, each.plan) else "poor"
        if each.answer is not None:
            given.append(skills.Seen(each.answer, each.checked, each.author == call.agent))
    return skills.Sight(call.role, call.wording, call.question, plan, tuple(given))


@lru_cache(maxsize=200_000)
def _merged(
    agent: str,
    family: str,
    difficulty: Difficulty,
    slips: int,
    sight: skills.Sight,
    recorded: skills.Branch | None,
    *,
    is_read: bool,
    is_target: bool,
) -> tuple[tuple[float, tuple[_Kept, ...], tuple[Ending, ...]], ...]:
    """Returns what may happen, as far as it matters: for those that read it, for the end, or both."""
    merged: dict[tuple[tuple[_Kept, ...], tuple[Ending, ...]], float] = {}
    branches = (
        skills.decide(agent, family, difficulty, slips, sight) if recorded is None else (recorded._replace(chance=1.0),)
    )
    for branch in branches:
        plan: skills.PlanInView = {"complete plan": "good", "poor plan": "poor"}.get(branch.manner)  # type: ignore[assignment]
        made = (_Kept(branch.answer, branch.checked, plan, agent),) if is_read else ()
        right = None if branch.answer is None else branch.answer == skills.RIGHT
        ending = (Ending(branch.manner, right),) if is_target else ()
        merged[made, ending] = merged.get((made, ending), 0.0) + branch.chance
    return tuple((chance, made, ending) for (made, ending), chance in merged.items() if chance > 0)
