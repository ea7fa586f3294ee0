"""A button that is pressed twice begins one run: with real workers, each costs money."""

import time
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.rehearsal import EXAMPLES
from conductor_core.run.request import RunRequest
from pages.components.app.session import Session
from pages.components.run import task_box

Visit = Callable[..., AppTest]


def test_run_that_is_pressed_twice_begins_one_run(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(session.host, "active", lambda: set(begun[-1:]))
    start = session.host.start

    def counted(request: RunRequest, **how: object) -> str:
        begun.append(start(request, **how))  # type: ignore[arg-type]
        return begun[-1]

    monkeypatch.setattr(session.host, "start", counted)
    app = visit()
    app.text_area("task").set_value(EXAMPLES[0].task)
    app.button("run").click().run()
    app.button("run").click().run()
    assert app.query_params["run"] == begun[0]
    assert len(begun) == 1
    app.button("plan-only").click().run()
    assert len(begun) == 2, "another request"
    app.button("run").click().run()
    assert len(begun) == 3
    begun_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: begun_s + task_box.DOUBLE_PRESS_S)
    app.button("run").click().run()
    assert len(begun) == 4, "who asks for it later wants it"
