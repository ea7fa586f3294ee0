"""Describes the shape of a workflow: who reads whom, in layers, and its critical path; and has plans to start from.

An edge leads from a step to a step that reads it. References that do not name an earlier step are no edges
(see ``Workflow.reads``), so the graph is always acyclic. Shapes after "Learning to Orchestrate Agents in Natural
Language with the Conductor" (arXiv 2512.04388), where they are named but not defined; the definitions are ours.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Literal

from conductor_core.workflow.model import QUESTION, AccessList, Frozen, Step, Workflow

Topology = Literal["stop", "one shot", "chain", "fan-out", "tree", "debate", "best-of-n", "mixed"]


def descendants(workflow: Workflow, index: int) -> frozenset[int]:
    """Returns all steps that the output of step ``index`` reaches, directly or through others. Raises: IndexError."""
    workflow.require(index)
    reached = {index}
    for later in range(index + 1, len(workflow.steps)):
        if reached.intersection(workflow.reads(later)):
            reached.add(later)
    return frozenset(reached - {index})


def layers(reads: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Groups steps by the length of the longest path that leads to them: layer 0 reads nothing.

    Within a layer no step reads another; each layer is ascending. No steps, no layers.

    Args:
        reads: for each step the steps whose outputs it sees, see ``Workflow.all_reads``.

    Raises: graphlib.CycleError if steps wait for each other, which those of a workflow never do.
    """
    waiting = TopologicalSorter(dict(enumerate(reads)))
    waiting.prepare()
    found = []
    while ready := waiting.get_ready():
        found.append(tuple(sorted(ready)))
        waiting.done(*ready)
    return tuple(found)


def critical_path(workflow: Workflow, durations_ms: Sequence[float]) -> tuple[int, ...]:
    """Returns the chain of steps that determines the wall time, if each starts as soon as its inputs are there.

    It ends at the step that ends last (the lowest index of several) and goes back through the input that ended last.
    Empty for a workflow without steps.

    Raises: ValueError if there is not exactly one finite, non-negative duration a step.
    """
    if len(durations_ms) != len(workflow.steps):
        raise ValueError(f"{len(workflow.steps)} steps need as many durations, not {len(durations_ms)}")
    if not all(math.isfinite(duration_ms) and duration_ms >= 0 for duration_ms in durations_ms):
        raise ValueError("durations must be finite and not negative")
    ended_ms: list[float] = []
    waited_for: list[int | None] = []
    for index, duration_ms in enumerate(durations_ms):
        last = max(workflow.reads(index), key=lambda earlier: ended_ms[earlier], default=None)
        waited_for.append(last)
        ended_ms.append(duration_ms + (0.0 if last is None else ended_ms[last]))
    path: list[int] = []
    here = max(range(len(ended_ms)), key=lambda index: ended_ms[index], default=None)
    while here is not None:
        path.append(here)
        here = waited_for[here]
    return tuple(reversed(path))


def topology(workflow: Workflow) -> Topology:
    """The name of the workflow's shape; the first that fits:

    - ``stop``: no steps.
    - ``one shot``: one step.
    - ``chain``: each step reads its predecessor, and perhaps others before it (planner, executor, verifier; the same
      with ``"all"`` lists).
    - ``best-of-n``: two or more steps that read nothing carry the same instruction (white space and case apart), and
      the last, the only other step, reads them all.
    - ``debate``: two or more openings, none reading another (like the branches of a fan-out); then rounds in which
      their agents reply, each having read what every other debater said last; then nothing, or one judge who reads the
      last replies. At least two debaters reply.
    - ``fan-out``: two or more branches, none reading another, all reading nothing or all reading only one common
      first step; the last step reads them all.
    - ``tree``: leaving out references implied by others (the transitive reduction), every step but the last has
      exactly one reader, and some step joins two or more: fan-ins below fan-ins, or branches with steps of their own.
    - ``mixed``: everything else, for instance a plan with an output that nobody reads.
    """
    count = len(workflow.steps)
    if count <= 1:
        return "one shot" if count else "stop"
    if len(layers(workflow.all_reads)) == count:
        return "chain"
    if _is_best_of_n(workflow):
        return "best-of-n"
    if _is_debate(workflow):
        return "debate"
    if _is_fan_out(workflow):
        return "fan-out"
    return "tree" if _is_tree(workflow) else "mixed"


def _is_best_of_n(workflow: Workflow) -> bool:
    *attempts, last = range(len(workflow.steps))
    wordings = {" ".join(workflow.steps[index].instruction.split()).casefold() for index in attempts}
    return (
        len(attempts) >= 2
        and len(wordings) == 1
        and not any(workflow.reads(index) for index in attempts)
        and workflow.reads(last) == tuple(attempts)
    )


def _is_debate(workflow: Workflow) -> bool:
    rounds = layers(workflow.all_reads)
    if len(rounds[0]) == 1 and all(workflow.reads(index) == rounds[0] for index in rounds[1]):
        rounds = rounds[1:]
    if len(_debaters(workflow, rounds)) >= 2:
        return True
    *rounds_before, final = rounds
    last_replies = _debaters(workflow, rounds_before)
    return len(final) == 1 and len(last_replies) >= 2 and last_replies <= set(workflow.reads(final[0]))


def _debaters(workflow: Workflow, rounds: Sequence[Sequence[int]]) -> set[int]:
    """Returns the last replies in ``rounds``, of which the first holds the openings; empty: this is no debate."""
    said = list(rounds[0]) if rounds else []
    replied: set[int] = set()
    copies = len({workflow.steps[opening].agent for opening in said}) < len(said)
    for replies in rounds[1:]:
        if copies and len(replies) != len(said):
            return set()  # Who of two with one name goes on is known only where all do.
        before, free = list(said), set(range(len(said)))
        for reply in replies:
            agent = workflow.steps[reply].agent
            own = {debater for debater in free if workflow.steps[before[debater]].agent == agent}
            unheard = {debater for debater, statement in enumerate(before) if statement not in workflow.reads(reply)}
            own = own & unheard or own
            if not own or not unheard <= own or len(unheard) > 1:
                return set()
            debater = max(own, key=lambda each: before[each])
            said[debater] = reply
            free.discard(debater)
            replied.add(debater)
    return {said[debater] for debater in replied}


def _is_fan_out(workflow: Workflow) -> bool:
    *before, last = range(len(workflow.steps))
    root = 0 if all(workflow.reads(index) == (0,) for index in before[1:]) else None
    branches = before if root is None else before[1:]
    return (
        len(branches) >= 2
        and (root is not None or not any(workflow.reads(index) for index in branches))
        and set(branches) <= set(workflow.reads(last))
    )


def _is_tree(workflow: Workflow) -> bool:
    import networkx as nx  # when used: it takes a tenth of a second

    reads = nx.DiGraph((earlier, index) for index, reads in enumerate(workflow.all_reads) for earlier in reads)
    reads.add_nodes_from(range(len(workflow.steps)))
    reduced = nx.transitive_reduction(reads)
    last = len(workflow.steps) - 1
    return all(reduced.out_degree(index) == (0 if index == last else 1) for index in reduced) and any(
        reduced.in_degree(index) >= 2 for index in reduced
    )


# Plans to start from: the usual shapes, cast with the workers of a pool. Each is valid without faults and warnings.


class Cast(Frozen):
    """Who suits which role: for each, every worker of the pool by name, the fittest first."""

    plan: tuple[str, ...]
    solve: tuple[str, ...]
    check: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A shape to start from.

    Attributes:
        says: what it is for, in one sentence.
        topology: the name of its shape.
        branch: what it has several of, in the singular; empty: its size is fixed.
        fixed, per_branch: it has ``fixed + per_branch * branches`` steps.
        least, usual: branches.
    """

    name: str
    says: str
    topology: Topology
    make: Callable[[Cast, int], Workflow]
    fixed: int
    per_branch: int = 0
    branch: str = ""
    least: int = 0
    usual: int = 0

    def steps(self, branches: int) -> int:
        return self.fixed + self.per_branch * branches

    def most(self, max_steps: int) -> int:
        """Returns the most branches within ``max_steps``; less than ``least``: the template does not fit at all."""
        return (max_steps - self.fixed) // self.per_branch if self.per_branch else 0

    def fits(self, max_steps: int) -> bool:
        return self.steps(self.least) <= max_steps

    def workflow(self, cast: Cast, branches: int | None = None) -> Workflow:
        """Returns the plan. Raises: ValueError for fewer branches than ``least``."""
        count = self.usual if branches is None else branches
        if count < self.least:
            raise ValueError(f"the template {self.name} needs at least {self.least} branches, not {count}")
        return self.make(cast, count)


_SOLVE = f"Solve this task and state the final answer: {QUESTION}"


def _nth(names: Sequence[str], place: int) -> str:
    """Gives the places out in turn, so that branches go to different workers as long as there are some."""
    return names[place % len(names)]


def _other(names: Sequence[str], taken: str) -> str:
    """Returns the fittest who is not ``taken``, so that nobody checks their own work unless they are alone."""
    return next((name for name in names if name != taken), taken)


def _chain(cast: Cast, count: int) -> Workflow:
    drafted = (f"Work out a first solution of this task: {QUESTION}", cast.solve[0], ())
    revised = [
        (
            f"Revise the solution above: keep what is right, mend what is wrong or missing. The task: {QUESTION}",
            _nth(cast.solve, place),
            (place - 1,),
        )
        for place in range(1, count - 1)
    ]
    last = f"Check the solution above, correct it if needed, and state the final answer. The task: {QUESTION}"
    return _plan(drafted, *revised, (last, _other(cast.check, _nth(cast.solve, count - 2)), (count - 2,)))


def _planned(cast: Cast, _: int) -> Workflow:
    solver = _other(cast.solve, cast.plan[0])
    return _plan(
        (f"Break this task into steps. Do not solve it yet: {QUESTION}", cast.plan[0], ()),
        (f"Solve this task, following the plan above: {QUESTION}", solver, (0,)),
        (
            f"Check the solution above against the plan, correct it if needed, and state the final answer. "
            f"The task: {QUESTION}",
            _other(cast.check, solver),
            (0, 1),
        ),
    )


def _fan_out(cast: Cast, count: int) -> Workflow:
    ways = [
        (f"Solve this task on your own, as way {place + 1} of {count}: {QUESTION}", _nth(cast.solve, place), ())
        for place in range(count)
    ]
    joined = f"Combine the answers above into one, and state the final answer. The task: {QUESTION}"
    return _plan(*ways, (joined, cast.check[0], tuple(range(count))))


def _debate(cast: Cast, count: int) -> Workflow:
    openings = tuple(range(count))
    opened = [
        (f"Debater {place}: state your answer to this task, with your reasons: {QUESTION}", _nth(cast.solve, place), ())
        for place in openings
    ]
    replied = [
        (
            f"Debater {place}: weigh what the others said against your own answer, and state your answer again. "
            f"The task: {QUESTION}",
            _nth(cast.solve, place),
            openings,
        )
        for place in openings
    ]
    judged = f"Judge the debate above: decide which answer holds, and state it. The task: {QUESTION}"
    return _plan(*opened, *replied, (judged, cast.check[0], tuple(range(count, 2 * count))))


def _best_of_n(cast: Cast, count: int) -> Workflow:
    attempt = (_SOLVE, cast.solve[0], ())
    chosen = f"Compare the answers above, choose the one that holds, and state it. The task: {QUESTION}"
    return _plan(*[attempt] * count, (chosen, _other(cast.check, cast.solve[0]), tuple(range(count))))


def _tree(cast: Cast, count: int) -> Workflow:
    steps: list[tuple[str, str, AccessList]] = []
    solvers = iter(range(count))

    def grow(leaves: int) -> int:
        """Adds a subtree and returns its last step. The larger half comes first."""
        if leaves == 1:
            place = next(solvers)
            solved = f"Solve this task on your own, as attempt {place + 1} of {count}: {QUESTION}"
            steps.append((solved, _nth(cast.solve, place), ()))
        else:
            reads = grow(-(-leaves // 2)), grow(leaves // 2)
            compared = f"Compare the two answers above and state the one that holds. The task: {QUESTION}"
            steps.append((compared, cast.check[0], reads))
        return len(steps) - 1

    grow(count)
    return _plan(*steps)


def _plan(*steps: tuple[str, str, AccessList]) -> Workflow:
    return Workflow(
        steps=tuple(Step(instruction=said, agent=agent, access_list=access) for said, agent, access in steps)
    )


TEMPLATES: tuple[Template, ...] = (
    Template(
        "One shot", "One worker answers alone.", "one shot", lambda cast, _: _plan((_SOLVE, cast.solve[0], ())), 1
    ),
    Template("Chain", "Each step revises the one before.", "chain", _chain, 0, 1, "step", 2, 3),
    Template(
        "Planner, executor, verifier",
        "One worker plans, another solves, a third checks with the plan in view.",
        "chain",
        _planned,
        3,
    ),
    Template("Fan-out", "Several workers solve apart; one combines.", "fan-out", _fan_out, 1, 1, "branch", 2, 3),
    Template(
        "Debate", "Several state an answer, read each other and reply; one judges.", "debate", _debate, 1, 2,
        "debater", 2, 2,
    ),
    Template(
        "Best of N", "One worker tries several times; another chooses.", "best-of-n", _best_of_n, 1, 1, "attempt", 2, 3
    ),
    Template(
        "Tree", "Answers are compared in pairs, and the better ones with each other.", "tree", _tree, -1, 2,
        "attempt", 3, 3,
    ),
)  # fmt: skip
"""All templates, simplest first."""

BLANK = Workflow(steps=())
"""A plan without steps, to begin from nothing."""
