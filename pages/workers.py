"""Workers: who answers the steps, their prices, whether they would answer now, and who is left out."""

from pathlib import Path

import streamlit as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.models import check_all, check_worker, key_state
from conductor_core.engine.pools import read_specs
from conductor_core.errors import InspectorError
from conductor_core.text import plain
from pages.components.app.session import current
from pages.components.app.widgets import across, button, fault_box
from pages.components.models import tools, workers
from pages.components.models.workers import CHOSEN_POOL, TEMPLATE, found_servers, keys_and_small_models
from pages.components.run import settings
from pages.components.style.figures import agent_dot
from pages.components.style.formats import html, inert


def show() -> None:
    st.title("Workers", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pool = _choose_pool()
        ask_all = button("Check all", "check-all", icon="network_check", help="Asks each provider; costs nothing.")
    try:
        specs = read_specs(pool, current().settings)
    except InspectorError as error:
        fault_box(error)
        workers.conductors()
        found_servers()
        return
    if ask_all:
        with st.spinner("Asking everyone at once"):
            written, health_of = check_all([option.ref for option in workers.shown()], specs, current().settings)
        for ref, health in written.items():
            workers.keep_health(ref, health)
        for name, health in health_of.items():
            workers.keep_health((pool, name), health)
    names = [spec.name for spec in specs]
    with st.container(key="chosen-pool"):
        if any(spec.simulated for spec in specs):
            st.html(html(TEMPLATE, "simulated_pool"))
        with st.container(key="workers"):
            for number, spec in enumerate(specs):
                with across(f"worker-row-{number}"):
                    _row(pool, spec, names)
    tools.section(pool)
    workers.conductors()
    found_servers()
    keys_and_small_models()


def _choose_pool() -> str:
    def take() -> None:
        if chosen := st.session_state[CHOSEN_POOL]:
            settings.use_pool(str(chosen))

    offered = settings.offered_pools()
    st.selectbox(
        "Pool of the next run",
        offered,
        index=offered.index(settings.pool()),
        accept_new_options=True,
        format_func=settings.pool_label,
        help="The pool that the Run page uses. A built-in pool, or the path of a pool file (TOML).",
        key=CHOSEN_POOL,
        on_change=take,
    )
    return settings.pool()


def _row(pool: str, spec: WorkerSpec, names: list[str]) -> None:
    if (health := workers.kept_health((pool, spec.name))) is not None:
        state = workers.health_words(health, health.detail)
    else:
        state = ":material/check_circle: always available" if spec.simulated else workers.NOT_CHECKED
    key_now = key_state(spec, settings.typed_keys())
    if workers.row_and_check(f"worker-{spec.name}", inert(spec.name), *_who(spec, names), state, key_now):
        with st.spinner("Asking the provider"):
            workers.keep_health((pool, spec.name), check_worker(spec, current().settings, settings.typed_keys()))
        st.rerun()
    key, used = f"use:{pool}:{spec.name}", spec.name not in settings.excluded()

    def use() -> None:
        settings.leave_out([spec.name], out=not st.session_state[key])

    used = st.toggle(f"Use {inert(spec.name)}", used, key, on_change=use, label_visibility="collapsed")
    st.html(html(TEMPLATE, "hidden", words="in use" if used else "left out"), width=60)


def _who(spec: WorkerSpec, names: list[str]) -> tuple[tuple[tuple[str, bool, str, str], ...], str]:
    """Returns what the cells of a row say, and all else about the worker."""
    where = "simulated" if spec.simulated else " · ".join(filter(None, (spec.provider, spec.base_url)))
    mark = html(TEMPLATE, "pill", words=where) if spec.simulated else where
    priced = "per million tokens" if spec.usd_per_mtok and not spec.simulated else ""
    cells = (
        (agent_dot(spec.name, names), True, spec.name, spec.description or "no description"),
        ("", False, Path(spec.model).name if spec.provider == "gguf" else spec.model, mark),
        ("", False, workers.price_words(spec.price), priced),
    )
    sees = "; accepts images" if "image" in spec.accepts else ""
    limits = f"{spec.max_concurrency} at once, {spec.timeout_s:g} s each"
    more = f"{spec.description} ({plain(spec.model)}; {where}{sees}; {limits})"
    return cells, more


show()
