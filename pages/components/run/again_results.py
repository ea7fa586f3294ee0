"""What came of a step that was asked many times: its answers in groups, for each worker. Each answer opens its run.

The panel stands on the page of the run that the others were made from, and on that of each of them.
"""

from collections.abc import Sequence

import streamlit as st

from conductor_core.actor import local_caller
from conductor_core.engine.repeats import PURPOSE, AnswerGroup, Repeats, Share, Tally, again_of, tally
from conductor_core.errors import InspectorError
from conductor_core.run_request import REPLAY_PURPOSE
from conductor_core.trace import RunTrace
from pages.components.look.palette import agent_dot
from pages.components.look.statuses import run_status
from pages.components.look.words import inert, plural, seconds
from pages.components.shell import address
from pages.components.shell.looking import looked
from pages.components.shell.runtime import current

EVERY_S = 0.7  # between two looks while runs go on
_MOST_READ = 200
_MOST_BUTTONS, _MOST_GROUPS = 10, 5
_LONG = 60  # characters, of a conclusion that its column may cut
_COLUMNS = (0.7, 5, 1.6, 4)


def again_results(trace: RunTrace) -> None:
    """Draws the panel if ``trace`` is one of such runs, or the run that the last of them were made from."""
    batch = _batch(trace)
    if batch is None:
        return
    runs = _read(batch)
    if not runs:
        return
    source = trace if runs[0].parent_run_id == trace.run_id else _source(runs[0])
    found = tally(source or runs[0], runs)
    with st.container(border=True, key="again-results", gap="xsmall"):
        _head(found, runs, source, trace)
        for each in found.tallies:
            _tally(each, found, trace)
    if found.running:
        _follow(batch, [run.status for run in runs])


def _batch(trace: RunTrace) -> str | None:
    if trace.purpose == PURPOSE and trace.batch is not None:
        return trace.batch.id
    try:
        made = current().store.runs(limit=_MOST_READ, parent=trace.run_id, without=REPLAY_PURPOSE)
    except InspectorError:
        return None  # the page says what is wrong with the database
    return next((run.batch_id for run in made if run.purpose == PURPOSE and run.batch_id is not None), None)


def _read(batch: str) -> list[RunTrace]:
    traces: list[RunTrace] = []
    try:
        listed = current().store.runs(limit=_MOST_READ, batch=batch)
    except InspectorError:
        return []
    for run in listed:
        try:
            traces.append(current().store.trace(run.run_id)[0])
        except InspectorError:  # damaged, as its own page and History say
            continue
    looked([trace.run_id for trace in traces], "run page")
    return [trace for trace in traces if again_of(trace) is not None]


def _source(run: RunTrace) -> RunTrace | None:
    try:
        return None if run.parent_run_id is None else current().store.trace(run.parent_run_id)[0]
    except InspectorError:
        return None  # deleted, or damaged


def _follow(batch: str, drawn: Sequence[str]) -> None:
    """Draws the page anew once a run has ended."""

    @st.fragment(run_every=EVERY_S)
    def look() -> None:
        try:
            statuses = [run.status for run in current().store.runs(limit=_MOST_READ, batch=batch)]
        except InspectorError:
            return
        if statuses != list(drawn):
            st.rerun()

    look()


def _head(found: Repeats, runs: Sequence[RunTrace], source: RunTrace | None, shown: RunTrace) -> None:
    count = len(runs)
    what = f"Step {found.step} alone" if found.extent == "only" else f"From step {found.step} on"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="again-head"):
        st.markdown(f"**{what}, {plural(count, 'time')}**", width="content")
        ended = f"{count - found.running} of {count} ended…" if found.running else ""
        simulated = "simulated workers" if found.simulated else ""
        said = " · ".join(filter(None, (ended, simulated, "agreement with its 95 % interval (Wilson)")))
        st.markdown(f":small[:gray[{said}]]", width="stretch")
        if found.running:
            st.button("Cancel", key="again-cancel", icon=":material/stop:", on_click=_cancel, args=(runs,))
        if source is not None and source.run_id != shown.run_id:
            st.button(
                "The run they were made from",
                key="again-source",
                type="tertiary",
                on_click=address.write,
                args=("run", source.run_id),
            )


def _tally(found: Tally, of: Repeats, shown: RunTrace) -> None:
    pool = [spec.name for spec in shown.pool.workers]
    agree = f" · **{_share(found.groups[0].share)}** agree" if found.groups else ""
    took = f" · {seconds(found.mean_ms)} on average" if found.mean_ms is not None else ""
    spent = f" · {found.usage.total_tokens:,} tokens · {inert(found.cost.in_line)}{took}"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"again-agent-{found.agent}"):
        st.html(agent_dot(found.agent, pool), width="content")
        answered = f"{found.answered} of {len(found.run_ids)} answered"
        st.markdown(f"**{inert(found.agent)}** :small[{answered}{agree}{spent}]", width="stretch")
    for place, group in enumerate(found.groups[:_MOST_GROUPS]):
        with st.container(key=f"again-row-{found.agent}-{place}"):
            _group(found, group, shown)
    if left := found.groups[_MOST_GROUPS:]:
        others = sum(len(group.run_ids) for group in left)
        st.markdown(
            f":small[:gray[and {plural(others, 'answer')} in {plural(len(left), 'smaller group')}, in History]]"
        )
    if found.unanswered:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            first = next((each.error for each in found.unanswered if each.error), None)
            why = f": {inert(first[:200])}" if first else ""
            st.markdown(f":small[:orange[△ {len(found.unanswered)} without an answer{why}]]", width="content")
            for each in found.unanswered[:_MOST_BUTTONS]:
                _open(found, each.run_id, shown, inert(run_status(each.status)))


def _group(found: Tally, group: AnswerGroup, shown: RunTrace) -> None:
    count_at, said_at, share_at, runs_at = st.columns(_COLUMNS, vertical_alignment="center", gap="small", wrap=False)
    count_at.markdown(f"**{len(group.run_ids)} ×**")
    before = " :gray-badge[as before]" if group.as_before else ""
    long = inert(group.conclusion) if len(group.conclusion) > _LONG else None
    said_at.markdown(f"{inert(group.conclusion)}{before}", help=long)
    with share_at:
        st.html(_bar(group.share))
    with runs_at, st.container(horizontal=True, gap=None, key=f"again-runs-{group.run_ids[0]}"):
        for run_id in group.run_ids[:_MOST_BUTTONS]:
            _open(found, run_id, shown, None)
        if len(group.run_ids) > _MOST_BUTTONS:
            st.markdown(f":small[:gray[and {len(group.run_ids) - _MOST_BUTTONS} more, in History]]", width="content")


def _open(found: Tally, run_id: str, shown: RunTrace, label: str | None) -> None:
    number = found.run_ids.index(run_id)
    text = label or f"{number}"
    st.button(
        f"**{text}**" if run_id == shown.run_id else text,
        key=f"again-open-{run_id}",
        type="tertiary",
        help=inert(f"Open answer {number}: run {run_id}"),
        on_click=address.write,
        args=("run", run_id),
    )


def _bar(share: Share) -> str:
    said = f"{share.share:.0%} of the answers; 95 % interval {share.low:.0%} to {share.high:.0%}"
    return (
        f'<div class="again-share" role="img" aria-label="{said}" title="{said}">'
        f'<i style="width:{share.share:.1%}"></i>'
        f'<b style="left:{share.low:.1%};width:{share.high - share.low:.1%}"></b></div>'
    )


def _share(share: Share) -> str:
    return f"{share.share:.0%} ({share.low:.0%} to {share.high:.0%})"


def _cancel(runs: Sequence[RunTrace]) -> None:
    for run in runs:
        if not run.ended:
            current().host.cancel(run.run_id, local_caller("page"))
