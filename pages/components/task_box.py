"""Where a run begins: the task, examples, and what it runs with, in one card."""

from dataclasses import dataclass

import streamlit as st

from conductor_core.engine.catalogue import EXAMPLES, ConductorOption, list_conductors
from conductor_core.engine.pool import read_specs
from conductor_core.engine.request import RunRequest, limits_from
from conductor_core.errors import InspectorError
from conductor_core.events import Limits
from conductor_core.settings import Settings
from pages.components.session import current
from pages.components.words import inert

BUILT_IN_POOLS = {
    "rehearsal": "rehearsal · simulated, no key needed",
    "paper": "paper · seven real models, keys needed",
}
TASK, CONDUCTOR, POOL, EXCLUDED = "task", "conductor-choice", "pool-choice", "excluded"
ERROR = "start-error"


@dataclass(frozen=True)
class Choices:
    """What the next run is to be made with."""

    conductor: str
    pool: str
    excluded: tuple[str, ...]
    limits: Limits


def task_box() -> None:
    """Draws the card. Starting a run puts its id into the address (``?run=``); a refusal is shown in the card."""
    settings = current().settings
    with st.container(border=True, key="task-box"):
        st.text_area(
            "Task",
            key=TASK,
            height=68,
            label_visibility="collapsed",
            placeholder="Type a task, or take an example. The Conductor writes a workflow for it.",
        )
        # Settings come first in the code because the buttons need their values, and last on the page.
        actions = st.container(horizontal=True, vertical_alignment="center")
        choices = _settings_expander(settings)
        with actions:
            _examples()
            st.space("stretch")
            st.button("Plan only", key="plan-only", on_click=_start, args=(choices, True), icon=":material/schema:")
            st.button(
                "Run",
                key="run",
                type="primary",
                on_click=_start,
                args=(choices, False),
                icon=":material/play_arrow:",
                shortcut="Mod+Enter",
            )
        if message := st.session_state.pop(ERROR, None):
            st.error(message, icon=":material/error:")


def _examples() -> None:
    for number, example in enumerate(EXAMPLES):
        st.button(
            example.title,
            key=f"example-{number}",
            type="tertiary",
            help=f"{example.shape}: {example.task}",
            on_click=_take_example,
            args=(example.task,),
        )


def _take_example(task: str) -> None:
    st.session_state[TASK] = task


def _start(choices: Choices | None, plan_only: bool) -> None:
    task = st.session_state.get(TASK, "").strip()
    if not task:
        st.session_state[ERROR] = "There is no task yet: type one, or take an example."
        return
    if choices is None:
        st.session_state[ERROR] = "The pool cannot be used: see the settings below."
        return
    session = current()
    request = RunRequest(
        task=task,
        limits=choices.limits,
        seed=session.settings.seed,
        by="page",
        plan_only=plan_only,
        excluded=choices.excluded,
    )
    try:
        st.query_params["run"] = session.host.start(request, choices.conductor, choices.pool)
    except InspectorError as error:
        st.session_state[ERROR] = str(error)


@st.cache_data(ttl=30, show_spinner=False)
def conductor_options() -> dict[str, ConductorOption]:
    """By name. Kept for half a minute: looking at disks and memory is not free."""
    return {option.ref: option for option in list_conductors(current().settings)}


def _settings_expander(settings: Settings) -> Choices | None:
    """The choices, or None (with the reason on the page) if the pool cannot be read."""
    # The label sums up what is chosen inside, so it reads the widgets' state of the last run of the script.
    conductor = str(st.session_state.get(CONDUCTOR) or settings.conductor)
    pool = str(st.session_state.get(POOL) or settings.pool)
    try:
        names = [spec.name for spec in read_specs(pool)]
        fault = ""
    except InspectorError as error:
        names, fault = [], str(error)
    steps = st.session_state.get("max-steps", settings.max_steps)
    wall_s = st.session_state.get("max-seconds", settings.max_seconds)
    duration = f"{wall_s:g} s" if wall_s else "no time limit"
    label = f"Conductor: {conductor} · Pool: {pool}, {len(names)} workers · Limits: {steps} steps, {duration}"
    with st.expander(label, icon=":material/tune:", expanded=bool(fault), key="settings"):
        left, middle, right = st.columns(3, gap="large")
        with left:
            _choose_conductor(settings)
        with middle:
            _choose_pool(settings, names, fault)
        with right:
            limits = _choose_limits(settings)
    if fault:
        return None
    excluded = tuple(name for name in st.session_state.get(EXCLUDED, ()) if name in names)
    return Choices(conductor=conductor, pool=pool, excluded=excluded, limits=limits)


def _choose_conductor(settings: Settings) -> None:
    options = conductor_options()
    offered = list(dict.fromkeys([settings.conductor, *options]))
    chosen = st.selectbox(
        "Conductor",
        offered,
        key=CONDUCTOR,
        accept_new_options=True,
        help="One of the list, a folder, a hub id, or URL#MODEL of an OpenAI-compatible server.",
    )
    option = options.get(chosen or "")
    if option is not None:
        st.caption(_in_words(option))
    else:
        st.caption("A folder, a hub id, or URL#MODEL of a server.")


def _in_words(option: ConductorOption) -> str:
    """Size, memory needed against memory there, and whether it is on this machine."""
    size = f"{option.size_bytes / 1e9:.1f} GB" if option.size_bytes >= 1e8 else f"{option.size_bytes / 1e6:.0f} MB"
    there = "on this machine" if option.downloaded else "to be downloaded at the first run"
    memory = f"needs {option.memory_needed_bytes / 1e9:.1f} of {option.memory_there_bytes / 1e9:.1f} GB {option.memory}"
    glyph = ":material/check_circle:" if option.runnable else ":material/warning:"
    return f"{glyph} {inert(option.name)} · {size}, {there} · {memory}. {inert(option.reason)}"


def _choose_pool(settings: Settings, names: list[str], fault: str) -> None:
    offered = list(dict.fromkeys([settings.pool, *BUILT_IN_POOLS]))
    st.selectbox(
        "Pool",
        offered,
        key=POOL,
        accept_new_options=True,
        format_func=lambda ref: BUILT_IN_POOLS.get(ref, ref),
        help="A built-in pool, or the path of a pool file (TOML).",
    )
    if fault:
        st.error(fault, icon=":material/error:")
        return
    st.multiselect("Leave out", names, key=EXCLUDED, placeholder="No worker is left out")


def _choose_limits(settings: Settings) -> Limits:
    base = limits_from(settings)
    steps_at, seconds_at = st.columns(2)
    steps = steps_at.number_input("Steps at most", 1, 32, base.max_steps, key="max-steps")
    wall_s = seconds_at.number_input(
        "Seconds", 1.0, None, base.max_seconds, step=60.0, format="%.0f", key="max-seconds"
    )
    tokens_at, usd_at = st.columns(2)
    tokens = tokens_at.number_input("Tokens", 1, None, base.max_tokens, placeholder="no limit", key="max-tokens")
    cost = usd_at.number_input("USD", 0.0, None, base.max_usd, placeholder="no limit", key="max-usd")
    depth = st.number_input("Recursive rounds", 0, 8, base.max_depth, key="max-depth")
    return Limits(max_steps=steps, max_tokens=tokens, max_usd=cost, max_seconds=wall_s, max_depth=depth)
