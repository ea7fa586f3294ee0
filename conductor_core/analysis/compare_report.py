"""What a comparison of two runs says: in sentences, the same on the page and in the terminal, and as JSON.

Scripts rely on the keys of ``comparison_document``, which ``compare --json`` prints: add some, never change or remove
one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from conductor_core.analysis.compare import (
    A_AND_B,
    Because,
    Difference,
    Names,
    PlansCompared,
    RoundsCompared,
    RunsCompared,
    StepPair,
    compare_rounds,
    compare_runs,
    kept_answer,
    opened_rounds,
    outcome,
    round_run,
)
from conductor_core.analysis.concluded import asked
from conductor_core.analysis.conclusion import Likeness, likeness
from conductor_core.analysis.documents import conclusion_document
from conductor_core.run.costs import cost_so_far
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import label
from conductor_core.workflow.model import AccessList

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
    return " ".join([*said, *_steps(compared), _answer(compared)])


def _steps(compared: RunsCompared) -> list[str]:
    of_b = [pair.b for pair in compared.root.walk() if pair.b is not None]
    reused = sum(step.reused_from is not None for step in of_b)
    own = [step for step in of_b if step.reused_from is None and step.given is None]
    ran = sum(step.started_ms is not None for step in own)
    said = []
    if reused:
        said.append(f"{count(ran, 'step').capitalize()} ran again, {reused} {'was' if reused == 1 else 'were'} reused.")
    pairs = [pair for pair in compared.root.walk() if pair.a is not None and pair.b is not None]
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


def _answer(compared: RunsCompared) -> str:
    a, b = compared.a.answer, compared.b.answer
    if a is None or b is None:
        lacking = [name for name, answer in zip(compared.names, (a, b), strict=True) if answer is None]
        return _capital(f"{' and '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no answer.")
    return _LIKENESS[likeness(a, b, asked(compared.b))]


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
    absent = [name for name, step in zip(names, (pair.a, pair.b), strict=True) if not _ran(step)]
    if absent and pair.because == "chance":
        return f"changed: the step did not run in {' and '.join(absent)}{f', {ended}' if ended else ''}"
    return f"changed: {BECAUSE[pair.because]}{f'; {ended}' if ended else ''}"


def by_hand(pair: StepPair, names: Names = A_AND_B) -> str:
    """Says which of the two outputs a person gave, as ``written by a person in B``; empty: neither."""
    given = [(name, step.given) for name, step in zip(names, (pair.a, pair.b), strict=True) if step is not None]
    return ", ".join(f"{each.how} by a person in {name}" for name, each in given if each is not None)


def _ran(step: StepTrace) -> bool:
    return step.started_ms is not None


def _ended(pair: StepPair, names: Names) -> str:
    return f"{outcome(pair.a)} in {names[0]}, {outcome(pair.b)} in {names[1]}" if pair.ended_otherwise else ""


def part_words(difference: Difference) -> list[tuple[str, str, str]]:
    """Returns each changed part as its name, what it was and what it is."""
    if difference.before is None or difference.after is None:
        return []
    return [
        (part.replace("_", " "), _part(difference.before, part), _part(difference.after, part))
        for part in difference.fields
    ]


def _part(step: object, part: str) -> str:
    value = getattr(step, part)
    return access(value) if part == "access_list" else str(value)


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
    return {
        "same_task": compared.same_task,
        **_round(compared.root),
        "first_difference": None if first is None else {"a": _label(first, "a"), "b": _label(first, "b")},
    }


def _label(pair: StepPair, side: str) -> str | None:
    step = pair.a if side == "a" else pair.b
    return None if step is None else label(step.path)


def _round(compared: RoundsCompared) -> Document:
    return {
        "plan": [_difference(each) for each in compared.plans.differences],
        "steps": [_pair(pair) for pair in compared.pairs],
    }


def _difference(difference: Difference) -> Document:
    return {
        "change": difference.change,
        "a": difference.a,
        "b": difference.b,
        "fields": list(difference.fields),
        "before": None if difference.before is None else difference.before.model_dump(mode="json"),
        "after": None if difference.after is None else difference.after.model_dump(mode="json"),
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
