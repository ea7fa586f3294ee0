"""The runs behind one row of an evaluation: its tasks, right or wrong, beside another's, with links to the runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import streamlit as st

from conductor_core.errors import StoreError
from conductor_core.lab.records.evaluation import EvaluationPlan, EvaluationRecord, Outcome
from conductor_core.run.events import RunCreated
from pages.components.app import places
from pages.components.app.session import current
from pages.components.evaluation.details import command, missing_settings
from pages.components.style.formats import inert, plural, seconds

ROWS = 20
FILTERS = ("difficulty", "family")
RIGHT = 0.5
Which = Literal["all", "wrong", "right", "mine", "theirs", "both", "neither"]


@dataclass(frozen=True)
class Pair:
    """An outcome and another orchestrator's outcome of the same task; None where nothing is compared."""

    own: Outcome
    other: Outcome | None = None

    def falls_under(self, which: Which) -> bool:
        own, other = right(self.own), self.other is not None and right(self.other)
        by_which: Mapping[Which, bool] = {
            "all": True,
            "right": own,
            "wrong": not own,
            "mine": own and not other,
            "theirs": other and not own,
            "both": own and other,
            "neither": not own and not other,
        }
        return by_which[which]


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
    """Draws what an opened row shows below itself."""
    other = _compare_with(record, orchestrator)
    difficulty, family = kept = [st.session_state.get(f"runs-{field}") for field in FILTERS]
    found = [
        pair
        for pair in pairs(record, orchestrator, other)
        if difficulty in (None, pair.own.difficulty) and family in (None, pair.own.family)
    ]
    which = _which(found, orchestrator, other)
    shown = sorted((pair for pair in found if pair.falls_under(which)), key=lambda pair: pair.own.score)
    page = _page(len(shown), f"{record.folder.name}/{orchestrator}/{other}/{which}/{kept}")
    if not shown:
        st.caption("No task falls under this.")
        return
    _rows(record, shown[page * ROWS : (page + 1) * ROWS], other)
    _paging(page, len(shown))


def _compare_with(record: EvaluationRecord, orchestrator: str) -> str | None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="runs-filters"):
        others = [name for name in record.plan.orchestrators if name != orchestrator]
        other: str | None = st.selectbox(
            "Compare with",
            [None, *others],
            format_func=lambda name: "compare with none" if name is None else f"beside {name}",
            key="runs-other",
            label_visibility="collapsed",
        )
        done = [outcome for outcome in record.outcomes if outcome.orchestrator == orchestrator]
        for field in FILTERS:
            _choose_among(field, dict.fromkeys(str(getattr(outcome, field)) for outcome in done))
    return other if other in others else None


def _choose_among(field: str, names: Iterable[str]) -> None:
    st.selectbox(
        field.capitalize(),
        [None, *names],
        format_func=lambda name: f"any {field}" if name is None else name.replace("_", " "),
        key=f"runs-{field}",
        label_visibility="collapsed",
    )


def _which(found: Sequence[Pair], orchestrator: str, other: str | None) -> Which:
    words: dict[Which, str] = {"all": "all"}
    if other is None:
        words |= {"wrong": "✕ wrong", "right": "✓ right"}
    else:
        words |= {"mine": f"only {orchestrator}", "theirs": f"only {other}"}
        words |= {"both": "both right", "neither": "both wrong"}
    counts = {which: sum(pair.falls_under(which) for pair in found) for which in words}
    chosen = st.segmented_control(
        "Which",
        list(words),
        default="all",
        required=True,
        format_func=lambda which: f"{inert(words[which])} · {counts[which]}",
        key=f"runs-which-{'one' if other is None else 'two'}",
        label_visibility="collapsed",
    )
    return chosen if chosen in words else "all"


def _page(count: int, subject: str) -> int:
    """Returns the page to show: the first one of a new subject."""
    if st.session_state.get("runs-subject") != subject:
        st.session_state["runs-subject"], st.session_state["runs-page"] = subject, 0
    # Runs are added and replaced while an evaluation goes on, so the page that was shown may be gone.
    page = min(int(st.session_state["runs-page"]), max((count - 1) // ROWS, 0))
    st.session_state["runs-page"] = page
    return page


def _paging(page: int, count: int) -> None:
    if count <= ROWS:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="icon-only-paging"):
        back, on = ":material/chevron_left:", ":material/chevron_right:"
        st.button("Earlier tasks", key="runs-back", icon=back, disabled=not page, on_click=_turn, args=(-1,))
        st.caption(f"{page * ROWS + 1} to {min((page + 1) * ROWS, count)} of {count}", width="content")
        last = (page + 1) * ROWS >= count
        st.button("Later tasks", key="runs-on", icon=on, disabled=last, on_click=_turn, args=(1,))


def _turn(by: int) -> None:
    st.session_state["runs-page"] += by


def _rows(record: EvaluationRecord, shown: Sequence[Pair], other: str | None) -> None:
    try:
        tasks = {each.run_id: _task(each.run_id) for pair in shown for each in (pair.own, pair.other) if each}
    except StoreError as error:
        st.error(inert(str(error)), icon=":material/error:")
        return
    absent = sum(tasks[pair.own.run_id] is None for pair in shown)
    if absent:
        _say_absent(record.plan, absent, len(shown))
    with st.container(key="outcomes"):
        with st.container(key="outcome-row-head", horizontal=True):
            st.html('<div class="cells head">Task</div>')
            marks = ("Outcome", "Theirs") if other else ("Outcome",)
            heads = (*marks, "Difficulty", "Family", "Worker<br>tokens", "Steps", "Time")
            st.html(_cells_html(heads, head=True, wide=other is not None), width="content")
        for number, pair in enumerate(shown):
            with st.container(key=f"outcome-row-{number}", horizontal=True):
                _row(pair, tasks, say_absent=absent < len(shown))


def _say_absent(plan: EvaluationPlan, absent: int, shown: int) -> None:
    """Says that runs are in another database; where none is here, also how to repeat the evaluation here."""
    where = f" ({inert(plan.database)})" if plan.database else ""
    none_here = absent == shown
    these = "These runs were" if none_here else f"{plural(absent, 'run')} of these {shown} were"
    st.caption(
        f":material/link_off: {these} made in another database{where}, not in this one, and cannot be opened here."
        + (" This command makes the same evaluation with runs that open:" if none_here else "")
    )
    if none_here:
        # st.code would block the browser with its highlighter for half a second.
        st.html(f'<pre class="command" title="A click selects it">{escape(command(plan))}</pre>')
        if missing := missing_settings(plan):
            st.caption(inert(" ".join(missing)))


def _task(run_id: str) -> str | None:
    """Returns the task of a run; None if this database does not have the run."""
    first = current().store.events(run_id, limit=1)
    return first[0].event.request.task if first and isinstance(first[0].event, RunCreated) else None


def _row(pair: Pair, tasks: Mapping[str, str | None], *, say_absent: bool) -> None:
    """Draws a pair. ``tasks`` has what was asked in each run; None: the run is not in this database."""
    own, other = pair.own, pair.other
    task = tasks[own.run_id]
    if task is None:
        absent = ' <span class="muted">not in this database</span>' if say_absent else ""
        st.html(
            f'<div class="ellipsis elsewhere" title="run {escape(own.run_id)}, not in this database">'
            f"{escape(own.task_id)}{absent}</div>"
        )
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
    cells = [_mark_html(each) for each in (own, other) if each is not None]
    cells += [escape(own.difficulty), escape(own.family.replace("_", " "))]
    cells += [f"{own.tokens:,}", str(own.steps), seconds(own.duration_ms)]
    st.html(_cells_html(cells, head=False, wide=other is not None), width="content")


def _mark_html(outcome: Outcome) -> str:
    partly = "" if outcome.score in (0.0, 1.0) else f" {outcome.score:.2f}"
    if outcome.fault is not None:
        return f'<span class="pill cancelled" title="{escape(outcome.fault)}">⚡ no answer</span>'
    if right(outcome):
        return f'<span class="pill completed">✓ right{partly}</span>'
    return f'<span class="pill failed">✕ wrong{partly}</span>'


def _cells_html(cells: Sequence[str], *, head: bool, wide: bool) -> str:
    words = len(cells) - 3
    inner = "".join(
        f'<span class="{"ellipsis" if at < words else "number"}">{cell}</span>' for at, cell in enumerate(cells)
    )
    return f'<div class="cells outcomes{" wide" if wide else ""}{" head" if head else ""}">{inner}</div>'
