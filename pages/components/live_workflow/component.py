"""The live workflow component: everything of a run that moves, drawn by the browser from our WebSocket route.

Python hands it a run's id and hears back what the person chose; tokens never pass through a Streamlit rerun.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import streamlit as st

from conductor_core.events import Path

# Holds the place until the script has loaded, so that nothing below jumps. The script brings the stylesheet, where
# `--room` and the heights above it come to the same.
_RESERVED = '<div class="reserved" style="min-height: calc(max(420px, 100vh - 249px) + 116px)"></div>'
_component = st.components.v2.component(
    "conductor-inspector.live_workflow", html=_RESERVED, js="index.js", isolate_styles=True
)

_Kind = Literal["edit", "go-on", "workers"]


@dataclass(frozen=True)
class Intent:
    """What the person asked for in the component.

    ``edit``: change the plan, at ``path`` if a step was selected. ``go-on``: do what ``go_on`` offered. ``workers``:
    choose other workers.
    """

    kind: _Kind
    run_id: str
    path: Path | None = None


@dataclass(frozen=True)
class LiveSelection:
    """What came back. Selecting a step alone stays in the browser: it costs no rerun."""

    intent: Intent | None

    @property
    def step(self) -> Path | None:
        """The step that was selected when the intent came."""
        return None if self.intent is None else self.intent.path


def live_workflow(
    run_id: str | None,
    *,
    key: str,
    editable: bool = False,
    go_on: str | None = None,
    open_steps: tuple[int, ...] | None = None,
    edited: dict[str, Any] | None = None,
    ended: bool = True,
    on_intent: Callable[[], None] | None = None,
    on_ended: Callable[[], None] | None = None,
) -> LiveSelection:
    """Shows the run live or as it ended; None: the empty state. Call it with the same ``key`` at every rerun.

    Args:
        editable: whether the page has an editor to open; the component then offers it.
        go_on: what a button beside the outcome offers, in a word or two; None: nothing.
        open_steps: while that editor is open, the numbers of the steps whose fields it shows, the last opened
            last: the graph then stands right below it, and the step opened last comes into view. None: it is closed.
        edited: what the graph draws in place of the run's plan, as ``edited_plan`` makes it; None: the run's.
        ended: whether the page is drawn as that of a run that has ended.
        on_intent: called before the rerun in which the returned ``intent`` is set.
        on_ended: called before a rerun, once the component has seen the end of a run that is not drawn as ended.
    """
    result = _component(
        key=key,
        data={
            "run_id": run_id,
            "editable": editable,
            "go_on": go_on,
            "open": open_steps,
            "edited": edited,
            "ended": ended,
        },
        on_intent_change=on_intent or _ignore,
        # A state: of two triggers of a component that wait for a busy server only the later one arrives, and the end of
        # a run must not take the place of what the person asks for at that moment.
        default={"ended": None},
        on_ended_change=on_ended or _ignore,
        width="stretch",
        height="content",
    )
    return LiveSelection(_intent(result.intent))


def intent_of(key: str) -> Intent | None:
    """What ``on_intent`` was called for, of the component ``key``."""
    state = st.session_state.get(key)
    return None if state is None else _intent(state.intent)


def _ignore() -> None:
    """Streamlit wants a callback for each trigger that a component may set."""


def _path(value: Any) -> Path | None:
    if not isinstance(value, list) or not all(isinstance(index, int) for index in value):
        return None
    return tuple(value)


def _intent(value: Any) -> Intent | None:
    """The browser is not trusted to send the right shape."""
    if not isinstance(value, dict) or value.get("kind") not in get_args(_Kind):
        return None
    if not isinstance(value.get("run_id"), str):
        return None
    return Intent(value["kind"], value["run_id"], _path(value.get("path")))
