"""The Failures page: kinds with counts, choices in the address, rows that open a run at its step, an empty state."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from streamlit.testing.v1 import AppTest

from conductor_core.run import events as ev
from conductor_core.run.request import SHADOW_PURPOSE, ClientRequest
from pages.components.app.session import Session
from storage.access_log import AccessQuery
from tests.support.eventually import eventually
from tests.support.run_events import created, planned, step_started, whole_run

Visit = Callable[..., AppTest]
HOSTILE = "</a><script>alert(1)</script>"


def drawn(app: AppTest) -> str:
    return "".join(each.proto.body for each in app.get("html"))


def fail(
    session: Session, run_id: str, code: str = "WorkerTimedOut", age: timedelta = timedelta(), **asked: object
) -> None:
    first = created(run_id, f"Task of {run_id} {HOSTILE}", **asked)
    first = first.model_copy(update={"at_utc": datetime.now(UTC) - age})
    failed = ev.StepFailed(run_id=run_id, path=(1,), error_code=code, error=f"said {HOSTILE}")
    end = ev.RunFailed(run_id=run_id, error_code=code, error="step 1 failed")
    begun = [first, *planned(run_id), step_started(run_id, 1, 30)]
    session.store.log.append_and_wait(*begun, failed, end)


def test_requests_are_listed_with_their_step_and_nothing_of_them_is_html(visit: Visit, session: Session) -> None:
    fail(session, "new")
    fail(session, "shadow", purpose=SHADOW_PURPOSE)
    fail(session, "old", age=timedelta(days=60))
    app = visit("failures")
    assert 'href="run?run=new&amp;step=1"' in drawn(app)
    assert "run=shadow" not in drawn(app)
    assert "run=old" not in drawn(app)
    assert "<script" not in drawn(app)
    assert "<b>1</b> of 1 request" in drawn(app)
    eventually(lambda: session.store.access_log.read(AccessQuery(run_id="new")).records)
    viewed = session.store.access_log.read(AccessQuery(run_id="new")).records
    assert [record.what for record in viewed] == ["failures page"]
    app = visit("failures", period="all")
    assert "run=old" in drawn(app)


def test_a_kind_a_worker_a_model_and_a_purpose_narrow_the_page_and_are_in_its_address(
    visit: Visit, session: Session
) -> None:
    fail(session, "late", client=ClientRequest(api="chat", model="fugu"))
    fail(session, "limited", "LimitReached", client=ClientRequest(api="chat", model="other"))
    fail(session, "shadow", purpose=SHADOW_PURPOSE)
    app = visit("failures")
    app.button("failures-only-limited").click().run()
    assert "run=limited" in drawn(app)
    assert "run=late" not in drawn(app)
    assert app.query_params["kind"] == "limited"
    app.button("failures-only-limited").click().run()
    assert "kind" not in app.query_params
    app.selectbox("failures-model").set_value("fugu").run()
    assert "run=late" in drawn(app)
    assert "run=limited" not in drawn(app)
    app = visit("failures", purpose=SHADOW_PURPOSE)
    assert "run=shadow" in drawn(app)
    assert "run=late" not in drawn(app)
    app = visit("failures", worker="nobody", kind="<b>", period="x", before="y")
    assert "No such failure" in app.markdown[0].value


def test_where_nothing_failed_the_page_says_so(visit: Visit, session: Session) -> None:
    app = visit("failures")
    assert "No request ended" in app.markdown[0].value
    session.store.log.append_and_wait(*whole_run("well"))
    app = visit("failures")
    assert "Nothing failed in the last 7 days" in app.markdown[0].value


def test_more_requests_than_a_page_holds_are_turned_to(visit: Visit, session: Session) -> None:
    for number in range(25):
        fail(session, f"r{number:02}")
    app = visit("failures")
    assert drawn(app).count("failure-row") - drawn(app).count("failure-rows") == 20
    app.button("failures-older").click().run()
    assert "run=r04" in drawn(app)
    assert "run=r05" not in drawn(app)
