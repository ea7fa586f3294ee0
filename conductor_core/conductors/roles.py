"""Assigns the workers of a pool to roles: descriptions read by rule, for Conductors too small to read them.

A model of a few million parameters learns what a *place* is good for, but not to find a worker by its description:
four ways of training that were tried left its choice of agents at chance. So roles are assigned before such a Conductor
is asked. Each role is one way of being useful; the workers are assigned so that the descriptions fit the roles best in
all. The Conductor's ordinals are then roles: what each is worth on which task it learns from reward, and a role that
nobody has cannot be named.

Departure from arXiv 2512.04388, section 3, where ordinals have no meaning of their own and the model reads the
descriptions: Conductors with the full prompt do as in the paper.
"""

import math
import re
from collections.abc import Sequence

from conductor_core.chat.messages import ConductorInfo, WorkerSpec
from conductor_core.workflow.topology import Cast

ROLES = ("plan", "reason", "compute", "code", "know", "check", "write")
"""In the order of their ordinals; the Conductor itself, where recursion is offered, comes after the last."""
SOLVING = ("reason", "compute", "know", "code")
"""The roles that solve a task themselves, the most general first."""

_WORDS: dict[str, str] = {
    "plan": r"plan\w*|break\w* .{0,12}(?:steps|down)|decompos\w+|outlin\w+|strateg\w+|schedul\w+|subtasks?"
    r"|structur\w+|long-horizon|organi[sz]\w+",
    "reason": r"reason\w*|logic\w*|think\w*|puzzles?|analys\w+|deliberat\w+|multi-step|second opinion"
    r"|algebra|proofs?|word problems?|step.by.step",
    "compute": r"comput\w+|calculat\w+|arithmetic|maths?|mathematic\w*|numbers?|numeric\w*|percentages?|units"
    r"|money|sums|equations?|quantitative|statistics|tables?|spreadsheets?|exact answers?",
    "code": r"cod(?:e|es|er|ing)|program\w*|software|python|functions?|algorithms?|scripts?|unit tests?"
    r"|implement\w*|debug\w*|developer",
    "know": r"facts?|factual|knowledge|science\w*|scientific|physics|chemistry|biology|medicine|history"
    r"|geography|trivia|encyclop\w+|look.?ups?|recall|stem|research|documents|long context|reading",
    "check": r"check\w*|verif\w+|review\w*|critic\w*|critique|mistakes?|errors?|bugs|testing|judg\w+"
    r"|proofread\w*|audit\w*|compar\w+|aggregat\w+|combin\w+|synthesi\w+|quality control"
    r"|recompute\w*|second look|careful\w*",
    "write": r"writ\w+|prose|style|word(?:ing|s)|explain\w*|explanations?|formats?|formatting|json"
    r"|translat\w+|languages?|multilingual|summar\w+|letters?|essays?|stor(?:y|ies)|drafting"
    r"|final answers?|cheap|fast|small|quick|tiny|low cost|instructions?",
}
_PATTERNS = tuple(re.compile(rf"\b(?:{_WORDS[role]})\b", re.IGNORECASE) for role in ROLES)
# A coder "writes functions": what is written decides, not the writing.
_WRITES_CODE = re.compile(
    r"\bwrit\w+(?=[^,;.:]{0,24}\b(?:code|python|functions?|programs?|scripts?|tests?|sql)\b)", re.IGNORECASE
)
_LACKS = re.compile(
    r"\b(?:weak|poor|bad|worse|not|no good|unreliable|never|struggles)\s+(?:at|for|in|with|on)\b[^;.]*"
    r"|\bwithout\b[^,;.]*",
    re.IGNORECASE,
)
_LONGEST_READ = 400
_LATER_COUNTS_LESS = 0.85
_UNKNOWN = (0.02, 0.03, 0.0, 0.0, 0.025, 0.01, 0.015)
"""Where a worker of which nothing is known does least harm."""


def fitness(worker: WorkerSpec) -> tuple[float, ...]:
    """Returns how well the worker's description (else its name) suits each role. Its first words count most."""
    text = _LACKS.sub(" ", (worker.description or worker.name)[:_LONGEST_READ])
    text = _WRITES_CODE.sub(" ", text)
    hits = sorted((match.start(), role) for role, pattern in enumerate(_PATTERNS) for match in pattern.finditer(text))
    scores = list(_UNKNOWN)
    weight = 1.0
    for _, role in hits:
        scores[role] += weight
        weight *= _LATER_COUNTS_LESS
    return tuple(scores)


def numbering(agents: Sequence[WorkerSpec]) -> tuple[str | None, ...]:
    """Returns the name of the worker in each role, None for an empty one. If roles are few, the fittest get them.

    It weighs every assignment of workers to roles as a whole. The same pool always gets the same assignment.
    """
    import networkx as nx  # only when roles are assigned: not where a page is opened

    pairs = nx.Graph()
    for worker, each in enumerate(agents):
        for role, score in enumerate(fitness(each)):
            # The square root: filling two roles fairly is better than one very well and the other not at all.
            pairs.add_edge(worker, ~role, weight=math.sqrt(score))
    roles: list[str | None] = [None] * len(ROLES)
    for pair in nx.max_weight_matching(pairs, maxcardinality=True):
        roles[~min(pair)] = agents[max(pair)].name
    return tuple(roles)


def agents_by_ordinal(conductor: ConductorInfo | None, agents: Sequence[WorkerSpec]) -> tuple[str | None, ...]:
    """Returns the names that ``model_id`` speaks of, by ordinal: roles for a small Conductor, else pool order."""
    if conductor is not None and conductor.seated:
        return numbering(agents)
    return tuple(worker.name for worker in agents)


def cast_of(agents: Sequence[WorkerSpec]) -> Cast:
    """Returns who suits the parts of a template. Of equals, the pool's earlier one comes first.

    Several who solve the same task should differ, so the solvers are first the workers in the roles that solve, each of
    which has another one. Raises: ValueError for a pool without workers.
    """
    if not agents:
        raise ValueError("a plan needs at least one worker")

    def fittest(*roles: str) -> tuple[str, ...]:
        places = [ROLES.index(role) for role in roles]
        ranked = sorted(agents, key=lambda worker: -sum(fitness(worker)[place] for place in places))
        return tuple(worker.name for worker in ranked)

    assigned = dict(zip(ROLES, numbering(agents), strict=True))
    solvers = [name for role in SOLVING if (name := assigned[role]) is not None]
    return Cast(
        plan=fittest("plan"), solve=tuple(dict.fromkeys((*solvers, *fittest(*SOLVING)))), check=fittest("check")
    )
