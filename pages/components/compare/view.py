"""Two compared runs as the component ``compare.js`` draws them. Pure.

The component gets:

    {"runs": [{"name", "run_id", "simulated", "figures", "answer"} of A and of B], "headline", "first", "agents",
     "plan": {"steps", "layout"}, "rows": [...], "timelines": [...]}

``name`` is A and B, or, of two rounds of one run, ``round 1`` and ``round 2``.
``answer`` is {"kind", "text", "formula"} of its conclusion, null without an answer. ``first`` is the key of the first
difference, null if there is none. ``plan`` has the form that ``edited_plan`` has, with the outcome of each step as
``status``; a step's key is its place in its round, after that of the step that opened the round. ``rows`` has a row for
each step of either run: {"key", "depth", "label", "agents", "plan", "parts", "said", "changed", "texts"}. A *text* is
{"name", "by", "pieces": [[kind, text, words, of]]}: see ``conductor_core.analysis.text_diff``; ``of`` is also ``more``
where a text of one run alone is cut. ``timelines`` are those of
the Run page, on one scale, with each bar's step as key; null for a run that has none.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from conductor_core.analysis.compare import (
    RoundsCompared,
    RunsCompared,
    StepPair,
    access,
    agents_of,
    headline,
    outcome,
    output_words,
    plan_word,
)
from conductor_core.analysis.concluded import concluded
from conductor_core.analysis.conclusion import unsigned
from conductor_core.analysis.text_diff import beginning, compare_texts, shortened
from conductor_core.run.costs import cost_so_far, usage_of
from conductor_core.run.graph_layout import RoundShape, lay_out
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import Path, label
from pages.components.live_workflow.layout import network_data
from pages.components.live_workflow.timeline import timeline
from pages.components.live_workflow.two_plans import TwoPlans, change_of
from pages.components.style.formats import seconds

Json = dict[str, Any]

_BEGINNING_WORDS = 40
"""Of an output that only one run has: the run's own page shows all of it."""


def compared_view(compared: RunsCompared) -> Json:
    """Returns the message. Its size is bounded by the changes, not by the length of the outputs."""
    places = dict(_places(compared.root))
    first = compared.first_difference
    runs = (compared.a, compared.b)
    return {
        "runs": [_run(name, run) for name, run in zip(compared.names, runs, strict=True)],
        "headline": headline(compared),
        "first": next((key for key, pair in places.items() if pair is first), None),
        "agents": list(dict.fromkeys(spec.name for run in runs for spec in run.pool.workers)),
        "plan": {"steps": [_card(key, pair, compared) for key, pair in places.items()], "layout": _layout(compared)},
        "rows": [_row(key, pair, _round_of(compared.root, key), compared) for key, pair in places.items()],
        "timelines": _timelines(compared, places),
    }


def _places(rounds: RoundsCompared, above: Path = ()) -> Iterator[tuple[str, StepPair]]:
    """Yields the pairs by key, in the order of the rows. A pair of an inner round follows the one that opened it."""
    plans = TwoPlans(rounds.plans.a, rounds.plans.b, rounds.plans.changes)
    for pair in rounds.pairs:
        path = (*above, _place(pair, plans))
        yield label(path), pair
        if pair.inner is not None:
            yield from _places(pair.inner, path)


def _place(pair: StepPair, plans: TwoPlans) -> int:
    if pair.b is not None:
        return pair.b.index
    return plans.place_of[pair.shown.index]


def _run(name: str, run: RunTrace) -> Json:
    cost, said = cost_so_far(run), concluded(run)
    return {
        "name": name,
        "run_id": run.run_id,
        "simulated": run.simulated,
        "status": run.status,
        "figures": [seconds(run.duration_ms), f"{run.usage.total_tokens:,} tok", cost.in_line],
        "answer": None if said is None else asdict(said),
    }


def _card(key: str, pair: StepPair, compared: RunsCompared) -> Json:
    """Returns a step as the graph draws it."""
    step = pair.shown
    rounds = _round_of(compared.root, key)
    gone = pair.b is None
    change = "removed" if gone else change_of(rounds.plans.changes.steps[step.index])
    if change is None and pair.output_changed:
        change = pair.because if pair.because in ("inputs", "chance") else "changed"
    return {
        "key": key,
        "number": None if gone else label(step.path),
        "was": label(step.path),
        "agent": step.agent,
        "instruction": step.instruction,
        "reads": list(step.reads),
        "change": change,
        "fate": None,
        "status": step.status,
        "words": _figures(pair),
    }


def _round_of(root: RoundsCompared, key: str) -> RoundsCompared:
    """Returns the pair of rounds in which the step of this key stands."""
    rounds, path = root, [int(number) for number in key.split(".")]
    for place in path[:-1]:
        plans = TwoPlans(rounds.plans.a, rounds.plans.b, rounds.plans.changes)
        rounds = next(pair.inner for pair in rounds.pairs if pair.inner and _place(pair, plans) == place)
    return rounds


def _figures(pair: StepPair) -> str:
    step = pair.shown
    what = "" if pair.a is None or pair.b is None else "≠ other output" if pair.output_changed else "= same output"
    return " · ".join(filter(None, (what, *_spent(step))))


def _spent(step: StepTrace) -> list[str]:
    if step.given is not None:
        return [f"{step.given.how} by a person"]
    if step.reused_from is not None:
        return ["reused"]
    if step.started_ms is None:
        return [outcome(step)]
    return [seconds(step.duration_ms), f"{usage_of(step).output_tokens:,} tok"]


def _layout(compared: RunsCompared) -> Json:
    """Draws both plans in one picture, inner rounds below the steps that opened them. The words of the table tell of
    rounds of removed steps."""
    shapes: list[RoundShape] = []
    changes: dict[tuple[str, str], str | None] = {}

    def add(rounds: RoundsCompared, path: Path) -> None:
        plans = TwoPlans(rounds.plans.a, rounds.plans.b, rounds.plans.changes)
        shapes.append(RoundShape(path, plans.reads))
        for target, reads in enumerate(plans.reads):
            for source in reads:
                ends = label((*path, source)), label((*path, target))
                changes[ends] = plans.edge_change(source, target)
        for pair in rounds.pairs:
            if pair.inner is not None and pair.b is not None and pair.inner.pairs:
                add(pair.inner, (*path, pair.b.index))

    add(compared.root, ())
    data = network_data(lay_out(shapes))
    for edge in data["edges"]:
        edge["change"] = changes[edge["from"], edge["to"]]
    return data


def _row(key: str, pair: StepPair, rounds: RoundsCompared, compared: RunsCompared) -> Json:
    both = pair.a is not None and pair.b is not None
    words = rounds.plans.changes.sight_in_words(pair.shown.index) if both and pair.plan else ""
    return {
        "key": key,
        "depth": key.count("."),
        "label": pair.label,
        "agents": agents_of(pair),
        "agent": pair.shown.agent,
        "plan": plan_word(pair),
        "said": output_words(pair, compared.names),
        "changed": pair.output_changed,
        "words": words,
        "parts": [_text(name, *texts, only=not both) for name, texts in _parts(pair)],
        "output": _outputs(pair, compared),
    }


def _parts(pair: StepPair) -> Iterator[tuple[str, tuple[str, str]]]:
    for difference in pair.plan:
        before, after = difference.before, difference.after
        if before is None or after is None:
            step = before or after
            if step is not None:
                yield "instruction", (step.instruction, step.instruction)
            continue
        for part in difference.fields:
            if part == "access_list":
                yield "access list", (access(before.access_list), access(after.access_list))
            else:
                yield part, (getattr(before, part), getattr(after, part))


def _outputs(pair: StepPair, compared: RunsCompared) -> Json | None:
    """Returns both outputs in one text; None: they are the same. What one run alone has is no comparison."""
    if pair.a is None or pair.b is None:
        return _text("output", _output(pair.shown), _output(pair.shown), only=True)
    if not pair.output_changed:
        return None
    before, after = _output(pair.a), _output(pair.b)
    if compared.a.simulated and compared.b.simulated:
        # Their last line has a sign by which calls are told apart.
        before, after = unsigned(before), unsigned(after)
    return {"name": "output", "by": "signature", "pieces": []} if before == after else _text("output", before, after)


def _output(step: StepTrace) -> str:
    return step.output or step.refusal


def _text(name: str, before: str, after: str, *, only: bool = False) -> Json:
    difference = compare_texts(before, after)
    # An access list or an agent is one word: half of it would say nothing.
    pieces = [["removed", before, 0, "same"], ["added", after, 0, "same"]]
    if only:
        pieces = [[kind, text, words, "more"] for kind, text, words, _ in beginning(after, _BEGINNING_WORDS)]
    elif name in ("instruction", "output"):
        pieces = [list(piece) for piece in shortened(difference)]
    return {"name": name, "by": difference.by, "pieces": [piece for piece in pieces if piece[1] or piece[2]]}


def _timelines(compared: RunsCompared, places: dict[str, StepPair]) -> list[Json | None]:
    """Returns both timelines on the scale of the longer one."""
    found = [timeline(run) for run in (compared.a, compared.b)]
    end_ms = max((each["end_ms"] for each in found if each is not None), default=0.0)
    for side, each in zip("ab", found, strict=True):
        if each is None:
            continue
        keys = {label(step.path): key for key, pair in places.items() if (step := getattr(pair, side)) is not None}
        each["end_ms"] = end_ms
        each["bars"] = [bar | {"key": keys.get(label(bar["path"]), "")} for bar in each["bars"]]
    return found
