"""A person who edits a plan on a page of AppTest, which does not run the component's script."""

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.run.trace import RunTrace
from pages.components.app.session import Session
from pages.components.run.draft import Draft


class Edits:
    """The editor of a plan on a page, as the component draws it and hears a person. ``data`` is what it got last."""

    def __init__(self, app: AppTest, run_id: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        # Streamlit declares a component only where an app has run.
        from pages.components.live_workflow import component

        self.app, self._run_id = app, run_id
        self.data: dict[str, Any] = {}
        self._sent: dict[str, Any] | None = None
        self._number = 0
        self._asked: str | None = None
        self._intent: Callable[..., Any] = component.Intent
        monkeypatch.setattr(component, "live_workflow", self._draw)
        monkeypatch.setattr(component, "changes_of", lambda _: self._sent)
        app.run()

    def _draw(self, run_id: str | None, **data: Any) -> object:
        self.data = data
        kind, self._asked = self._asked, None
        return None if kind is None else self._intent(kind, run_id)

    def ask(self, kind: str) -> None:
        """Sends an intent."""
        self._asked = kind
        self.app.run()
        assert not self.app.exception

    def do(self, kind: str, step: int | None = None, **fields: object) -> None:
        """Sends one change of the plan."""
        self._number += 1
        change = {"number": self._number, "kind": kind, **({} if step is None else {"step": step}), **fields}
        self._sent = {"page": "p", "run_id": self._run_id, "changes": [change]}
        self.app.run()
        assert not self.app.exception

    def start(self, session: Session) -> RunTrace:
        self.do("start")
        return session.host.wait(self.app.query_params["run"], 30)

    @property
    def editor(self) -> dict[str, Any]:
        """What the component draws of the open editor."""
        found: dict[str, Any] = self.data["editor"]
        return found

    @property
    def draft(self) -> Draft:
        kept: Draft = self.app.session_state["draft:new" if self._run_id is None else f"draft:{self._run_id}"]
        return kept

    @property
    def said(self) -> str:
        """What the bar says that would run."""
        return " · ".join(each["text"] for each in self.editor["says"])

    def words(self, step_id: int) -> str:
        """What the graph says of a step."""
        return next(str(step["words"]) for step in self.data["edited"]["steps"] if step["key"] == str(step_id))

    def notes(self, kind: str = "faults") -> str:
        return " ".join(each["message"] for each in self.editor[kind])
