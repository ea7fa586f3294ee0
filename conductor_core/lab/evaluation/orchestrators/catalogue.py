"""Which orchestrators there are, and opening them by their names.

    conductor, conductor:REF        the Conductor; REF: tiny, a name, a folder, a hub id or URL#MODEL
    recursion, recursion:REF        the same, which may also name itself
    untrained                       a Conductor that was not trained for this (--untrained REF)
    single:WORKER                   that worker alone
    reflection:WORKER               five rounds over its own answers
    budget:WORKER                   five times its output budget
    consensus:WORKER                five attempts of its own, and its choice among them
    moa, moa:WORKER                 every worker answers, one (by default the checker) reads all answers
    random                          a random valid workflow for each task
    uniform-subtask, access-all, access-none    the Conductor's workflows with a part taken away
    router-dc, mas-router, smoothie, smoothie-dependent     learned routers, fitted on the training split first
    kind-table                      the best plan for each kind of task, the kind told by words: no language model

Groups: single, reflection, budget, consensus (one for each worker), ablations, routers, paper (the rows of the paper's
tables) and all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from conductor_core.chat.messages import Conductor, WorkerSpec
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import Pool
from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.orchestrators import baselines
from conductor_core.lab.evaluation.orchestrators.conducted import ABLATIONS, Ablated, Conducted, Plans, Remembered
from conductor_core.lab.evaluation.orchestrators.protocol import GivenTask, Orchestrator
from conductor_core.settings import Settings
from conductor_core.workflow.model import Workflow

PER_WORKER: Mapping[str, Callable[[str], Workflow]] = MappingProxyType(
    {
        "single": baselines.single,
        "reflection": baselines.reflection,
        "budget": baselines.single,
        "consensus": baselines.consensus,
    }
)
PAPER_ROUTERS = ("router-dc", "mas-router", "smoothie", "smoothie-dependent")
ROUTERS = (*PAPER_ROUTERS, "kind-table")
BY_CONDUCTOR = ("conductor", "recursion")
GROUPS = ("single", "reflection", "budget", "consensus", "ablations", "routers", "paper", "all")


def expand(given: str, agents: Sequence[str], *, untrained: bool = False) -> tuple[str, ...]:
    """Returns each name in ``given`` (``A,B``) once, with groups resolved.

    Args:
        agents: names of the pool's workers. untrained: whether there is an untrained Conductor to compare with.

    Raises: BadInput for an unknown name or worker.
    """
    names = [name for part in given.split(",") if part.strip() for name in group(part.strip(), agents, untrained)]
    if not names:
        raise BadInput("--orchestrators: name at least one; see evaluate --list")
    for name in names:
        _check(name, agents)
    return tuple(dict.fromkeys(names))


def every(agents: Sequence[str]) -> list[str]:
    """Returns the names of all orchestrators for a pool of ``agents``."""
    return [*group("all", agents, untrained=True)]


def described() -> str:
    """Returns the names and groups with their meanings, as this module's docstring lists them."""
    return (__doc__ or "").split("\n\n", 1)[1].strip("\n")


def group(name: str, agents: Sequence[str], untrained: bool = False) -> list[str]:
    """Returns the orchestrators of a group, or ``name`` itself if it is no group."""
    match name:
        case "single" | "reflection" | "budget" | "consensus":
            return [f"{name}:{agent}" for agent in agents]
        case "ablations":
            return list(ABLATIONS)
        case "routers":
            return list(ROUTERS)
        case "paper":
            per_worker = [each for kind in PER_WORKER for each in group(kind, agents, untrained)]
            return ["conductor", *per_worker, "moa", *PAPER_ROUTERS]
        case "all":
            rest = ["kind-table", "random", *(["untrained"] if untrained else []), *ABLATIONS]
            return ["conductor", "recursion", *group("paper", agents, untrained)[1:], *rest]
    return [name]


def _check(name: str, agents: Sequence[str]) -> None:
    kind, colon, rest = name.partition(":")
    if kind in PER_WORKER or (kind == "moa" and colon):
        if rest not in agents:
            raise BadInput(f"orchestrator {name}: the pool has no worker {rest!r}; it has {', '.join(agents)}")
    elif kind in BY_CONDUCTOR and colon:
        if not rest:
            raise BadInput(f"orchestrator {name}: name a Conductor after the colon: a folder, a hub id or URL#MODEL")
    elif colon or kind not in (*BY_CONDUCTOR, "untrained", "moa", "random", *ABLATIONS, *ROUTERS):
        raise BadInput(f"unknown orchestrator {name!r}; see evaluate --list")


@dataclass
class Opened:
    """Orchestrators and the Conductors that they share.

    Attributes:
        conductors: the Conductors by ref.
    """

    orchestrators: list[Orchestrator] = field(default_factory=list)
    conductors: dict[str, Conductor] = field(default_factory=dict)
    plans: dict[str, Plans] = field(default_factory=dict)
    pools: list[Pool] = field(default_factory=list)

    async def aclose(self) -> None:
        for plans in self.plans.values():
            await plans.aclose()
        for pool in self.pools:
            await pool.aclose()
        for conductor in self.conductors.values():
            await conductor.aclose()


def conductor_refs(names: Sequence[str], conductor: str, untrained: str | None) -> dict[str, str]:
    """Returns the Conductor's ref for each name that needs one. Raises: BadInput for ``untrained`` without a ref."""
    refs = {}
    for name in names:
        kind, _, rest = name.partition(":")
        if kind in BY_CONDUCTOR or kind in ABLATIONS:
            refs[name] = rest or conductor
        elif kind == "untrained":
            if untrained is None:
                raise BadInput("orchestrator untrained: say which Conductor with --untrained REF")
            refs[name] = untrained
    return refs


def budgets(names: Sequence[str], specs: Sequence[WorkerSpec]) -> dict[str, dict[str, int]]:
    """Returns the larger output budgets that ``names`` ask for, by worker. Raises: BadInput for an unknown budget."""
    asked = {name.partition(":")[2] for name in names if name.startswith("budget:")}
    return baselines.with_budget([spec for spec in specs if spec.name in asked], baselines.ROUNDS)


def open_orchestrators(names: Sequence[str], refs: Mapping[str, str], pool: Pool, settings: Settings) -> Opened:
    """Opens all orchestrators except the learned routers, which ``fitting`` makes. Loads and connects nothing yet.

    Args:
        names: the result of ``expand``. refs: the result of ``conductor_refs``.

    Raises: UnknownConductor, BadInput as ``budgets``.
    """
    opened = Opened()
    larger: Pool | None = None
    for name in names:
        kind, _, rest = name.partition(":")
        if name in refs:
            ref = refs[name]
            if ref not in opened.conductors:
                opened.conductors[ref] = Remembered(open_conductor(ref, settings))
                opened.plans[ref] = Plans(opened.conductors[ref])
            opened.orchestrators.append(_conducted(name, kind, opened.conductors[ref], opened.plans[ref], settings))
        elif kind in PER_WORKER:
            if kind == "budget" and larger is None:
                larger = pool.with_params(budgets(names, pool.specs), settings)
                opened.pools.append(larger)
            opened.orchestrators.append(
                baselines.Planned(
                    name, _same(PER_WORKER[kind](rest)), whole_pool=True, pool=larger if kind == "budget" else None
                )
            )
        elif kind == "moa":
            opened.orchestrators.append(baselines.Planned(name, _mixture(rest or None)))
        elif kind == "random":
            opened.orchestrators.append(baselines.Planned(name, baselines.drawn))
    return opened


def _conducted(name: str, kind: str, conductor: Conductor, plans: Plans, settings: Settings) -> Orchestrator:
    if kind in ABLATIONS:
        return Ablated(name, plans, ABLATIONS[kind])
    return Conducted(name, conductor, depth=max(1, settings.max_depth) if kind == "recursion" else 0)


def _same(workflow: Workflow) -> Callable[[GivenTask], Workflow]:
    return lambda _asked: workflow


def _mixture(aggregator: str | None) -> Callable[[GivenTask], Workflow]:
    return lambda asked: baselines.mixture(asked.specs, aggregator if aggregator in asked.agents else None)
