"""The rounds of one run beside each other: what the Conductor changed when a step asked it again."""

import streamlit as st

from conductor_core.analysis.compare import compare_rounds, kept_answer, opened_rounds
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label, round_name
from pages.components.app import address, places
from pages.components.compare.component import compared_runs
from pages.components.compare.view import compared_view
from pages.components.style.formats import inert, instruction_markdown

PARAMETER = "round"
_CHOICE = "compared-round"


def rounds_head(trace: RunTrace, named: str | None) -> None:
    """Draws the way back to the run and, where it has several rounds, the choice of the two that are compared.

    ``named``: the round that the address names, by the step that opened it.
    """
    where = {"run": trace.run_id}
    st.page_link(places.RUN, label=f"Run {inert(trace.run_id)}", icon=":material/play_circle:", query_params=where)
    found = opened_rounds(trace)
    if len(found) < 2:
        return
    # The address is the truth, as for two runs.
    st.session_state[_CHOICE] = label(_chosen(trace, named))
    st.segmented_control(
        "Rounds",
        [label(path) for path in found],
        format_func=lambda name: _choice_label(trace, name),
        key=_CHOICE,
        label_visibility="collapsed",
        required=True,
        on_change=lambda: address.write(PARAMETER, st.session_state[_CHOICE]),
    )


def rounds(trace: RunTrace, named: str | None) -> None:
    """Draws the two rounds, or says why there are no two."""
    if not opened_rounds(trace):
        st.info(
            "This run has one round. It gets more where a step's agent is the Conductor itself, which then writes a "
            "plan of its own. *Depth* in the settings of a run allows it.",
            icon=":material/info:",
        )
        return
    path = _chosen(trace, named)
    opener = trace.step_at(path)
    st.caption(f"Step {label(path)} opened {round_name(path)}: {instruction_markdown(opener.instruction, 300)}")
    if kept_answer(trace, path):
        st.info(
            "The Conductor wrote three empty lists in this round: the answer stays as it was.", icon=":material/info:"
        )
        return
    compared_runs(compared_view(compare_rounds(trace, path)), key="compared")


def _chosen(trace: RunTrace, named: str | None) -> Path:
    """Returns the round of the address, else the first that a step opened."""
    found = opened_rounds(trace)
    return next((path for path in found if label(path) == named), found[0])


def _choice_label(trace: RunTrace, name: str) -> str:
    path = next(path for path in opened_rounds(trace) if label(path) == name)
    return f"{round_name(path[:-1]).capitalize()} → {round_name(path)} (step {name})"
