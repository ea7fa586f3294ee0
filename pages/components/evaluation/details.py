"""HTML of an evaluation beside its table: the head, and what the table leaves out. Every text is escaped.

The head says what is evaluated and how far it is. Left out are groups of Conductors, further rounds, and each part of
the pool; their HTML is empty where a record has none of it. ``command`` repeats an evaluation, so that its runs open
here. It says what the plan holds.
"""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import Any

from conductor_core.engine.models import model_folder
from conductor_core.lab.records.evaluation import EvaluationPlan, EvaluationRecord, Present, PresentSubset, Spread
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from pages.components.evaluation.standings import (
    ALL_SIMULATED,
    Standing,
    difficulties,
    heat_cell,
    heat_head,
    heat_table,
    pill_html,
    workers_simulated,
)
from pages.components.records.folders import State
from pages.components.style.formats import plural

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


# The command that repeats an evaluation.

SHORT = 12  # hex digits of a digest that tell models apart


def command(plan: EvaluationPlan) -> str:
    """Returns the command as typed into a shell."""
    conductors = conductor_refs(plan)
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
        for ref, digest in model_digests(plan).items()
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


def conductor_refs(plan: EvaluationPlan) -> dict[str, str]:
    """Returns the Conductor behind each orchestrator that has one; nothing for a plan that does not say."""
    return _texts(plan.settings.get("conductors"))


def model_digests(plan: EvaluationPlan) -> dict[str, str]:
    """Returns the sha256 of each Conductor that is in a folder, by its ref."""
    return _texts(plan.settings.get("models_sha256"))


def _texts(given: object) -> dict[str, str]:
    """Reads a mapping of texts. Anything else counts as empty: nothing checks settings when a plan is read."""
    return {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}


def _other_limits(plan: EvaluationPlan) -> dict[str, Any]:
    """Returns the limits of its runs that differ from the defaults, by name."""
    limits, usual = plan.settings.get("limits"), Limits().model_dump(mode="json")
    if not isinstance(limits, Mapping):
        return {}
    return {name: limits[name] for name, value in usual.items() if limits.get(name, value) != value}


# The head.

_PILLS = {
    "running": '<span class="pill running">◔ evaluating</span>',
    "ended": '<span class="pill completed">✓ done</span>',
    "stopped": '<span class="pill interrupted">⚡ stopped</span>',
}


def head_html(record: EvaluationRecord, state: State, quiet: str) -> str:
    """Returns the whole head. ``quiet`` says in words how long ago the record was last written."""
    plan = record.plan
    facts = [
        f"{escape(plan.suite)}, {escape(plan.split)} split",
        plural(plan.tasks, "task"),
        f"pool {escape(plan.pool)}",
        f"seed {plan.seed}",
        escape(plan.at[:16].replace("T", " ")) + " UTC",
    ]
    if state == "stopped":
        facts.append(f"last written {quiet}")
    said = "".join(f"<span>{fact}</span>" for fact in facts)
    return (
        f'<div class="record-head"><div class="record-title"><b>{escape(plan.name)}</b>{_PILLS[state]}{pill_html(plan)}'
        f'<span class="record-facts">{said}</span></div>{_progress(record, state)}{_missing(record)}'
        f"{_how_on(record, state)}{_conductors(plan)}</div>"
    )


def _conductors(plan: EvaluationPlan) -> str:
    """Lists each Conductor with its rows. Only this list says what "untrained" is."""
    rows: defaultdict[str, list[str]] = defaultdict(list)
    for name, ref in conductor_refs(plan).items():
        rows[ref].append(name.removesuffix(f":{ref}"))  # conductor:REF says its REF a second time
    digests = model_digests(plan)
    said = "".join(
        f"<div><b>{escape(ref)}</b>{_digest(digests.get(ref))}<span>{escape(', '.join(dict.fromkeys(names)))}</span>"
        "</div>"
        for ref, names in rows.items()
    )
    return f'<div class="record-conductors"><span>Conductors</span><div>{said}</div></div>' if said else ""


def _digest(sha256: str | None) -> str:
    return f'<code title="sha256 {escape(sha256)}">{escape(sha256[:SHORT])}</code>' if sha256 else ""


def _progress(record: EvaluationRecord, state: State) -> str:
    """Says how many of all runs are done, each task through each orchestrator; nothing once it is over."""
    if state == "ended":
        return ""
    total = record.plan.tasks * len(record.plan.orchestrators)
    done = len({(outcome.orchestrator, outcome.task_id) for outcome in record.outcomes})
    share = min(done / total, 1.0) if total else 0.0
    glyph, kind = ("◔", "running") if state == "running" else ("⚡", "stopped")
    words = f"{done:,} of {total:,} runs; the figures below are those so far, intervals come at the end"
    return (
        f'<div class="stages"><div class="stage" style="flex-grow: 1"><div class="stage-words"><b>{glyph} '
        f'{share:.0%}</b> <span class="number">{words}</span></div><div class="track"><div class="done {kind}" '
        f'style="width: {100 * share:.1f}%"></div></div></div></div>'
    )


def _missing(record: EvaluationRecord) -> str:
    """Says that outcomes are missing though the summary is there."""
    if record.summary is None:
        return ""
    done, total = len(record.outcomes), record.summary.n * len(record.plan.orchestrators)
    if done >= total:
        return ""
    return (
        f'<div class="record-note"><b>⚠</b> Only {done:,} of {total:,} runs are in this record: the figures are of '
        "all, the rows open only those.</div>"
    )


def _how_on(record: EvaluationRecord, state: State) -> str:
    """Gives the command that goes on with a stopped evaluation, as far as the plan holds it."""
    if state != "stopped":
        return ""
    # The command that continues reads outcomes strictly and makes the summary again.
    first = "Remove each line that cannot be read; then it" if record.broken_lines else "It"
    given = f"{command(record.plan)} --name {shlex.quote(record.folder.name)} --resume"
    return (
        f'<div class="record-note">{first} continues where it stopped with<br><code>{escape(given)}</code><br>Give '
        "files by their path, and options and settings that it does not name, such as --db, as before.</div>"
    )
