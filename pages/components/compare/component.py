"""The components of the Compare page: two compared runs, and what hands a comparison over.

They share their scripts with the live workflow: one graph, one timeline, one dialog.
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

# The room that the answers and the graph take, so that nothing below jumps when the script is there.
_RESERVED = '<div class="reserved" style="min-height: 560px"></div>'
_component = st.components.v2.component(
    "conductor-inspector.compared", html=_RESERVED, js="compare.js", isolate_styles=True
)

_share = st.components.v2.component(
    "conductor-inspector.share_comparison",
    html='<div class="reserved" style="width: 71px; height: 34px"></div>',
    js="share_comparison.js",
    isolate_styles=True,
)


def compared_runs(view: dict[str, Any], *, key: str) -> None:
    """Draws ``view``, which ``compared_view`` makes. What a person selects stays in the browser."""
    _component(key=key, data=view, width="stretch", height="content")


def share(run_ids: Sequence[str], *, ended: bool) -> None:
    """Draws a button that opens to the dialog that saves the comparison as a file. ``ended``: whether all runs have."""
    with st.container(key="share-comparison", width="content"):
        _share(key="share", data={"run_ids": list(run_ids), "ended": ended}, width="content", height="content")
