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

``page_of_runs`` writes the page that hands a comparison over: a file that opens without a server, with all runs inside.

Imports no Streamlit: the command line writes such files, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count
from typing import Any

from conductor_core.analysis import compare
from conductor_core.analysis.compare import compare_runs, letter
from conductor_core.analysis.conclusion import Likeness, asked, concluded, likeness, unsigned
from conductor_core.analysis.text_diff import beginning, compare_texts, shortened
from conductor_core.errors import BadInput
from conductor_core.run.costs import cost_so_far, usage_of
from conductor_core.run.events import Event
from conductor_core.run.graph_layout import RoundShape, lay_out
from conductor_core.run.redaction import Redactor
from conductor_core.run.share import MOST_RUNS, packed
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label
from pages.components.live_workflow import shared_page
from pages.components.live_workflow.messages import TwoPlans, change_of, network_data, timeline
from pages.components.style.formats import listed, plural, run_status, seconds
from storage import Store

Json = dict[str, Any]

_BEGINNING_WORDS = 40
"""Of an output that only one run has: the run's own page shows all of it."""


def compared_view(compared: compare.RunsCompared) -> Json:
    """Returns the message. Its size is bounded by the changes, not by the length of the outputs."""
    found = list(_places(compared.root))
    places = {key: pair for key, pair, _ in found}
    first = compared.first_difference
    runs = (compared.a, compared.b)
    return {
        "runs": [_run(name, run) for name, run in zip(compared.names, runs, strict=True)],
        "headline": compare.headline(compared),
        "first": next((key for key, pair in places.items() if pair is first), None),
        "agents": list(dict.fromkeys(spec.name for run in runs for spec in run.pool.workers)),
        "plan": {"steps": [_card(*each) for each in found], "layout": _layout(compared)},
        "rows": [_row(*each, compared) for each in found],
        "timelines": _timelines(compared, places),
    }


def _places(
    rounds: compare.RoundsCompared, above: Path = ()
) -> Iterator[tuple[str, compare.StepPair, compare.RoundsCompared]]:
    """Yields the pairs by key, with their rounds, in the order of the rows: an inner one follows its opener."""
    plans = TwoPlans(rounds.plans.a, rounds.plans.b, rounds.plans.changes)
    for pair in rounds.pairs:
        place = pair.b.index if pair.b is not None else plans.place_of[pair.shown.index]
        path = (*above, place)
        yield label(path), pair, rounds
        if pair.inner is not None:
            yield from _places(pair.inner, path)


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


def _card(key: str, pair: compare.StepPair, rounds: compare.RoundsCompared) -> Json:
    step = pair.shown
    gone = pair.b is None
    change = "removed" if gone else change_of(rounds.plans.changes.steps[step.index])
    if change is None and pair.output_changed:
        change = pair.because if pair.because in ("inputs", "chance") else "changed"
    what = "" if pair.a is None or gone else "≠ other output" if pair.output_changed else "= same output"
    if step.given is not None:
        spent = [f"{step.given.how} by a person"]
    elif step.reused_from is not None:
        spent = ["reused"]
    elif step.started_ms is None:
        spent = [compare.outcome(step)]
    else:
        spent = [seconds(step.duration_ms), f"{usage_of(step).output_tokens:,} tok"]
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
        "words": " · ".join(filter(None, (what, *spent))),
    }


def _layout(compared: compare.RunsCompared) -> Json:
    """Draws both plans in one picture, inner rounds below the steps that opened them. The words of the table tell of
    rounds of removed steps."""
    shapes: list[RoundShape] = []
    changes: dict[tuple[str, str], str | None] = {}

    def add(rounds: compare.RoundsCompared, path: Path) -> None:
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


def _row(key: str, pair: compare.StepPair, rounds: compare.RoundsCompared, compared: compare.RunsCompared) -> Json:
    both = pair.a is not None and pair.b is not None
    return {
        "key": key,
        "depth": key.count("."),
        "label": pair.label,
        "agents": compare.agents_of(pair),
        "agent": pair.shown.agent,
        "plan": compare.plan_word(pair),
        "said": compare.output_words(pair, compared.names),
        "changed": pair.output_changed,
        "words": rounds.plans.changes.sight_in_words(pair.shown.index) if both and pair.plan else "",
        "parts": [_text(*part, only=not both) for part in _parts(pair)],
        "output": _outputs(pair, compared),
    }


def _parts(pair: compare.StepPair) -> Iterator[tuple[str, str, str]]:
    for difference in pair.plan:
        step = difference.before or difference.after
        if step is not None and None in (difference.before, difference.after):
            yield "instruction", step.instruction, step.instruction
        yield from compare.part_words(difference)


def _outputs(pair: compare.StepPair, compared: compare.RunsCompared) -> Json | None:
    """Returns both outputs in one text; None: they are the same. What one run alone has is no comparison."""
    if pair.a is None or pair.b is None:
        alone = pair.shown.output or pair.shown.refusal
        return _text("output", alone, alone, only=True)
    if not pair.output_changed:
        return None
    before, after = (step.output or step.refusal for step in (pair.a, pair.b))
    if compared.a.simulated and compared.b.simulated:
        # Their last line has a sign by which calls are told apart.
        before, after = unsigned(before), unsigned(after)
    return {"name": "output", "by": "signature", "pieces": []} if before == after else _text("output", before, after)


def _text(name: str, before: str, after: str, *, only: bool = False) -> Json:
    difference = compare_texts(before, after)
    # An access list or an agent is one word: half of it would say nothing.
    pieces = [["removed", before, 0, "same"], ["added", after, 0, "same"]]
    if only:
        pieces = [[kind, text, words, "more"] for kind, text, words, _ in beginning(after, _BEGINNING_WORDS)]
    elif name in ("instruction", "output"):
        pieces = [list(piece) for piece in shortened(difference)]
    return {"name": name, "by": difference.by, "pieces": [piece for piece in pieces if piece[1] or piece[2]]}


def _timelines(compared: compare.RunsCompared, places: dict[str, compare.StepPair]) -> list[Json | None]:
    found = [timeline(run) for run in (compared.a, compared.b)]
    end_ms = max((each["end_ms"] for each in found if each is not None), default=0.0)
    for side, each in zip("ab", found, strict=True):
        if each is None:
            continue
        keys = {label(step.path): key for key, pair in places.items() if (step := getattr(pair, side)) is not None}
        each["end_ms"] = end_ms
        each["bars"] = [bar | {"key": keys.get(label(bar["path"]), "")} for bar in each["bars"]]
    return found


HEADS = ("Status", "Steps", "Plan", "Parts at", "Tokens", "Cost", "Time")


def run_rows(traces: Sequence[RunTrace], compared: Sequence[compare.RunsCompared]) -> list[Json]:
    return [_run_row(*each) for each in zip(count(), traces, (None, *compared), strict=False)]


def _run_row(place: int, trace: RunTrace, compared: compare.RunsCompared | None) -> Json:
    """``said``: the conclusion of its answer. ``mark``: whether that is the first run's answer; empty for the first."""
    first = None if compared is None else compared.first_difference
    said, mark = concluded(trace), ""
    if compared is not None:
        a, b = compared.a.answer, compared.b.answer
        alike: Likeness = "same" if a == b else "differ"
        mark = _MARKS[alike if a is None or b is None else likeness(a, b, asked(compared.b))]
    return {
        "name": compare.letter(place),
        "run_id": trace.run_id,
        "task": trace.task,
        "said": "no answer" if said is None else said.text or "empty",
        "mark": mark,
        "status": trace.status,
        "status_words": run_status(trace.status),
        "simulated": trace.simulated,
        "steps": str(len(trace.steps)),
        "plan": "" if compared is None else plural(compare.plan_change_count(compared), "change"),
        "parts": "" if compared is None else "nowhere" if first is None else f"step {first.label}",
        "tokens": f"{trace.usage.total_tokens:,}",
        "cost": str(cost_so_far(trace)),
        "time": seconds(trace.duration_ms),
    }


_MARKS: dict[Likeness, str] = {
    "same": "= same answer",
    "same value": "= same value",
    "differ in wording": "≈ differ in wording",
    "differ": "≠ other answer",
}


STYLES = ("style.css", "graph.css", "timeline.css", "prose.css", "compare.css")
Images = Mapping[str, tuple[str, bytes]]
"""Media type and bytes of images, by digest."""


def page_of_runs(store: Store, run_ids: Sequence[str], redactor: Redactor) -> str:
    """Raises: UnknownRun, RunUnreadable, StoreError; BadInput as ``shared_comparison`` does."""
    return shared_comparison([shared_page.run_of(store, run_id) for run_id in run_ids], redactor)


def shared_comparison(
    runs: Sequence[tuple[Sequence[Event], Images]], redactor: Redactor, now_utc: datetime | None = None
) -> str:
    """Returns the page that compares runs that have ended.

    Args:
        runs: two or more: the events of each, and the images that it names.
        redactor: what is hidden first, keys in any case.
        now_utc: when the page is written; default: now.

    Raises: BadInput for a run that goes on, too many runs, and a pattern that hides what a record needs.
    """
    if len(runs) > MOST_RUNS:
        raise BadInput(f"a page compares at most {MOST_RUNS} runs, and these are {len(runs)}")
    hidden, passages = [], []
    for events, _ in runs:
        before = redactor.count
        hidden.append(redactor.events(events))
        passages.append(redactor.count - before)
    traces = [shared_page.ended_run(events) for events in hidden]
    compared = [compare_runs(traces[0], trace) for trace in traces[1:]]
    at, tasks = now_utc or datetime.now(UTC), list(dict.fromkeys(trace.task for trace in traces))
    rows = run_rows(traces, compared) if len(traces) > 2 else []
    view = {"heads": HEADS, "rows": rows, "pairs": [compared_view(each) for each in compared]}
    comparison = {
        "written_by": shared_page.WRITTEN_BY,
        "written_at_utc": at.isoformat(),
        "redactions": redactor.count,
        "title": tasks[0] if len(tasks) == 1 else f"{len(traces)} runs with {len(tasks)} tasks",
        "facts": _facts(traces),
        "view": packed(view),
    }
    parts = {"style": shared_page.styles_of(*STYLES), "images": {}}
    data: dict[str, Any] = {"shared-comparison": comparison, "shared-parts": parts}
    there: set[str] = set()
    for place, (trace, events) in enumerate(zip(traces, hidden, strict=True)):
        images = {sha256: image for sha256, image in runs[place][1].items() if sha256 not in there}
        there.update(images)
        data[f"shared-run-{place}"] = shared_page.shared_run(trace, events, images, passages[place], at)
    return shared_page.sealed_page("A comparison", data, shared_page.bundle_of("shared_comparison.js"))


def _facts(traces: Sequence[RunTrace]) -> list[str]:
    names = [letter(place) for place in range(len(traces))]
    are = [f"{name} is {trace.run_id}" for name, trace in zip(names, traces, strict=True)]
    found = [f"A comparison of {len(traces)} runs: {listed(are, len(traces))}."]
    for told, said in (
        ([trace.simulated for trace in traces], "The workers of {} are simulated."),
        ([trace.imported is not None for trace in traces], "Imported before: {}."),
    ):
        if chosen := [name for name, true in zip(names, told, strict=True) if true]:
            found.append(said.format("all" if len(chosen) == len(traces) else listed(chosen, len(traces))))
    return found
