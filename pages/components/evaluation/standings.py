"""An evaluation's figures, a row per orchestrator: from its summary, or from outcomes while it goes on; and as HTML.

The HTML is the table, and the heat table by difficulty and family.
"""

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from markupsafe import Markup

from conductor_core.lab.records import by_group, in_order
from conductor_core.lab.records.evaluation import EvaluationPlan, EvaluationRecord, Outcome, Result
from pages.components.style.figures import Figure, layout, marks, plain, scatter
from pages.components.style.formats import html, plural

# Simulated parts, and what they mean for the figures.

ALL_SIMULATED = "rehearsal"  # the pool without a real worker
LATENCY = "Simulated workers answer at once: these seconds are this program's own."
SIMULATED_WORDS = {
    "workers": (
        "simulated workers",
        "The workers are simulated: these figures compare ways of orchestrating them and say nothing about any "
        "vendor's model; latencies are this program's own.",
    ),
    "some workers": (
        "some workers simulated",
        "Some workers are simulated: figures that include them say nothing about any vendor's model.",
    ),
    "workers or tasks": (
        "simulated workers or tasks",
        "Workers or tasks are simulated: this record does not say which.",
    ),
    "tasks": ("simulated tasks", "The tasks are simulated ones of the rehearsal world; the workers are real."),
}


def simulated_parts(plan: EvaluationPlan) -> tuple[str, ...]:
    """Names the simulated parts as the printed tables do, workers first; empty if nothing is simulated."""
    if not plan.simulated:
        return ()
    simulated = plan.settings.get("simulated")
    # Nothing checks settings when a plan is read, and older plans do not say it.
    found = tuple(part for part in SIMULATED_WORDS if part in simulated) if isinstance(simulated, list | tuple) else ()
    return found or (("workers",) if plan.pool == ALL_SIMULATED else ("workers or tasks",))


def workers_simulated(plan: EvaluationPlan) -> bool:
    return "workers" in simulated_parts(plan)


def meaning(plan: EvaluationPlan) -> str:
    parts = simulated_parts(plan)
    return SIMULATED_WORDS[parts[0]][1] if parts else ""


class Standing(Result):
    """One row. An interval is None while it is unknown, and where there is none.

    ``tokens_per_task`` are the workers'. A ``computed`` row is no orchestrator of the plan: it is made of others'
    outcomes and has no runs to open.
    """

    score_low: float | None = None  # type: ignore[assignment]  # only a whole evaluation has it
    score_high: float | None = None  # type: ignore[assignment]
    computed: bool = False


def standings(record: EvaluationRecord) -> list[Standing]:
    """Returns the rows in the plan's order, without orchestrators that have no outcome yet.

    Where tasks were asked with a part of the pool, the best of those present alone comes last.
    """
    if (summary := record.summary) is not None:
        rows = [_from_result(result) for result in summary.results]
        if summary.present is not None:
            rows.append(_from_result(summary.present.best_present, computed=True))
        return rows
    by_name: defaultdict[str, list[Outcome]] = defaultdict(list)
    for outcome in record.outcomes:
        by_name[outcome.orchestrator].append(outcome)
    first = by_name[compared_with(record.plan)]
    named = [(name, by_name[name]) for name in record.plan.orchestrators]
    return [_so_far(name, own, None if own is first else first) for name, own in named if own]


def compared_with(plan: EvaluationPlan) -> str:
    """Returns the orchestrator that all differences refer to, whatever the order of the rows."""
    return next(iter(plan.orchestrators), "the first")


def _from_result(result: Result, *, computed: bool = False) -> Standing:
    """Takes a row over. An interval of no width, which resampling identical outcomes gives, becomes None."""
    known = result.model_dump() | {"computed": computed}
    for figure in ("score", "difference"):
        if known[f"{figure}_low"] == known[f"{figure}_high"]:
            known[f"{figure}_low"] = known[f"{figure}_high"] = None
    return Standing.model_validate(known)


def _so_far(name: str, own: Sequence[Outcome], first: Sequence[Outcome] | None) -> Standing:
    costs = [outcome.cost_usd for outcome in own if outcome.cost_usd is not None]
    # Without the first orchestrator, which has no difference to itself: the tasks that both have done.
    theirs = {outcome.task_id: outcome.score for outcome in first or ()}
    apart = [outcome.score - theirs[outcome.task_id] for outcome in own if outcome.task_id in theirs]
    return Standing(
        orchestrator=name,
        n=len(own),
        score=fmean(outcome.score for outcome in own),
        tokens_per_task=fmean(outcome.tokens for outcome in own),
        conductor_tokens_per_task=fmean(outcome.conductor_tokens for outcome in own),
        steps_per_task=fmean(outcome.steps for outcome in own),
        usd_per_task=fmean(costs) if len(costs) == len(own) else None,
        known_usd_per_task=fmean(each.at_least_usd for each in own),
        latency_ms_per_task=fmean(outcome.duration_ms for outcome in own),
        by_difficulty=by_group((outcome.difficulty, outcome.score) for outcome in own),
        by_family=by_group((outcome.family, outcome.score) for outcome in own),
        steps_by_difficulty=by_group((outcome.difficulty, outcome.steps) for outcome in own),
        faults=sum(outcome.fault is not None for outcome in own),
        difference=fmean(apart) if apart else None,
        absent_named=sum(outcome.absent_named for outcome in own),
    )


def difficulties(rows: Sequence[Standing]) -> list[str]:
    """Lists all difficulties that occur: the usual three in their order, then others by name."""
    return in_order(name for row in rows for name in row.by_difficulty)


def families(rows: Sequence[Standing]) -> list[str]:
    return sorted({name for row in rows for name in row.by_family})


def frontier(rows: Sequence[Standing]) -> list[Standing]:
    """Returns the rows that no other beats with as few tokens or fewer, by rising tokens."""
    front: list[Standing] = []
    for row in sorted(rows, key=lambda each: (each.tokens_per_task, -each.score)):
        if not front or row.score > front[-1].score:
            front.append(row)
    return front


_FIGURES = (
    "orchestrator", "n", "score", "score_low", "score_high", "difference", "difference_low", "difference_high",
    "tokens_per_task", "conductor_tokens_per_task", "usd_per_task", "latency_ms_per_task", "steps_per_task", "faults",
)  # fmt: skip


def to_csv(rows: Sequence[Standing], plan: EvaluationPlan) -> str:
    """Writes all figures in full, with scores by difficulty and family, and the evaluation that they belong to."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    hard, kinds = difficulties(rows), families(rows)
    # These columns come last, so that those before them keep their places.
    about = {
        "compared_with": compared_with(plan),
        "suite": plan.suite,
        "split": plan.split,
        "pool": plan.pool,
        "simulated": " and ".join(simulated_parts(plan)),
    }
    groups = [*(f"difficulty:{name}" for name in hard), *(f"family:{name}" for name in kinds)]
    heads = ("worker_tokens_per_task" if name == "tokens_per_task" else name for name in _FIGURES)
    writer.writerow(map(_cell, [*heads, *groups, *about]))
    for row in rows:
        more = [*map(row.by_difficulty.get, hard), *map(row.by_family.get, kinds)]
        figures = (getattr(row, name) for name in _FIGURES)
        writer.writerow(map(_cell, [*figures, *more, *about.values()]))
    return file.getvalue()


def _cell(value: object) -> object:
    """Puts a quote before a text that a spreadsheet would take for a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


def to_markdown(rows: Sequence[Standing], plan: EvaluationPlan) -> str:
    """Writes the table as people read it, below a line that names the evaluation."""
    parts = " and ".join(simulated_parts(plan))
    about = f"{plan.name}: {plan.suite}, {plan.split} split, {plural(plan.tasks, 'task')}, pool {plan.pool}"
    simulated = workers_simulated(plan)
    lines = [
        _one_line(f"{about}, seed {plan.seed}{f'; {parts} are simulated' if parts else ''}."),
        "",
        f"| orchestrator | tasks | score [95 %] | difference to {_one_line(compared_with(plan))} [95 %] "
        "| worker tokens | Conductor tokens | USD | latency s | steps |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = (
            _one_line(row.orchestrator),
            str(row.n),
            f"{100 * row.score:.1f}{interval(row.score_low, row.score_high)}",
            points(row.difference, row.difference_low, row.difference_high),
            f"{row.tokens_per_task:,.0f}",
            f"{row.conductor_tokens_per_task:,.0f}",
            usd_words(row, simulated=simulated),
            f"{row.latency_ms_per_task / 1000:.1f}",
            f"{row.steps_per_task:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    if simulated:
        lines += ["", LATENCY]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """Escapes a name so that it breaks no table and becomes no image, link or tag."""
    return " ".join(re.sub(r"[\\|<\[\]`]", r"\\\g<0>", text).split())


def usd_words(row: Standing, *, simulated: bool) -> str:
    """Returns ``simulated`` where no worker could be paid. ``simulated`` says whether all workers are."""
    if simulated and row.usd_per_task == 0:
        return "simulated"
    if row.usd_per_task is None:
        return f"at least {row.known_usd_per_task:.4f}" if row.known_usd_per_task else "unknown"
    return f"{row.usd_per_task:.4f}"


def points(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "—"
    return signed(value) + ("" if low is None or high is None else f" [{signed(low)}, {signed(high)}]")


def interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"


def signed(value: float) -> str:
    """Writes ``value`` in points of a hundred, with a typographic minus sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


TEMPLATE = "evaluation/evaluation"
HEADS = (
    "Score", "95 % interval", "", "Against {first}", "Worker tokens", "Conductor tokens", "USD", "Latency", "Steps",
    "Faults",
)  # fmt: skip
HEAD_TITLES = {
    "Against {first}": "Difference to {first} on the tasks that both have done, in points",
    "Latency": "As measured: with many tasks at once it includes waiting.",
}
NO_INTERVAL = "No interval: not done yet, or too few or identical outcomes"


def head_html(first: str) -> Markup:
    return html(TEMPLATE, "table_head", names=HEADS, first=first, titles=HEAD_TITLES)


def row_html(row: Standing, *, chosen: bool, simulated: bool) -> Markup:
    usd = usd_words(row, simulated=simulated)
    titles = {"latency_title": LATENCY, "no_interval": NO_INTERVAL}
    return html(TEMPLATE, "row", row=row, usd=usd, simulated=simulated, chosen=chosen, **titles)


def heat_html(rows: Sequence[Standing]) -> Markup:
    """Draws scores in percent, darker for higher, by difficulty and then by family where the suite has them."""
    hard, kinds = difficulties(rows), families(rows)
    named = (("by difficulty", hard), ("by family", kinds))
    groups = [(title, [name.replace("_", " ") for name in names]) for title, names in named if names]
    lines = []
    for row in rows:
        scores = [list(map(row.by_difficulty.get, hard)), list(map(row.by_family.get, kinds))]
        lines.append((row.orchestrator, [each for each in scores if each]))
    return html(TEMPLATE, "heat", kind="heat", groups=groups, lines=lines)


LEAST_HEIGHT_PX = 440
ROW_PX, FRAME_PX = 22, 62


def pareto(rows: Sequence[Standing]) -> Figure:
    """Draws each orchestrator at its tokens (logarithmic) and score. A line joins the filled marks of the frontier."""
    front = frontier(rows)
    on_front = {row.orchestrator for row in front}
    colours = ["@ink" if row.orchestrator in on_front else "@muted" for row in rows]
    least, most = min(row.tokens_per_task for row in rows), max(row.tokens_per_task for row in rows)
    low = math.floor(min(_ends(row)[0] for row in rows) * 10 - 0.3) / 10
    path = [[_tokens(row), 100 * row.score] for row in front]
    dotted = {"color": "@soft", "width": 1.4, "dash": "dot", "shape": "linear"}
    line = scatter("lines", [x for x, _ in path], [y for _, y in path], line=dotted, hoverinfo="skip")
    symbols = ["circle" if row.orchestrator in on_front else "circle-open" for row in rows]
    points = scatter(
        "markers",
        [_tokens(row) for row in rows],
        [100 * row.score for row in rows],
        marker={"size": 9, "symbol": symbols, "color": colours, "line": {"width": 1.6}},
        hovertemplate=[_hover(row) for row in rows],
    )
    if any(row.score_low is not None for row in rows):
        points["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [100 * (_ends(row)[1] - row.score) for row in rows],
            "arrayminus": [100 * (row.score - _ends(row)[0]) for row in rows],
            "color": "@faint",
            "thickness": 1.2,
            "width": 3,
        }
    ticks = [size * factor for size in (1, 10, 100, 1000, 10_000, 100_000, 1_000_000) for factor in (1, 2, 5)]
    shape = layout(
        max(FRAME_PX + ROW_PX * len(rows), LEAST_HEIGHT_PX),
        hovermode="closest",
        xaxis={
            "type": "log",
            "range": [math.log10(max(least, 1) * 0.45), math.log10(max(most, 1) * 1.6)],
            "tickvals": ticks,
            "ticktext": [f"{tick:,}" for tick in ticks],
            "showgrid": True,
            "gridcolor": "@line",
            "title": {"text": "worker tokens per task (logarithmic)", "standoff": 6},
        },
        yaxis={"range": [max(100 * low, 0), 101], "title": {"text": "score, %", "standoff": 4}},
        margin={"l": 48, "r": 18, "t": 10, "b": 44},
    )
    labels = [
        {
            "name": plain(row.orchestrator),
            "x": _tokens(row),
            "y": 100 * row.score,
            "low": 100 * _ends(row)[0],
            "high": 100 * _ends(row)[1],
            "colour": colour,
        }
        for row, colour in zip(rows, colours, strict=True)
    ]
    return {"data": [line, points], "layout": shape, "labels": labels, "path": path}


def _ends(row: Standing) -> tuple[float, float]:
    low, high = row.score_low, row.score_high
    return (row.score if low is None else low, row.score if high is None else high)


def _tokens(row: Standing) -> float:
    """Returns the tokens, at least 1: a logarithmic axis has no 0."""
    return max(row.tokens_per_task, 1.0)


def _hover(row: Standing) -> str:
    return (
        f"{plain(row.orchestrator)}<br>{100 * row.score:.1f} %{interval(row.score_low, row.score_high)}<br>"
        f"{row.tokens_per_task:,.0f} worker tokens, {row.steps_per_task:.1f} steps<extra></extra>"
    )


def pareto_in_words(rows: Sequence[Standing]) -> str:
    front = ", ".join(
        f"{row.orchestrator} ({100 * row.score:.1f} % at {row.tokens_per_task:,.0f} tokens)" for row in frontier(rows)
    )
    return f"Score against worker tokens per task. On the frontier: {front}."


def steps_by_difficulty(rows: Sequence[Standing]) -> Figure:
    """Draws a row per orchestrator. A line joins the marks of its difficulties: a long one shows that it adapts."""
    traces = [
        scatter("lines", [min(found), max(found)], [at, at], line={"color": "@faint", "width": 2}, hoverinfo="skip")
        for at, row in enumerate(rows)
        if (found := row.steps_by_difficulty.values())
    ]
    for name, mark in marks(difficulties(rows)).items():
        shown = [
            (at, row, row.steps_by_difficulty[name]) for at, row in enumerate(rows) if name in row.steps_by_difficulty
        ]
        said = [
            f"{plain(row.orchestrator)}<br>{plain(name)}: {steps:.2f} steps<extra></extra>" for _, row, steps in shown
        ]
        marker = {"symbol": mark.symbol, "size": 8, "color": "@ink", "line": {"width": 1.5}}
        xs, ys = [steps for _, _, steps in shown], [at for at, _, _ in shown]
        traces.append(scatter("markers", xs, ys, marker=marker, hovertemplate=said))
    longest = max(len(row.orchestrator) for row in rows)
    title = {"text": "steps per task", "standoff": 6}
    shape = layout(
        max(FRAME_PX + ROW_PX * len(rows), LEAST_HEIGHT_PX),  # as high as the figure beside it
        hovermode="closest",
        margin={"l": min(24 + 6.4 * longest, 190), "r": 14, "t": 10, "b": 44},
        xaxis={"rangemode": "tozero", "title": title, "showgrid": True, "gridcolor": "@line"},
        yaxis={
            "range": [len(rows) - 0.4, -0.6],
            "tickvals": list(range(len(rows))),
            "ticktext": [plain(row.orchestrator[:28]) for row in rows],
            "showgrid": False,
        },
    )
    return {"data": traces, "layout": shape}


def steps_in_words(rows: Sequence[Standing]) -> str:
    parts = [
        f"{row.orchestrator}: " + ", ".join(f"{name} {value:.1f}" for name, value in row.steps_by_difficulty.items())
        for row in rows
    ]
    return "Steps per task by difficulty. " + "; ".join(parts)
