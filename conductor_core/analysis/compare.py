"""Two runs beside each other, or two rounds of one run: which step is which, what changed, and because of what. Pure.

``workflow.edits`` says which step of a plan is which and what each may see now. ``compare_plans`` lists that as
differences that a script can read: applied to the first plan, they give the second one exactly as it is written.
A round is compared as a run of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from conductor_core.analysis.conclusion import Likeness, asked, likeness
from conductor_core.analysis.documents import conclusion_document
from conductor_core.chat.messages import Usage, identity_of, sum_of_costs
from conductor_core.run.costs import cost_so_far
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
    names: Names

    @property
    def answer_changed(self) -> bool:
        return self.a.answer != self.b.answer

    @property
    def same_task(self) -> bool:
        tasks = [[(turn.role, identity_of(turn.content)) for turn in run.conversation] for run in (self.a, self.b)]
        return tasks[0] == tasks[1]

    @property
    def first_difference(self) -> StepPair | None:
        return self.root.first_difference()


def compare_runs(a: RunTrace, b: RunTrace, names: Names = A_AND_B) -> RunsCompared:
    """Compares two runs as they stand, ended or not. Run B is the one that changed."""
    return RunsCompared(a, b, _compare_rounds(a, b, a.root, b.root), names)


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

    def pair(at_a: int | None, at_b: int | None) -> StepPair:
        step_a = None if at_a is None or a is None else a.steps[at_a]
        step_b = None if at_b is None or b is None else b.steps[at_b]
        changed = _said(step_a) != _said(step_b)
        rounds = (None if step_a is None else step_a.round, None if step_b is None else step_b.round)
        return StepPair(
            a=step_a,
            b=step_b,
            plan=plans.of_step(at_a, at_b),
            output_changed=changed,
            because=_because(run_a, run_b, plans, step_a, step_b) if changed else "none",
            inner=None if rounds == (None, None) else _compare_rounds(run_a, run_b, *rounds),
        )

    return RoundsCompared(a, b, plans, tuple(pair(*row) for row in plans.rows()))


def _because(
    run_a: RunTrace, run_b: RunTrace, plans: PlansCompared, a: StepTrace | None, b: StepTrace | None
) -> Because:
    if a is None or b is None or plans.changes.steps[b.index].changed:
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
    return "edited" if _worker(run_a, a.agent) != _worker(run_b, b.agent) else "chance"


def _worker(run: RunTrace, name: str) -> tuple[object, ...]:
    """Returns what determines the answers of a worker, as the identity of a step has it."""
    spec = next((spec for spec in run.pool.workers if spec.name == name), None)
    return () if spec is None else (spec.provider, spec.model, spec.base_url, dict(spec.params), spec.pass_reasoning)


def _said(step: StepTrace | None) -> tuple[str, str] | None:
    return None if step is None else (step.output, step.refusal)


def _given(step: StepTrace) -> list[object]:
    return [(message.role, identity_of(message.content)) for message in step.messages]


# Rounds of one run.


def opened_rounds(trace: RunTrace) -> tuple[Path, ...]:
    """Returns the rounds that steps opened and that have a plan, each as the path of its step, in the plans' order."""
    return tuple(round_.path for round_ in trace.root.rounds() if round_.path and round_.workflow is not None)


def kept_answer(trace: RunTrace, path: Path) -> bool:
    """Whether the Conductor wrote no steps in this round, which leaves the answer as it was."""
    return not (trace.round_at(path).workflow or NO_PLAN).steps


def compare_rounds(trace: RunTrace, path: Path) -> RunsCompared:
    """Compares the round that the step at ``path`` opened with the round of that step.

    Raises: KeyError if the step opened none.
    """
    names = (round_name(path[:-1]), round_name(path))
    return compare_runs(round_run(trace, path[:-1]), round_run(trace, path), names)


def round_run(trace: RunTrace, path: Path) -> RunTrace:
    """Returns one round as a run of its own, without the rounds that its steps opened in turn.

    A last step that opened another round is no part of it. Its answer is then what that step read, which the next round
    began with; else the output of the last step. Tokens, cost and time are those of this round. Raises: KeyError.
    """
    round_ = trace.round_at(path)
    workflow, steps = round_.workflow, round_.steps
    if workflow is not None and steps and steps[-1].round is not None:
        workflow, steps = Workflow(steps=workflow.steps[:-1]), steps[:-1]
    steps = [step.model_copy(update={"round": None}) for step in steps]
    own = round_.model_copy(update={"workflow": workflow, "steps": steps})
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


def _answer(round_: RoundTrace) -> str | None:
    last = round_.steps[-1:]
    if last and last[0].round is not None:
        last = [round_.steps[read] for read in last[0].reads[-1:]]
    return last[0].output if last and (last[0].answered or last[0].output) else None


def _duration_ms(round_: RoundTrace) -> float | None:
    """From the first to the last moment of the round. A plan that was given has no time of its own."""
    own: list[RoundTrace | StepTrace] = [round_, *round_.steps]
    parts = [part for part in own if part.started_ms is not None]
    if not parts:
        return None
    begins_ms = min(part.started_ms or 0.0 for part in parts)
    return max((part.started_ms or 0.0) + (part.duration_ms or 0.0) for part in parts) - begins_ms


# What a comparison says: in sentences, the same on the page and in the terminal, and as JSON.

BECAUSE: dict[Because, str] = {
    "edited": "the step was edited",
    "inputs": "only its inputs changed",
    "chance": "by chance: the same question to the same worker",
    "none": "",
}


def access(access_list: AccessList) -> str:
    return "all" if access_list == "all" else str(list(access_list))


def count(number: int, thing: str) -> str:
    """Returns ``one change``, ``no changes``, ``3 changes``."""
    return f"{({0: 'no', 1: 'one'}).get(number, number)} {thing}{'' if number == 1 else 's'}"


def plan_sentences(compared: RunsCompared) -> tuple[str, ...]:
    """Says each difference of the plans, a sentence a step; those of inner rounds after those of the first."""
    found: list[str] = []
    for pair, inner in _plans(compared):
        where = "" if pair is None else f"in the round of step {label(pair.shown.path)}, "
        said = (*inner.changes.sentences(inner.a, inner.b), *_rewritten(inner))
        found += [f"{where}{sentence}" for sentence in said]
    return tuple(found)


def plan_change_count(compared: RunsCompared) -> int:
    """Counts the changes in ``plan_sentences``: two fields of one step are two changes."""
    return sum(inner.changes.count + len(_rewritten(inner)) for _, inner in _plans(compared))


def _plans(compared: RunsCompared) -> Iterator[tuple[StepPair | None, PlansCompared]]:
    for pair in (None, *compared.root.walk()):
        inner = compared.root if pair is None else pair.inner
        if inner is not None:
            yield pair, inner.plans


def _rewritten(plans: PlansCompared) -> list[str]:
    return [
        f"step {each.b} ({each.after.agent}): access list {access(each.before.access_list)} is written "
        f"{access(each.after.access_list)}, which grants the same"
        for each in plans.differences
        if each.fields == ("access_list",)
        and each.before is not None
        and each.after is not None
        and each.b is not None
        and not plans.changes.steps[each.b].changed
    ]


def headline(compared: RunsCompared) -> str:
    """Says in a line or two what changed, what ran again, and whether the answer changed."""
    changes = plan_sentences(compared)
    said = [] if compared.same_task else ["The two runs have different tasks."]
    runs = zip(compared.names, (compared.a, compared.b), strict=True)
    missing = [name for name, run in runs if run.root.workflow is None]
    if missing:
        what = f"Run{'s' if len(missing) > 1 else ''} " if compared.names == A_AND_B else ""
        said.append(_capital(f"{what}{' and '.join(missing)} had no plan."))
    elif not changes:
        said.append("Both have the same plan.")
    else:
        which = f": {'; '.join(changes)}" if len(changes) <= 2 else ""
        said.append(f"{count(plan_change_count(compared), 'change').capitalize()} of the plan{which}.")
    said += _steps(compared)
    a, b = compared.a.answer, compared.b.answer
    if a is not None and b is not None:
        return " ".join([*said, _LIKENESS[likeness(a, b, asked(compared.b))]])
    lacking = [name for name, answer in zip(compared.names, (a, b), strict=True) if answer is None]
    return " ".join([*said, _capital(f"{' and '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no answer.")])


def _steps(compared: RunsCompared) -> list[str]:
    every = list(compared.root.walk())
    of_b = [pair.b for pair in every if pair.b is not None]
    reused = sum(step.reused_from is not None for step in of_b)
    own = [step for step in of_b if step.reused_from is None and step.given is None]
    ran = sum(step.started_ms is not None for step in own)
    said = []
    if reused:
        said.append(f"{count(ran, 'step').capitalize()} ran again, {reused} {'was' if reused == 1 else 'were'} reused.")
    pairs = [pair for pair in every if pair.a is not None and pair.b is not None]
    changed = [pair for pair in pairs if pair.output_changed]
    if changed:
        why = [_why(cause, [pair for pair in changed if pair.because == cause]) for cause in BECAUSE]
        outputs = f"{count(len(changed), 'output')} of {len(pairs)}".capitalize()
        said.append(f"{outputs} changed: {', '.join(filter(None, why))}.")
    return said


def _why(cause: Because, pairs: Sequence[StepPair]) -> str:
    one = len(pairs) == 1
    if pairs and all(map(by_hand, pairs)):
        return f"{_which(pairs)} because a person gave {'it' if one else 'them'}"
    reasons = {
        "edited": f"because {'it was' if one else 'they were'} edited",
        "inputs": f"because only {'its' if one else 'their'} inputs changed",
        "chance": "by chance",
        "none": "",
    }
    return f"{_which(pairs)} {reasons[cause]}" if pairs else ""


def _which(pairs: Sequence[StepPair]) -> str:
    names = [label(pair.shown.path) for pair in pairs]
    shown = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"]
    return f"step{'' if len(names) == 1 else 's'} {', '.join(shown)}"


_LIKENESS: dict[Likeness, str] = {
    "same": "The answer is the same.",
    "same value": "The answers differ in wording and mark the same value.",
    "differ in wording": "The answers differ in wording; compared by text, for they do not both mark a value.",
    "differ": "The answer changed.",
}


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def plan_word(pair: StepPair) -> str:
    """Says in a word or two what became of a step of the plan: ``same``, ``changed``, ``moved, changed``, ``added``."""
    return ", ".join(each.change for each in pair.plan) or "same"


def output_words(pair: StepPair, names: Names = A_AND_B) -> str:
    """Says whether the output is another one, and why, in a short sentence without its end mark."""
    if pair.a is None or pair.b is None:
        return f"only in {names[pair.a is None]}"
    ended = _ended(pair, names)
    if not pair.output_changed:
        same = "no output in either run" if not pair.b.output and not pair.b.refusal else "identical"
        kept = "reused" if pair.b.reused_from is not None and pair.b.given is None else ""
        return ", ".join(filter(None, (same, kept, by_hand(pair, names), ended)))
    if said := by_hand(pair, names):
        return f"changed: {said}{f'; {ended}' if ended else ''}"
    absent = [name for name, step in zip(names, (pair.a, pair.b), strict=True) if step.started_ms is None]
    if absent and pair.because == "chance":
        return f"changed: the step did not run in {' and '.join(absent)}{f', {ended}' if ended else ''}"
    return f"changed: {BECAUSE[pair.because]}{f'; {ended}' if ended else ''}"


def by_hand(pair: StepPair, names: Names = A_AND_B) -> str:
    """Says which of the two outputs a person gave, as ``written by a person in B``; empty: neither."""
    given = [(name, step.given) for name, step in zip(names, (pair.a, pair.b), strict=True) if step is not None]
    return ", ".join(f"{each.how} by a person in {name}" for name, each in given if each is not None)


def _ended(pair: StepPair, names: Names) -> str:
    return f"{outcome(pair.a)} in {names[0]}, {outcome(pair.b)} in {names[1]}" if pair.ended_otherwise else ""


def part_words(difference: Difference) -> list[tuple[str, str, str]]:
    if difference.before is None or difference.after is None:
        return []
    found = []
    for part in difference.fields:
        was, now = (getattr(step, part) for step in (difference.before, difference.after))
        words = access if part == "access_list" else str
        found.append((part.replace("_", " "), words(was), words(now)))
    return found


def agents_of(pair: StepPair) -> str:
    """Returns the agent of the step; where it is another one ``calculator → scientist``."""
    names = [step.agent for step in (pair.a, pair.b) if step is not None]
    return " → ".join(dict.fromkeys(names))


def letter(place: int) -> str:
    """Returns the name of a run by its place: A to Z, then AA."""
    return chr(ord("A") + place) if place < 26 else letter(place // 26 - 1) + letter(place % 26)


# The JSON document.

Document = dict[str, Any]


def comparison_document(traces: Sequence[RunTrace]) -> Document:
    """Returns a comparison of two or more runs; of more, each after the first is compared with the first.

    ``usage``, ``cost_usd``, ``known_usd`` and ``duration_ms`` are lists in the order of ``runs``.
    """
    compared = [compare_runs(traces[0], other) for other in traces[1:]]
    costs = [cost_so_far(trace) for trace in traces]
    document: Document = {
        "runs": [_run(trace) for trace in traces],
        "answer_changed": any(each.answer_changed for each in compared),
        "usage": [trace.usage.model_dump(mode="json") for trace in traces],
        "cost_usd": [cost.usd for cost in costs],
        "known_usd": [cost.known_usd for cost in costs],
        "duration_ms": [trace.duration_ms for trace in traces],
    }
    if len(compared) == 1:
        return document | _details(compared[0])
    return document | {
        "with_first": [
            {"run_id": each.b.run_id, "answer_changed": each.answer_changed, **_details(each)} for each in compared
        ]
    }


def rounds_document(trace: RunTrace) -> Document:
    """Returns the rounds of a run that steps opened, each compared with the round of that step.

    ``a`` and ``b`` of a round name the steps that opened the two; ``a`` is null for the first round.
    """
    rounds = [
        {
            "a": label(path[:-1]) or None,
            "b": label(path),
            "kept_answer": kept_answer(trace, path),
            "answers": [round_run(trace, path[:-1]).answer, round_run(trace, path).answer],
            **_details(compare_rounds(trace, path)),
        }
        for path in opened_rounds(trace)
    ]
    return {"run_id": trace.run_id, "status": trace.status, "task": trace.task, "rounds": rounds}


def _run(trace: RunTrace) -> Document:
    return {
        "run_id": trace.run_id,
        "parent_run_id": trace.parent_run_id,
        "status": trace.status,
        "simulated": trace.simulated,
        "created_at_utc": trace.created_at_utc.isoformat(),
        "task": trace.task,
        "conductor": None if trace.conductor is None else trace.conductor.name,
        "pool": trace.pool.name,
        "seed": trace.seed,
        "answer": trace.answer,
        "conclusion": conclusion_document(trace),
    }


def _details(compared: RunsCompared) -> Document:
    first = compared.first_difference
    sides = () if first is None else (("a", first.a), ("b", first.b))
    return {
        "same_task": compared.same_task,
        **_round(compared.root),
        "first_difference": {side: None if step is None else label(step.path) for side, step in sides} or None,
    }


def _round(compared: RoundsCompared) -> Document:
    return {
        "plan": [each.model_dump(mode="json") for each in compared.plans.differences],
        "steps": [_pair(pair) for pair in compared.pairs],
    }


def _pair(pair: StepPair) -> Document:
    return {
        "a": None if pair.a is None else pair.a.index,
        "b": None if pair.b is None else pair.b.index,
        "output_changed": pair.output_changed,
        "because": pair.because,
        "a_status": None if pair.a is None else pair.a.status,
        "b_status": None if pair.b is None else pair.b.status,
        "round": None if pair.inner is None else _round(pair.inner),
    }
