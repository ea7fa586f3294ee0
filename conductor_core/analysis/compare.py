"""Two runs beside each other, or two rounds of one run: which step is which, what changed, and because of what. Pure.

``workflow.edits`` says which step of a plan is which and what each may see now. ``compare_plans`` lists that as
differences that a script can read: applied to the first plan, they give the second one exactly as it is written.
A round is compared as a run of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from conductor_core.chat.messages import Usage, WorkerSpec, identity_of, sum_of_costs
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.run.values import Path, label, round_name
from conductor_core.workflow.edits import Origins, PlanChanges, compare
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Frozen, Step, Workflow

Change = Literal["added", "removed", "changed", "moved"]
Part = Literal["instruction", "agent", "access_list"]

NO_PLAN = Workflow(steps=())


class Difference(Frozen):
    """One difference of plan B from plan A. A step that moved and changed has two.

    Attributes:
        a, b: the step's index in plan A and in plan B; None: that plan lacks it.
        fields: of a changed step, which parts are other ones. An access list whose steps only got other numbers is not.
        before, after: the step as plan A and plan B have it.
    """

    change: Change
    a: int | None = None
    b: int | None = None
    fields: tuple[Part, ...] = ()
    before: Step | None = None
    after: Step | None = None


class PlansCompared(NamedTuple):
    """Two plans, beside each other.

    Attributes:
        changes: which step is which, and what each may see now.
        differences: in the order of plan B; removed steps come last.
    """

    a: Workflow
    b: Workflow
    changes: PlanChanges
    differences: tuple[Difference, ...]

    @property
    def origins(self) -> Origins:
        return tuple(step.before for step in self.changes.steps)

    def of_step(self, a: int | None, b: int | None) -> tuple[Difference, ...]:
        """Returns the differences of the step that is ``a`` in plan A and ``b`` in plan B."""
        return tuple(each for each in self.differences if (each.a, each.b) == (a, b))

    def rows(self) -> list[tuple[int | None, int | None]]:
        """Returns each step once, as its index in A and in B: in B's order, removed steps after their predecessor."""
        rows: list[tuple[int | None, int | None]] = [(step.before, step.after) for step in self.changes.steps]
        for removed in self.changes.removed:
            before = next((place for place, (a, _) in enumerate(rows) if removed and a == removed - 1), -1)
            rows.insert(before + 1, (removed, None))
        return rows


def compare_plans(a: Workflow, b: Workflow, origins: Origins | None = None) -> PlansCompared:
    """Compares two plans. Steps are aligned by content, then by position.

    Args:
        origins: which step of ``a`` each step of ``b`` is, if that is known.

    Raises: ValueError if ``origins`` does not fit.
    """
    changes = compare(a, b, origins)
    numbers = {step.before: step.after for step in changes.steps if step.before is not None}
    found: list[Difference] = []
    for step in changes.steps:
        after = b.steps[step.after]
        if step.before is None:
            found.append(Difference(change="added", b=step.after, after=after))
            continue
        before = a.steps[step.before]
        places = {"a": step.before, "b": step.after, "before": before, "after": after}
        if step.moved:
            found.append(Difference(change="moved", **places))
        renumbered = before.model_copy(update={"access_list": _renumbered(before.access_list, numbers)})
        sees_otherwise = bool(step.gained or step.lost or step.reordered)
        fields = tuple(
            part
            for part in ("instruction", "agent", "access_list")
            if getattr(renumbered, part) != getattr(after, part) or (part == "access_list" and sees_otherwise)
        )
        if fields:
            found.append(Difference(change="changed", fields=fields, **places))
    gone = [Difference(change="removed", a=index, before=a.steps[index]) for index in changes.removed]
    return PlansCompared(a, b, changes, (*found, *gone))


def apply_differences(plan: Workflow, differences: Sequence[Difference]) -> Workflow:
    """Returns plan B, given plan A and the differences of B from A. Raises: ValueError if they do not fit ``plan``."""
    placed: dict[int, int | Step] = {}
    gone = {each.a for each in differences if each.change == "removed"}
    for each in differences:
        if each.b is not None and each.change == "moved" and each.a is not None:
            placed[each.b] = each.a
        elif each.b is not None and each.change == "added" and each.after is not None:
            placed[each.b] = each.after
    stays = [index for index in range(len(plan.steps)) if index not in gone and index not in placed.values()]
    size = len(placed) + len(stays)
    free = [index for index in range(size) if index not in placed]
    if len(free) != len(stays) or not gone | {place for place in placed.values() if isinstance(place, int)} <= set(
        range(len(plan.steps))
    ):
        raise ValueError(f"the differences do not fit a plan of {len(plan.steps)} steps")
    placed |= dict(zip(free, stays, strict=True))
    numbers = {place: index for index, place in placed.items() if isinstance(place, int)}
    changed = {each.b: each for each in differences if each.change == "changed"}
    steps: list[Step] = []
    for index in range(size):
        place = placed[index]
        step = plan.steps[place] if isinstance(place, int) else place
        if isinstance(place, int):
            step = step.model_copy(update={"access_list": _renumbered(step.access_list, numbers)})
        if (own := changed.get(index)) is not None and own.after is not None:
            step = step.model_copy(update={part: getattr(own.after, part) for part in own.fields})
        steps.append(step)
    return Workflow(steps=tuple(steps))


def _renumbered(access_list: AccessList, numbers: dict[int, int]) -> AccessList:
    """Returns ``access_list`` in the numbers of the other plan. What that plan lacks falls out."""
    if access_list == "all":
        return access_list
    return tuple(numbers[read] for read in access_list if read in numbers)


Because = Literal["edited", "inputs", "chance", "none"]
"""Why an output is another one. ``edited``: the step is told, done or shown otherwise, by another worker or by one with
other settings, or one plan lacks it, or a person wrote or pinned the output. ``inputs``: the step is the same, but what
it was given is not. ``chance``: the same question to the same worker had another outcome. ``none``: the output is the
same."""


Names = tuple[str, str]
A_AND_B: Names = ("A", "B")


@dataclass(frozen=True, slots=True)
class StepPair:
    """A step of run A and the same step of run B.

    Attributes:
        a, b: None where the plan lacks the step.
        plan: the differences of this step in the plan.
        output_changed: whether the two answers are different texts, or refusals.
        inner: the rounds that the two steps opened, if one did.
    """

    a: StepTrace | None
    b: StepTrace | None
    plan: tuple[Difference, ...]
    output_changed: bool
    because: Because
    inner: "RoundsCompared | None" = None

    @property
    def differs(self) -> bool:
        """Whether plan, output or outcome of the step is another one."""
        return bool(self.plan) or self.output_changed or self.ended_otherwise

    @property
    def ended_otherwise(self) -> bool:
        return outcome(self.a) != outcome(self.b)

    @property
    def shown(self) -> StepTrace:
        """The step of run B, else that of run A."""
        found = self.b or self.a
        if found is None:
            raise ValueError("a pair of no step")
        return found

    @property
    def label(self) -> str:
        """The step's number: ``3``; where runs number it otherwise ``2 → 3``."""
        names = [label(step.path) for step in (self.a, self.b) if step is not None]
        return " → ".join(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class RoundsCompared:
    """Two rounds beside each other. ``pairs`` holds each step once: in B's order, removed ones after their predecessor.

    A round that a run lacks, and one without a plan, counts as a plan of no steps.
    """

    a: RoundTrace | None
    b: RoundTrace | None
    plans: PlansCompared
    pairs: tuple[StepPair, ...]

    def walk(self) -> Iterator[StepPair]:
        """All pairs, those of an inner round before the pair that opened it: their outputs came first."""
        for pair in self.pairs:
            if pair.inner is not None:
                yield from pair.inner.walk()
            yield pair

    def first_difference(self) -> StepPair | None:
        """Returns the step where the two part; None: nowhere."""
        for pair in self.pairs:
            own = bool(pair.plan) or pair.because in ("edited", "inputs")
            if pair.inner is not None and not own and (inner := pair.inner.first_difference()) is not None:
                return inner
            if pair.differs:
                return pair
        return None


@dataclass(frozen=True, slots=True)
class RunsCompared:
    """Two runs beside each other. ``names`` are what words call them."""

    a: RunTrace
    b: RunTrace
    root: RoundsCompared
    names: Names = A_AND_B

    @property
    def answer_changed(self) -> bool:
        return self.a.answer != self.b.answer

    @property
    def same_task(self) -> bool:
        return _task(self.a) == _task(self.b)

    @property
    def first_difference(self) -> StepPair | None:
        return self.root.first_difference()

    def pair_at(self, name: str) -> StepPair | None:
        """Returns the pair whose step of B, else of A, has this label; None: there is none."""
        return next((pair for pair in self.root.walk() if label(pair.shown.path) == name), None)


def compare_runs(a: RunTrace, b: RunTrace) -> RunsCompared:
    """Compares two runs as they stand, ended or not. Run B is the one that changed."""
    return RunsCompared(a, b, _compare_rounds(a, b, a.root, b.root))


def known_origins(a: RoundTrace, b: RoundTrace) -> Origins | None:
    """Returns which step of ``a`` each step of ``b`` is, if one plan was edited into the other; None: not recorded."""
    if b.edit_origins is not None and b.before_edit is not None and b.before_edit == a.workflow:
        return b.edit_origins
    if a.edit_origins is None or a.before_edit is None or a.before_edit != b.workflow or b.workflow is None:
        return None
    numbers = {before: after for after, before in enumerate(a.edit_origins) if before is not None}
    return tuple(numbers.get(index) for index in range(len(b.workflow.steps)))


def outcome(step: StepTrace | None) -> str:
    """Returns how a step ended, where a reused answer counts as what it was; "" without a step."""
    if step is None:
        return ""
    return "completed" if step.status in ("reused", "written") else step.status


def _compare_rounds(run_a: RunTrace, run_b: RunTrace, a: RoundTrace | None, b: RoundTrace | None) -> RoundsCompared:
    plan_a = NO_PLAN if a is None or a.workflow is None else a.workflow
    plan_b = NO_PLAN if b is None or b.workflow is None else b.workflow
    plans = compare_plans(plan_a, plan_b, None if a is None or b is None else known_origins(a, b))
    pairing = _Pairing(run_a, run_b, plans, [] if a is None else a.steps, [] if b is None else b.steps)
    return RoundsCompared(a, b, plans, tuple(pairing.pair(*row) for row in plans.rows()))


class _Pairing:
    """Two rounds that are being paired."""

    def __init__(
        self,
        run_a: RunTrace,
        run_b: RunTrace,
        plans: PlansCompared,
        steps_a: Sequence[StepTrace],
        steps_b: Sequence[StepTrace],
    ) -> None:
        self._runs, self._plans, self._a, self._b = (run_a, run_b), plans, steps_a, steps_b

    def pair(self, at_a: int | None, at_b: int | None) -> StepPair:
        a = None if at_a is None else self._a[at_a]
        b = None if at_b is None else self._b[at_b]
        changed = _said(a) != _said(b)
        rounds = (None if a is None else a.round, None if b is None else b.round)
        return StepPair(
            a=a,
            b=b,
            plan=self._plans.of_step(at_a, at_b),
            output_changed=changed,
            because=self._because(a, b) if changed else "none",
            inner=None if rounds == (None, None) else _compare_rounds(*self._runs, *rounds),
        )

    def _because(self, a: StepTrace | None, b: StepTrace | None) -> Because:
        if a is None or b is None or self._plans.changes.steps[b.index].changed:
            return "edited"
        if a.given is not None or b.given is not None:
            return "edited"
        if a.identity is None or b.identity is None:
            return "inputs" if a.because or b.because else "chance"  # one did not run
        if a.identity == b.identity:
            return "chance"
        if a.agent == CONDUCTOR_AGENT or _given(a) != _given(b):
            return "inputs"
        # The same question under another identity: another worker by the same name, or another seed.
        return "edited" if self._worker(0, a.agent) != self._worker(1, b.agent) else "chance"

    def _worker(self, run: int, name: str) -> tuple[object, ...]:
        spec = next((spec for spec in self._runs[run].pool.workers if spec.name == name), None)
        return () if spec is None else _asked(spec)


def _asked(spec: WorkerSpec) -> tuple[object, ...]:
    """Returns what determines the answers of a worker, as the identity of a step has it."""
    return (spec.provider, spec.model, spec.base_url, dict(spec.params), spec.pass_reasoning)


def _said(step: StepTrace | None) -> tuple[str, str] | None:
    return None if step is None else (step.output, step.refusal)


def _given(step: StepTrace) -> list[object]:
    return [(message.role, identity_of(message.content)) for message in step.messages]


def _task(trace: RunTrace) -> list[object]:
    return [(turn.role, identity_of(turn.content)) for turn in trace.conversation]


# Rounds of one run.


def opened_rounds(trace: RunTrace) -> tuple[Path, ...]:
    """Returns the rounds that steps opened and that have a plan, each as the path of its step, in the plans' order."""
    return tuple(round_.path for round_ in trace.root.rounds() if round_.path and round_.workflow is not None)


def kept_answer(trace: RunTrace, path: Path) -> bool:
    """Whether the Conductor wrote no steps in this round, which leaves the answer as it was."""
    return not (trace.round_at(path).workflow or Workflow(steps=())).steps


def compare_rounds(trace: RunTrace, path: Path) -> RunsCompared:
    """Compares the round that the step at ``path`` opened with the round of that step.

    Raises: KeyError if the step opened none.
    """
    above, opened = round_run(trace, path[:-1]), round_run(trace, path)
    return replace(compare_runs(above, opened), names=(round_name(path[:-1]), round_name(path)))


def round_run(trace: RunTrace, path: Path) -> RunTrace:
    """Returns one round as a run of its own, without the rounds that its steps opened in turn.

    A last step that opened another round is no part of it. Its answer is then what that step read, which the next round
    began with; else the output of the last step. Tokens, cost and time are those of this round. Raises: KeyError.
    """
    round_ = trace.round_at(path)
    own = _own_part(round_)
    parts: list[RoundTrace | StepTrace] = [round_, *(step for step in own.steps if step.reused_from is None)]
    opener = trace.step_at(path) if path else None
    answer = opener.output if opener is not None and kept_answer(trace, path) else _answer(round_)
    return trace.model_copy(
        update={
            "root": own,
            "answer": answer,
            "status": "completed" if answer is not None and trace.ended else trace.status,
            "usage": sum((part.usage for part in parts), Usage()),
            "cost_usd": sum_of_costs([part.cost_usd for part in parts]),
            "known_usd": sum(part.known_usd for part in parts),
            "at_list_price": any(part.at_list_price for part in parts),
            "duration_ms": _duration_ms(own),
        }
    )


def _own_part(round_: RoundTrace) -> RoundTrace:
    workflow, steps = round_.workflow, round_.steps
    if workflow is not None and steps and steps[-1].round is not None:
        workflow, steps = Workflow(steps=workflow.steps[:-1]), steps[:-1]
    own = [step.model_copy(update={"round": None}) for step in steps]
    return round_.model_copy(update={"workflow": workflow, "steps": own})


def _answer(round_: RoundTrace) -> str | None:
    last = round_.steps[-1:]
    if last and last[0].round is not None:
        last = [round_.steps[read] for read in last[0].reads[-1:]]
    return last[0].output if last and _has_output(last[0]) else None


def _has_output(step: StepTrace) -> bool:
    return step.answered or bool(step.output)


def _duration_ms(round_: RoundTrace) -> float | None:
    """From the first to the last moment of the round. A plan that was given has no time of its own."""
    own: list[RoundTrace | StepTrace] = [round_, *round_.steps]
    parts = [part for part in own if part.started_ms is not None]
    if not parts:
        return None
    begins_ms = min(part.started_ms or 0.0 for part in parts)
    return max((part.started_ms or 0.0) + (part.duration_ms or 0.0) for part in parts) - begins_ms
