"""Describes the shape of a workflow: who reads whom, in layers, and its critical path.

An edge leads from a step to a step that reads it. References that do not name an earlier step are no edges
(see ``Workflow.reads``), so the graph is always acyclic. Shapes after "Learning to Orchestrate Agents in Natural
Language with the Conductor" (arXiv 2512.04388), where they are named but not defined; the definitions are ours.
"""

import math
from collections.abc import Sequence
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Literal

from conductor_core.workflow.model import Workflow

if TYPE_CHECKING:
    import networkx as nx

Topology = Literal["stop", "one shot", "chain", "fan-out", "tree", "debate", "best-of-n", "mixed"]


def to_digraph(workflow: Workflow) -> "nx.DiGraph":
    """Returns a graph of step indices with ``agent`` and ``instruction``; edges lead from a step to its readers."""
    import networkx as nx  # when used: it takes a tenth of a second

    graph = nx.DiGraph()
    for index, step in enumerate(workflow.steps):
        graph.add_node(index, agent=step.agent, instruction=step.instruction)
    for index, reads in enumerate(workflow.all_reads):
        graph.add_edges_from((earlier, index) for earlier in reads)
    return graph


def descendants(workflow: Workflow, index: int) -> frozenset[int]:
    """Returns all steps that the output of step ``index`` reaches, directly or through others. Raises: IndexError."""
    workflow.require(index)
    import networkx as nx

    return frozenset(nx.descendants(to_digraph(workflow), index))


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
    import networkx as nx

    reduced = nx.transitive_reduction(to_digraph(workflow))
    last = len(workflow.steps) - 1
    return all(reduced.out_degree(index) == (0 if index == last else 1) for index in reduced) and any(
        reduced.in_degree(index) >= 2 for index in reduced
    )
