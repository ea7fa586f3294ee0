"""One open plan editor: what it edits (a run's plan, or a new one), and the draft in the page's state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.engine.pools import images_given
from conductor_core.engine.request import overrides_from
from conductor_core.export.plan import inner_plans, source_of
from conductor_core.run.actor import local_caller
from conductor_core.run.request import GivenOutput
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.validation import Checked, validate
from pages.components.run import draft as drafts
from pages.components.run.draft import Draft
from pages.components.run.plan_changes import NOTHING_APPLIED, AppliedChanges, Author, Sent, apply_changes
from pages.components.run.run_edits import draft_key

_APPLIED = "plan-changes-taken"

EDITING = "editing-run"
"""The key of the run whose plan is open in the editor, in the page's state."""
Of = Literal["ended", "waiting", "new"]


@dataclass(frozen=True)
class Editing:
    """
    Attributes:
        key: of the draft in the page's state.
        run_id: of the run whose plan it is; None: a new plan.
        of: the plan of a run that has ended or that waits, or a new plan.
        original: what the draft begins with.
        specs: the workers that a step may name.
        recursive: whether a step may name the Conductor.
        conversation: all turns up to the task, with their images.
        source: what the plan is, in words, for those who get it as a file.
        imported: whether a file from elsewhere named the workers.
        inner: the rounds that recursive steps of the run opened.
        outputs: what a person gave in the run, as the draft begins with it.
        run: the run that the plan is of; None: a new plan.
        missing: what a run lacks besides a valid plan, in a sentence; empty: nothing.
        on_change: called with each new draft, after it is in the page's state.
    """

    key: str
    run_id: str | None
    of: Of
    original: Workflow
    task: str
    specs: tuple[WorkerSpec, ...]
    recursive: bool
    max_steps: int
    give_question: bool
    conversation: Sequence[Message]
    source: str = "a plan of your own"
    imported: bool = False
    inner: tuple[tuple[Path, Workflow], ...] = ()
    missing: str = ""
    on_change: Callable[[Draft], None] | None = None
    outputs: tuple[GivenOutput, ...] = ()
    run: RunTrace | None = None

    @classmethod
    def of_run(cls, trace: RunTrace, on_change: Callable[[Draft], None] | None = None) -> "Editing":
        return cls(
            key=draft_key(trace.run_id),
            run_id=trace.run_id,
            of="ended" if trace.ended else "waiting",
            original=trace.root.workflow or Workflow(steps=()),
            task=trace.task,
            specs=trace.pool.workers,
            recursive=trace.limits.max_depth > 0 and trace.conductor is not None,
            max_steps=trace.limits.max_steps,
            give_question=trace.give_question,
            conversation=trace.conversation,
            source=source_of(trace),
            imported=trace.imported is not None,
            inner=inner_plans(trace),
            outputs=overrides_from(trace).outputs,
            run=trace,
            on_change=on_change,
        )

    @property
    def agents(self) -> list[str]:
        return [spec.name for spec in self.specs]

    @property
    def offered_agents(self) -> list[str]:
        """Lists the agents that a step may name: the workers, and the Conductor where recursion is allowed."""
        return [*self.agents, CONDUCTOR_AGENT] if self.recursive else self.agents

    @property
    def draft(self) -> Draft:
        if self.key not in st.session_state:
            st.session_state[self.key] = drafts.begin(self.original, self.outputs)
        kept: Draft = st.session_state[self.key]
        return kept

    def keep(self, draft: Draft) -> None:
        st.session_state[self.key] = draft
        if self.on_change is not None:
            self.on_change(draft)

    def rebase(self) -> bool:
        """Begins the draft with the plan as it is by now. Returns whether an edit now stands beside another plan."""
        if self.draft.original == self.original:
            return False
        draft = drafts.rebase(self.draft, self.original)
        if draft.changed:
            self.keep(draft)
        else:
            st.session_state[self.key] = draft
        return draft.changed

    def apply(self, change: Callable[[Draft], Draft]) -> None:
        self.keep(change(self.draft))

    @property
    def applied(self) -> AppliedChanges:
        return applied()

    def apply_changes(self, sent: Sent | None) -> Literal["start", "close"] | None:
        """Makes the changes that the browser sent of this plan and that were not made yet.

        Returns how the person left the editor, if they did.
        """
        if sent is None or sent.run_id != self.run_id:
            return None
        author = Author(local_caller("page"), self.run if self.of == "ended" else None, next(iter(self.agents), ""))
        draft, st.session_state[_APPLIED], left = apply_changes(self.draft, sent, self.applied, author)
        if draft != self.draft:
            self.keep(draft)
        return left

    @property
    def open_ids(self) -> tuple[int, ...]:
        """Returns the ids of the steps whose fields the page asked the component to show, the last one last."""
        kept: tuple[int, ...] = st.session_state.get(f"{self.key}:open", ())
        return kept

    def open_only(self, *step_ids: int) -> None:
        st.session_state[f"{self.key}:open"] = step_ids

    def check(self, workflow: Workflow) -> Checked:
        task = None if self.give_question else self.task
        specs = {spec.name: spec for spec in self.specs}
        images = images_given(tuple(self.conversation), specs, every_step=self.give_question)
        return validate(
            workflow,
            self.agents,
            max_steps=self.max_steps,
            allow_recursion=self.recursive,
            allow_stop=False if self.of == "new" else None,
            task=task,
            images=images,
        )


def applied() -> AppliedChanges:
    """Returns what was taken from the browser so far. It outlives the draft, which its next value may still name."""
    kept: AppliedChanges = st.session_state.get(_APPLIED, NOTHING_APPLIED)
    return kept
