"""HTML of the Evaluate page's head: what is evaluated, and how far it is. Every text is escaped."""

import shlex
from collections import defaultdict
from html import escape

from conductor_core.records.evaluation import EvaluationPlan, EvaluationRecord
from pages.components.evaluation.command import SHORT, command, conductor_refs, model_digests
from pages.components.evaluation.simulated import pill_html
from pages.components.look.words import plural
from pages.components.records.folders import State

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
    # The command that goes on reads outcomes strictly and makes the summary anew.
    first = "Remove each line that cannot be read; then it" if record.broken_lines else "It"
    given = f"{command(record.plan)} --name {shlex.quote(record.folder.name)} --resume"
    return (
        f'<div class="record-note">{first} goes on where it stopped with<br><code>{escape(given)}</code><br>Give files '
        "by their path, and options and settings that it does not name, such as --db, as before.</div>"
    )
