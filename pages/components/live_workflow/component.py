"""The live workflow component: the browser draws all of a run that moves, from our WebSocket route.

Python gives it a run's id and hears back what the person chose. Tokens never pass through a Streamlit rerun.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st
from pydantic import TypeAdapter, ValidationError

from conductor_core.run.values import Path

# This element holds the place until the script has loaded, so that nothing below jumps. Its height is that of the bar
# and of `--room` in the stylesheet that the script brings.
_RESERVED = '<div class="reserved" style="min-height: calc(max(420px, 100vh - 11.5rem) + 5.4rem)"></div>'
_component = st.components.v2.component(
    "conductor-inspector.live_workflow", html=_RESERVED, js="index.js", isolate_styles=True
)

_Kind = Literal[
    "edit", "kept-edit", "throw-edit", "export", "again", "go-on", "workers", "blame", "open-run", "tree",
    "way-conductor", "way-pool", "way-other-pool", "way-settings",
]  # fmt: skip


@dataclass(frozen=True)
class Intent:
    """What the person asked for in the component. A selection alone stays in the browser and costs no rerun.

    ``edit``: open the plan's editor. ``kept-edit``, ``throw-edit``: go on with the edit called ``name``, or forget it.
    ``export``: save the edited plan as a file. ``again``: ask the step at ``path`` afresh. ``go-on``: do what ``go_on``
    offered. ``workers``: choose other workers. ``blame``: show the page about that. ``open-run``: show the run
    ``name``. ``tree``: show all relatives. ``way-...``: take that way out of a failure. ``run_id`` is None for a plan
    that no run has.
    """

    kind: _Kind
    run_id: str | None
    path: Path | None = None
    name: str = ""


_READ = TypeAdapter(Intent)


def live_workflow(
    run_id: str | None,
    *,
    key: str,
    on_intent: Callable[[], None] = lambda: None,
    editable: bool = False,
    go_on: str | None = None,
    ways: Sequence[tuple[str, str]] = (),
    kept: Sequence[Mapping[str, str]] = (),
    kin: Mapping[str, str] | None = None,
    turns: Sequence[Mapping[str, Any]] | None = None,
    editor: Mapping[str, Any] | None = None,
    edited: Mapping[str, Any] | None = None,
    taken: Mapping[str, Any] | None = None,
    said: str = "",
    ended: bool = True,
) -> Intent | None:
    """Shows the run live or as it ended; None: the empty state. Call it with the same ``key`` at every rerun.

    Returns what the person asked for, if anything. ``on_intent`` is called before the rerun in which it is returned.

    Args:
        editable: whether the page has an editor to open; the component then offers it.
        go_on: what a button in the bar offers, in a word or two; None: nothing.
        ways: what else a failed run offers there: the kind of the intent, and words.
        kept: the edits of this run that were not run (``draft_store.offered``).
        kin, turns: as ``lineage`` returns them.
        editor, edited: the open plan editor (``editing.as_data``), and what the graph draws in place of the run's plan.
        taken: the last change of the plan that was taken (``AppliedChanges.as_data``).
        said: what the last change of the plan was, for those who do not see it.
        ended: whether the page is drawn as that of a run that has ended. If it is not, the component's sight of the end
            brings a rerun.
    """
    data = {
        "run_id": run_id, "editable": editable, "go_on": go_on, "ways": ways, "kept": kept, "kin": kin, "turns": turns,
        "editor": editor, "edited": edited, "taken": taken, "said": said, "ended": ended,
    }  # fmt: skip
    result = _component(
        key=key,
        data=data,
        on_intent_change=on_intent,
        # The end is a state, no trigger: of two triggers that wait for a busy server only the later one arrives, and
        # the end of a run must not displace what the person asks for at that moment. So are changes of the plan.
        default={"ended": None, "changes": None},
        on_ended_change=lambda: None,
        on_changes_change=lambda: None,
        width="stretch",
        height="content",
    )
    return _intent(result.intent)


def intent_of(key: str) -> Intent | None:
    state = st.session_state.get(key)
    return None if state is None else _intent(state.intent)


def changes_of(key: str) -> object:
    """Returns what the component ``key`` last sent of changes of the plan, in whatever shape; None: nothing."""
    state = st.session_state.get(key)
    return None if state is None else state.changes


def _intent(value: Any) -> Intent | None:
    """Reads an intent; None for any other shape, which a browser might send."""
    try:
        return _READ.validate_python(value) if value else None
    except ValidationError:
        return None
