"""The output of a step in the plan editor: written by hand or pinned, in the place of what its worker would answer."""

import streamlit as st

from conductor_core.engine.reuse import pinned_output, whole
from conductor_core.errors import InspectorError
from conductor_core.run.actor import local_caller
from conductor_core.run.request import MOST_CHARACTERS, written_by
from conductor_core.run.trace import StepTrace
from pages.components.run import draft as drafts
from pages.components.run.editing import Editing
from pages.components.style.formats import inert

NOT_YET = {
    "waiting": "Its output can be written or pinned once this run has ended: a re-run then takes it.",
    "new": "Its output can be written once a run of this plan has ended: a re-run then takes it.",
}
"""Why no output can be given to a step of such a plan: only a re-run carries one, and its record says of which run."""


def output_field(editing: Editing, index: int, step_id: int) -> None:
    """Draws the field of a given output, or the buttons that begin one. Only the plan of an ended run has them."""
    if editing.of != "ended":
        st.markdown(f":small[:gray[{NOT_YET[editing.of]}]]")
        return
    given = editing.draft.given_to(step_id)
    with st.container(key=f"output-of-{index}", gap="xsmall"):
        if given is None:
            _offers(editing, index, step_id)
            return
        text, by = given
        text_at, release_at = st.columns([8, 2], vertical_alignment="bottom", gap="medium")
        with text_at:
            if by.how == "pinned":
                label, said = f"Pinned output of step {index}", inert(by.in_words)
                st.text_area(label, text, height=88, disabled=True, key=_key(editing, step_id), help=said)
            else:
                _written(editing, index, step_id, text)
        release_at.button(
            f"Let {inert(editing.draft.workflow.steps[index].agent)} answer",
            key=editing.button_key(step_id, "release"),
            icon=":material/undo:",
            help="The step's worker is asked again, or its recorded answer is reused",
            on_click=editing.apply,
            args=(lambda draft: drafts.release(draft, step_id),),
        )


def _written(editing: Editing, index: int, step_id: int, text: str) -> None:
    key = _key(editing, step_id)
    st.text_area(
        f"Output of step {index}, written by you",
        text,
        height=88,
        max_chars=MOST_CHARACTERS,
        key=key,
        placeholder="What the steps that read this one get in the place of an answer",
        help="No model is asked. The record says that a person wrote this, wherever it goes.",
        on_change=_apply_output,
        args=(editing, step_id, key),
    )
    if not text:
        st.markdown(":small[:orange[△ Still empty: as it is now, the step's worker answers.]]")


def _offers(editing: Editing, index: int, step_id: int) -> None:
    recorded = _recorded(editing, step_id)
    with st.container(horizontal=True, gap="small"):
        st.button(
            "Write output…",
            key=editing.button_key(step_id, "write"),
            icon=":material/edit_note:",
            help=f"Write what step {index} answers. No model is asked, and the record says so",
            on_click=write,
            args=(editing, step_id),
        )
        st.button(
            "Pin output",
            key=editing.button_key(step_id, "pin"),
            icon=":material/push_pin:",
            help="Keep the recorded output, whatever the step would see",
            disabled=recorded is None or not whole(recorded),
            on_click=lambda: _pin_recorded(editing, step_id),
        )


def write(editing: Editing, step_id: int) -> None:
    """Begins a written output with the recorded one, where there is one."""
    recorded = _recorded(editing, step_id)
    if editing.draft.given_to(step_id) is None:
        text = "" if recorded is None else recorded.output
        editing.apply(lambda draft: drafts.give(draft, step_id, text, written_by(local_caller("page"))))


def pin(editing: Editing, step_id: int) -> str | None:
    """Pins the recorded output. Returns why that is not possible; None: it is done."""
    if editing.run is None or _recorded(editing, step_id) is None:
        return f"step {step_id} has no recorded output"
    try:
        text, by = pinned_output(editing.run, step_id, local_caller("page"))
    except InspectorError as error:
        return str(error)
    editing.apply(lambda draft: drafts.give(draft, step_id, text, by))
    return None


def _pin_recorded(editing: Editing, step_id: int) -> None:
    pin(editing, step_id)  # the button is off where that is not possible


def _recorded(editing: Editing, step_id: int) -> StepTrace | None:
    """Returns the step of the run. Steps of the run have their numbers there as ids; None for a new step."""
    if editing.run is None or not 0 <= step_id < len(editing.run.steps):
        return None
    return editing.run.steps[step_id]


def _key(editing: Editing, step_id: int) -> str:
    return editing.field_key(step_id, "output")


def _apply_output(editing: Editing, step_id: int, key: str) -> None:
    if key in st.session_state and editing.draft.given_to(step_id) is not None:
        text = str(st.session_state[key])
        editing.apply(lambda draft: drafts.give(draft, step_id, text, written_by(local_caller("page"))))
