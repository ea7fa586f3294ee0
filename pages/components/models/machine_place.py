"""Around the rows of the Models page: room, memory, whether the hub answers, and models from elsewhere."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from html import escape
from typing import Any

import streamlit as st

from conductor_core.engine import machine_models as core
from conductor_core.engine.machine_models import MachineModel
from conductor_core.settings import Settings
from pages.components.look.words import inert
from pages.components.models.machine_words import gb
from pages.components.run.larger_conductor import asked_servers
from pages.components.shell.runtime import current

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
    if not wait_for(asked, timeout=_AT_ONCE_S).not_done:
        return

    @st.fragment(run_every=_POLL_S)
    def wait() -> None:
        if all(each.done() for each in asked):
            st.rerun()

    wait()


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
    address = escape(core.hub_address())
    away = "downloads are off: HF_HUB_OFFLINE is set" if core.is_offline() else f"no network: {address} does not answer"
    hub = {
        None: f"{address}: asking …",
        True: f"✓ {address} answers",
        False: f'<span class="no-network">✕ {away}. What to do with a folder: see below.</span>',
    }[_hub_answers()]
    st.html(
        f'<div class="models-header muted"><span>{gb(memory.total_bytes)} {escape(memory.label)}</span>'
        f'<span title="{escape(str(folder))}">{gb(free_bytes)} free on disk</span><span>{hub}</span></div>'
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
            "A model of the hub, or a folder",
            key=_FOLDER,
            placeholder="owner/name, or the path of a folder",
            width=420,
            on_change=_show_other,
        )
        st.button("Show it", key="show-other", on_click=_show_other)
    own = current().settings.models_folder
    st.markdown(
        f"**Without a network**: download the model on another machine, for instance with `hf download OWNER/NAME "
        f"--local-dir NAME`, and copy that folder into `{_code(str(own))}`. It then stands in this list under the "
        "folder's name. It must hold `config.json`, `tokenizer.json` and the `*.safetensors` files."
    )


def _code(text: str) -> str:
    return inert(text).replace("\\", "") if "`" not in text else text.replace("`", "'")


def _show_other() -> None:
    if given := str(st.session_state.get(_FOLDER) or "").strip():
        st.query_params["model"] = given
