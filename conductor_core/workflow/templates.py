"""Plans to start from: the usual shapes, cast with the workers of a pool. Pure.

Each template makes a workflow that is valid without faults and warnings, for any pool with a worker in it, and that
``topology`` names as the template says. Every instruction that needs the task says ``{question}``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conductor_core.workflow.model import QUESTION, AccessList, Frozen, Step, Workflow
from conductor_core.workflow.topology import Topology


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


def _nth(names: Sequence[str], place: int) -> str:
    """Gives the places out in turn, so that branches go to different workers as long as there are some."""
    return names[place % len(names)]


def _other(names: Sequence[str], taken: str) -> str:
    """Returns the fittest who is not ``taken``, so that nobody checks their own work unless they are alone."""
    return next((name for name in names if name != taken), taken)


def _one_shot(cast: Cast, _: int) -> Workflow:
    return _plan((f"Solve this task and state the final answer: {QUESTION}", cast.solve[0], ()))


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
    attempt = (f"Solve this task and state the final answer: {QUESTION}", cast.solve[0], ())
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
    Template("One shot", "One worker answers alone.", "one shot", _one_shot, 1),
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
