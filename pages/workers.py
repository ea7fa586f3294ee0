"""Workers: who answers the steps, what they cost, whether they would answer now, and who is left out."""

import streamlit as st

from conductor_core.chat import WorkerSpec
from conductor_core.engine.catalogue import Health, check_worker, discover_local_servers, key_state, pool_file_text
from conductor_core.engine.pool import read_specs
from conductor_core.errors import InspectorError
from pages.components.session import current
from pages.components.task_box import BUILT_IN_POOLS, EXCLUDED, POOL
from pages.components.words import inert

HEALTH = "worker-health"
FOUND = "found-servers"


def show() -> None:
    st.title("Workers", anchor=False)
    settings = current().settings
    pool = _choose_pool(str(st.session_state.get(POOL) or settings.pool))
    try:
        specs = read_specs(pool)
    except InspectorError as error:
        st.error(str(error), icon=":material/error:")
        return
    if any(spec.simulated for spec in specs):
        st.info(
            "These workers are **simulated**: they know the answers of a rehearsal world and stand for no vendor's "
            "model. Nothing leaves this machine and nothing is paid.",
            icon=":material/theater_comedy:",
        )
    _check_all(pool, specs)
    for spec in specs:
        _card(pool, spec)
    _local_servers()


def _choose_pool(pool: str) -> str:
    offered = list(dict.fromkeys([pool, *BUILT_IN_POOLS]))
    chosen = st.selectbox(
        "Pool",
        offered,
        accept_new_options=True,
        format_func=lambda ref: BUILT_IN_POOLS.get(ref, ref),
        help="The pool that the Run page uses. A built-in pool, or the path of a pool file (TOML).",
        key="workers-pool",
    )
    chosen = chosen or pool
    st.session_state[POOL] = chosen
    return str(chosen)


def _check_all(pool: str, specs: tuple[WorkerSpec, ...]) -> None:
    if not st.button(
        "Check all", icon=":material/network_check:", help="Asks each provider for its models; costs nothing."
    ):
        return
    bar = st.progress(0.0, "Asking each worker's provider")
    for number, spec in enumerate(specs):
        bar.progress(number / len(specs), f"Asking {inert(spec.name)}")
        _remember(pool, spec, check_worker(spec, current().settings))
    bar.empty()


def _remember(pool: str, spec: WorkerSpec, health: Health) -> None:
    st.session_state.setdefault(HEALTH, {})[pool, spec.name] = health


def _card(pool: str, spec: WorkerSpec) -> None:
    left_out: list[str] = st.session_state.setdefault(EXCLUDED, [])
    with st.container(border=True, key=f"worker-{spec.name}"):
        who, what, state = st.columns([3, 3, 3], gap="medium", vertical_alignment="center")
        with who:
            st.markdown(f"**{inert(spec.name)}**")
            st.caption(inert(spec.description) or "no description")
        with what:
            st.markdown(
                f"{inert(spec.model)}" + (" · :orange-badge[simulated]" if spec.simulated else f" · {spec.provider}")
            )
            st.caption(_price(spec) + (f" · {inert(spec.base_url)}" if spec.base_url else ""))
        with state:
            _state(pool, spec)
            with st.container(horizontal=True, vertical_alignment="center"):
                used = st.toggle(
                    "In use",
                    value=spec.name not in left_out,
                    key=f"use-{spec.name}",
                    help="Left out: no plan may name it.",
                )
                if st.button("Check", key=f"check-{spec.name}", type="tertiary", icon=":material/network_check:"):
                    with st.spinner("Asking the provider"):
                        _remember(pool, spec, check_worker(spec, current().settings))
                    st.rerun()
    wanted = [name for name in left_out if name != spec.name] + ([] if used else [spec.name])
    if sorted(wanted) != sorted(left_out):
        st.session_state[EXCLUDED] = wanted


def _price(spec: WorkerSpec) -> str:
    if spec.usd_per_mtok is None:
        return "price unknown"
    price = spec.usd_per_mtok
    if not price.input and not price.output:
        return "free"
    return f"\\${price.input:g} in, \\${price.output:g} out per million tokens"


def _state(pool: str, spec: WorkerSpec) -> None:
    health: Health | None = st.session_state.get(HEALTH, {}).get((pool, spec.name))
    if health is not None:
        colour, glyph = ("green", "check_circle") if health.ok else ("red", "error")
        took = f" · {health.latency_ms:.0f} ms" if health.latency_ms is not None else ""
        st.markdown(f":{colour}[:material/{glyph}: {inert(health.detail)}]{took}")
    elif spec.simulated:
        st.markdown(":material/check_circle: always there")
    else:
        st.markdown(":material/help: not checked yet")
    if key := key_state(spec):
        missing = key.endswith("missing")
        st.markdown(f":{'orange' if missing else 'green'}[:material/key: {inert(key)}]")


def _local_servers() -> None:
    st.subheader("Model servers on this machine", anchor=False)
    with st.container(horizontal=True, vertical_alignment="center"):
        look = st.button("Look for servers", icon=":material/radar:")
        st.caption("Asks 127.0.0.1 on the usual ports of Ollama, LM Studio, vLLM, llama.cpp, SGLang and LiteLLM.")
    if look:
        with st.spinner("Asking the usual ports"):
            st.session_state[FOUND] = discover_local_servers()
    found: tuple[WorkerSpec, ...] | None = st.session_state.get(FOUND)
    if found is None:
        return
    if not found:
        st.info(
            "No model server answered. Start one, for instance `ollama serve`, and look again.", icon=":material/info:"
        )
        return
    st.dataframe(
        {
            "Worker": [spec.name for spec in found],
            "Model": [spec.model for spec in found],
            "Server": [spec.base_url for spec in found],
        },
        hide_index=True,
    )
    st.caption("As a pool file: save it, and give its path as the pool.")
    st.code(pool_file_text(found), language="toml")


show()
