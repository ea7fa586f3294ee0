"""Evaluate: the Conductor beside its baselines, and the runs behind every figure."""

from collections.abc import Sequence

import streamlit as st

from conductor_core.lab.records.evaluation import EvaluationRecord, read_record
from pages.components.app.widgets import across, download, remember, segments, text_button
from pages.components.evaluation import standings
from pages.components.records.folders import RecordFolder, State, choose_record, follow, no_record
from pages.components.style.figures import figure, legend, title
from pages.components.style.formats import ago, html, inert, plural

OPENED = "evaluation-opened"
COMMAND = "conductor evaluate --suite rehearsal --orchestrators conductor,single,moa"
EMPTY = "**No evaluation yet.** This command puts the Conductor beside each single worker and all of them together:"
ORDERS = {"plan": "as planned", "score": "by score", "tokens": "by worker tokens"}


def show() -> None:
    chosen = choose_record("evaluations", "Evaluate")
    if chosen is None:
        no_record("evaluations", EMPTY, COMMAND)
        return
    follow(chosen, read_record, lambda record, folder: folder.state(ended=record.summary is not None), _body)


def _body(record: EvaluationRecord, folder: RecordFolder, state: State) -> None:
    with st.container(border=True, key="evaluation-head"):
        st.html(standings.head_html(record, state, ago(folder.changed_utc)))
        if said := standings.meaning(record.plan):
            st.caption(f":material/theater_comedy: {said}")
    rows = standings.standings(record)
    if not rows:
        if state == "running":
            st.progress(0.0, text="The first task is under way. Standings and charts appear here as soon as it ends.")
        else:
            st.info("It ended before its first task, so there are no standings.", icon=":material/hourglass_empty:")
        return
    shown = _controls(record, rows)
    _table(record, shown)
    if record.summary is not None and (spreads := record.summary.spreads):
        st.html(html(standings.TEMPLATE, "spreads", found=spreads))
    if any(outcome.present for outcome in record.outcomes):
        absent = sum(row.absent_named for row in rows)
        named = plural(absent, "plan") if absent else "No plan"
        part = "Each task had only a part of the pool, a different part each time."
        st.caption(f"{part} {named} named an absent worker.")
    present = None if record.summary is None else record.summary.present
    if present is not None and present.subsets:
        label = f"The {plural(len(present.subsets), 'part')} of the pool, {plural(present.k, 'worker')} each"
        with st.expander(label, key="subsets"):
            st.caption("Score in percent; bold: more than the best of those present reaches alone on the same tasks.")
            names = [
                row.orchestrator for row in shown if any(row.orchestrator in each.scores for each in present.subsets)
            ]
            st.html(html(standings.TEMPLATE, "subsets", parts=present.subsets, names=names))
    _figures(shown)
    groups = {"difficulty": standings.difficulties(shown), "family": standings.families(shown)}
    if again := standings.rounds(record, shown):
        with st.container(border=True, key="rounds"):
            by, of = (" by difficulty", " of each") if groups["difficulty"] else ("", "")
            title(f"Second rounds{by}", f"Of 100 tasks{of}; only Conductors that named themselves.")
            st.html(standings.rounds_html(again, shown))
    if groups := {name: found for name, found in groups.items() if found}:
        with st.container(border=True, key="heat"):
            title(f"Score by {' and '.join(groups)}", "Percent; the further from the background, the more.")
            st.html(standings.heat_html(shown))


def _controls(record: EvaluationRecord, rows: Sequence[standings.Standing]) -> list[standings.Standing]:
    with across("evaluation-controls"):
        names = st.multiselect(
            "Orchestrators",
            [row.orchestrator for row in rows],
            placeholder="All orchestrators",
            key="evaluation-names",
            label_visibility="collapsed",
        )
        words = ORDERS.__getitem__
        order = segments("Order", ORDERS, "evaluation-order", default="plan", required=True, format_func=words)
        shown = [row for row in rows if not names or row.orchestrator in names]
        if order == "score":
            shown.sort(key=lambda row: -row.score)
        elif order == "tokens":
            shown.sort(key=lambda row: row.tokens_per_task)
        name, how = record.folder.name, {"type": "tertiary"}
        download("CSV", standings.to_csv(shown, record.plan), f"{name}.csv", "text/csv", "table-csv", **how)
        markdown = standings.to_markdown(shown, record.plan)
        download("Markdown", markdown, f"{name}.md", "text/markdown", "table-md", **how)
    return shown


def _table(record: EvaluationRecord, shown: Sequence[standings.Standing]) -> None:
    opened, simulated = st.session_state.get(OPENED), standings.workers_simulated(record.plan)
    with st.container(key="standings"):
        with st.container(key="standing-row-head", horizontal=True):
            st.html(html("run_list/run_list", "name_head", name="Orchestrator"))
            head = html(standings.TEMPLATE, "table_head", first=standings.compared_with(record.plan))
            st.html(head, width="content")
        for number, row in enumerate(shown):
            with st.container(key=f"standing-row-{number}", horizontal=True):
                chosen = row.orchestrator == opened
                _name(row, chosen)
                st.html(standings.row_html(row, chosen=chosen, simulated=simulated), width="content")
            if chosen:
                with st.container(key="runs-of"):
                    title(f"Runs of {row.orchestrator}")
                    standings.runs_view(record, row.orchestrator)


def _name(row: standings.Standing, chosen: bool) -> None:
    if row.computed:
        st.html(html(standings.TEMPLATE, "computed", name=row.orchestrator))
        return
    name, icon = inert(row.orchestrator), "expand_less" if chosen else "expand_more"
    act = (remember, OPENED, None if chosen else row.orchestrator)
    says = f"{'Closes' if chosen else 'Opens'} the runs of {name}"
    text_button(name, f"open-{row.orchestrator}", *act, icon=icon, help=says)


def _figures(shown: Sequence[standings.Standing]) -> None:
    # Without difficulties the second figure has no marks, so the first one has the whole width.
    names = standings.difficulties(shown)
    left, right = st.columns([3, 2], gap="small") if names else (st.container(), None)
    with left, st.container(border=True, key="chart-pareto"):
        note = "Filled: nobody scores more with as few tokens. Whiskers: 95 % interval."
        title("Score against worker tokens", note)
        figure(standings.pareto(shown), key="figure-pareto", alt=standings.pareto_in_words(shown))
    if right is None:
        return
    with right, st.container(border=True, key="chart-steps-by-difficulty"):
        title("Steps by difficulty", f"{legend(names)}.")
        alt = standings.steps_in_words(shown)
        figure(standings.steps_by_difficulty(shown), key="figure-steps-by-difficulty", alt=alt)


show()
