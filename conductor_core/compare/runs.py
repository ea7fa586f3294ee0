"""Two runs beside each other: which step is which, whose output changed, and because of what. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from conductor_core.chat import WorkerSpec
from conductor_core.compare.plans import NO_PLAN, Difference, PlansCompared, compare_plans
from conductor_core.message_parts import identity_of
from conductor_core.run_facts import label
from conductor_core.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.workflow.changes import Origins
from conductor_core.workflow.model import CONDUCTOR_AGENT

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
