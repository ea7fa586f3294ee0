"""An evaluation's figures, a row per orchestrator: from its summary, or from outcomes while it goes on; and as HTML.

The HTML is the table, and the heat table by difficulty and family. Every text is escaped.
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from statistics import fmean

from conductor_core.lab.records import by_group, in_order
from conductor_core.lab.records.evaluation import EvaluationPlan, EvaluationRecord, Outcome, Result
from pages.components.style.formats import plural, seconds

# Simulated parts, and what they mean for the figures.

ALL_SIMULATED = "rehearsal"  # the pool without a real worker
LATENCY = "Simulated workers answer at once: these seconds are this program's own."
_WORDS = {
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
    found = tuple(part for part in _WORDS if part in simulated) if isinstance(simulated, list | tuple) else ()
    return found or (("workers",) if plan.pool == ALL_SIMULATED else ("workers or tasks",))


def workers_simulated(plan: EvaluationPlan) -> bool:
    """Tells whether all workers are known to be simulated."""
    return "workers" in simulated_parts(plan)


def pill_html(plan: EvaluationPlan) -> str:
    """Returns the mark for the page's head; empty if nothing is simulated."""
    parts = simulated_parts(plan)
    return f'<span class="pill simulated">{_WORDS[parts[0]][0]}</span>' if parts else ""


def meaning(plan: EvaluationPlan) -> str:
    """Says in one sentence what the figures show and do not show; empty if nothing is simulated."""
    parts = simulated_parts(plan)
    return _WORDS[parts[0]][1] if parts else ""


SIMULATED = "simulated"


@dataclass(frozen=True)
class Standing:
    """One row, with the attributes of ``Result``. An interval is None while it is unknown, and where there is none.

    ``tokens_per_task`` are the workers'. A ``computed`` row is no orchestrator of the plan: it is made of others'
    outcomes and has no runs to open.
    """

    orchestrator: str
    n: int
    score: float
    tokens_per_task: float
    conductor_tokens_per_task: float
    steps_per_task: float
    usd_per_task: float | None
    known_usd_per_task: float | None
    latency_ms_per_task: float
    by_difficulty: Mapping[str, float]
    by_family: Mapping[str, float]
    steps_by_difficulty: Mapping[str, float]
    faults: int
    difference: float | None
    score_low: float | None = None
    score_high: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    absent_named: int = 0
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
    known = result.model_dump(include={field.name for field in fields(Standing)})
    for figure in ("score", "difference"):
        if known[f"{figure}_low"] == known[f"{figure}_high"]:
            known[f"{figure}_low"] = known[f"{figure}_high"] = None
    return Standing(**known, computed=computed)


def _so_far(name: str, own: Sequence[Outcome], first: Sequence[Outcome] | None) -> Standing:
    costs = [outcome.cost_usd for outcome in own if outcome.cost_usd is not None]
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
        difference=_difference(own, first),
        absent_named=sum(outcome.absent_named for outcome in own),
    )


def _difference(own: Sequence[Outcome], first: Sequence[Outcome] | None) -> float | None:
    """Returns the mean difference over the tasks that both have done. The first orchestrator has none to itself."""
    if first is None:
        return None
    theirs = {outcome.task_id: outcome.score for outcome in first}
    pairs = [outcome.score - theirs[outcome.task_id] for outcome in own if outcome.task_id in theirs]
    return fmean(pairs) if pairs else None


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
    """Returns ``SIMULATED`` where no worker could be paid. ``simulated`` says whether all workers are simulated."""
    # Older records call a mixed pool simulated as well; what was paid there is shown all the same.
    if simulated and row.usd_per_task == 0:
        return SIMULATED
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


# HTML.

HEADS = (
    "Score", "95 % interval", "", "Against {first}", "Worker tokens", "Conductor tokens", "USD", "Latency", "Steps",
    "Faults",
)  # fmt: skip
HEAD_TITLES = {
    "Against {first}": "Difference to {first} on the tasks that both have done, in points",
    "Latency": "As measured: with many tasks at once it includes waiting.",
}
NO_INTERVAL = "No interval: not done yet, or too few or identical outcomes"
_FIRST = ' class="first"'


def head_html(first: str) -> str:
    """Draws the head of the columns. The others are compared with the orchestrator ``first``."""
    return f'<div class="cells head standings">{"".join(_head_cell(name, first) for name in HEADS)}</div>'


def _head_cell(name: str, first: str) -> str:
    if not name:
        return "<span></span>"
    title = HEAD_TITLES.get(name, "").replace("{first}", escape(first))
    kind = "number ellipsis" if "{first}" in name else "number"  # the name of an orchestrator may be a path
    # A head on tokens takes two lines, so that its column is as wide as the figures.
    said = name.replace(" tokens", "<br>tokens").replace("{first}", escape(first))
    titled = f' title="{title}"' if title else ""
    return f'<span class="{kind}"{titled}>{said}</span>'


def row_html(row: Standing, *, chosen: bool, simulated: bool) -> str:
    """Draws the cells of a row. ``simulated`` says whether all workers are simulated."""
    cells = (
        f"<b>{100 * row.score:.1f} %</b>",
        interval_html(row),
        bar_html(row),
        difference_html(row),
        f"{row.tokens_per_task:,.0f}",
        f"{row.conductor_tokens_per_task:,.0f}",
        usd_html(row, simulated),
        latency_html(row, simulated),
        f"{row.steps_per_task:.1f}",
        f"✕ {row.faults}" if row.faults else "0",
    )
    inner = "".join(
        f'<span class="{"number" if name else "bar-cell"}">{cell}</span>'
        for name, cell in zip(HEADS, cells, strict=True)
    )
    return f'<div class="cells standings{" chosen" if chosen else ""}">{inner}</div>'


def interval_html(row: Standing) -> str:
    if row.score_low is None or row.score_high is None:
        return f'<span class="muted" title="{NO_INTERVAL}">—</span>'
    return f"{100 * row.score_low:.1f} – {100 * row.score_high:.1f}"


def bar_html(row: Standing) -> str:
    """Draws the score from 0 to 100 %, with the interval as a whisker."""
    whisker = ""
    if row.score_low is not None and row.score_high is not None:
        left, width = 100 * row.score_low, 100 * (row.score_high - row.score_low)
        whisker = f'<i class="whisker" style="left: {left:.2f}%; width: {width:.2f}%"></i>'
    return f'<span class="score-bar"><i class="filled" style="width: {100 * row.score:.2f}%"></i>{whisker}</span>'


def difference_html(row: Standing) -> str:
    """Writes the difference in points of a hundred. An interval that holds 0 shows no difference."""
    if row.difference is None:
        return '<span class="muted">—</span>'
    if row.difference_low is None or row.difference_high is None:
        return f'<span title="{NO_INTERVAL}">{signed(row.difference)}</span>'
    unclear = row.difference_low <= 0 <= row.difference_high
    title = ' title="The interval holds 0: no difference was shown."' if unclear else ""
    return (
        f'<span{title}>{"≈ " if unclear else ""}{signed(row.difference)} <span class="muted">'
        f"[{signed(row.difference_low)}, {signed(row.difference_high)}]</span></span>"
    )


def usd_html(row: Standing, simulated: bool) -> str:
    said = usd_words(row, simulated=simulated)
    if said == SIMULATED:
        return f'<span class="muted" title="No real worker answered: nothing was paid.">{said}</span>'
    return said


def latency_html(row: Standing, simulated: bool) -> str:
    shown = seconds(row.latency_ms_per_task)
    return f'<span class="muted" title="{LATENCY}">{shown}</span>' if simulated else shown


def heat_html(rows: Sequence[Standing]) -> str:
    """Draws scores in percent, darker for higher, by difficulty and then by family where the suite has them."""
    hard, kinds = difficulties(rows), families(rows)
    heads = "".join(heat_head(name.replace("_", " ")) for name in hard)
    heads += "".join(heat_head(name.replace("_", " "), first=not at) for at, name in enumerate(kinds))
    lines = ""
    for row in rows:
        cells = "".join(heat_cell(row.by_difficulty.get(name)) for name in hard)
        cells += "".join(heat_cell(row.by_family.get(name), first=not at) for at, name in enumerate(kinds))
        orchestrator = escape(row.orchestrator)
        lines += f'<tr><th scope="row" title="{orchestrator}">{orchestrator}</th>{cells}</tr>'
    groups = f'<th colspan="{len(hard)}">by difficulty</th>' if hard else ""
    groups += f'<th class="first" colspan="{len(kinds)}">by family</th>' if kinds else ""
    return heat_table("heat", groups, heads, lines)


def heat_table(kind: str, groups: str, heads: str, lines: str) -> str:
    """Puts a table of heat cells together, with two lines of heads."""
    return (
        f'<table class="{kind}"><thead><tr class="groups"><th></th>{groups}</tr><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def heat_head(name: str, *, first: bool = False) -> str:
    return f"<th{_FIRST if first else ''}>{escape(name)}</th>"


def heat_cell(score: float | None, *, first: bool = False) -> str:
    kind = _FIRST if first else ""
    if score is None:
        return f"<td{kind}>—</td>"
    return f'<td{kind} style="--heat: {38 * score:.0f}%">{100 * score:.0f}</td>'
