"""A Plotly figure that Streamlit updates in place, for curves that grow while one looks at them.

``st.plotly_chart`` takes a figure's content for its identity and so mounts a changed one anew. Here the browser has
Plotly from the installed package and is told what changed. Figures are plain data (``data`` and ``layout`` of Plotly's
JSON): colours are names of ``drawing.PALETTE``, written ``@ink``, which the browser fills in for the theme that is on.
"""

import streamlit as st

from pages.components.look.drawing import PALETTE, Figure

_BY_THEME = [{name: pair[theme] for name, pair in PALETTE.items()} for theme in (0, 1)]
_component = st.components.v2.component("conductor-inspector.figure", js="index.js", isolate_styles=False)


def figure(content: Figure, *, key: str, alt: str, group: str | None = None) -> None:
    """Draws ``content``, whose layout names its ``height``. Call it with the same ``key`` at every rerun.

    Args:
        alt: what it shows, in words.
        group: figures of one group share the zoom of their x axis.
    """
    _component(
        key=key,
        data={"figure": content, "palette": _BY_THEME, "alt": alt, "group": group},
        width="stretch",
        height=int(content["layout"]["height"]),
    )
