"""Select boxes whose words change: what the browser sends by the words of an earlier drawing still means its option."""

from collections.abc import Callable

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.testing.v1 import AppTest

from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import Step, Workflow
from pages.components.app.session import Session
from pages.components.run_list import table

Visit = Callable[..., AppTest]


def page() -> None:
    import streamlit as st

    from pages.components.app.widgets import chosen, worded

    drawing = st.session_state["drawing"] = st.session_state.get("drawing", 0) + 1
    st.session_state.setdefault("one", "b")

    def told() -> None:
        st.session_state["told"] = chosen("one")

    words = {each: f"{each}, seen {drawing} times" for each in "abc"}
    st.write(st.selectbox("One", list("abc"), format_func=worded("one", words), key="one", on_change=told))


def sent(app: AppTest, key: str, words: str | None = None) -> WidgetStates:
    """Returns what the browser would send now; with ``words``, what it sends when a person chooses these."""
    states = app._tree.get_widget_states()
    for state in states.widgets:
        if words is not None and state.id.endswith(f"-{key}"):
            state.string_value = words
    return states


def test_the_choice_stays_while_its_words_change() -> None:
    app = AppTest.from_function(page).run()
    early = sent(app, "one")
    for _ in range(3):
        app.run()
        app._run(early)
        assert app.markdown[0].value == "b"
    assert "told" not in app.session_state or app.session_state["told"] == "b"


def test_a_choice_by_older_words_is_the_option() -> None:
    app = AppTest.from_function(page).run()
    early = sent(app, "one", "c, seen 1 times")
    app.run()
    app._run(early)
    assert app.markdown[0].value == "c"
    assert app.session_state["told"] == "c"


def test_of_two_runs_with_equal_words_each_can_be_picked(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    plan = Workflow(steps=(Step(instruction="{question}", agent="writer"),))
    twins = [session.host.wait(session.host.start(RunRequest(task="Twice?", workflow=plan)), 30) for _ in range(2)]
    app = visit("context", run=finished_run.run_id)
    for twin in twins:
        words = [words for words in app.selectbox("context-run").options if twin.run_id[-6:] in words]
        app._run(sent(app, "context-run", *words))
        assert app.query_params["run"] == twin.run_id


def test_a_minute_that_passes_between_two_clicks_leads_to_no_other_run(
    visit: Visit, session: Session, finished_run: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Workflow(steps=(Step(instruction="{question}", agent="writer"),))
    second = session.host.wait(session.host.start(RunRequest(task="Another one?", workflow=other)), 30)
    app = visit("context", run=finished_run.run_id)
    early = sent(app, "context-run")
    (words,) = [words for words in app.selectbox("context-run").options if "Another one?" in words]
    to_second = sent(app, "context-run", words)
    monkeypatch.setattr(table, "ago", lambda at_utc: "1 min ago")
    app.run()
    app._run(early)
    assert app.query_params["run"] == finished_run.run_id
    app._run(to_second)
    assert app.query_params["run"] == second.run_id
