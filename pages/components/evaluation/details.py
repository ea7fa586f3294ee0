"""What an evaluation's table leaves out: several Conductors taken together, further rounds, and each part of the pool.

As HTML, every text escaped; empty where a record has none of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from conductor_core.records.evaluation import EvaluationRecord, Outcome, Present, PresentSubset, Spread
from pages.components.evaluation.standings import Standing, difficulties

ROUND_HEADS = ("second round opened", "asked again, and stopped")


@dataclass(frozen=True)
class Rounds:
    """How often a Conductor named itself, by difficulty.

    Attributes:
        opened: share of tasks with a second round. stopped: share of tasks where the Conductor was asked again and
            ended the recursion with three empty lists.
    """

    orchestrator: str
    opened: dict[str, float] = field(default_factory=dict)
    stopped: dict[str, float] = field(default_factory=dict)


def rounds(record: EvaluationRecord, rows: Sequence[Standing]) -> list[Rounds]:
    """Those of ``rows`` that ever asked again.

    Counted in the outcomes: in the summary's means a task that got no plan at all, and so has no round, would hide
    another's second.
    """
    found = []
    for row in rows:
        own = [each for each in record.outcomes if each.orchestrator == row.orchestrator]
        if any(each.rounds > 1 or each.stops for each in own):
            opened, stopped = _shares(own, lambda each: each.rounds > 1), _shares(own, lambda each: each.stops > 0)
            found.append(Rounds(row.orchestrator, opened, stopped))
    return found


def _shares(outcomes: Sequence[Outcome], holds: Callable[[Outcome], bool]) -> dict[str, float]:
    by_difficulty: dict[str, list[bool]] = {}
    for each in outcomes:
        by_difficulty.setdefault(each.difficulty, []).append(holds(each))
    return {name: sum(held) / len(held) for name, held in by_difficulty.items()}


def rounds_html(found: Sequence[Rounds], rows: Sequence[Standing]) -> str:
    """Draws a line for each of ``found``, per 100 tasks of each difficulty, or of all where there is none."""
    if not found:
        return ""
    # Where the suite knows no difficulties, all tasks are one group without a name.
    names = difficulties(rows) or [""]
    groups = "".join(f'<th class="first" colspan="{len(names)}">{head}</th>' for head in ROUND_HEADS)
    heads = "".join(_head(name, first=not at) for _ in ROUND_HEADS for at, name in enumerate(names))
    lines = "".join(
        f'<tr><th scope="row" title="{escape(each.orchestrator)}">{escape(each.orchestrator)}</th>'
        + "".join(_share(each.opened.get(name), first=not at) for at, name in enumerate(names))
        + "".join(_share(each.stopped.get(name), first=not at) for at, name in enumerate(names))
        + "</tr>"
        for each in found
    )
    return (
        f'<table class="heat rounds"><thead><tr class="groups"><th></th>{groups}</tr><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def _head(name: str, *, first: bool) -> str:
    return f"<th{_first(first)}>{escape(name) or 'all'}</th>"


def _share(share: float | None, *, first: bool) -> str:
    if share is None:
        return f"<td{_first(first)}>—</td>"
    return f'<td{_first(first)} style="--heat: {38 * share:.0f}%">{100 * share:.0f}</td>'


def _first(first: bool) -> str:
    return ' class="first"' if first else ""


def spreads_html(spreads: Sequence[Spread]) -> str:
    """A line for each kind of orchestrator that stands for several Conductors."""
    lines = "".join(
        f'<div title="{escape(", ".join(each.orchestrators))}"><b>{escape(each.kind)}</b> over '
        f"{len(each.orchestrators)} Conductors: mean {100 * each.score:.1f} %, standard deviation "
        f"{100 * each.score_sd:.1f}, from {100 * each.score_min:.1f} to {100 * each.score_max:.1f}; "
        f"{each.steps_per_task:.1f} steps and {each.tokens_per_task:,.0f} worker tokens a task</div>"
        for each in spreads
    )
    return f'<div class="spreads">{lines}</div>' if lines else ""


def subsets_html(present: Present, names: Sequence[str]) -> str:
    """A line for each part of the pool; bold is more than the best of its workers reaches alone.

    Args:
        names: orchestrators that are shown, if they were asked with a part of the pool.
    """
    shown = [name for name in names if any(name in each.scores for each in present.subsets)]
    heads = "".join(f'<th class="number" title="{escape(name)}">{escape(name)}</th>' for name in shown)
    lines = "".join(
        f'<tr><th scope="row">{escape(", ".join(each.present))}</th><td class="number">{each.n}</td>'
        f'<td>{escape(each.best_worker)}</td><td class="number">{100 * each.best_score:.1f}</td>'
        + "".join(_subset_score(each, name) for name in shown)
        + "</tr>"
        for each in present.subsets
    )
    return (
        '<div class="subsets"><table><thead><tr><th>Present</th><th class="number">Tasks</th>'
        f'<th colspan="2">Best of them alone</th>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _subset_score(subset: PresentSubset, name: str) -> str:
    if name not in subset.scores:
        return '<td class="number">—</td>'
    score = subset.scores[name]
    said = f"{100 * score:.1f}"
    return f'<td class="number">{f"<b>{said}</b>" if score > subset.best_score else said}</td>'
