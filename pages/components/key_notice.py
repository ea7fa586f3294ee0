"""What the Run page says before a run on a pool whose keys are not all there, and the click that makes it usable."""

from collections.abc import Sequence

import streamlit as st

from conductor_core.chat import WorkerSpec
from conductor_core.engine.missing_keys import missing_keys
from pages.components import choices
from pages.components.words import inert

SIMULATED = "rehearsal"


def key_notice(specs: Sequence[WorkerSpec]) -> None:
    """Draws nothing where every worker in use has its key. ``specs``: the pool's, those left out included."""
    used = [spec for spec in specs if spec.name not in choices.excluded()]
    missing = missing_keys(used)
    if not missing:
        return
    without = [name for names in missing.values() for name in names]
    with st.container(key="key-notice", horizontal=True, vertical_alignment="center", gap="small"):
        variables = ", ".join(f"**{inert(variable)}**" for variable in missing)
        st.markdown(
            f":orange[:material/key_off:] {inert(choices.pool_name())}: {choices.keys_there(used)}. "
            f"Not set: {variables}.",
            width="stretch",
        )
        if len(without) < len(used):
            st.button("Use those that have one", key="use-keyed", on_click=_leave_out, args=(without,))
        else:
            st.button("Use the simulated pool", key="use-simulated", on_click=choices.use_pool, args=(SIMULATED,))


def _leave_out(names: Sequence[str]) -> None:
    for name in names:
        choices.exclude(name, out=True)
