"""HTML of what an evaluation's table leaves out: groups of Conductors, further rounds, and each part of the pool.

Every text is escaped. The HTML is empty where a record has none of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean

from conductor_core.records.evaluation import EvaluationRecord, Present, PresentSubset, Spread
from pages.components.evaluation.standing_rows import heat_cell, heat_head, heat_table
from pages.components.evaluation.standings import Standing, difficulties

ROUND_HEADS = ("second round opened", "asked again, and stopped")


@dataclass(frozen=True)
class Rounds:
    """How often a Conductor named itself, by difficulty.

    ``opened`` is the share of tasks with a second round, ``stopped`` that of tasks where the Conductor was asked again
    and ended the recursion with three empty lists.
    """

    orchestrator: str
    opened: dict[str, float]
    stopped: dict[str, float]


def rounds(record: EvaluationRecord, rows: Sequence[Standing]) -> list[Rounds]:
    """Returns the shares of those ``rows`` that ever asked again.

    It counts outcomes. A task without a plan has no round: in a mean of rounds it would hide another's second one.
    """
    found = []
    for row in rows:
        own = [each for each in record.outcomes if each.orchestrator == row.orchestrator]
        if any(each.rounds > 1 or each.stops for each in own):
            opened = _shares((each.difficulty, each.rounds > 1) for each in own)
            found.append(Rounds(row.orchestrator, opened, _shares((each.difficulty, each.stops > 0) for each in own)))
    return found


def _shares(held: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Returns the share of each difficulty. Tasks without one are a group named "" (``by_group`` leaves them out)."""
    by_difficulty: defaultdict[str, list[bool]] = defaultdict(list)
    for name, holds in held:
        by_difficulty[name].append(holds)
    return {name: fmean(each) for name, each in by_difficulty.items()}


def rounds_html(found: Sequence[Rounds], rows: Sequence[Standing]) -> str:
    """Draws a line for each of ``found``, per 100 tasks of each difficulty, or of all where there is none."""
    if not found:
        return ""
    # Where the suite knows no difficulties, all tasks are one group without a name.
    names = difficulties(rows) or [""]
    groups = "".join(f'<th class="first" colspan="{len(names)}">{head}</th>' for head in ROUND_HEADS)
    heads = "".join(heat_head(name or "all", first=not at) for _ in ROUND_HEADS for at, name in enumerate(names))
    lines = "".join(
        f'<tr><th scope="row" title="{escape(each.orchestrator)}">{escape(each.orchestrator)}</th>'
        + "".join(
            heat_cell(of.get(name), first=not at) for of in (each.opened, each.stopped) for at, name in enumerate(names)
        )
        + "</tr>"
        for each in found
    )
    return heat_table("heat rounds", groups, heads, lines)


def spreads_html(spreads: Sequence[Spread]) -> str:
    """Draws a line for each kind of orchestrator that stands for several Conductors."""
    lines = "".join(
        f'<div title="{escape(", ".join(each.orchestrators))}"><b>{escape(each.kind)}</b> over '
        f"{len(each.orchestrators)} Conductors: mean {100 * each.score:.1f} %, standard deviation "
        f"{100 * each.score_sd:.1f}, from {100 * each.score_min:.1f} to {100 * each.score_max:.1f}; "
        f"{each.steps_per_task:.1f} steps and {each.tokens_per_task:,.0f} worker tokens a task</div>"
        for each in spreads
    )
    return f'<div class="spreads">{lines}</div>' if lines else ""


def subsets_html(present: Present, names: Sequence[str]) -> str:
    """Draws a line for each part of the pool. A score is bold where the best of its workers reaches less alone.

    It shows those orchestrators of ``names`` that were asked with a part of the pool.
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
