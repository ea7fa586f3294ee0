"""The Audit page without a browser: each question in few clicks, all of it in the address, and all texts inert."""

from collections.abc import Callable
from html import unescape

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.engine.estimates import edit_step
from conductor_core.engine.request import rerun_of
from conductor_core.errors import StoreError
from conductor_core.run import events as ev
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from pages.components.app.session import Session
from pages.components.style.figures import agent_dot
from storage.access_log import AccessQuery
from tests.support.damaging import doctor
from tests.support.run_events import created, planned, run_completed, step_completed, whole_run

Visit = Callable[..., AppTest]
EVERYTHING = AccessQuery()
HOSTILE = "<script>alert(1)</script> ![x](http://evil.example/x.png) Ada Lovelace"
POOL = PoolInfo(
    name="p", workers=(WorkerSpec(name="solver", provider="openai", model="m", base_url="http://one.example/v1"),)
)


def htmls(app: AppTest) -> str:
    return "\n".join(each.proto.body for each in app.get("html"))


def press(app: AppTest, key: str) -> AppTest:
    (button,) = [button for button in app.button if button.key == key]
    return button.click().run()


@pytest.fixture
def real_run(session: Session) -> str:
    """A run whose real worker was sent a hostile text, and failed once before it answered."""
    sent = (Message(role="user", content=HOSTILE),)
    session.store.log.append_and_wait(
        created("real", HOSTILE, pool=POOL, simulated=False),
        *planned("real"),
        ev.StepStarted(run_id="real", path=(0,), agent="solver", identity="i", messages=sent),
        ev.StepRetried(run_id="real", path=(0,), attempt=1, error_code="WorkerTimedOut", error="too late", wait_ms=1),
        step_completed("real", 0, HOSTILE, 40),
        run_completed("real", HOSTILE),
    )
    return "real"


@pytest.fixture
def edited_run(session: Session, finished_run: RunTrace) -> RunTrace:
    workflow = finished_run.root.workflow
    assert workflow is not None
    edited = edit_step(workflow, 2, instruction="Check it for Ada: {question}")
    return session.host.wait(session.host.start(rerun_of(finished_run, edited, door="page")), 30)


def test_without_runs_it_leads_to_the_run_page(visit: Visit) -> None:
    app = visit("audit")
    assert [link.proto.label for link in app.get("page_link")] == ["Start one"]


def test_who_changed_a_plan_and_what_is_two_clicks_away(visit: Visit, edited_run: RunTrace) -> None:
    app = press(visit("audit"), "audit-ask-edited")
    assert app.query_params["edited"] == "*"
    app = press(app, f"audit-open-{edited_run.run_id}")
    assert app.query_params["run"] == edited_run.run_id
    record = unescape(htmls(app))
    assert "The plan</b>, by " in record
    assert '<del>Check the solution in view: <span class="task-chip">the task</span></del>' in record
    assert '<ins>Check it for Ada: <span class="task-chip">the task</span></ins>' in record
    assert f"run={edited_run.parent_run_id}" in record
    app = press(app, "audit-back")
    assert ("run" in app.query_params, app.query_params["edited"]) == (False, "*")


def test_which_provider_received_a_name_is_typed_and_one_click(visit: Visit, real_run: str) -> None:
    app = visit("audit")
    app.text_input("audit-q").input('"ada lovelace"').run()
    assert app.query_params["q"] == '"ada lovelace"'
    assert "<mark>Ada Lovelace</mark>" in htmls(app)
    app.session_state["audit-view"] = "ledger"
    app.query_params["view"] = "ledger"
    app.run()
    (server,) = [button for button in app.button if str(button.key).startswith("audit-to-")]
    assert server.label.replace("\\", "") == "openai at one.example"
    assert "2 calls in 1 run (1 failed)" in htmls(app)
    assert "repeated, completed" in htmls(app)
    app.text_input("receipt-provider").input("anthropic")
    app.button("FormSubmitter:audit-receipt-form-Read the record").click().run()
    assert any("No recorded call went to anthropic." in each.value.replace("\\", "") for each in app.markdown)
    assert "It rests on" in htmls(app)
    assert "Runs that began at any time." in htmls(app)
    app.query_params["since"] = "2020-01-01"
    assert "It rests on" not in htmls(app.run())


def test_the_address_holds_the_view_and_a_chip_takes_a_filter_out(
    visit: Visit, real_run: str, finished_run: RunTrace
) -> None:
    app = visit("audit", workers="real", failure="WorkerTimedOut", since="2020-01-01")
    opened = [button.key for button in app.button if str(button.key).startswith("audit-open-")]
    assert opened == ["audit-open-real"]
    app = press(app, "chip-failure")
    assert ("failure" in app.query_params, app.query_params["workers"]) == (False, "real")
    app = press(app, "audit-clear")
    assert "workers" not in app.query_params
    assert len([button for button in app.button if str(button.key).startswith("audit-open-")]) == 2


def test_failures_open_their_runs_and_costs_are_told_apart_from_simulated_ones(
    visit: Visit, real_run: str, finished_run: RunTrace
) -> None:
    app = press(visit("audit", view="failures"), "audit-failed-corrected-WorkerTimedOut")
    assert (app.query_params["failure"], app.query_params["view"]) == ("WorkerTimedOut", "found")
    sums = htmls(visit("audit", view="cost"))
    assert "$0.5000" in sums
    assert "simulated" in sums


def test_texts_of_models_are_shown_letter_by_letter(visit: Visit, real_run: str) -> None:
    for query in ({"q": "evil"}, {"run": real_run}, {"view": "failures"}, {"q": "evil", "view": "ledger"}):
        app = visit("audit", **query)
        assert "<script" not in htmls(app)
        assert not any("![x](" in each.value for each in (*app.markdown, *app.caption))
        assert not any("![x](" in button.label for button in app.button)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"q": '""'}, "the search is empty"),
        ({"q": "…"}, "no letter or digit"),
        ({"run": "nobody"}, "unknown run"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_error(visit: Visit, real_run: str, query: dict[str, str], said: str) -> None:
    (error,) = visit("audit", **query).error
    assert said in error.value.replace("\\", "")


@pytest.mark.parametrize(
    ("query", "shown", "said"),
    [
        ({"since": "x"}, ["other", "real"], "is not a date"),
        ({"over": "nan"}, ["other", "real"], "is not an amount"),
        ({"before": "x"}, ["other", "real"], ""),
        ({"view": "?"}, ["other", "real"], ""),
        ({"status": "none"}, [], ""),
        ({"since": "x", "failure": "WorkerTimedOut"}, ["real"], "is not a date"),
    ],
)
def test_what_cannot_be_read_of_an_address_is_left_out_and_the_rest_holds(
    visit: Visit, session: Session, real_run: str, query: dict[str, str], shown: list[str], said: str
) -> None:
    session.store.log.append_and_wait(*whole_run("other"))
    app = visit("audit", **query)
    assert not app.error
    opened = [str(button.key).removeprefix("audit-open-") for button in app.button if "audit-open-" in str(button.key)]
    assert opened == shown
    assert [said in each.value for each in app.warning] == ([True] if said else [])


def test_the_last_day_there_is_is_a_day(visit: Visit, real_run: str) -> None:
    app = visit("audit", until="9999-12-31")
    assert not app.error
    assert not app.warning
    assert [button for button in app.button if button.key == "audit-open-real"]


def test_it_says_what_is_not_searched(visit: Visit, session: Session) -> None:
    session.store.log.append_and_wait(*whole_run("ended"), created("on"))
    assert any("1 still running" in each.value for each in visit("audit").caption)


def test_runs_whose_first_event_cannot_be_read_leave_the_page_whole(
    visit: Visit, session: Session, real_run: str
) -> None:
    session.store.log.append_and_wait(*whole_run("one"), *whole_run("two"))
    doctor(
        session.store._database.path,
        "UPDATE events SET payload = '{' WHERE run_id IN ('one', 'two') AND kind = 'run.created'",
    )
    app = visit("audit", q="evil")
    assert not app.error
    assert "<mark>evil</mark>" in htmls(app)


def test_a_record_is_shown_though_the_index_is_broken(visit: Visit, session: Session, real_run: str) -> None:
    session.store.search.catch_up()  # the first one of a database makes the index
    doctor(session.store._database.path, "DROP TABLE search_facets")
    app = visit("audit", run=real_run)
    assert "Who received which text" in " ".join(each.value for each in app.markdown) + htmls(app)
    assert not app.error
    assert [each for each in app.warning if "no such table" in each.value]


def test_what_was_indexed_is_shown_though_the_rest_cannot_be(
    visit: Visit, session: Session, real_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.store.search.catch_up()
    session.store.search.close()  # nobody else takes in what follows
    session.store.log.append_and_wait(*whole_run("later"))

    def fails() -> int:
        raise StoreError("no space left")

    monkeypatch.setattr(session.store.search, "catch_up", fails)
    app = visit("audit", q="evil")
    assert "<mark>evil</mark>" in htmls(app)
    assert [each.value for each in app.warning] == ["no space left"]


def test_a_damaged_run_is_shown_as_far_as_it_can_be_read(visit: Visit, session: Session, real_run: str) -> None:
    doctor(session.store._database.path, "UPDATE events SET payload = '{' WHERE kind = 'run.completed'")
    app = visit("audit", run=real_run)
    assert len(app.error) == 1
    assert "openai" in htmls(app)
    assert '<span class="pill damaged">⚠ damaged</span>' in htmls(app)


def test_the_audit_page_says_who_looked_at_a_run_and_over_a_period(
    visit: Visit, session: Session, real_run: str, finished_run: RunTrace
) -> None:
    kept = session.store.access_log
    for _ in range(2):
        visit("run", run=real_run)
    visit("context", run=real_run)
    app = visit("audit", q="lovelace")
    opens = next(str(button.key) for button in app.button if str(button.key).startswith("audit-open-"))
    app = press(app, opens)  # the record itself is a look, too
    assert kept.settle() is None
    record = htmls(app.run())
    for what in ("run page", "context page", "hits", "decision record"):
        assert f"viewed: {what}" in record
    assert "searched" not in record
    assert ", not signed in), page" in record
    app = visit("audit", view="looks")
    listed = htmls(app)
    assert "searched: 1 word in texts" in listed
    assert "lovelace" not in listed.lower()
    assert f'href="audit?run={real_run}"' in listed
    before = len(kept.read(EVERYTHING).records)
    app.selectbox("audit-looked-how").select("searched").run()
    assert app.query_params["looked-how"] == "searched"
    assert "viewed: run page" not in htmls(app)
    app.selectbox("audit-looked-how").select("viewed").run()
    app.text_input("audit-looked-at").input(real_run[:3]).run()
    assert "viewed: run page" in htmls(app)
    app.text_input("audit-looked-at").input("nobody").run()
    assert "no record of a run" in app.error[0].value
    app = visit("audit", view="looks", q="Lovelace", since="2020-01-01")
    assert "searched: 1 word in texts" in htmls(app)
    assert "searched: 1 word in texts" not in htmls(visit("audit", view="looks", until="2020-01-01"))
    assert kept.settle() is None
    assert len(kept.read(EVERYTHING).records) == before  # viewing the list is not logged


def test_a_look_that_cannot_be_kept_is_told_on_the_page_and_the_run_is_shown(
    visit: Visit, session: Session, finished_run: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(work: object) -> None:
        raise StoreError("another program holds it")

    monkeypatch.setattr(session.store.access_log, "_change", locked)
    app = visit("context", run=finished_run.run_id)
    assert [each.value.replace("\\", "") for each in app.warning] == [
        "Views cannot be logged: another program holds it. Everything is shown all the same."
    ]
    assert "The exact message" in "\n".join(each.value for each in app.markdown) + htmls(app)


def test_an_agent_has_the_colour_that_it_has_on_the_page_of_its_run(visit: Visit, finished_run: RunTrace) -> None:
    names = [spec.name for spec in finished_run.pool.workers]
    drawn = " ".join(each.proto.body for each in visit("audit", view="cost").get("html"))
    for step in finished_run.steps:
        assert f"{agent_dot(step.agent, names)}{step.agent}" in drawn
