"""A Plotly figure that Streamlit updates in place, for curves that grow while the page shows them.

``st.plotly_chart`` takes a figure's content for its identity, so it mounts a changed figure anew. This component tells
Plotly in the browser what changed. Figures are plain data (``data`` and ``layout`` of Plotly's JSON). Their colours are
names of ``style.figures.PALETTE``, such as ``@ink``; the browser fills in the colour of its theme.
"""

import streamlit as st

from pages.components.style.figures import PALETTE, Figure

_BY_THEME = [{name: pair[theme] for name, pair in PALETTE.items()} for theme in (0, 1)]
_COMING = '<div class="figure-coming" aria-hidden="true">Drawing the figure…</div>'
_component = st.components.v2.component("conductor-inspector.figure", html=_COMING, js="index.js", isolate_styles=False)


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


def title(name: str, note: str = "") -> None:
    """Draws the title of a figure or a table, with a ``note`` in HTML beside it."""
    beside = f'<span class="muted">{note}</span>' if note else ""
    st.html(f'<div class="chart-title"><b>{name}</b>{beside}</div>')
