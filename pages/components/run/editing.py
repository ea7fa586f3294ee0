"""One open plan editor: the run, and the draft in the page's state."""

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from conductor_core.engine.image_rules import images_given
from conductor_core.events import Path
from conductor_core.trace import RunTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.validation import Checked, validate
from pages.components.run import draft as drafts
from pages.components.run.draft import Draft


@dataclass(frozen=True)
class Editing:
    trace: RunTrace

    @property
    def key(self) -> str:
        return f"draft:{self.trace.run_id}"

    @property
    def agents(self) -> list[str]:
        return [spec.name for spec in self.trace.pool.workers]

    @property
    def offered_agents(self) -> list[str]:
        """Lists the agents that a step may name: the workers, and the Conductor where recursion is allowed."""
        recursive = self.trace.limits.max_depth > 0 and self.trace.conductor is not None
        return [*self.agents, CONDUCTOR_AGENT] if recursive else self.agents

    @property
    def draft(self) -> Draft:
        if self.key not in st.session_state:
            st.session_state[self.key] = drafts.begin(self.trace.root.workflow or Workflow(steps=()))
        kept: Draft = st.session_state[self.key]
        return kept

    def keep(self, draft: Draft) -> None:
        st.session_state[self.key] = draft

    def apply(self, change: Callable[[Draft], Draft]) -> None:
        self.keep(change(self.draft))

    @property
    def open_ids(self) -> tuple[int, ...]:
        """Returns the ids of the steps whose fields are shown, the last opened last."""
        kept: tuple[int, ...] = st.session_state.get(f"{self.key}:open", ())
        return kept

    def open_only(self, *step_ids: int) -> None:
        st.session_state[f"{self.key}:open"] = step_ids

    def open_at(self, chosen: Path | None) -> None:
        """Opens the step ``chosen`` in the graph, which has the ids as keys."""
        if chosen and chosen[0] in self.draft.now.ids:
            self.open_only(chosen[0])

    def toggle(self, step_id: int) -> None:
        others = tuple(each for each in self.open_ids if each != step_id)
        self.open_only(*others, *(() if step_id in self.open_ids else (step_id,)))

    def check(self, workflow: Workflow) -> Checked:
        most, recursive = self.trace.limits.max_steps, CONDUCTOR_AGENT in self.offered_agents
        task = None if self.trace.give_question else self.trace.task
        specs = {spec.name: spec for spec in self.trace.pool.workers}
        images = images_given(self.trace.conversation, specs, every_step=self.trace.give_question)
        return validate(workflow, self.agents, max_steps=most, allow_recursion=recursive, task=task, images=images)

    def field_key(self, step_id: int, field: str) -> str:
        return f"{self.key}:{self.draft.generation}:{step_id}:{field}"
