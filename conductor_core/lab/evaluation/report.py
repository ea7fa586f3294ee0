"""Turns outcomes into figures: the result rows, the summary that is kept, and tables in Markdown."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from conductor_core.lab.evaluation.runner import error_code
from conductor_core.lab.evaluation.statistics import Interval, mean_interval, paired_difference
from conductor_core.lab.records import by_group, in_order, write_whole
from conductor_core.lab.records import evaluation as records

BEST_PRESENT = "best present worker"
_OF_SEVERAL_CONDUCTORS = ("conductor", "recursion")


def summarise(
    plan: records.EvaluationPlan,
    outcomes: Sequence[records.Outcome],
    learned_from: Mapping[str, records.LearnedFrom] | None = None,
) -> records.Summary:
    """Computes the figures of ``outcomes``, without orchestrators that have none. ``n``: tasks that all have answered.

    A task counts once for each orchestrator, even if it has several outcomes.
    """
    outcomes = records.first_of_each(outcomes)
    by_name: dict[str, list[records.Outcome]] = {name: [] for name in plan.orchestrators}
    for each in outcomes:
        by_name[each.orchestrator].append(each)
    first = by_name[plan.orchestrators[0]]
    results = tuple(result(name, own, first) for name, own in by_name.items() if own)
    answered = Counter(each.task_id for each in outcomes)
    return records.Summary(
        suite=plan.suite,
        split=plan.split,
        n=sum(count == len(by_name) for count in answered.values()),
        results=results,
        present=_present(by_name, first),
        spreads=_spreads(results),
        learned_from=learned_from or {},
    )


def _spreads(results: Sequence[records.Result]) -> tuple[records.Spread, ...]:
    kinds: dict[str, list[records.Result]] = defaultdict(list)
    for row in results:
        kind = row.orchestrator.partition(":")[0]
        if kind in _OF_SEVERAL_CONDUCTORS:
            kinds[kind].append(row)
    return tuple(
        records.Spread(
            kind=kind,
            orchestrators=tuple(row.orchestrator for row in rows),
            score=fmean(row.score for row in rows),
            score_sd=stdev(row.score for row in rows),
            score_min=min(row.score for row in rows),
            score_max=max(row.score for row in rows),
            tokens_per_task=fmean(row.tokens_per_task for row in rows),
            steps_per_task=fmean(row.steps_per_task for row in rows),
        )
        for kind, rows in kinds.items()
        if len(rows) > 1
    )


def write_summary(folder: Path, summary: records.Summary) -> None:
    """Writes the figures of a finished evaluation. Raises: OSError."""
    write_whole(folder / records.SUMMARY, summary.model_dump_json(indent=2) + "\n")


def result(name: str, outcomes: Sequence[records.Outcome], first: Sequence[records.Outcome] = ()) -> records.Result:
    """Computes one orchestrator's figures.

    Args:
        first: outcomes of the orchestrator that it is compared with, on the tasks that both have.
    """
    interval = mean_interval([each.score for each in outcomes])
    compared = () if first and first[0].orchestrator == name else first
    paired = _difference_of(outcomes, compared)
    by_difficulty = {
        level: _difference_of([each for each in outcomes if each.difficulty == level], compared)
        for level in in_order(each.difficulty for each in outcomes)
    }
    costs = [each.cost_usd for each in outcomes]
    return records.Result(
        orchestrator=name,
        n=len(outcomes),
        score=interval.mean,
        score_low=interval.low,
        score_high=interval.high,
        tokens_per_task=fmean(each.tokens for each in outcomes),
        steps_per_task=fmean(each.steps for each in outcomes),
        usd_per_task=None if None in costs else fmean(cost or 0.0 for cost in costs),
        known_usd_per_task=fmean(each.at_least_usd for each in outcomes) if None in costs else None,
        latency_ms_per_task=fmean(each.duration_ms for each in outcomes),
        by_difficulty=by_group((each.difficulty, each.score) for each in outcomes),
        by_family=by_group((each.family, each.score) for each in outcomes),
        steps_by_difficulty=by_group((each.difficulty, each.steps) for each in outcomes),
        rounds_by_difficulty=by_group((each.difficulty, each.rounds) for each in outcomes),
        conductor_tokens_per_task=fmean(each.conductor_tokens for each in outcomes),
        rejected_plans=sum(each.rejected_plans for each in outcomes),
        absent_named=sum(each.absent_named for each in outcomes),
        faults=sum(each.fault is not None for each in outcomes),
        fault_kinds=dict(Counter(code for each in outcomes if (code := error_code(each)) is not None)),
        stops_by_difficulty=by_group((each.difficulty, each.stops) for each in outcomes),
        difference_by_difficulty={
            level: (each.mean, each.low, each.high) for level, each in by_difficulty.items() if each is not None
        },
        difference=None if paired is None else paired.mean,
        difference_low=None if paired is None else paired.low,
        difference_high=None if paired is None else paired.high,
    )


def _usd(row: records.Result) -> str:
    if row.usd_per_task is not None:
        return f"{row.usd_per_task:.5f}"
    return f"at least {row.known_usd_per_task:.5f}" if row.known_usd_per_task else "unknown"


def _difference_of(outcomes: Sequence[records.Outcome], first: Sequence[records.Outcome]) -> Interval | None:
    """Returns the mean difference over the tasks that both have; None if there are none."""
    others = {each.task_id: each.score for each in first}
    pairs = [(each.score, others[each.task_id]) for each in outcomes if each.task_id in others]
    return paired_difference([own for own, _ in pairs], [other for _, other in pairs]) if pairs else None


def _present(
    by_name: Mapping[str, Sequence[records.Outcome]], first: Sequence[records.Outcome]
) -> records.Present | None:
    """Compares the best present worker alone with the orchestrators that had the same part of the pool.

    The best worker is the one that is best alone over all tasks of this evaluation, as a user would choose who knew the
    workers well. Returns None if the pool was never reduced, or not every present worker was asked alone.
    """
    alone = {
        name.removeprefix("single:"): {each.task_id: each for each in own}
        for name, own in by_name.items()
        if name.startswith("single:") and own
    }
    parts: dict[tuple[str, ...], dict[str, list[records.Outcome]]] = defaultdict(lambda: defaultdict(list))
    for name, own in by_name.items():
        for each in own:
            if each.present:
                parts[each.present][name].append(each)
    if not parts or any(set(part) - set(alone) for part in parts):
        return None
    skill = {worker: fmean(each.score for each in own.values()) for worker, own in alone.items()}
    subsets, best = [], []
    for part, groups in sorted(parts.items()):
        worker = max(part, key=lambda name: skill[name])
        tasks = dict.fromkeys(each.task_id for own in groups.values() for each in own)
        of_worker = [alone[worker][task_id] for task_id in tasks if task_id in alone[worker]]
        if not of_worker:
            continue
        best += of_worker
        subsets.append(
            records.PresentSubset(
                present=part,
                n=len(tasks),
                best_worker=worker,
                best_score=fmean(each.score for each in of_worker),
                scores={name: fmean(each.score for each in own) for name, own in groups.items()},
            )
        )
    if not best:
        return None
    return records.Present(
        k=len(subsets[0].present), best_present=result(BEST_PRESENT, best, first), subsets=tuple(subsets)
    )


def markdown(plan: records.EvaluationPlan, summary: records.Summary) -> str:
    """Returns the tables of an evaluation, like the paper's Tables 5 to 7 for any pool and suite."""
    parts_simulated = " and ".join(plan.settings.get("simulated", ["workers or tasks"]))
    simulated = f"; {parts_simulated} are simulated" if plan.simulated else ""
    title = f"{plan.suite} ({plan.split}), {summary.n} of {plan.tasks} tasks, pool {plan.pool}, seed {plan.seed}"
    parts = [f"{title}{simulated}.", _overview(summary), _faults(summary), _learned_from(summary)]
    parts += map(_spread_line, summary.spreads)
    by_family = _breakdown("family", summary, lambda row: row.by_family)
    by_difficulty = _breakdown("difficulty", summary, lambda row: row.by_difficulty)
    steps = _breakdown("steps by difficulty", summary, lambda row: row.steps_by_difficulty, digits=2)
    parts += [by_difficulty, _differences(summary), steps, by_family]
    if any(each > 1 for row in summary.results for each in row.rounds_by_difficulty.values()):
        parts.append(_breakdown("rounds by difficulty", summary, lambda row: row.rounds_by_difficulty, digits=2))
        parts.append(_breakdown("recursions stopped", summary, lambda row: row.stops_by_difficulty, digits=2))
    if summary.present is not None:
        parts.append(_present_table(summary.present, [row.orchestrator for row in summary.results]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _overview(summary: records.Summary) -> str:
    columns: dict[str, Callable[[records.Result], str]] = {
        "orchestrator": lambda row: row.orchestrator,
        "score": lambda row: _points(row.score),
        "95 %": lambda row: _interval(row.score_low, row.score_high) or "—",
        "difference": _difference,
        "steps": lambda row: f"{row.steps_per_task:.2f}",
        "worker tokens": lambda row: f"{row.tokens_per_task:.0f}",
        "Conductor tokens": lambda row: f"{row.conductor_tokens_per_task:.0f}",
        "USD": _usd,
        "seconds": lambda row: f"{row.latency_ms_per_task / 1000:.2f}",
    }
    shown = (*summary.results, *(() if summary.present is None else (summary.present.best_present,)))
    rows = [[column(row) for column in columns.values()] for row in shown]
    note = "Scores in points; tokens per task; USD of workers and Conductor; seconds as run, many tasks at once."
    if any(not _interval(row.score_low, row.score_high) for row in shown):
        note += " —: too few or identical outcomes for an interval."
    return f"{table(list(columns), rows)}\n\n{note}"


def _faults(summary: records.Summary) -> str:
    """Lists the orchestrators that left tasks without an answer, or with an ungradable one; empty if none did."""
    lines = []
    for row in summary.results:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(row.fault_kinds.items()))
        if row.faults:
            lines.append(f"{row.orchestrator} {row.faults} of {row.n}" + (f" ({kinds})" if kinds else ""))
    return f"Counted as wrong for a fault: {'; '.join(lines)}." if lines else ""


def _learned_from(summary: records.Summary) -> str:
    lines = [f"{name} {each.in_words()}" for name, each in summary.learned_from.items()]
    return f"Learned from: {'; '.join(lines)}." if lines else ""


def _spread_line(spread: records.Spread) -> str:
    return (
        f"{spread.kind}, {len(spread.orchestrators)} of them: mean {_points(spread.score)}, standard deviation "
        f"{_points(spread.score_sd)}, from {_points(spread.score_min)} to {_points(spread.score_max)}; "
        f"{spread.steps_per_task:.2f} steps and {spread.tokens_per_task:.0f} worker tokens a task."
    )


def _difference(row: records.Result) -> str:
    if row.difference is None or row.difference_low is None or row.difference_high is None:
        return ""
    return _with_interval(row.difference, row.difference_low, row.difference_high)


def _with_interval(difference: float, low: float, high: float) -> str:
    interval = _interval(low, high, sign=True)
    return _points(difference, sign=True) + (f" ({interval})" if interval else "")


def _interval(low: float, high: float, *, sign: bool = False) -> str:
    """Formats an interval. It is empty for zero width, which resampling gives for identical outcomes or one task."""
    return "" if low == high else f"{_points(low, sign=sign)} to {_points(high, sign=sign)}"


def _breakdown(
    what: str,
    summary: records.Summary,
    values: Callable[[records.Result], Mapping[str, float]],
    *,
    digits: int | None = None,
) -> str:
    """Returns a table with a column for each group; empty if the tasks have no groups."""
    groups = list(dict.fromkeys(name for row in summary.results for name in values(row)))
    if not groups:
        return ""
    rows = []
    for row in summary.results:
        own = values(row)
        shown = {name: _points(value) if digits is None else f"{value:.{digits}f}" for name, value in own.items()}
        rows.append([row.orchestrator, *(shown.get(name, "") for name in groups)])
    return table([what, *groups], rows)


def _differences(summary: records.Summary) -> str:
    """Returns the differences to the first orchestrator by difficulty; empty if there are none or no difficulties."""
    rows = [row for row in summary.results if row.difference_by_difficulty]
    if not rows:
        return ""
    levels = in_order(level for row in rows for level in row.difference_by_difficulty)

    def cell(row: records.Result, level: str) -> str:
        if level not in row.difference_by_difficulty:
            return ""
        return _with_interval(*row.difference_by_difficulty[level])

    header = [f"difference with {summary.results[0].orchestrator}", *levels]
    return table(header, [[row.orchestrator, *(cell(row, level) for level in levels)] for row in rows])


def _present_table(present: records.Present, names: Sequence[str]) -> str:
    shown = [name for name in names if any(name in subset.scores for subset in present.subsets)]
    rows = [
        [
            ", ".join(subset.present),
            str(subset.n),
            f"{subset.best_worker} {_points(subset.best_score)}",
            *(_points(subset.scores[name]) if name in subset.scores else "" for name in shown),
        ]
        for subset in present.subsets
    ]
    return table([f"{present.k} present", "tasks", "best present alone", *shown], rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table whose columns are aligned to the right, except the first."""
    lines = [list(header), ["---", *["--:"] * (len(header) - 1)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _points(value: float, *, sign: bool = False) -> str:
    """Formats a share in points as the paper does: 0.884 as 88.4."""
    return f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
