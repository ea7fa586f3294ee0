"""The Shadow page: what it says before there is anything, what it shows of real pairs, and judging one right there."""

import csv
import io
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.analysis import shadow
from conductor_core.analysis.intervals import Estimate
from conductor_core.run.request import PASS_PURPOSE, SHADOW_PURPOSE, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from conductor_core.workflow.model import QUESTION, Step, Workflow
from pages.components.app.session import Session
from pages.components.shadow import figures, pairs
from storage.access_log import AccessQuery
from tests.support.shadow_traffic import Pair, fill

Visit = Callable[..., AppTest]
ONE = Workflow(steps=(Step(instruction=QUESTION, agent="scientist"),))
TWO = Workflow(
    steps=(
        Step(instruction=f"Solve this: {QUESTION}", agent="reasoner"),
        Step(instruction=f"Check the solution in view: {QUESTION}", agent="verifier", access_list="all"),
    )
)
HOSTILE = "<img src=x onerror=alert(1)> ![x](http://evil.example) **What is 6 times 7?**"


def drawn(app: AppTest) -> str:
    return "".join(each.proto.body for each in app.get("html"))


def names(app: AppTest) -> list[str]:
    return [each.label for each in app.button if (each.key or "").startswith("shadow-open-")]


def run(session: Session, task: str, purpose: str, about: RunTrace | None = None) -> RunTrace:
    about_run_id = None if about is None else about.run_id
    request = RunRequest(task=task, workflow=ONE, purpose=purpose, about_run_id=about_run_id, door="api")
    return session.host.wait(session.host.start(request), 30)


@pytest.fixture
def filled(session: Session) -> list[Pair]:
    return fill(session.store, Settings(), 40, plan=TWO)


def test_an_interval_of_no_width_has_no_unit_either() -> None:
    assert figures._interval(Estimate(0.5, 0.48, 0.52)) == "48 to 52 %"
    assert figures._interval(Estimate(0.0, 0.0, 0.0001)) == ""


def test_without_traffic_the_page_says_how_to_begin(visit: Visit) -> None:
    app = visit("shadow")
    assert "No traffic yet" in app.markdown[0].value
    (command,) = app.code
    assert command.value.startswith("conductor serve --pass-through ")
    app.segmented_control("shadow-period").set_value("7 days").run()
    assert "No request was forwarded in this period" in app.markdown[0].value


def test_traffic_without_a_shadow_is_an_audit_of_today(visit: Visit, session: Session) -> None:
    run(session, "What is 6 times 7?", PASS_PURPOSE)
    app = visit("shadow")
    assert "1 forwarded, none run again" in app.info[0].value
    said = drawn(app)
    assert "Forwarded traffic" in said
    assert ">scientist<" in said
    assert names(app) == []


def test_pairs_that_nobody_judged_are_offered_for_judging(visit: Visit, session: Session) -> None:
    today = run(session, HOSTILE, PASS_PURPOSE)
    own = run(session, HOSTILE, SHADOW_PURPOSE, today)
    app = visit("shadow")
    assert "no answer is judged yet." in drawn(app)
    assert "<img" not in drawn(app)
    (name,) = names(app)
    assert "\\*\\*What" in name, "a task is no markup"

    app.button(f"shadow-open-{today.run_id}").click().run()
    assert not app.exception
    assert "<img" not in drawn(app)
    assert "&lt;img" in drawn(app)
    app.button(f"shadow-worse-{own.run_id}").click().run()
    app.button(f"shadow-right-{today.run_id}").click().run()
    app.button(f"shadow-wrong-{own.run_id}").click().run()
    assert not app.exception
    kept = session.store.judgements.latest([today.run_id, own.run_id])
    assert [(each.mark, each.by, each.compared_with) for each in kept[own.run_id]] == [
        ("worse", "person", today.run_id),
        ("wrong", "person", None),
    ]
    assert [each.mark for each in kept[today.run_id]] == ["right"]
    assert "▼ worse" in drawn(app)
    viewed = [record.what for record in session.store.access_log.read(AccessQuery()).records if record.run_id]
    assert "pair of answers" in viewed


def test_the_figures_of_the_page_are_those_of_the_store(visit: Visit, session: Session, filled: list[Pair]) -> None:
    app = visit("shadow")
    said = drawn(app)
    found = shadow.report(session.store.shadow_traffic.read())
    assert shadow.sentence(found) in said
    assert f"{found.forwarded:,} forwarded" in said
    assert found.unfinished == 1
    assert "1 not ended yet" in said
    assert "simulated" in said
    assert ">Failed<" in said
    app.segmented_control(figures.PART).set_value("forwarded model").run()
    assert not app.exception
    assert ">writer<" in drawn(app)
    table = shadow.to_csv(figures.reports(session.store.shadow_traffic.read()))
    rows = list(csv.DictReader(io.StringIO(table)))
    assert {row["by"] for row in rows} == {"all", "day", "forwarded model", "Conductor"}


def test_a_filter_shows_only_its_requests_page_by_page(visit: Visit, session: Session, filled: list[Pair]) -> None:
    app = visit("shadow")
    requests = session.store.shadow_traffic.read().requests
    assert len(names(app)) == pairs.PAGE_ROWS
    app.button("shadow-older").click().run()
    assert len(names(app)) == sum(each.shadow is not None for each in requests) - pairs.PAGE_ROWS
    app.segmented_control(pairs.FILTER).set_value("better").run()
    better = [each.forwarded.run_id for each in requests if each.verdict == "better"]
    assert better, "a checked answer is better than one alone, now and then"
    shown = [each.key for each in app.button if (each.key or "").startswith("shadow-open-")]
    assert shown == [f"shadow-open-{run_id}" for run_id in better[: pairs.PAGE_ROWS]]
    app.segmented_control(pairs.FILTER).set_value("failed").run()
    assert len(names(app)) == 1
    assert not app.exception


def test_after_a_verdict_the_next_request_opens(visit: Visit, session: Session, filled: list[Pair]) -> None:
    app = visit("shadow")
    first, second = [each for each in app.button if (each.key or "").startswith("shadow-open-")][:2]
    first.click().run()
    (same,) = (each for each in app.button if (each.key or "").startswith("shadow-same-"))
    same.click().run()
    assert not app.exception
    assert app.session_state[pairs.OPENED] == (second.key or "").removeprefix("shadow-open-")


def test_a_page_that_only_reads_offers_no_verdict(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = run(session, "What is 6 times 7?", PASS_PURPOSE)
    own = run(session, "What is 6 times 7?", SHADOW_PURPOSE, today)
    refusal = "the database can only be read"
    monkeypatch.setattr(type(session.store), "refusal", property(lambda _: RuntimeError(refusal)))
    app = visit("shadow", state={pairs.OPENED: today.run_id})
    assert app.button(f"shadow-better-{own.run_id}").disabled
