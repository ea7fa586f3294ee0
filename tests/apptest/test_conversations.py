"""Runs of one conversation, and runs that wait for their client's tools, on the pages."""

from collections.abc import Callable

from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import ToolCall
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor
from conductor_core.run.request import ClientRequest
from pages.components.app.session import Session
from pages.components.run import lineage
from tests.support.run_events import created_otherwise, planned, step_started, whole_run

Visit = Callable[..., AppTest]
KEY = Actor(kind="service", id="key-1", name="app")
CLIENT = ClientRequest(api="chat", model="fugu")


def a_turn(session: Session, run_id: str, task: str, conversation_id: str | None = None) -> None:
    first, *rest = whole_run(run_id, task)
    of = {"actor": KEY, "door": "api", "client": CLIENT, "conversation_id": conversation_id}
    session.store.log.append_and_wait(created_otherwise(first, **of), *rest)


def a_conversation(session: Session) -> None:
    a_turn(session, "first", "Hello <b>there</b>")
    a_turn(session, "alone", "Another matter")
    a_turn(session, "second", "And then?", "first")


def listed(app: AppTest) -> list[str]:
    return [link.proto.query_string for link in app.get("page_link")]


def turns_in(app: AppTest) -> dict[str, str]:
    key = "conversation-of-"
    return {str(each.key).removeprefix(key): each.label for each in app.button if str(each.key).startswith(key)}


def test_history_tells_the_turns_of_a_conversation_and_lists_them_alone(visit: Visit, session: Session) -> None:
    a_conversation(session)
    app = visit("history")
    assert turns_in(app) == {"first": ":gray[turn 1 of 2]", "second": ":gray[turn 2 of 2]"}
    app.button("conversation-of-second").click().run()
    assert not app.exception
    assert listed(app) == ["run=second", "run=first"]
    assert any("**Conversation** of 2 turns" in each.value for each in app.markdown)
    app.button("all-runs").click().run()
    assert len(listed(app)) == 3


def test_a_conversation_whose_first_run_was_deleted_is_listed(visit: Visit, session: Session) -> None:
    a_conversation(session)
    a_turn(session, "third", "And then, then?", "first")
    session.store.delete(["first"], session.store.read("alone").caller)
    app = visit("history", conversation="first")
    assert listed(app) == ["run=third", "run=second"]
    assert any("**Conversation** of 2 turns" in each.value for each in app.markdown)


def test_a_list_says_for_which_tools_a_run_waits_and_offers_no_approval(visit: Visit, session: Session) -> None:
    calls = (ToolCall(call_id="call_0", name="<i>weather</i>", arguments="{}"),)
    first = created_otherwise(whole_run("waits")[0], client=CLIENT)
    called = ev.ToolCalled(run_id="waits", path=(0,), calls=calls)
    waits = ev.RunWaiting(run_id="waits", waits_for="tool_results")
    session.store.log.append_and_wait(first, *planned("waits"), step_started("waits", 0, 30), called, waits)
    app = visit("history")
    (row,) = [each.proto.body for each in app.get("html") if "pill waiting" in each.proto.body]
    assert 'title="Waits for the client&#39;s tools: &lt;i&gt;weather&lt;/i&gt;"' in row
    assert "for &lt;i&gt;weather&lt;/i&gt;" in row
    assert "show-waiting" not in [each.key for each in app.button]
    app.selectbox("history-status").select("waiting").run()
    assert listed(app) == ["run=waits"]


def test_the_strip_has_all_turns_and_marks_the_one_that_is_shown(visit: Visit, session: Session) -> None:
    a_conversation(session)
    found = lineage.turns(session.store.read("first"))
    assert found is not None
    assert [(turn["number"], turn["run"], turn["task"], turn["current"]) for turn in found] == [
        (1, "first", "Hello <b>there</b>", True),
        (2, "second", "And then?", False),
    ]
    assert [(turn["status"], turn["said"] != "") for turn in found] == [("completed", True)] * 2
    assert lineage.turns(session.store.read("alone")) is None
    assert not visit(run="second").exception
