"""How the next run goes: what happens to an incomplete answer, and who is told the task."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import streamlit as st

from conductor_core.chat.messages import OnIncomplete

T = TypeVar("T")

ON_INCOMPLETE, GIVE_QUESTION = "on-incomplete", "give-question"
_OF_POOL: Literal[""] = ""
"""Stands for the pool's own option: a field whose value is None looks as if nothing were chosen."""
_POLICIES: Mapping[OnIncomplete | Literal[""], str] = {
    _OF_POOL: "the pool's setting",
    "allow": "goes on, marked",
    "stop": "stops there",
    "more_tokens": "is asked for with more tokens",
    "fallback": "is asked of the fallback",
}
_TASK_CHOICES: Mapping[bool | Literal[""], str] = {
    _OF_POOL: "the pool's setting",
    False: "steps whose instruction names it",
    True: "every step",
}


@dataclass(frozen=True)
class Policies:
    """The choices for a run; None where the pool's own option holds."""

    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None

    @property
    def in_words(self) -> list[str]:
        """Returns the choices that are not None."""
        whole = [] if self.on_incomplete is None else [f"An incomplete answer {_POLICIES[self.on_incomplete]}"]
        recipients = [] if self.give_question is None else [f"The question goes to {_TASK_CHOICES[self.give_question]}"]
        return whole + recipients


def chosen(before: Policies) -> Policies:
    """Returns what the fields say, and ``before`` where they are not drawn yet."""
    state = st.session_state
    whole, recipients = state.get(ON_INCOMPLETE, before.on_incomplete), state.get(GIVE_QUESTION, before.give_question)
    return Policies(_or_none(whole, _POLICIES), _or_none(recipients, _TASK_CHOICES))


def _or_none(value: T, known: Collection[T | str]) -> T | None:
    return value if value in known and value != _OF_POOL else None


def put(policies: Policies) -> None:
    """Sets both for this session."""
    st.session_state[ON_INCOMPLETE] = policies.on_incomplete or _OF_POOL
    st.session_state[GIVE_QUESTION] = _OF_POOL if policies.give_question is None else policies.give_question


def choose(before: Policies, keep: Callable[[str, str], None]) -> None:
    """Draws the two fields.

    Args:
        before: what they say until the person chooses something here.
        keep: keeps what the field of a key says now, under a name.
    """
    whole_at, asked_at = st.columns(2, gap="small")
    whole_at.selectbox(
        "An incomplete answer",
        list(_POLICIES),
        index=list(_POLICIES).index(before.on_incomplete or _OF_POOL),
        format_func=_POLICIES.__getitem__,
        key=ON_INCOMPLETE,
        on_change=keep,
        args=("on_incomplete", ON_INCOMPLETE),
        help="An answer that is refused, filtered, cut off or empty. Later steps read what there is of it only if "
        "it goes on. The pool file names a worker's fallback.",
        persist_state="session",
    )
    asked_at.selectbox(
        "The question goes to",
        list(_TASK_CHOICES),
        index=list(_TASK_CHOICES).index(_OF_POOL if before.give_question is None else before.give_question),
        format_func=_TASK_CHOICES.__getitem__,
        key=GIVE_QUESTION,
        on_change=keep,
        args=("give_question", GIVE_QUESTION),
        help="A step is told the task where its instruction names it, or every step is.",
        persist_state="session",
    )
