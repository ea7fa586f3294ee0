"""The card of the tour, which the browser places beside the element that it explains."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import streamlit as st

from pages.components.tour.story import EDITOR, STOPS, Stop

KEY = "tour-card"
_component = st.components.v2.component("conductor-inspector.tour", js="index.js", isolate_styles=True)

_To = Literal["next", "back", "leave"]


@dataclass(frozen=True)
class Move:
    """What the person asked for on the card of the stop ``stop``."""

    stop: str
    to: _To


def card(stop: Stop, *, ready: bool, on_move: Callable[[], None]) -> None:
    """Draws the card of a stop.

    Args:
        ready: whether the story can go on.
        on_move: called before the rerun in which ``move`` returns what was asked for.
    """
    place = STOPS.index(stop)
    data = {
        "stop": stop.name,
        "n": place + 1,
        "of": len(STOPS),
        "title": stop.title,
        "text": stop.text,
        "at": stop.at,
        "press": stop.press,
        # An editor that is on its way out would take what is pressed for itself.
        "without": None if stop.editor else EDITOR,
        "seconds": stop.seconds,
        "ready": ready,
    }
    _component(key=KEY, data=data, on_move_change=on_move, width="content", height="content")


def move() -> Move | None:
    """Returns what was asked for; None for any other value, which a browser might send."""
    state = st.session_state.get(KEY)
    value: Any = None if state is None else state.move
    if not isinstance(value, dict) or value.get("to") not in get_args(_To) or not isinstance(value.get("stop"), str):
        return None
    return Move(value["stop"], value["to"])
