"""An evaluation beside its table: its head, what the table leaves out, its runs, and the command that repeats it."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import fmean
from typing import Any, Literal

import streamlit as st
from markupsafe import Markup

from conductor_core.engine.models import model_folder
from conductor_core.errors import StoreError
from conductor_core.lab.records.evaluation import EvaluationPlan, EvaluationRecord, Outcome, Present, Spread
from conductor_core.run.events import RunCreated
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import across, fault_box, segments, select
from pages.components.evaluation import standings
from pages.components.records.folders import State
from pages.components.style.formats import html, inert, plural, seconds

ROUND_HEADS = ("second round opened", "asked again, and stopped")


@dataclass(frozen=True)
class Rounds:
    """By difficulty, the share of tasks with a second round, and of those that the Conductor, asked again, ended."""

    orchestrator: str
    opened: dict[str, float]
    stopped: dict[str, float]


def rounds(record: EvaluationRecord, rows: Sequence[standings.Standing]) -> list[Rounds]:
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


def rounds_html(found: Sequence[Rounds], rows: Sequence[standings.Standing]) -> str:
    if not found:
        return ""
    # Where the suite knows no difficulties, all tasks are one group without a name.
    names = standings.difficulties(rows) or [""]
    groups = [(head, [name or "all" for name in names]) for head in ROUND_HEADS]
    lines = [(each.orchestrator, [list(map(of.get, names)) for of in (each.opened, each.stopped)]) for each in found]
    return html(standings.TEMPLATE, "heat", kind="heat rounds", groups=groups, lines=lines)


def spreads_html(spreads: Sequence[Spread]) -> Markup:
    return html(standings.TEMPLATE, "spreads", found=spreads)


def subsets_html(present: Present, names: Sequence[str]) -> Markup:
    shown = [name for name in names if any(name in each.scores for each in present.subsets)]
    return html(standings.TEMPLATE, "subsets", parts=present.subsets, names=shown)


# The command that repeats an evaluation.

SHORT = 12  # hex digits of a digest that tell models apart


def command(plan: EvaluationPlan) -> str:
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
    if plan.pool not in (standings.ALL_SIMULATED, "paper"):
        found.append(f"The pool {plan.pool} is a file: give its path.")
    if not standings.workers_simulated(plan):
        found.append("It asks the workers again, at their price.")
    return found


def conductor_refs(plan: EvaluationPlan) -> dict[str, str]:
    return _texts(plan.settings.get("conductors"))


def model_digests(plan: EvaluationPlan) -> dict[str, str]:
    return _texts(plan.settings.get("models_sha256"))


def _texts(given: object) -> dict[str, str]:
    """Reads a mapping of texts. Anything else counts as empty: nothing checks settings when a plan is read."""
    return {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}


def _other_limits(plan: EvaluationPlan) -> dict[str, Any]:
    limits, usual = plan.settings.get("limits"), Limits().model_dump(mode="json")
    if not isinstance(limits, Mapping):
        return {}
    return {name: limits[name] for name, value in usual.items() if limits.get(name, value) != value}


# The head.


def head_html(record: EvaluationRecord, state: State, quiet: str) -> Markup:
    """Returns the whole head. ``quiet`` says in words how long ago the record was last written."""
    plan, simulated, progress, missing, how_on = record.plan, standings.simulated_parts(record.plan), None, None, None
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
    digests = model_digests(plan)
    for name, ref in conductor_refs(plan).items():
        rows[ref].append(name.removesuffix(f":{ref}"))  # conductor:REF says its REF a second time
    return html(
        standings.TEMPLATE,
        "head",
        plan=plan,
        state=state,
        quiet=quiet,
        simulated=standings.SIMULATED_WORDS[simulated[0]][0] if simulated else None,
        progress=progress,
        missing=missing,
        how_on=how_on,
        conductors=[(ref, digests.get(ref, ""), ", ".join(dict.fromkeys(names))) for ref, names in rows.items()],
    )


ROWS = 20
FILTERS = ("difficulty", "family")
RIGHT = 0.5
Which = Literal["all", "wrong", "right", "mine", "theirs", "both", "neither"]


@dataclass(frozen=True)
class Pair:
    own: Outcome
    other: Outcome | None = None

    def falls_under(self, which: Which) -> bool:
        own, other = right(self.own), self.other is not None and right(self.other)
        wanted: Mapping[Which, tuple[bool | None, bool | None]] = {
            "right": (True, None), "wrong": (False, None), "mine": (True, False), "theirs": (False, True),
            "both": (True, True), "neither": (False, False),
        }  # fmt: skip
        return all(want in (None, found) for want, found in zip(wanted.get(which, ()), (own, other), strict=False))


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
            first = (page - 1) * ROWS
            st.caption(f"{first + 1} to {min(first + ROWS, len(shown))} of {len(shown)}", width="content")
    with rows:
        _rows(record, shown[first : first + ROWS], other)


def _compare_with(record: EvaluationRecord, orchestrator: str) -> str | None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="runs-filters"):
        others = [name for name in record.plan.orchestrators if name != orchestrator]
        other: str | None = select(
            "Compare with",
            [None, *others],
            "runs-other",
            format_func=lambda name: "compare with none" if name is None else f"beside {name}",
        )
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
    chosen = segments(
        "Which",
        words,
        f"runs-which-{'one' if other is None else 'two'}",
        default="all",
        required=True,
        format_func=lambda which: f"{inert(words[which])} · {counts[which]}",
    )
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
            heads = (
                "Outcome",
                *(["Theirs"] if other else ()),
                "Difficulty",
                "Family",
                Markup("Worker<br>tokens"),
                "Steps",
                "Time",
            )
            st.html(html(standings.TEMPLATE, "cells", cells=heads, head=True, wide=other is not None), width="content")
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
        st.html(html(standings.TEMPLATE, "command", text=command(plan)))
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
        st.html(html(standings.TEMPLATE, "absent", outcome=own, said=say_absent))
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
    cells: list[str] = [
        html(standings.TEMPLATE, "mark", outcome=each, right=right(each)) for each in (own, other) if each
    ]
    cells += [own.difficulty, own.family.replace("_", " "), f"{own.tokens:,}", str(own.steps)]
    cells.append(seconds(own.duration_ms))
    st.html(html(standings.TEMPLATE, "cells", cells=cells, head=False, wide=other is not None), width="content")
