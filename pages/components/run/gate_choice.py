"""When the next run waits for an approval."""

from collections.abc import Callable, Sequence

import streamlit as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.providers.servers import servers
from conductor_core.run.request import read_gate
from pages.components.style.formats import inert

GATES, ABOVE_USD = "gates", "gate-above-usd"
_OFFERED = ("plan", "steps")


def chosen(rules: Sequence[str], above_usd: float | None) -> tuple[str, ...]:
    """Returns what the fields say now, and the arguments where they are not drawn yet. It may hold what is no gate."""
    said = [*st.session_state.get(GATES, rules)]
    if (usd := st.session_state.get(ABOVE_USD, above_usd)) is not None:
        said.append(f"usd:{usd:g}")
    return tuple(dict.fromkeys(said))


def choose(
    specs: Sequence[WorkerSpec],
    rules: Sequence[str],
    above_usd: float | None,
    keep: Callable[[str, str], None],
) -> None:
    """Draws the fields. ``rules`` and ``above_usd``: what is chosen before anyone changes them on this page."""
    providers = sorted({f"provider:{name}" for spec in specs if not spec.simulated for name in servers(spec)})
    offered = list(dict.fromkeys([*_OFFERED, *providers, *rules]))
    st.multiselect(
        "Wait for approval",
        offered,
        list(rules),
        key=GATES,
        format_func=in_words,
        placeholder="never",
        accept_new_options=True,
        on_change=keep,
        args=("gates", GATES),
        help="The run waits until somebody approves, on this page or in a terminal. You may also type step:2 or "
        "provider:NAME.",
        persist_state="session",
    )
    st.number_input(
        "Wait above USD",
        0.0,
        None,
        above_usd,
        key=ABOVE_USD,
        placeholder="never",
        on_change=keep,
        args=("gate_above_usd", ABOVE_USD),
        help="Waits if the run may cost more than this, or if a price is unknown.",
        persist_state="session",
    )
    for text in st.session_state.get(GATES, ()):
        try:
            read_gate(text)
        except BadInput as error:
            st.error(inert(str(error)), icon=":material/error:")


def in_words(text: str) -> str:
    """Says when a gate holds a run back; returns what is no gate as it is."""
    try:
        gate = read_gate(text)
    except BadInput:
        return text
    match gate.rule:
        case "plan":
            return "before any worker"
        case "steps":
            return "before every step"
        case "step":
            return f"before step {gate.number}"
        case "usd":
            return f"above ${gate.usd:g}"
        case "provider":
            return f"before {gate.provider}"
