"""The rows of the Models page: a Conductor each, redrawn by itself while it is downloaded or timed."""

from collections.abc import Callable, Sequence

import streamlit as st

from conductor_core.engine import machine_models as core
from conductor_core.engine.machine_models import MachineModel
from conductor_core.errors import InspectorError
from pages.components.look.words import inert
from pages.components.models.machine_words import cells, gb, head
from pages.components.run import run_settings
from pages.components.shell.faults import fault_box
from pages.components.shell.runtime import current

EVERY_S = 1.0  # between two drawings of a download
ACTIONS_PX, IN_USE_PX = 250, 118
_ASKED, _FAULT, _SAID, _WHOLE = "delete-asked", "model-fault", "models-said", "models-whole"


def rows(models: Sequence[MachineModel], asked: str) -> None:
    """Draws all rows. ``asked``: the Conductor that the address names, which is marked."""
    if message := st.session_state.pop(_FAULT, None):
        fault_box(message)
    if said := st.session_state.pop(_SAID, None):
        st.toast(said, icon=":material/check_circle:")
    with st.container(key="machine-models"):
        with st.container(key="model-row-head", horizontal=True):
            st.html(head())
        for number, model in enumerate(models):
            marked = "asked-" if model.ref == asked else ""
            with st.container(key=f"model-row-{marked}{number}"):
                _row(number, model, marked=bool(marked))


def _moving(model: MachineModel) -> bool:
    return model.timing or model.download.moving


def _row(number: int, model: MachineModel, *, marked: bool) -> None:
    moving = _moving(model)

    @st.fragment(run_every=EVERY_S if moving else None)
    def draw() -> None:
        if st.session_state.pop(_WHOLE, False):
            st.rerun()
        now = model if model.where == "server" else core.machine_model(model.ref, current().settings)
        if _moving(now) != moving or now.here != model.here:
            run_settings.conductor_options.clear()
            st.rerun()
        with st.container(horizontal=True, vertical_alignment="center", key=f"model-cells-{number}"):
            st.html(cells(now))
            with st.container(horizontal=True, gap="xsmall", width=ACTIONS_PX, key=f"model-actions-{number}"):
                _actions(number, now, marked=marked)
                st.html("<i></i>")  # an empty container would give its place to the cells

    draw()


def _actions(number: int, model: MachineModel, *, marked: bool) -> None:
    name, download = inert(model.name), model.download
    if model.here and model.ref == run_settings.conductor():
        st.html('<span class="in-use">✓ in use</span>', width=IN_USE_PX)
    elif model.here:
        _button(
            number, "use", "Use this one", "", lambda: _use(model), says=f"{name} plans the next run", primary=marked
        )
    elif download.elsewhere:
        return
    elif download.moving:
        _button(number, "pause", "Pause", ":material/pause:", lambda: core.pause([model]))
    elif model.where == "hub" and not model.fault and model.fits:
        word = "Resume" if download.here_bytes else "Try again" if download.state == "failed" else "Download"
        glyph = ":material/play_arrow:" if download.here_bytes else ":material/download:"
        _button(number, "download", word, glyph, lambda: core.begin([model]), primary=marked)
    if not model.here and (download.moving or download.here_bytes):
        says = "Stops the download and deletes what is here of it"
        _button(number, "cancel", "Cancel", "", lambda: _trying(lambda: core.cancel(model)), says=says)
        return
    if model.can_be_timed:
        says = f"Measures how long a plan of {name} takes here: some seconds of the processor, nothing is downloaded"
        key, act = f"time-model-{number}", lambda: _time(model)
        glyph = ":material/timer:"
        st.button("Time it", key=key, icon=glyph, on_click=act, help=says, type="tertiary", disabled=model.timing)
    if model.where == "hub" and (model.here or model.fault):
        says = f"Delete {name}"
        with st.container(width="content", key=f"icon-only-delete-{number}"):
            key, act, glyph = f"delete-model-{number}", lambda: _ask(model.ref), ":material/delete:"
            st.button(says, key=key, icon=glyph, on_click=act, help=says, type="tertiary")


def _button(
    number: int, what: str, word: str, icon: str, act: Callable[[], None], *, says: str = "", primary: bool = False
) -> None:
    st.button(
        word,
        key=f"{what}-model-{number}",
        icon=icon or None,
        on_click=act,
        help=says or None,
        type="primary" if primary else "secondary",
    )


def _use(model: MachineModel) -> None:
    run_settings.conductor_options.clear()
    run_settings.use_conductor(model.ref)
    st.session_state[_WHOLE] = True
    st.session_state[_SAID] = f"Conductor of the next run: {inert(model.name)}"


def _time(model: MachineModel) -> None:
    core.time_soon(model, current().settings)


def _ask(ref: str) -> None:
    st.session_state[_ASKED] = ref
    st.session_state[_WHOLE] = True


def _trying(act: Callable[[], None]) -> None:
    try:
        act()
    except InspectorError as error:
        st.session_state[_FAULT] = str(error)
    run_settings.conductor_options.clear()
    st.session_state[_WHOLE] = True


def question(models: Sequence[MachineModel]) -> None:
    """Draws the question whether to delete a model, if somebody wants to."""
    if (ref := st.session_state.get(_ASKED)) is None:
        return
    model = next((each for each in models if each.ref == ref), None)
    if model is None:
        _close()
    else:
        _question(model)


def _close() -> None:
    st.session_state.pop(_ASKED, None)


@st.dialog("Delete this model?", on_dismiss=_close)
def _question(model: MachineModel) -> None:
    # A dialog lies outside the element that says which of the two colour schemes the page has.
    scheme = "dark" if st.context.theme.type == "dark" else "light"
    st.html(f"<style>.stDialog {{ color-scheme: {scheme}; }}</style>")
    chosen = model.ref == run_settings.conductor()
    instead = f" It is the Conductor of the next run; *{run_settings.SHIPPED}* takes its place." if chosen else ""
    size = f" {gb(model.size_bytes)} become free." if model.size_bytes else ""
    st.markdown(f"**{inert(model.name)}** is deleted from the hub's cache.{size}{instead} It can be downloaded again.")
    with st.container(horizontal=True):
        if st.button("Delete", key="delete-yes", type="primary", icon=":material/delete:"):
            _delete(model, chosen=chosen)
        if st.button("Keep", key="delete-no"):
            _close()
            st.rerun()


def _delete(model: MachineModel, *, chosen: bool) -> None:
    _close()
    try:
        freed = core.remove(model, current().settings)
    except InspectorError as error:
        st.session_state[_FAULT] = str(error)
    else:
        if chosen:
            run_settings.use_conductor(run_settings.SHIPPED)
        st.session_state[_SAID] = f"{inert(model.name)} was deleted: {gb(freed)} are free again"
    run_settings.conductor_options.clear()
    st.rerun()
