"""The matrix: the question and each output against the steps. A cell is a button that opens what it stands for."""

from collections.abc import Sequence

import streamlit as st

from conductor_core.run.context_flow import Cell, RoundContext
from pages.components.context.cells import matrix_data
from pages.components.context.labels import cell_key

_component = st.components.v2.component("conductor-inspector.context", js="index.js", isolate_styles=False)


def matrix(round_: RoundContext, agents: Sequence[str], *, key: str) -> Cell | None:
    """Draws the matrix of a round. Returns the cell that the person chose, if it is one of this round.

    Args:
        agents: the names of the pool's workers, for their colours.
    """
    state = st.session_state.get(key) or {}
    chosen = _chosen(round_, state.get("cell"))
    result = _component(
        key=key,
        data=matrix_data(round_, agents, chosen),
        default={"cell": None},
        on_cell_change=_ignore,
        width="stretch",
        height="content",
    )
    return _chosen(round_, result.cell)


def _ignore() -> None:
    """Does nothing: Streamlit wants a callback for each state that a component may set."""


def _chosen(round_: RoundContext, key: object) -> Cell | None:
    """Returns the cell of this name; None for any other value, which a browser might send."""
    return next((cell for cell in round_.cells if cell_key(cell.source, cell.reader) == key), None)
