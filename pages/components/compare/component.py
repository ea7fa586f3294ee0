"""The component that draws two compared runs. It shares its scripts with the live workflow: one graph, one timeline."""

from typing import Any

import streamlit as st

# The room that the answers and the graph take, so that nothing below jumps when the script is there.
_RESERVED = '<div class="reserved" style="min-height: 560px"></div>'
_component = st.components.v2.component(
    "conductor-inspector.compared", html=_RESERVED, js="compare.js", isolate_styles=True
)


def compared_runs(view: dict[str, Any], *, key: str) -> None:
    """Draws ``view``, which ``compared_view`` makes. What a person selects stays in the browser."""
    _component(key=key, data=view, width="stretch", height="content")
