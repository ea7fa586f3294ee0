"""The Models page: its rows, a Conductor each, redrawn while it is downloaded or timed; and what is around them.

Around are room, memory, whether the hub answers, and models from elsewhere.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

import streamlit as st
from markupsafe import Markup

from conductor_core.engine import models as core
from conductor_core.engine import offers
from conductor_core.engine.models import MachineModel
from conductor_core.errors import InspectorError
from conductor_core.settings import Settings
from conductor_core.text import plain
from pages.components.app.session import current
from pages.components.app.widgets import dialog_scheme, fault_box, rerun_when
from pages.components.run import settings
from pages.components.run.preflight import asked_servers
from pages.components.style.formats import inert
from pages.components.style.templates import html

TEMPLATE = "models/models"
HEADS = ("Conductor", "Size", "Memory it needs", "A plan here", "On this machine")


def gb(size_bytes: float) -> str:
    if size_bytes >= 1e8:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} kB"


def left(seconds_left: float) -> str:
    return f"{seconds_left / 60:.0f} min" if seconds_left >= 90 else f"{seconds_left:.0f} s"


def parameters(count: int) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.1f} billion"
    return f"{count / 1e6:.{0 if count >= 1e8 else 1}f} million" if count >= 1e5 else f"{count:,}"


def seconds(value: float) -> str:
    """Writes an estimate: ``under 1 s``, ``about 39 s``, ``about 4 min``."""
    if value < 1:
        return "under 1 s"
    return f"about {value:.0f} s" if value < 100 else f"about {value / 60:.0f} min"


def head() -> Markup:
    return html(TEMPLATE, "machine_head", names=HEADS)


def cells(model: MachineModel) -> Markup:
    """Draws what is known of a Conductor: who, size, memory, seconds, state."""
    drawn = (_who(model), _size(model), _memory(model), _plan(model), _state(model))
    fault = model.fault or (model.download.reason if model.download.state == "failed" else model.timing_fault)
    return html(TEMPLATE, "machine_model", cells=list(zip(HEADS, drawn, strict=True)), fault=fault)


def _who(model: MachineModel) -> tuple[str, str]:
    whence = {
        "shipped": "comes with the program",
        "hub": "" if model.model == model.name else model.model,
        "folder": model.model,
        "file": model.owner,
        "index": "the base of small, from the package index",
        "server": f"on {model.server}",
    }[model.where]
    licence = model.licence or ("" if model.where == "server" else "licence unknown")
    told = (whence, model.quantisation, licence) if model.where == "file" else (licence, whence)
    said = " · ".join(filter(None, told))
    name = model.name.partition(": ")[2] or model.name
    more = plain(f"{model.ref} ({model.model})" if model.owner else model.ref)
    return html(TEMPLATE, "who", name=name, title=more), html(TEMPLATE, "titled", words=said)


def _size(model: MachineModel) -> tuple[str, str]:
    count = parameters(model.parameters) if model.parameters else "—"
    return count, gb(model.size_bytes) if model.size_bytes else ""


def _memory(model: MachineModel) -> tuple[str, str]:
    if not model.needs or model.memory is None:
        return ("the server's", "") if model.where == "server" else ("—", "")
    if model.where == "file":
        return _memory_of_file(model)
    needs = [(need, gb(need.needed_bytes).removesuffix(" GB")) for need in model.needs]
    unit = " GB" if model.needs[0].needed_bytes >= 1e8 else ""
    some = "" if model.fits else ": too large"
    drawn = html(TEMPLATE, "memory", needs=needs, unit=unit)
    return drawn, f"of {gb(model.memory.total_bytes)} {model.memory.label}{some}"


def _memory_of_file(model: MachineModel) -> tuple[str, str]:
    """Says what a file needs, against what is free now: other programs may have the rest."""
    [need] = model.needs
    free = core.free_ram_bytes()
    drawn = html(TEMPLATE, "memory", needs=[(need, gb(need.needed_bytes))], unit="", named=False)
    if free is None or not need.fits:
        return drawn, f"of {gb(model.memory.total_bytes)} {model.memory.label}" if model.memory else ""
    return drawn, f"of {gb(free)} free{': close other programs' if need.needed_bytes > free else ''}"


def _plan(model: MachineModel) -> tuple[str, str]:
    if model.where == "server":
        return "the server's pace", ""
    if model.pace is not None and model.is_estimate:
        plan, first = (seconds(each).replace("about ", "≈ ") for each in (model.pace.plan_s, model.pace.first_plan_s))
        return html(TEMPLATE, "estimate", plan=plan), f"estimate · first {first}"
    if model.pace is not None:
        precision = model.quantisation or model.pace.precision
        took = html(TEMPLATE, "pace", plan=seconds(model.pace.plan_s), precision=precision)
        return took, f"the first {seconds(model.pace.first_plan_s)}"
    if model.timing:
        return "measuring …", "some seconds"
    if model.can_be_timed:
        return "not timed", ""
    return "—", "" if model.fault or model.where == "index" else "once it is here"


def _state(model: MachineModel) -> tuple[str, str]:
    download = model.download
    if model.fault:
        return "✕ cannot be used", ""
    if download.state == "here":
        said = {
            "server": "its server answers",
            "shipped": "",
            "folder": "a folder of yours",
            "file": "used where it lies",
        }
        return "✓ ready", said.get(model.where, "downloaded")
    if not model.fits and not download.here_bytes:
        return "✕ too large", "for this memory"
    if download.moving or download.here_bytes:
        return _progress(model)
    if download.state == "failed":
        return "✕ failed", "nothing is here"
    return "↓ not here", ""


def _progress(model: MachineModel) -> tuple[str, str]:
    """Draws a bar between two lines: how much is here, and how fast it goes on."""
    download = model.download
    whole = download.all_bytes or model.size_bytes
    share = min(1.0, download.here_bytes / whole) if whole else 0.0
    amount = f"{gb(download.here_bytes)} of {gb(whole)}" if whole else gb(download.here_bytes)
    bar = {"name": model.name, "state": download.state, "amount": amount, "share": share}
    return html(TEMPLATE, "download", **bar), _how_fast(model, whole)


def _how_fast(model: MachineModel, whole: int) -> str:
    download = model.download
    if download.elsewhere:
        return "another program downloads it"
    if download.bytes_per_s and whole:
        left_s = (whole - download.here_bytes) / download.bytes_per_s
        return f"{gb(download.bytes_per_s)}/s · {left(left_s)} left"
    return {"waiting": "waits for its turn", "running": "↓ begins", "paused": "‖ paused", "failed": "✕ failed"}.get(
        download.state, ""
    )


EVERY_S = 1.0  # between two drawings of a download
ACTIONS_PX, IN_USE_PX = 250, 118
_ASKED, _FAULT, _SAID, _WHOLE = "delete-asked", "model-fault", "models-said", "models-whole"


_FILTER = "models-filter"
_MANY = 12


def filtered(models: Sequence[MachineModel]) -> Sequence[MachineModel]:
    """Draws a field that narrows a long list, and returns what it leaves."""
    if len(models) <= _MANY:
        return models
    said = st.text_input(
        "Filter the models",
        key=_FILTER,
        placeholder=f"Filter {len(models)} models",
        label_visibility="collapsed",
        icon=":material/search:",
        width=320,
    )
    wanted = (said or "").casefold().split()
    left = [each for each in models if all(word in f"{each.name} {each.owner}".casefold() for word in wanted)]
    if not left:
        st.caption("No model has such a name.")
    return left


def rows(models: Sequence[MachineModel], asked: str) -> None:
    """Draws all rows. ``asked``: the Conductor that the address names, which is marked."""
    st.session_state.pop(_WHOLE, None)  # the whole page is being drawn
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
        fixed = model.where in ("server", "file")
        now = model if fixed else core.machine_model(model.ref, current().settings)
        if _moving(now) != moving or now.here != model.here:
            settings.conductor_options.clear()
            st.rerun()
        with st.container(horizontal=True, vertical_alignment="center", key=f"model-cells-{number}"):
            st.html(cells(now))
            with st.container(horizontal=True, gap="xsmall", width=ACTIONS_PX, key=f"model-actions-{number}"):
                _actions(number, now, marked=marked)
                st.html("<i></i>")  # an empty container would give its place to the cells

    draw()


def _actions(number: int, model: MachineModel, *, marked: bool) -> None:
    name, download = inert(model.name), model.download
    if model.here and model.ref == settings.conductor():
        st.html(html(TEMPLATE, "in_use"), width=IN_USE_PX)
        if model.where == "file" and model.ref not in settings.BUILT_IN:
            _worker_button(number, model)
    elif model.here:
        _button(
            number, "use", "Use this one", "", lambda: _use(model), says=f"{name} plans the next run", primary=marked
        )
        if model.where == "file" and model.ref not in settings.BUILT_IN:
            _worker_button(number, model)
    elif download.elsewhere:
        return
    elif download.moving:
        _button(number, "pause", "Pause", ":material/pause:", lambda: core.pause([model]))
    elif model.where in ("hub", "index") and not model.fault and model.fits:
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
    if core.is_deletable(model, current().settings):
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


def _worker_button(number: int, model: MachineModel) -> None:
    says = f"{inert(model.name)} joins the pool *{offers.FILES_POOL}*, which answers the steps of the next run"
    key, glyph = f"worker-model-{number}", ":material/group_add:"
    st.button("As worker", key=key, icon=glyph, on_click=_as_worker, args=(model,), help=says, type="tertiary")


def _as_worker(model: MachineModel) -> None:
    try:
        pool = offers.add_worker(model, current().settings)
    except InspectorError as error:
        st.session_state[_FAULT] = str(error)
    else:
        settings.use_pool(str(pool))
        st.session_state[_SAID] = f"{inert(model.name)} is a worker of the next run, in the pool {offers.FILES_POOL}"
    st.session_state[_WHOLE] = True


def _use(model: MachineModel) -> None:
    try:
        core.require_file(model)
    except InspectorError as error:
        st.session_state[_FAULT] = str(error)
        st.session_state[_WHOLE] = True
        return
    settings.conductor_options.clear()
    settings.use_conductor(model.ref)
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
    settings.conductor_options.clear()
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
    dialog_scheme()
    chosen = model.ref == settings.conductor()
    instead = f" It is the Conductor of the next run; *{settings.SHIPPED}* takes its place." if chosen else ""
    size = f" {gb(model.size_bytes)} become free." if model.size_bytes else ""
    st.markdown(f"**{inert(model.name)}** is deleted from this machine.{size}{instead} It can be downloaded again.")
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
            settings.use_conductor(settings.SHIPPED)
        st.session_state[_SAID] = f"{inert(model.name)} was deleted: {gb(freed)} are free again"
    settings.conductor_options.clear()
    st.rerun()


# Around the rows.

log = logging.getLogger(__name__)

_AGAIN_S = 60
_AT_ONCE_S = 0.25
"""How long the page waits for the hub and for servers before it is drawn without."""
_POLL_S = 0.5
_FOLDER = "other-model"
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hub")


@st.cache_resource(ttl=_AGAIN_S, show_spinner=False)
def _hub_asked(_settings: Settings) -> "Future[bool]":
    return _thread.submit(core.hub_answers)


def settled() -> None:
    """Waits a moment for hub and servers; if they take longer, the page is drawn again once they have answered."""
    asked: tuple[Future[Any], ...] = (_hub_asked(current().settings), asked_servers())
    if wait_for(asked, timeout=_AT_ONCE_S).not_done:
        rerun_when(lambda: all(each.done() for each in asked), _POLL_S)


def _hub_answers() -> bool | None:
    """Tells whether the hub answers; None: it has not been heard yet."""
    asked = _hub_asked(current().settings)
    if not asked.done():
        return None
    if (error := asked.exception()) is not None:
        log.warning("whether the hub answers could not be found out: %s", error)
        return False
    return asked.result()


def header() -> None:
    """Draws one line: what this machine has room for, and whether there is a network."""
    folder, free_bytes = core.room()
    memory = core.memory()
    free_memory = core.free_ram_bytes()
    free = "" if free_memory is None else gb(free_memory)
    room = {
        "free_memory": free,
        "total": gb(memory.total_bytes),
        "memory": memory.label,
        "folder": folder,
        "free": gb(free_bytes),
    }
    hub = {"address": core.hub_address(), "answers": _hub_answers(), "offline": core.is_offline()}
    st.html(html(TEMPLATE, "header", **room, **hub))


def places(models: Sequence[MachineModel]) -> None:
    """Draws where models of other programs were looked for, and the adapters that are there."""
    found = core.found_files(current().settings)
    if adapters := [each for each in found.files if each.is_adapter]:
        st.html(
            html(
                TEMPLATE,
                "adapters",
                adapters=[(each.title, plain(str(each.path)), gb(each.size_bytes)) for each in adapters],
            )
        )
    if not found.is_complete:
        st.caption("There are more files than this page looks at in one go: load it again to see further ones.")
    none = not any(model.where == "file" for model in models)
    if none:
        st.html(html(TEMPLATE, "nothing_found"))
    with st.expander("Where this page looks for models of other programs", expanded=none):
        st.html(
            html(
                TEMPLATE,
                "places",
                places=[(core.OWNERS[each.owner], plain(str(each.folder)), each) for each in found.places],
            )
        )


def others(models: Sequence[MachineModel]) -> None:
    """Draws what to do for models that are not in the list."""
    if any(model.where == "server" for model in models) and core.memory().device == "cpu":
        st.caption(
            ":material/dns: A model server such as llama.cpp or Ollama is often quicker than weights in this process. "
            "On two cores llama.cpp wrote twice as many tokens a second as this program does in 4 bits, at 0.5B and at "
            "7B, and read a prompt about as quickly. Time a model here, and compare before you choose."
        )
    st.subheader("Other models", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "A model of the hub, a file or a folder",
            key=_FOLDER,
            placeholder="owner/name, owner/name:Q4_K_M, FILE.gguf or a folder",
            width=420,
            on_change=_show_other,
        )
        st.button("Show it", key="show-other", on_click=_show_other)
    own = current().settings.models_folder
    st.markdown(
        f"**Without a network**: copy a GGUF file, or a folder that `hf download OWNER/NAME --local-dir NAME` made on "
        f"another machine, into `{_code(str(own))}`. This list then shows it under its name. A folder must contain "
        "`config.json`, `tokenizer.json` and the `*.safetensors` files."
    )


def _code(text: str) -> str:
    return inert(text).replace("\\", "") if "`" not in text else text.replace("`", "'")


def _show_other() -> None:
    if given := str(st.session_state.get(_FOLDER) or "").strip():
        st.query_params["model"] = given
