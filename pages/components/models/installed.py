"""The Models page: its rows, a Conductor each, redrawn while it is downloaded or timed; and what is around them.

Around are room, memory, whether the hub answers, and models from elsewhere.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

import streamlit as st
from markupsafe import Markup

from conductor_core.engine import models as core
from conductor_core.engine import offers
from conductor_core.engine.models import MachineModel
from conductor_core.settings import Settings
from conductor_core.text import plain
from pages.components.app.session import current
from pages.components.app.widgets import (
    across,
    button,
    confirm,
    kept_fault,
    rerun_when,
    search_field,
    show_fault,
    text_button,
)
from pages.components.run import settings
from pages.components.run.preflight import asked_servers
from pages.components.style.formats import html, inert

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


def cells(model: MachineModel) -> Markup:
    """Draws what is known of a Conductor: who, size, memory, seconds, state."""
    size = parameters(model.parameters) if model.parameters else "—", gb(model.size_bytes) if model.size_bytes else ""
    drawn = (_who(model), size, _memory(model), _plan(model), _state(model))
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
    told = (whence, model.quantisation, licence, model.note) if model.where == "file" else (licence, whence)
    said = " · ".join(filter(None, told))
    name = model.name.partition(": ")[2] or model.name
    more = plain(f"{model.ref} ({model.model})" if model.owner else model.ref)
    return html(TEMPLATE, "who", name=name, title=more), html(TEMPLATE, "titled", words=said)


def _memory(model: MachineModel) -> tuple[str, str]:
    if not model.needs or model.memory is None:
        return ("the server's", "") if model.where == "server" else ("—", "")
    of, first = f"of {gb(model.memory.total_bytes)} {model.memory.label}", model.needs[0]
    if model.where != "file":
        needs = [(need, gb(need.needed_bytes).removesuffix(" GB")) for need in model.needs]
        drawn = html(TEMPLATE, "memory", needs=needs, unit=" GB" if first.needed_bytes >= 1e8 else "")
        return drawn, f"{of}{'' if model.fits else ': too large'}"
    drawn, free = html(TEMPLATE, "memory", needs=[(first, gb(first.needed_bytes))], unit="", named=False), None
    if first.fits and (free := core.free_ram_bytes()) is not None:  # other programs may have the rest
        of = f"of {gb(free)} free{': close other programs' if first.needed_bytes > free else ''}"
    return drawn, of


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
        said = {"server": "its server answers", "shipped": "", "folder": "a folder of yours"}
        return "✓ ready", {**said, "file": "used where it lies"}.get(model.where, "downloaded")
    if not model.fits and not download.here_bytes:
        return "✕ too large", "for this memory"
    if not download.moving and not download.here_bytes:
        return ("✕ failed", "nothing is here") if download.state == "failed" else ("↓ not here", "")
    # A bar between two lines: how much is here, and how fast it goes on.
    whole = download.all_bytes or model.size_bytes
    share = min(1.0, download.here_bytes / whole) if whole else 0.0
    amount = f"{gb(download.here_bytes)} of {gb(whole)}" if whole else gb(download.here_bytes)
    words = {"waiting": "waits for its turn", "running": "↓ begins", "paused": "‖ paused", "failed": "✕ failed"}
    how_fast = words.get(download.state, "")
    if download.elsewhere:
        how_fast = "another program downloads it"
    elif download.bytes_per_s and whole:
        left_s = (whole - download.here_bytes) / download.bytes_per_s
        how_fast = f"{gb(download.bytes_per_s)}/s · {left(left_s)} left"
    bar = html(TEMPLATE, "download", name=model.name, state=download.state, amount=amount, share=share)
    return bar, how_fast


EVERY_S = 1.0  # between two drawings of a download
ACTIONS_PX, IN_USE_PX = 250, 118
_ASKED, _FAULT, _SAID, _WHOLE = "delete-asked", "model-fault", "models-said", "models-whole"


_MANY = 12


def filtered(models: Sequence[MachineModel]) -> Sequence[MachineModel]:
    """Draws a field that narrows a long list, and returns what it leaves."""
    if len(models) <= _MANY:
        return models
    said = search_field("models-filter", "Filter the models", placeholder=f"Filter {len(models)} models", width=320)
    wanted = said.casefold().split()
    left = [each for each in models if all(word in f"{each.name} {each.owner}".casefold() for word in wanted)]
    if not left:
        st.caption("No model has such a name.")
    return left


def rows(models: Sequence[MachineModel], asked: str) -> None:
    """Draws all rows. ``asked``: the Conductor that the address names, which is marked."""
    st.session_state.pop(_WHOLE, None)  # the whole page is being drawn
    show_fault(_FAULT)
    if said := st.session_state.pop(_SAID, None):
        st.toast(said, icon=":material/check_circle:")
    with st.container(key="machine-models"):
        with st.container(key="model-row-head", horizontal=True):
            st.html(html(TEMPLATE, "machine_head", names=HEADS))
        for number, model in enumerate(models):
            marked = "asked-" if model.ref == asked else ""
            with st.container(key=f"model-row-{marked}{number}"):
                _row(number, model, marked=bool(marked))


def _row(number: int, model: MachineModel, *, marked: bool) -> None:
    moving = model.timing or model.download.moving

    @st.fragment(run_every=EVERY_S if moving else None)
    def draw() -> None:
        if st.session_state.pop(_WHOLE, False):
            st.rerun()
        fixed = model.where in ("server", "file")
        now = model if fixed else core.machine_model(model.ref, current().settings)
        if (now.timing or now.download.moving) != moving or now.here != model.here:
            settings.conductor_options.clear()
            st.rerun()
        with across(f"model-cells-{number}"):
            st.html(cells(now))
            with st.container(horizontal=True, gap="xsmall", width=ACTIONS_PX, key=f"model-actions-{number}"):
                _actions(number, now, kind="primary" if marked else "secondary")
                st.html("<i></i>")  # an empty container would give its place to the cells

    draw()


def _actions(number: int, model: MachineModel, *, kind: str) -> None:
    name, download, of = inert(model.name), model.download, f"model-{number}"
    if model.here and model.ref == settings.conductor():
        st.html(html(TEMPLATE, "in_use"), width=IN_USE_PX)
    elif model.here:
        button("Use this one", f"use-{of}", _use, model, help=f"{name} plans the next run", type=kind)
    elif download.elsewhere:
        return
    elif download.moving:
        button("Pause", f"pause-{of}", core.pause, [model], icon="pause")
    elif model.where in ("hub", "index") and not model.fault and model.fits:
        word = "Resume" if download.here_bytes else "Try again" if download.state == "failed" else "Download"
        icon = "play_arrow" if download.here_bytes else "download"
        button(word, f"download-{of}", core.begin, [model], icon=icon, type=kind)
    if model.here and model.where == "file" and model.ref not in settings.BUILT_IN:
        says = f"{name} joins the pool *{offers.FILES_POOL}*, which answers the steps of the next run"
        text_button("As worker", f"worker-{of}", _as_worker, model, icon="group_add", help=says)
    if not model.here and (download.moving or download.here_bytes):
        button("Cancel", f"cancel-{of}", _cancel, model, help="Stops the download and deletes what is here of it")
        return
    if model.can_be_timed:
        says = f"Measures how long a plan of {name} takes here: some seconds of the processor, nothing is downloaded"
        time = (core.time_soon, model, current().settings)
        text_button("Time it", f"time-{of}", *time, icon="timer", help=says, disabled=model.timing)
    if core.is_deletable(model, current().settings):
        says = f"Delete {name}"
        with st.container(width="content", key=f"icon-only-delete-{number}"):
            text_button(says, f"delete-{of}", _ask, model.ref, icon="delete", help=says)


def _as_worker(model: MachineModel) -> None:
    st.session_state[_WHOLE] = True
    with kept_fault(_FAULT):
        settings.use_pool(str(offers.add_worker(model, current().settings)))
        st.session_state[_SAID] = f"{inert(model.name)} is a worker of the next run, in the pool {offers.FILES_POOL}"


def _use(model: MachineModel) -> None:
    st.session_state[_WHOLE] = True
    with kept_fault(_FAULT):
        core.require_file(model)
        settings.conductor_options.clear()
        settings.use_conductor(model.ref)
        st.session_state[_SAID] = f"Conductor of the next run: {inert(model.name)}"


def _ask(ref: str) -> None:
    st.session_state[_ASKED], st.session_state[_WHOLE] = ref, True


def _cancel(model: MachineModel) -> None:
    st.session_state[_WHOLE] = True
    with kept_fault(_FAULT):
        core.cancel(model)
    settings.conductor_options.clear()


def question(models: Sequence[MachineModel]) -> None:
    """Draws the question whether to delete a model, if somebody wants to."""
    model = next((each for each in models if each.ref == st.session_state.get(_ASKED)), None)
    if model is None:
        st.session_state.pop(_ASKED, None)
        return
    chosen = model.ref == settings.conductor()
    instead = f" It is the Conductor of the next run; *{settings.SHIPPED}* takes its place." if chosen else ""
    size = f" {gb(model.size_bytes)} become free." if model.size_bytes else ""
    said = f"**{inert(model.name)}** is deleted from this machine.{size}{instead} It can be downloaded again."

    def delete() -> None:
        with kept_fault(_FAULT):
            freed = core.remove(model, current().settings)
            if chosen:
                settings.use_conductor(settings.SHIPPED)
            st.session_state[_SAID] = f"{inert(model.name)} was deleted: {gb(freed)} are free again"
        settings.conductor_options.clear()

    confirm(_ASKED, "Delete this model?", said, "Delete", "delete", delete)


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


def header() -> None:
    """Draws one line: what this machine has room for, and whether there is a network."""
    (folder, free_bytes), memory, free = core.room(), core.memory(), core.free_ram_bytes()
    room = {"total": gb(memory.total_bytes), "memory": memory.label, "folder": folder, "free": gb(free_bytes)}
    asked = _hub_asked(current().settings)
    answers: bool | None = None  # it has not been heard yet
    if asked.done():
        if (error := asked.exception()) is not None:
            log.warning("whether the hub answers could not be found out: %s", error)
        answers = error is None and asked.result()
    hub = {"address": core.hub_address(), "answers": answers, "offline": core.is_offline()}
    st.html(html(TEMPLATE, "header", free_memory="" if free is None else gb(free), **room, **hub))


def places(models: Sequence[MachineModel]) -> None:
    """Draws where models of other programs were looked for, and the adapters that are there."""
    found = core.found_files(current().settings)
    if adapters := [each for each in found.files if each.is_adapter]:
        named = [(each.title, plain(str(each.path)), gb(each.size_bytes)) for each in adapters]
        st.html(html(TEMPLATE, "adapters", adapters=named))
    if not found.is_complete:
        st.caption("There are more files than this page looks at in one go: load it again to see further ones.")
    none = not any(model.where == "file" for model in models)
    if none:
        st.html(html(TEMPLATE, "nothing_found"))
    with st.expander("Where this page looks for models of other programs", expanded=none):
        looked = [(core.OWNERS[each.owner], plain(str(each.folder)), each) for each in found.places]
        st.html(html(TEMPLATE, "places", places=looked))


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
        button("Show it", "show-other", _show_other)
    own = str(current().settings.models_folder)
    own = own.replace("`", "'") if "`" in own else inert(own).replace("\\", "")
    st.markdown(
        f"**Without a network**: copy a GGUF file, or a folder that `hf download OWNER/NAME --local-dir NAME` made on "
        f"another machine, into `{own}`. This list then shows it under its name. A folder must contain "
        "`config.json`, `tokenizer.json` and the `*.safetensors` files."
    )


def _show_other() -> None:
    if given := str(st.session_state.get(_FOLDER) or "").strip():
        st.query_params["model"] = given
