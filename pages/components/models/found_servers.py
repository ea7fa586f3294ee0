"""Model servers on this machine, on the Workers page: as the pool or as the Conductor. Some need a key first."""

from collections.abc import Sequence

import streamlit as st

from conductor_core.chat import WorkerSpec
from conductor_core.engine.catalogue import FoundServer, find_servers, pool_file_text, ready_workers
from conductor_core.engine.real_workers import save_conductors, save_pool
from conductor_core.errors import InspectorError
from pages.components.look.words import inert
from pages.components.run import run_settings
from pages.components.shell.runtime import current

FOUND = "found-servers"
CHOSEN_POOL = "workers-pool"
LOCAL = "local-servers"
_SAID = "found-servers-said"
_VARIABLES = "found-servers-variables"


def found_servers() -> None:
    st.subheader("Model servers on this machine", anchor=False)
    with st.container(horizontal=True, vertical_alignment="center"):
        look = st.button("Look for servers", key="look", icon=":material/radar:")
        st.caption(
            "Asks 127.0.0.1 on the usual ports of Ollama, LM Studio, vLLM, llama.cpp, SGLang and LiteLLM; "
            "`CONDUCTOR_SERVER_PORTS` names others."
        )
    if look:
        with st.spinner("Asking the ports"):
            _look()
    if (said := st.session_state.pop(_SAID, None)) is not None:
        good, text = said
        (st.success if good else st.error)(inert(text), icon=":material/check:" if good else ":material/error:")
    servers: tuple[FoundServer, ...] | None = st.session_state.get(FOUND)
    if servers is None:
        return
    if not servers:
        none = "No model server answered. Start one, for instance `ollama serve`, and look again."
        st.info(none, icon=":material/info:")
    for server in servers:
        if server.needs_key:
            _locked(server)
    if found := ready_workers(servers):
        _offer(found)


def _look() -> None:
    try:
        st.session_state[FOUND] = find_servers(st.session_state.get(_VARIABLES, {}), current().settings)
    except InspectorError as error:
        st.session_state[_VARIABLES] = {}
        st.session_state[_SAID] = (False, str(error))


def _locked(server: FoundServer) -> None:
    """Draws a server that needs a key. The person names the key's variable, never the key itself."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"locked-{server.base_url}"):
        named = f"**{inert(server.title)}** at {inert(server.base_url)}"
        st.markdown(f":material/key: {named} needs a key", width="content")
        key = f"variable-{server.base_url}"
        st.text_input(
            "Variable that holds its key",
            key=key,
            placeholder="Its variable, as LITELLM_API_KEY",
            label_visibility="collapsed",
            width=260,
            help="The name of an environment variable of the inspector, not the key itself.",
        )
        st.button("Ask with it", key=f"ask-{server.base_url}", on_click=_ask_with, args=(server.base_url, key))
        if server.base_url in st.session_state.get(_VARIABLES, {}):
            st.caption("It refused that key.")


def _ask_with(base_url: str, key: str) -> None:
    variable = str(st.session_state.get(key) or "").strip()
    if variable:
        st.session_state[_VARIABLES] = {**st.session_state.get(_VARIABLES, {}), base_url: variable}
        _look()


def _offer(found: Sequence[WorkerSpec]) -> None:
    names = [spec.name for spec in found]
    columns = {"Worker": names, "Model": [spec.model for spec in found], "Server": [spec.base_url for spec in found]}
    st.dataframe(columns, hide_index=True)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button(
            f"Use {'these' if len(found) > 1 else 'this'} as the pool",
            key="use-found",
            type="primary",
            icon=":material/groups:",
            on_click=_use_found,
            args=(found,),
        )
        chosen = st.selectbox("Conductor", names, key="found-conductor", width=260, label_visibility="collapsed")
        spec = found[names.index(chosen or names[0])]
        icon, given = ":material/music_note:", (found, spec)
        st.button("Use as Conductor", key="use-as-conductor", icon=icon, on_click=_conduct, args=given)
    with st.expander("The same as a pool file, to save and edit"):
        st.code(pool_file_text(found), language="toml")


def _use_found(found: Sequence[WorkerSpec]) -> None:
    """Writes the pool file into the data folder and chooses it."""
    try:
        file = save_pool(LOCAL, found, current().settings)
    except InspectorError as error:
        st.session_state[_SAID] = (False, str(error))
        return
    run_settings.use_pool(str(file))
    st.session_state[CHOSEN_POOL] = str(file)


def _conduct(found: Sequence[WorkerSpec], spec: WorkerSpec) -> None:
    """Chooses a found model as Conductor: by its address, or by a conductors file where it needs a key."""
    ref = f"{spec.base_url}#{spec.model}"
    if spec.api_key_env is not None:
        try:
            save_conductors(LOCAL, [each for each in found if each.api_key_env is not None], current().settings)
        except InspectorError as error:
            st.session_state[_SAID] = (False, str(error))
            return
        run_settings.conductor_options.clear()
        ref = spec.name
    run_settings.use_conductor(ref)
    st.session_state[_SAID] = (True, f"Conductor of the next run: {ref}")
