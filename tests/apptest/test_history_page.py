from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.engine.request import RunRequest
from conductor_core.errors import StoreLocked, StoreReadOnly
from conductor_core.trace import RunTrace
from conductor_core.workflow.model import Step, Workflow
from pages.components.session import Session
from tests.support.damaging import doctor

Visit = Callable[..., AppTest]
ONE_SHOT = Workflow(steps=(Step(instruction="{question}", agent="writer"),))


def links(app: AppTest) -> list[str]:
    return [link.proto.label for link in app.get("page_link")]


def cells(app: AppTest) -> list[str]:
    """The HTML of each row's columns, without the head."""
    return [each.proto.body for each in app.get("html") if '"cells runs"' in each.proto.body]


def test_without_runs_it_says_what_will_be_here(visit: Visit) -> None:
    assert any("No runs yet" in each.value for each in visit("history").markdown)


def test_a_run_is_listed_with_its_shape_its_agents_and_that_it_is_simulated(
    visit: Visit, finished_run: RunTrace
) -> None:
    app = visit("history")
    (row,) = cells(app)
    for said in ("✓ completed", ">chain<", "planner, reasoner, verifier", "simulated"):
        assert said in row
    (link,) = app.get("page_link")
    assert link.proto.query_string == f"run={finished_run.run_id}"
    assert "A train leaves" in link.proto.label


def test_a_search_without_a_match_says_what_to_change(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("history")
    app.text_input("history-search").set_value("no such words").run()
    assert any("No run matches" in each.value for each in app.markdown)


def test_only_runs_of_the_chosen_status_are_listed(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    plan = RunRequest(task="only planned", workflow=ONE_SHOT, by="page", plan_only=True)
    session.host.wait(session.host.start(plan, None, "rehearsal"), 30)
    app = visit("history")
    assert len(links(app)) == 2
    app.selectbox("history-status").set_value("planned").run()
    assert links(app) == ["only planned"]


def test_older_runs_are_on_further_pages_and_the_way_back_is_there(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(32):
        request = RunRequest(task=f"task {number}", workflow=ONE_SHOT, by="page", plan_only=True)
        session.host.wait(session.host.start(request, None, "rehearsal"), 30)
    app = visit("history")
    assert links(app) == [f"task {number}" for number in range(31, 1, -1)]
    app.button("older").click().run()
    assert links(app) == ["task 1", "task 0"]
    assert app.button("older").disabled
    app.button("newer").click().run()
    assert links(app)[0] == "task 31"


def test_hostile_text_is_shown_and_does_nothing(visit: Visit, session: Session) -> None:
    hostile = "<script>alert(1)</script> ![x](http://example.com/x.png) **bold**"
    request = RunRequest(task=hostile, workflow=ONE_SHOT, by="<b>me</b>", plan_only=True)
    session.host.wait(session.host.start(request, None, "rehearsal"), 30)
    app = visit("history")
    (label,) = links(app)
    assert label.replace("\\", "") == hostile
    assert "\\<script" in label
    assert "\\!\\[x\\]" in label
    assert all("<script" not in each.proto.body for each in app.get("html") if "<style" not in each.proto.body)


def test_a_database_that_cannot_be_read_is_one_line(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(**_: object) -> None:
        raise StoreLocked("the database is locked by another program")

    app = visit("history")
    monkeypatch.setattr(session.store, "runs", locked)
    app.run()
    assert [error.value for error in app.error] == ["the database is locked by another program"]
    assert not app.exception


def test_a_damaged_run_is_listed_as_such_with_what_to_do(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    sound = session.host.start(RunRequest(task="only planned", workflow=ONE_SHOT, by="page"), None, "rehearsal")
    session.host.wait(sound, 30)
    doctor(
        session.store._database.path,
        "UPDATE events SET payload = '{' WHERE run_id = :run_id AND kind = 'step.completed'",
        run_id=finished_run.run_id,
    )
    app = visit("history")
    whole, damaged = cells(app)
    assert "✓ completed" in whole
    assert "⚠ damaged" in damaged
    [note] = app.warning
    assert "restore a copy of the database" in note.value
    app.selectbox("history-status").select("damaged").run()
    assert len(cells(app)) == 1


def test_a_database_that_can_only_be_read_says_so(
    visit: Visit, session: Session, finished_run: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.store._database, "refusal", StoreReadOnly("it cannot be written"))
    app = visit("history")
    assert len(cells(app)) == 1
    assert [note.value for note in app.info] == ["it cannot be written"]
