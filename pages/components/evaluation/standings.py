"""An evaluation: its figures, a row per orchestrator, from its summary, or from outcomes while it goes on; and as HTML.

Beside the table are the head, what the table leaves out, the runs, and the command that repeats the evaluation.
"""

import csv
import io
import math
import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from statistics import fmean
from typing import Any, Literal, NamedTuple

import streamlit as st
from markupsafe import Markup

from conductor_core.engine.models import model_folder
from conductor_core.errors import StoreError
from conductor_core.lab.records import by_group, in_order
from conductor_core.lab.records.evaluation import EvaluationPlan, EvaluationRecord, Outcome, Result
from conductor_core.run.events import RunCreated
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import across, fault_box, segments, select
from pages.components.records.folders import State
from pages.components.style.figures import Figure, layout, log_axis, marks, plain, scatter, whiskers
from pages.components.style.formats import html, inert, plural, seconds

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
NO_INTERVAL = "No interval: not done yet, or too few or identical outcomes"


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
    # A logarithmic axis has no 0.
    tokens, scores = [max(row.tokens_per_task, 1.0) for row in rows], [100 * row.score for row in rows]
    lows = [100 * (row.score if row.score_low is None else row.score_low) for row in rows]
    highs = [100 * (row.score if row.score_high is None else row.score_high) for row in rows]
    dotted = {"color": "@soft", "width": 1.4, "dash": "dot", "shape": "linear"}
    xs, ys = [max(row.tokens_per_task, 1.0) for row in front], [100 * row.score for row in front]
    line = scatter("lines", xs, ys, line=dotted, hoverinfo="skip")
    symbols = ["circle" if row.orchestrator in on_front else "circle-open" for row in rows]
    said = [
        f"{plain(row.orchestrator)}<br>{100 * row.score:.1f} %{interval(row.score_low, row.score_high)}<br>"
        f"{row.tokens_per_task:,.0f} worker tokens, {row.steps_per_task:.1f} steps<extra></extra>"
        for row in rows
    ]
    marker = {"size": 9, "symbol": symbols, "color": colours, "line": {"width": 1.6}}
    points = scatter("markers", tokens, scores, marker=marker, hovertemplate=said)
    if any(row.score_low is not None for row in rows):
        points["error_y"] = whiskers(lows, scores, highs, color="@faint", thickness=1.2, width=3)
    shape = layout(
        _height(rows),
        x="worker tokens per task (logarithmic)",
        y="score, %",
        hovermode="closest",
        margin={"l": 48, "r": 18, "t": 10, "b": 44},
        xaxis={**log_axis(min(tokens) * 0.45, max(tokens) * 1.6, "{:,g}"), "showgrid": True, "gridcolor": "@line"},
        yaxis={"range": [max(10 * math.floor(min(lows) / 10 - 0.3), 0), 101]},
    )
    at = zip(rows, colours, tokens, scores, lows, highs, strict=True)
    labels = [
        {"name": plain(row.orchestrator), "colour": colour, "x": x, "y": y, "low": low, "high": high}
        for row, colour, x, y, low, high in at
    ]
    return {"data": [line, points], "layout": shape, "labels": labels, "path": list(zip(xs, ys, strict=True))}


def _height(rows: Sequence[Standing]) -> int:
    """Returns the height of both figures, which are beside each other."""
    return max(FRAME_PX + ROW_PX * len(rows), LEAST_HEIGHT_PX)


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
        said = [f"{plain(row.orchestrator)}<br>{plain(name)}: {x:.2f} steps<extra></extra>" for _, row, x in shown]
        marker = {"symbol": mark.symbol, "size": 8, "color": "@ink", "line": {"width": 1.5}}
        xs, ys = [x for *_, x in shown], [at for at, *_ in shown]
        traces.append(scatter("markers", xs, ys, marker=marker, hovertemplate=said))
    longest = max(len(row.orchestrator) for row in rows)
    shape = layout(
        _height(rows),
        x="steps per task",
        hovermode="closest",
        margin={"l": min(24 + 6.4 * longest, 190), "r": 14, "t": 10, "b": 44},
        xaxis={"rangemode": "tozero", "showgrid": True, "gridcolor": "@line"},
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


ROUND_HEADS = ("second round opened", "asked again, and stopped")


class Rounds(NamedTuple):
    """By difficulty, the share of tasks with a second round, and of those that the Conductor, asked again, ended."""

    orchestrator: str
    opened: dict[str, float]
    stopped: dict[str, float]


def rounds(record: EvaluationRecord, rows: Sequence[Standing]) -> list[Rounds]:
    """Returns the shares of those ``rows`` that ever asked again.

    It counts outcomes. A task without a plan has no round: in a mean of rounds it would hide another's second one.
    """
    found = []
    for row in rows:
        own: defaultdict[str, list[Outcome]] = defaultdict(list)  # tasks without a difficulty are a group, too
        for each in record.outcomes:
            if each.orchestrator == row.orchestrator:
                own[each.difficulty].append(each)
        opened = {name: fmean(each.rounds > 1 for each in of) for name, of in own.items()}
        stopped = {name: fmean(each.stops > 0 for each in of) for name, of in own.items()}
        if any([*opened.values(), *stopped.values()]):
            found.append(Rounds(row.orchestrator, opened, stopped))
    return found


def rounds_html(found: Sequence[Rounds], rows: Sequence[Standing]) -> str:
    if not found:
        return ""
    # Where the suite knows no difficulties, all tasks are one group without a name.
    names = difficulties(rows) or [""]
    groups = [(head, [name or "all" for name in names]) for head in ROUND_HEADS]
    lines = [(each.orchestrator, [list(map(of.get, names)) for of in (each.opened, each.stopped)]) for each in found]
    return html(TEMPLATE, "heat", kind="heat rounds", groups=groups, lines=lines)


# The command that repeats an evaluation.

SHORT = 12  # hex digits of a digest that tell models apart


def command(plan: EvaluationPlan) -> str:
    conductors = _texts(plan, "conductors")
    options: dict[str, Any] = {
        "suite": plan.suite,
        "split": plan.split,
        "limit": plan.tasks,
        "seed": plan.seed,
        "pool": plan.pool,
        "orchestrators": ",".join(plan.orchestrators),
        # Those that name their Conductor themselves (conductor:REF) need no option.
        "conductor": next((ref for name, ref in conductors.items() if ":" not in name and name != "untrained"), None),
        "untrained": conductors.get("untrained"),
        "present": plan.settings.get("present"),
        "fit-tasks": plan.settings.get("fit_tasks"),
        "fit-suite": plan.settings.get("fit_suite"),
        "max-steps": _other_limits(plan).get("max_steps"),
    }
    given = [(name, value) for name, value in options.items() if value is not None]
    excluded = plan.settings.get("excluded")
    given += [("exclude", agent) for agent in (excluded if isinstance(excluded, list | tuple) else ())]
    return " ".join(("conductor evaluate", *(f"--{name} {shlex.quote(str(value))}" for name, value in given)))


def missing_settings(plan: EvaluationPlan) -> list[str]:
    """Returns a sentence on what to replace for each thing that the plan or this machine does not have."""
    found = [
        f"The Conductor “{ref}” (sha256 {digest[:SHORT]}) is not on this machine: give its folder."
        for ref, digest in _texts(plan, "models_sha256").items()
        if ref != "tiny" and model_folder(ref, Settings()) is None
    ]
    limits = {name: value for name, value in _other_limits(plan).items() if name != "max_steps"}
    if limits:
        said = ", ".join(f"{name} {'none' if value is None else value}" for name, value in limits.items())
        found.append(f"Its runs had other limits, which are settings: {said}.")
    if plan.suite != "rehearsal":
        found.append(f"If the suite {plan.suite} is a file, give its path.")
    if plan.pool not in (ALL_SIMULATED, "paper"):
        found.append(f"The pool {plan.pool} is a file: give its path.")
    if not workers_simulated(plan):
        found.append("It asks the workers again, at their price.")
    return found


def _texts(plan: EvaluationPlan, setting: str) -> dict[str, str]:
    """Reads a mapping of texts. Anything else counts as empty: nothing checks settings when a plan is read."""
    given = plan.settings.get(setting)
    return {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}


def _other_limits(plan: EvaluationPlan) -> dict[str, Any]:
    limits, usual = plan.settings.get("limits"), Limits().model_dump(mode="json")
    if not isinstance(limits, Mapping):
        return {}
    return {name: limits[name] for name, value in usual.items() if limits.get(name, value) != value}


# The head.


def head_html(record: EvaluationRecord, state: State, quiet: str) -> Markup:
    """Returns the whole head. ``quiet`` says in words how long ago the record was last written."""
    plan, simulated, progress, missing, how_on = record.plan, simulated_parts(record.plan), None, None, None
    if state != "ended":  # how many of all runs are done, each task through each orchestrator
        done = len({(outcome.orchestrator, outcome.task_id) for outcome in record.outcomes})
        progress = (done, plan.tasks * len(plan.orchestrators))
    if record.summary is not None and len(record.outcomes) < (all_ := record.summary.n * len(plan.orchestrators)):
        missing = (len(record.outcomes), all_)
    if state == "stopped":
        # The command that continues reads outcomes strictly and makes the summary again.
        first = "Remove each line that cannot be read; then it" if record.broken_lines else "It"
        how_on = (first, f"{command(plan)} --name {shlex.quote(record.folder.name)} --resume")
    rows: defaultdict[str, list[str]] = defaultdict(list)  # of each Conductor: only this says what "untrained" is
    digests = _texts(plan, "models_sha256")
    for name, ref in _texts(plan, "conductors").items():
        rows[ref].append(name.removesuffix(f":{ref}"))  # conductor:REF says its REF a second time
    return html(
        TEMPLATE,
        "head",
        plan=plan,
        state=state,
        quiet=quiet,
        simulated=SIMULATED_WORDS[simulated[0]][0] if simulated else None,
        progress=progress,
        missing=missing,
        how_on=how_on,
        conductors=[(ref, digests.get(ref, ""), ", ".join(dict.fromkeys(names))) for ref, names in rows.items()],
    )


ROWS = 20
FILTERS = ("difficulty", "family")
RIGHT = 0.5
Which = Literal["all", "wrong", "right", "mine", "theirs", "both", "neither"]


class Pair(NamedTuple):
    own: Outcome
    other: Outcome | None = None

    def falls_under(self, which: Which) -> bool:
        own, other = right(self.own), self.other is not None and right(self.other)
        return {
            "all": True, "right": own, "wrong": not own, "mine": own and not other, "theirs": other and not own,
            "both": own and other, "neither": not own and not other,
        }[which]  # fmt: skip


def right(outcome: Outcome) -> bool:
    return outcome.score >= RIGHT


def pairs(record: EvaluationRecord, orchestrator: str, other: str | None) -> list[Pair]:
    """Returns the tasks that ``orchestrator`` has done; with ``other``, only those that both have done."""
    own = [outcome for outcome in record.outcomes if outcome.orchestrator == orchestrator]
    if other is None:
        return [Pair(outcome) for outcome in own]
    theirs = {outcome.task_id: outcome for outcome in record.outcomes if outcome.orchestrator == other}
    return [Pair(outcome, theirs[outcome.task_id]) for outcome in own if outcome.task_id in theirs]


def runs_view(record: EvaluationRecord, orchestrator: str) -> None:
    other = _compare_with(record, orchestrator)
    difficulty, family = kept = [st.session_state.get(f"runs-{field}") for field in FILTERS]
    found = [
        pair
        for pair in pairs(record, orchestrator, other)
        if difficulty in (None, pair.own.difficulty) and family in (None, pair.own.family)
    ]
    which = _which(found, orchestrator, other)
    shown = sorted((pair for pair in found if pair.falls_under(which)), key=lambda pair: pair.own.score)
    if not shown:
        st.caption("No task falls under this.")
        return
    # Another question has a key of its own, so that it begins with its first page.
    subject = f"{record.folder.name}/{orchestrator}/{other}/{which}/{kept}"
    rows, foot = st.container(), across("runs-paging")
    first, pages = 0, -(-len(shown) // ROWS)
    if pages > 1:
        with foot:
            page = st.pagination(pages, key=f"runs-page-{sha256(subject.encode(errors='replace')).hexdigest()[:12]}")
            first = (min(page, pages) - 1) * ROWS  # runs are replaced while an evaluation goes on
            st.caption(f"{first + 1} to {min(first + ROWS, len(shown))} of {len(shown)}", width="content")
    with rows:
        _rows(record, shown[first : first + ROWS], other)


def _compare_with(record: EvaluationRecord, orchestrator: str) -> str | None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="runs-filters"):
        others = [name for name in record.plan.orchestrators if name != orchestrator]
        words = {None: "compare with none"} | {name: f"beside {name}" for name in others}
        other = select("Compare with", words, "runs-other", format_func=words.__getitem__)
        done = [outcome for outcome in record.outcomes if outcome.orchestrator == orchestrator]
        for field in FILTERS:
            names: dict[str | None, str] = {None: f"any {field}"}
            names |= {name: name.replace("_", " ") for name in (str(getattr(outcome, field)) for outcome in done)}
            select(field.capitalize(), names, f"runs-{field}", format_func=names.__getitem__)
    return other if other in others else None


def _which(found: Sequence[Pair], orchestrator: str, other: str | None) -> Which:
    words: dict[Which, str] = {"all": "all"}
    if other is None:
        words |= {"wrong": "✕ wrong", "right": "✓ right"}
    else:
        words |= {"mine": f"only {orchestrator}", "theirs": f"only {other}"}
        words |= {"both": "both right", "neither": "both wrong"}
    counts = {which: sum(pair.falls_under(which) for pair in found) for which in words}
    said = {which: f"{inert(word)} · {counts[which]}" for which, word in words.items()}
    key = f"runs-which-{'one' if other is None else 'two'}"
    chosen = segments("Which", words, key, default="all", required=True, format_func=said.__getitem__)
    return chosen if chosen in words else "all"


def _rows(record: EvaluationRecord, shown: Sequence[Pair], other: str | None) -> None:
    try:
        tasks = {each.run_id: _task(each.run_id) for pair in shown for each in (pair.own, pair.other) if each}
    except StoreError as error:
        fault_box(error)
        return
    if absent := sum(tasks[pair.own.run_id] is None for pair in shown):
        _say_absent(record.plan, absent, len(shown))
    with st.container(key="outcomes"):
        with st.container(key="outcome-row-head", horizontal=True):
            st.html(html("run_list/run_list", "name_head", name="Task"))
            tokens, theirs = Markup("Worker<br>tokens"), ["Theirs"] if other else []
            heads = ["Outcome", *theirs, "Difficulty", "Family", tokens, "Steps", "Time"]
            st.html(html(TEMPLATE, "cells", cells=heads, head=True, wide=other is not None), width="content")
        for number, pair in enumerate(shown):
            with st.container(key=f"outcome-row-{number}", horizontal=True):
                _row(pair, tasks, say_absent=absent < len(shown))


def _say_absent(plan: EvaluationPlan, absent: int, shown: int) -> None:
    where = f" ({inert(plan.database)})" if plan.database else ""
    none_here = absent == shown
    these = "These runs were" if none_here else f"{plural(absent, 'run')} of these {shown} were"
    st.caption(
        f":material/link_off: {these} made in another database{where}, not in this one, and cannot be opened here."
        + (" This command makes the same evaluation with runs that open:" if none_here else "")
    )
    if none_here:
        # st.code would block the browser with its highlighter for half a second.
        st.html(html(TEMPLATE, "command", text=command(plan)))
        if missing := missing_settings(plan):
            st.caption(inert(" ".join(missing)))


def _task(run_id: str) -> str | None:
    """Returns the task of a run; None if this database does not have the run."""
    first = current().store.events(run_id, limit=1)
    return first[0].event.request.task if first and isinstance(first[0].event, RunCreated) else None


def _row(pair: Pair, tasks: Mapping[str, str | None], *, say_absent: bool) -> None:
    own, other = pair.own, pair.other
    task = tasks[own.run_id]
    if task is None:
        st.html(html(TEMPLATE, "absent", outcome=own, said=say_absent))
    else:
        st.page_link(
            places.RUN,
            label=inert(task[:300]) or inert(own.task_id),
            query_params={"run": own.run_id},
            width="stretch",
            help=inert(f"{own.task_id}, run {own.run_id}"),
        )
    if other is not None and tasks[other.run_id] is not None:
        st.page_link(places.RUN, label="theirs", query_params={"run": other.run_id}, icon=":material/open_in_new:")
    cells: list[str] = [html(TEMPLATE, "mark", outcome=each, right=right(each)) for each in (own, other) if each]
    cells += [own.difficulty, own.family.replace("_", " "), f"{own.tokens:,}", str(own.steps)]
    cells.append(seconds(own.duration_ms))
    st.html(html(TEMPLATE, "cells", cells=cells, head=False, wide=other is not None), width="content")
