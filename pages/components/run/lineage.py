"""A run's relatives: its parent with the changes since, and its re-runs."""

from collections.abc import Callable, Sequence

import streamlit as st

from conductor_core.blame.experiments import PURPOSE as OF_A_BLAME
from conductor_core.engine.repeats import PURPOSE as OF_A_STEP
from conductor_core.engine.request import may_run_here
from conductor_core.errors import StoreError
from conductor_core.privacy.detectors import in_words
from conductor_core.run.trace import RunTrace, StepTrace
from conductor_core.run.values import Imported, label
from pages.components.app import address, places
from pages.components.app.session import current
from pages.components.style.formats import ago, inert, listed, plural, run_status
from storage import RunSummary

MOST_CHANGES, MOST_RERUNS = 3, 2  # as many as one line holds at 1280 px
_MOST_RUNS_READ = 150


def lineage(trace: RunTrace, beside: Callable[[RunTrace], None]) -> None:
    """Draws lines, where there are some: the origin of an imported run, what was hidden, the parent, the re-runs, and
    commands that nobody sent.

    ``beside`` draws in the line of the parent, or else in that of the re-runs.
    """
    if trace.imported is not None:
        _imported(trace, trace.imported)
    elif answers := trace.imported_answers:
        # Its own line: without it the answers would look like this database's own.
        st.caption(
            f":material/upload_file: **Imported answers**: {inert(_steps(answers))} reused from an imported run, which "
            "this database did not carry out."
        )
    if trace.redacted:
        st.caption(f":material/visibility_off: **Hidden before it was stored**: {inert(in_words(trace.redacted))}.")
    for refused in trace.refused:
        if refused.unproven:
            st.caption(
                f":material/gpp_bad: **Refused** {ago(refused.at_utc)}: a command to {inert(refused.asked)} this run, "
                "written into the database by hand. No machine that may act has sent it.",
                help=inert(refused.reason),
            )
    if trace.parent_run_id:
        _parent(trace, trace.parent_run_id, beside)
    if trace.ended:
        _reruns(trace, None if trace.parent_run_id else beside)


def _steps(steps: Sequence[StepTrace]) -> str:
    """Returns ``step 0 is``, ``steps 0 and 2 are``."""
    names = listed([label(step.path) for step in steps], most=6)
    return f"steps {names} are" if len(steps) > 1 else f"step {names} is"


def _imported(trace: RunTrace, imported: Imported) -> None:
    if imported.recorded:
        st.caption(
            ":material/movie: **Recorded**: this run came with the program. The engine carried it out on "
            f"{trace.created_at_utc:%Y-%m-%d} with simulated workers; this database did not. Edit it and run it again.",
            help=inert(f"It was recorded with {imported.written_by}"),
        )
        return
    hidden = f", {plural(imported.redactions, 'passage')} hidden" if imported.redactions else ""
    rerun = "" if may_run_here(trace) else " Its workers are the file's, so it cannot be re-run here."
    st.caption(
        f":material/upload_file: **Imported** {ago(imported.imported_at_utc)} by {inert(imported.caller.in_words)} "
        f"from an unsigned file of {inert(imported.written_by)}{hidden}: this database did not carry it out.{rerun}",
        help=inert(
            f"There it was run {imported.run_id}, says the file, written at {imported.written_at_utc:%Y-%m-%d %H:%M} "
            f"UTC, started by {trace.caller.in_words}{f', for {trace.purpose}' if trace.purpose else ''}. Who approved "
            "or edited it, and which other runs it names, is the file's word, too."
        ),
    )


def _parent(trace: RunTrace, parent: str, beside: Callable[[RunTrace], None]) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="way-here", wrap=False):
        replay = "Replay by Blame of" if trace.purpose == OF_A_BLAME else "Re-run of"
        st.caption("Takes up" if trace.resumed else replay, width="content")
        # A page link to this page would show that run but leave the browser's address as it is.
        st.button(
            f"run {inert(parent)}", key="parent-run", type="tertiary", on_click=address.write, args=("run", parent)
        )
        edits = (*trace.root.edits, *trace.overrides.sentences)
        given = trace.workflow is not None or trace.root.source in ("file", "parent")
        if not given and not trace.resumed:
            said = "planned again"
        elif trace.root.before_edit is None and not edits:
            said = "the plan as it was"
        elif not edits:
            said = "the plan's text changed, but no step"
        else:
            more = len(edits) - MOST_CHANGES
            said = " · ".join((*edits[:MOST_CHANGES], *([plural(more, "more change")] if more > 0 else ())))
        link = {"a": parent, "b": trace.run_id}
        st.page_link(places.COMPARE, label="Compare", icon=":material/compare_arrows:", query_params=link)
        beside(trace)
        every = "  \n".join(map(inert, edits)) if len(edits) > 1 else None
        st.markdown(f"✎ {inert(said)}", help=every, width="stretch")


def _reruns(trace: RunTrace, beside: Callable[[RunTrace], None] | None) -> None:
    try:
        made = current().store.runs(limit=_MOST_RUNS_READ, parent=trace.run_id, without=OF_A_BLAME)
    except StoreError as error:
        st.error(inert(str(error)), icon=":material/error:")
        return
    if not made:
        return
    # The runs of a step that was asked many times have a panel of their own; here the tree leads to them.
    found = [run for run in made if run.purpose != OF_A_STEP or run.batch_id is None]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="reruns", wrap=False):
        st.caption("Re-runs of this run", width="content")
        for run in found[:MOST_RERUNS]:
            st.button(
                _label(run),
                key=f"rerun-{run.run_id}",
                type="tertiary",
                help=inert(f"Run {run.run_id}"),
                on_click=address.write,
                args=("run", run.run_id),
            )
            with st.container(key=f"icon-only-compare-{run.run_id}", width="content"):
                link = {"a": trace.run_id, "b": run.run_id}
                icon = ":material/compare_arrows:"
                st.page_link(places.COMPARE, label="Compare with this run", icon=icon, query_params=link)
        if beside is not None:
            beside(trace)
        if len(found) > MOST_RERUNS:
            st.caption("and older ones, in History", width="content")


def _label(run: RunSummary) -> str:
    when = "" if run.created_at_utc is None else f" {ago(run.created_at_utc)}"
    called = run.steps_completed + run.steps_failed
    again = f", {called} of {plural(run.steps, 'step')} run again" if run.steps else ""
    return inert(f"{run_status(run.status)}{when}{again}")
