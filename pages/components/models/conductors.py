"""The Conductors of the Workers page, with their health: those of the conductors files, and the one in use."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from conductor_core.chat.messages import Price
from conductor_core.engine.models import ConductorOption, Health, check_conductor, conductor_faults
from conductor_core.errors import InspectorError
from pages.components.app.session import current
from pages.components.run import settings
from pages.components.style.formats import inert

HEALTH = "conductor-health"
NOT_CHECKED = ":gray[:material/help: not checked yet]"


def conductors() -> None:
    """Draws the part of the page. It names each file that cannot be read, with its fault."""
    st.subheader("Conductors", anchor=False)
    with st.container(key="conductors"):
        for number, option in enumerate(shown()):
            with st.container(key=f"worker-row-conductor-{number}", horizontal=True, vertical_alignment="center"):
                _row(number, option)
    for fault in conductor_faults(current().settings):
        st.warning(inert(fault), icon=":material/warning:")
    folder = inert(str(current().settings.conductors_folder))
    st.caption(f"Further ones: `[[conductor]]` tables in {folder}/\\*.toml, with name, model and base_url at least.")


def shown() -> list[ConductorOption]:
    """Lists the one in use, the shipped one, and all that files name. The one in use comes first."""
    options = settings.conductor_options()
    here = [option for option in options.values() if option.named or option.ref in ("tiny", settings.conductor())]
    return sorted(here, key=lambda option: option.ref != settings.conductor())


def keep_health(ref: str, health: Health) -> None:
    st.session_state.setdefault(HEALTH, {})[ref] = health


def price_words(price: Price | None) -> str:
    if price is None:
        return "price unknown"
    if not price.input and not price.output:
        return "free"
    return f"${price.input:g} in · ${price.output:g} out"


def _row(number: int, option: ConductorOption) -> None:
    st.html(_who(option))
    with st.container(width=200, gap=None):
        _state(option)
    with st.container(width="content", key=f"icon-only-conductor-{number}"):
        check, glyph = f"Check Conductor {inert(option.name)} now", ":material/network_check:"
        asked = st.button(check, key=f"check-conductor-{number}", icon=glyph, type="tertiary", help=check)
    if asked:
        with st.spinner("Asking its server"):
            _check(option.ref)
        st.rerun()
    if option.ref == settings.conductor():
        st.html('<span class="muted">in use</span>', width=103)
    else:
        use = settings.use_conductor
        st.button("Use", key=f"use-conductor-{number}", on_click=use, args=(option.ref,), width=103)


def _check(ref: str) -> None:
    try:
        keep_health(ref, check_conductor(ref, current().settings))
    except InspectorError as error:
        keep_health(ref, Health(ok=False, latency_ms=None, detail=str(error)))


def _who(option: ConductorOption) -> str:
    """Draws name, source, model, place and price. Every text is escaped."""
    here = option.server is None
    cells = (
        (f"<b>{escape(option.name)}</b>", "of a conductors file" if option.named else "available"),
        (escape(option.model or option.name), "runs on this machine" if here else escape(option.server or "")),
        (price_words(option.price), "" if here or option.price is None else "per million tokens"),
    )
    return cells_html(cells, option.reason)


def cells_html(cells: Sequence[tuple[str, str]], title: str) -> str:
    """Draws the cells of a worker or Conductor, each with two lines of HTML. ``title`` is the hint of all."""
    inner = "".join(
        f'<div class="ellipsis">{first}<div class="ellipsis second muted">{second}</div></div>'
        for first, second in cells
    )
    return f'<div class="cells workers" title="{escape(title)}">{inner}</div>'


def _state(option: ConductorOption) -> None:
    health: Health | None = st.session_state.get(HEALTH, {}).get(option.ref)
    if health is not None:
        say_health(health, health.detail.removeprefix(f"Conductor {option.name}").lstrip(": "), timed=health.ok)
    elif option.server is not None:
        st.markdown(NOT_CHECKED)
    else:
        here = ":material/check_circle: on this machine"
        st.markdown(here if option.runnable else f":orange[{inert(option.reason)}]")
    say_key(option.key_state)


def say_health(health: Health, said: str, *, timed: bool = True) -> None:
    """Says how a check went; with ``timed``, also how long it took, if that is known."""
    colour, glyph = ("green", "check_circle") if health.ok else ("red", "error")
    took = f" · {health.latency_ms:.0f} ms" if timed and health.latency_ms is not None else ""
    st.markdown(f":{colour}[:material/{glyph}: {inert(said)}]{took}")


def say_key(state: str | None) -> None:
    if state:
        st.markdown(f":{'orange' if state.endswith('missing') else 'green'}[:material/key: {inert(state)}]")
