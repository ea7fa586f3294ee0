"""The experiments of a blame as data: what is changed in a plan, which steps are re-run, and what came of it. Pure.

An experiment compares two arms, with the same seeds for workers that take one. In the arm *with*, something is changed:
a step gives a fresh answer, or its access to one earlier output is cut or granted. In the arm *without*, it is not. In
both, all steps below are re-run, and all others keep their recorded answers. Several experiments share an arm, so it is
replayed once.

``effects`` folds the answers of the replays into the effect of each change, and ranks the changes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Literal

from conductor_core.analysis.intervals import Pairs, against_none, paired_proportions, pairs_needed, wilson
from conductor_core.chat.messages import Usage, WorkerSpec, sum_of_costs
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.engine.calls import takes_seed
from conductor_core.engine.prompts import expand
from conductor_core.engine.request import overrides_from, rerun_of, whole
from conductor_core.engine.step import cost_of
from conductor_core.errors import BadInput
from conductor_core.run.actor import Door
from conductor_core.run.costs import Cost
from conductor_core.run.request import REPLAY_PURPOSE, RunRequest, brief
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import BatchRow
from conductor_core.workflow.edits import replace_step
from conductor_core.workflow.model import CONDUCTOR_AGENT, Frozen, Workflow

Kind = Literal["fresh", "cut", "granted"]
Only = Literal["steps", "access"]
USUAL_REPLAYS, MOST_REPLAYS = 10, 200
PURPOSE = REPLAY_PURPOSE
_TURN_TOKENS = 8


class Change(Frozen):
    """What an experiment changes.

    Attributes:
        kind: ``fresh``: the step is re-run. ``cut``, ``granted``: its access to an earlier output is changed.
        step: the step that is re-run or reads. source: the step whose output is cut or granted.
    """

    kind: Kind
    step: int
    source: int | None = None

    @property
    def key(self) -> str:
        """Returns ``step 2``, ``cut 0-2`` or ``granted 0-2``."""
        return f"step {self.step}" if self.source is None else f"{self.kind} {self.source}-{self.step}"


class Arm(Frozen):
    """One way to replay a run.

    Attributes:
        edit: the access that is cut or granted; None: the plan is as it was.
        fresh: the steps that are re-run, ascending; none: nothing is, and the answer is the recorded one.
    """

    edit: Change | None = None
    fresh: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """Names the arm in the records of its runs, for instance ``cut 0-2 fresh 2,3``."""
        edit = "" if self.edit is None else f"{self.edit.key} "
        return f"{edit}fresh {','.join(map(str, self.fresh))}"

    def workflow(self, plan: Workflow) -> Workflow:
        if self.edit is None or self.edit.source is None:
            return plan
        reads = set(plan.reads(self.edit.step))
        reads = reads - {self.edit.source} if self.edit.kind == "cut" else reads | {self.edit.source}
        step = plan.steps[self.edit.step].model_copy(update={"access_list": tuple(sorted(reads))})
        return replace_step(plan, self.edit.step, step)


class Experiment(Frozen):
    """A change, and the two arms whose answers are compared. ``label``: the change in a few words."""

    change: Change
    with_it: Arm
    without: Arm


class Replay(Frozen):
    """One run of an arm. Replays of one number have one seed, whatever their arm, and are compared with each other."""

    arm: Arm
    number: int

    @property
    def key(self) -> str:
        return f"{self.arm.key} #{self.number}"


class Estimate(Frozen):
    """What replays take. Calls are exact unless one fails; tokens and USD are by what the run itself took.

    Attributes:
        usd: None if the price of a worker is unknown. known_usd: of the others.
    """

    replays: int = 0
    calls: int = 0
    tokens: int = 0
    usd: float | None = 0.0
    known_usd: float = 0.0

    @property
    def cost(self) -> Cost:
        return Cost(self.usd, self.known_usd)


class Experiments:
    """All experiments of a run.

    Attributes:
        source: the run. plan: its workflow. last: the step whose answer is the run's.
        experiments: one for each step and each access that can reach the answer, in the order of the plan.
        out_of_reach: steps whose output cannot reach the answer, so that nothing about them is measured.
        unsound: steps without a whole answer, and those below. Every replay re-runs them.
    """

    def __init__(self, source: RunTrace, only: Only | None = None) -> None:
        """Raises: BadInput if the run cannot be blamed."""
        self.source, self.plan = source, _plan_of(source)
        given, last_step = {each.step for each in source.overrides.outputs}, source.overrides.last_step
        count = len(self.plan.steps)
        self.last = count - 1 if last_step is None else last_step
        # What a person gave does not change with what its step would read.
        self._reads = [() if index in given else self.plan.reads(index) for index in range(count)]
        self._needed = _above(self._reads, self.last)
        self._below = [_below(self._reads, index) & self._needed for index in range(count)]
        broken = [index for index in self._needed if not whole(source.steps[index])]
        self.unsound = tuple(sorted({each for index in broken for each in (index, *self._below[index])} - given))
        self.out_of_reach = tuple(index for index in range(count) if index not in self._needed)
        found: list[Experiment] = []
        for index in sorted(self._needed):
            fresh_arm = self._arm(index, *self._below[index])
            if only != "access":
                kept = self._arm(*self._below[index])
                found.append(Experiment(change=Change(kind="fresh", step=index), with_it=fresh_arm, without=kept))
            if only != "steps" and index not in given:
                readable = [earlier for earlier in range(index) if whole(source.steps[earlier])]
                found += [self._access(index, earlier, fresh_arm) for earlier in readable]
        self.experiments = tuple(found)

    def _arm(self, *fresh: int) -> Arm:
        return Arm(fresh=tuple(sorted({*fresh, *self.unsound})))

    def _access(self, reader: int, read: int, fresh_arm: Arm) -> Experiment:
        kind: Kind = "cut" if read in self.plan.reads(reader) else "granted"
        change = Change(kind=kind, step=reader, source=read)
        return Experiment(change=change, with_it=fresh_arm.model_copy(update={"edit": change}), without=fresh_arm)

    @property
    def arms(self) -> tuple[Arm, ...]:
        every = (arm for each in self.experiments for arm in (each.with_it, each.without) if arm.fresh)
        return tuple(dict.fromkeys(every))

    def replays(self, count: int) -> Iterator[Replay]:
        """Yields ``count`` replays of each arm, those of one number together: whoever stops early has whole pairs."""
        for number in range(count):
            for arm in self.arms:
                yield Replay(arm=arm, number=number)

    def estimate(
        self, replays: Sequence[Replay], finished: Callable[[Replay], Collection[int]] = lambda _: ()
    ) -> Estimate:
        """Returns what ``replays`` take. Each asks exactly the steps of its arm, but for those ``finished`` before."""
        specs = {spec.name: spec for spec in self.source.pool.workers}
        usages = {
            (arm, index): self._usage(index, arm.edit) for arm in {each.arm for each in replays} for index in arm.fresh
        }
        costs = {
            (arm, index): cost_of(specs[self.plan.steps[index].agent], usage) for (arm, index), usage in usages.items()
        }
        calls = [
            (replay.arm, index) for replay in replays for index in replay.arm.fresh if index not in finished(replay)
        ]
        return Estimate(
            replays=len(replays),
            calls=len(calls),
            tokens=sum(usages[call].total_tokens for call in calls),
            usd=sum_of_costs(costs[call] for call in calls),
            known_usd=sum(costs[call] or 0.0 for call in calls),
        )

    def _usage(self, index: int, edit: Change | None) -> Usage:
        """Estimates one call: as it was recorded, and more or less by the output that is granted or cut."""
        step = self.source.steps[index]
        usage = step.usage
        if not usage.total_tokens or step.attempts:
            read, written = estimate_input_tokens(step.messages), estimate_tokens(step.output)
            usage = Usage(input_tokens=read, output_tokens=written, estimated=True)
        if edit is None or edit.step != index or edit.source is None:
            return usage
        source = self.source.steps[edit.source]
        shown = estimate_tokens(expand(source.instruction, self.source.task)) + estimate_tokens(source.output)
        more = (shown + _TURN_TOKENS) * (1 if edit.kind == "granted" else -1)
        return Usage(input_tokens=max(0, usage.input_tokens + more), output_tokens=usage.output_tokens, estimated=True)

    def request(self, replay: Replay, *, door: Door) -> RunRequest:
        """Returns the run that carries out ``replay``: a re-run with seeds of its own for the steps of its arm."""
        arm, plan = replay.arm, replay.arm.workflow(self.plan)
        overrides = overrides_from(self.source)
        for step in arm.fresh:
            overrides = overrides.without_output(step)
        overrides = overrides.with_seeds({step: seed_of(self.source, replay.number, step) for step in arm.fresh})
        if self.out_of_reach:
            overrides = overrides.model_copy(update={"last_step": self.last})
        same = tuple(range(len(plan.steps)))
        request = rerun_of(self.source, plan, door=door, origins=same, overrides=overrides)
        return request.model_copy(update={"purpose": PURPOSE, "conductor": None})

    @property
    def agents_asked(self) -> tuple[WorkerSpec, ...]:
        names = {self.plan.steps[index].agent for arm in self.arms for index in arm.fresh}
        return tuple(spec for spec in self.source.pool.workers if spec.name in names)

    @property
    def seeds_sent(self) -> bool:
        """Whether all workers that the replays call get the seed of their pair."""
        return all(map(takes_seed, self.agents_asked))


def seed_of(source: RunTrace, number: int, step: int) -> int:
    """Returns a step's seed in the replays of this number: the same in every arm, and when a blame goes on."""
    digest = sha256(f"{PURPOSE} {source.run_id} {number} {step}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def batch_row(source: RunTrace, batch_id: str, replay: Replay, size: int, max_usd: float | None) -> BatchRow:
    """Returns the mark by which the replays are found: one batch for each time that a blame is begun or goes on."""
    name = f"{_NAME}{source.run_id}: {brief(source.task)}"
    return BatchRow(id=batch_id, row=replay.key, name=name, size=size, max_usd=max_usd)


_NAME = "blame of run "


def blamed_run(batch_name: str) -> str | None:
    """Returns the run that a batch of that name replays; None: it replays none. A file of tasks has a file's name."""
    return batch_name.removeprefix(_NAME).partition(":")[0] if batch_name.startswith(_NAME) else None


def _below(reads: Sequence[Sequence[int]], index: int) -> frozenset[int]:
    found = {index}
    for later in range(index + 1, len(reads)):
        if found.intersection(reads[later]):
            found.add(later)
    return frozenset(found - {index})


def _above(reads: Sequence[Sequence[int]], index: int) -> frozenset[int]:
    found = {index}
    for earlier in range(index, -1, -1):
        if earlier in found:
            found.update(reads[earlier])
    return frozenset(found)


def _plan_of(source: RunTrace) -> Workflow:
    """Returns the plan of a run that can be blamed. Raises: BadInput for any other."""
    what = f"run {source.run_id} cannot be blamed: "
    plan = source.root.workflow
    if source.status != "completed" or source.answer is None or plan is None or not plan.steps:
        raise BadInput(f"{what}it is {source.status}, and only the answer of a completed run can be blamed on a step")
    for index, step in enumerate(plan.steps):
        if step.agent == CONDUCTOR_AGENT:
            raise BadInput(
                f"{what}step {index} asks the Conductor itself. Its new plan is not known in advance, so no "
                "estimate could name the calls"
            )
    if source.gates:
        raise BadInput(f"{what}it has gates, and each replay would wait for an approval")
    known = {spec.name for spec in source.pool.workers}
    if (missing := next((step.agent for step in plan.steps if step.agent not in known), None)) is not None:
        raise BadInput(f"{what}its pool has no worker {missing!r}")
    return plan


# Effects of changes.

MARGIN = 0.1
"""An effect within so much of zero, in flips per replay, counts as none."""
STEPS_FIRST = 0.5
"""A step comes before accesses if its effect is at least this share of theirs."""
Finding = Literal["decides", "steadies", "no effect", "inconclusive", "not measured"]
"""``decides``: the answer flips more often with the change than without. ``steadies``: less often. ``no effect``: the
interval lies within ``MARGIN`` of zero."""


class Flips(Frozen):
    """How often the answer flipped in the replays of an arm that have a partner.

    Attributes:
        certain: the arm re-runs nothing, so its answer is the recorded one and cannot flip.
        low, high: the ends of the 95 % interval after Wilson, from 0 to 1.
    """

    flipped: int
    replays: int
    rate: float
    low: float
    high: float
    certain: bool = False

    @property
    def counted(self) -> str:
        return f"{self.flipped} of {self.replays}"


class Effect(Frozen):
    """What one change does to the answer.

    Attributes:
        rank: from 1; the same for no two.
        pairs: replays that have an answer in both arms. missing: pairs still to be replayed, or without an answer.
        effect: flips with the change less flips without, per replay, with its 95 % interval.
        needed: how many pairs would settle an inconclusive finding if they go on as so far; None: too many, or settled.
    """

    change: Change
    finding: Finding
    pairs: int = 0
    missing: int = 0
    with_it: Flips | None = None
    without: Flips | None = None
    effect: float = 0.0
    low: float = -1.0
    high: float = 1.0
    needed: int | None = None
    rank: int = 0


Answers = Mapping[Replay, bool | None]
"""For each replay that ended whether its answer flipped; None: it has no answer."""


def effects(experiments: Experiments, answers: Answers, count: int) -> tuple[Effect, ...]:
    """Returns the effect of every change, the one that decided most first.

    Steps that decide come first, if they do so at least half as strongly as any access: where a step's own answer is to
    blame, cutting or granting accesses can also go around it. Then come accesses that decide; of those that cannot be
    told from the strongest, the one whose reader comes first in the plan. Then all others by their effect, those that
    decide before the others, and last what is not measured.

    Args:
        count: replays of each arm.
    """
    found = sorted(
        (_effect(experiment, answers, count) for experiment in experiments.experiments),
        key=lambda each: (not each.pairs, -round(each.effect, 9), -round(each.low, 9), *_place(each)),
    )
    deciding = [each for each in found if each.finding == "decides"]
    accesses = [each for each in deciding if each.change.source is not None]
    least = STEPS_FIRST * accesses[0].effect if accesses else 0.0
    steps = [each for each in deciding if each.change.source is None and each.effect >= least]
    alike = [each for each in accesses if each.effect >= accesses[0].low]
    ranking = [*steps, *sorted(alike, key=_place)]
    ranking += [each for each in deciding if each not in ranking]
    ranking += [each for each in found if each not in ranking]
    return tuple(each.model_copy(update={"rank": rank}) for rank, each in enumerate(ranking, start=1))


def _place(effect: Effect) -> tuple[int, int]:
    """Sorts by the step that answers or reads; of its accesses, the latest source first."""
    source = effect.change.source
    return effect.change.step, -effect.change.step if source is None else -source


def _effect(experiment: Experiment, answers: Answers, count: int) -> Effect:
    pairs = [
        (with_it, without)
        for number in range(count)
        if (with_it := _flipped(experiment.with_it, number, answers)) is not None
        and (without := _flipped(experiment.without, number, answers)) is not None
    ]
    change, missing = experiment.change, count - len(pairs)
    if not pairs:
        return Effect(change=change, finding="not measured", missing=missing)
    table = Pairs(
        both=pairs.count((True, True)),
        first=pairs.count((True, False)),
        second=pairs.count((False, True)),
        neither=pairs.count((False, False)),
    )
    certain = not experiment.without.fresh
    difference = against_none(table.first, table.count) if certain else paired_proportions(table)
    # Where nothing else can flip the answer, a single flip only shows that it can.
    if difference.low > MARGIN if certain else difference.clear:
        finding: Finding = "decides" if difference.mean > 0 else "steadies"
    else:
        finding = "no effect" if difference.within(MARGIN) else "inconclusive"
    return Effect(
        change=change,
        finding=finding,
        pairs=len(pairs),
        missing=missing,
        with_it=_flips(int(table.both + table.first), len(pairs)),
        without=_flips(int(table.both + table.second), len(pairs), certain=certain),
        effect=difference.mean,
        low=difference.low,
        high=difference.high,
        needed=pairs_needed(table, MARGIN, never_second=certain) if finding == "inconclusive" else None,
    )


def _flipped(arm: Arm, number: int, answers: Answers) -> bool | None:
    return answers.get(Replay(arm=arm, number=number)) if arm.fresh else False


def _flips(flipped: int, replays: int, *, certain: bool = False) -> Flips:
    found = wilson(flipped, replays)
    low, high = (0.0, 0.0) if certain else (found.low, found.high)
    return Flips(flipped=flipped, replays=replays, rate=found.rate, low=low, high=high, certain=certain)
