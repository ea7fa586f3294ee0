"""The plan of the editor in other forms, to download."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from conductor_core.errors import BadInput
from conductor_core.export.formats import FRAMEWORKS, PLAN_FORMATS, PNG, PlanFormat
from conductor_core.export.picture import too_large
from conductor_core.export.plan import Plan
from conductor_core.export.script import check
from conductor_core.workflow.model import Workflow
from pages.components.app.access_log import exported, this_browser
from pages.components.run.editing import Editing
from pages.components.style.formats import inert


@st.dialog("Export the plan", width="small")
def export_dialog(editing: Editing, valid: Workflow | None) -> None:
    """Draws the forms. ``valid``: the workflow of the draft; None: it has faults.

    A draft with faults can be saved as a workflow file alone, which can keep it as it is.
    """
    draft = editing.draft
    *before, asked = editing.conversation
    plan = Plan(
        task=editing.task,
        workflow=draft.workflow,
        workers=editing.specs,
        source=f"{editing.source}, edited" if draft.changed and editing.of != "new" else editing.source,
        give_question=editing.give_question,
        has_images=any(not isinstance(turn.content, str) for turn in (*before, asked)),
        turns_before=tuple(before),
        imported=editing.imported,
        inner=() if draft.changed else editing.inner,
    )
    fault = _fault(plan, valid)
    run_ids, browser = [] if editing.run is None else [editing.run.run_id], this_browser()

    def written(name: str, form: PlanFormat[str] | PlanFormat[bytes]) -> str | bytes:
        exported(run_ids, f"plan as {name}", browser)
        return form.write(plan)

    with st.container(gap=None, key="export-forms"):
        for name, form in PLAN_FORMATS.items():
            blocked = fault is not None if name in FRAMEWORKS else valid is None and name != "json"
            _button(name, form, partial(written, name, form), blocked)
            if name == "svg":
                _button("png", PNG, partial(written, "png", PNG), blocked or too_large(plan))
        if valid is None:
            st.caption("This plan has faults, so only a workflow file can hold it.")
        elif fault is not None:
            why, _, other_workers = fault.partition("; export with ")
            more = " On the command line, `export --pool FILE` takes other workers." if other_workers else ""
            st.caption(f"No script: {inert(why)}.{more}")


def _fault(plan: Plan, valid: Workflow | None) -> str | None:
    """Returns why there can be no script; None: there can."""
    if valid is None:
        return "the plan has faults"
    try:
        check(plan)
    except BadInput as error:
        return str(error)
    return None


def _button(
    name: str, form: PlanFormat[str] | PlanFormat[bytes], written: Callable[[], str | bytes], blocked: bool
) -> None:
    st.download_button(
        form.title,
        written,  # written when it is asked for
        file_name=f"workflow-{name}{form.suffix}" if name in FRAMEWORKS else f"workflow{form.suffix}",
        mime=form.mime,
        on_click="ignore",
        type="tertiary",
        key=f"export-{name}",
        disabled=blocked,
        width="stretch",
    )
