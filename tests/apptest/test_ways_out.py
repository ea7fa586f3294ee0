"""A failed run offers what to do next in one press, and a server that is dead is not chosen again unasked."""

import json
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import ConductorInfo, WorkerSpec
from conductor_core.engine.preflight import Part, Preflight
from conductor_core.run import events as ev
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from pages.components.app.session import Session
from pages.components.run import lineage, preflight
from pages.components.run import settings as run_settings

Visit = Callable[..., AppTest]
Retell = Callable[..., RunTrace]
Take = Callable[[str, RunTrace], AppTest]

DEAD = ConductorInfo(name="http://127.0.0.1:9/v1#planner", kind="remote", model="planner")
FAILED = ev.RunFailed(run_id="r", error_code="ConductorUnavailable", error="Conductor planner: nobody answers there")


@pytest.fixture
def take(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Takes a way out of a run, before its page is drawn, as the component's callback does."""

    def take(way: str, trace: RunTrace) -> AppTest:
        app, go = visit(run=trace.run_id), run_settings.go
        taken: list[str] = []

        def take_and_go() -> None:
            if not taken:
                taken.append(way)
                lineage.take_way_out(trace, way)
            go()

        monkeypatch.setattr(run_settings, "go", take_and_go)
        return app.run()

    return take


def began(app: AppTest, session: Session) -> RunTrace:
    """The run that a press has just begun, once it is over."""
    return session.host.wait(app.query_params["run"], 120)


def test_a_run_whose_conductor_is_dead_is_planned_by_tiny_in_one_press_and_stays_so_after_a_restart(
    visit: Visit, take: Take, session: Session, retell: Retell
) -> None:
    failed = retell(1, FAILED, conductor=DEAD, workflow=None)
    assert lineage.ways_out(failed) == {"way-conductor": "Plan with tiny", "way-settings": "Settings"}
    app = take("way-conductor", failed)
    assert not app.exception
    trace = began(app, session)
    assert trace.run_id != failed.run_id
    assert (trace.task, trace.parent_run_id) == (failed.task, failed.run_id)
    assert (trace.conductor is not None and trace.conductor.name, trace.status) == ("tiny", "completed")
    again = visit(run=failed.run_id)
    assert again.session_state[run_settings.CONDUCTOR] == "tiny", "a look at the failed run does not bring it back"


def test_a_pool_whose_worker_is_dead_is_not_chosen_by_a_look_at_the_failed_run(visit: Visit, retell: Retell) -> None:
    workers = tuple(WorkerSpec(name=name, provider="rehearsal", model=name) for name in ("reasoner", "verifier"))
    said = "worker reasoner: nobody answers there"
    unreached = ev.StepFailed(run_id="r", path=(0,), error_code="WorkerUnreachable", error=said)
    ended = ev.RunFailed(run_id="r", error_code="StepFailed", error=said)
    for ending, chosen in (((unreached, ended), "rehearsal"), ((ended,), "paper")):
        failed = retell(3, *ending, pool=PoolInfo(name="paper", workers=workers))
        assert visit(run=failed.run_id).session_state[run_settings.POOL] == chosen


def test_another_pool_of_this_machine_is_one_press_away(take: Take, session: Session, retell: Retell) -> None:
    failed = retell(1, FAILED, conductor=ConductorInfo(name="tiny", kind="local", model="tiny"), workflow=None)
    file = session.settings.pools_folder / "mine.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[[worker]]\nname = "reasoner"\nprovider = "rehearsal"\nmodel = "rehearsal/reasoner"\n')
    app = take("way-other-pool", failed)
    trace = began(app, session)
    assert (trace.pool.name, trace.parent_run_id) == ("mine", failed.run_id)
    assert app.session_state[run_settings.POOL] == str(file)
    live = app.get("bidi_component")[-1]
    assert json.loads(live.proto.json)["kin"]["said"] == "planned again"


def test_another_try_asks_whom_the_failed_run_asked(
    visit: Visit, session: Session, retell: Retell, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = retell(1, FAILED, conductor=DEAD, workflow=None)
    app = visit(run=failed.run_id)
    # Streamlit declares a component only where an app has run.
    from pages.components.live_workflow import component

    offers: list[str | None] = []

    def pressed(run_id: str, *, go_on: str | None, **_: object) -> component.Intent | None:
        offers.append(go_on)
        return component.Intent("go-on", run_id) if run_id == failed.run_id else None

    monkeypatch.setattr(component, "live_workflow", pressed)
    app.run()
    assert offers[0] == "Try again"
    trace = began(app, session)
    assert (trace.conductor is not None and trace.conductor.name, trace.status) == (DEAD.name, "failed")


def test_the_settings_open_in_one_press(take: Take, retell: Retell) -> None:
    app = take("way-settings", retell(1, FAILED, conductor=DEAD, workflow=None))
    assert app.expander[0].proto.expanded


def test_a_run_that_did_not_fail_offers_none_of_it(take: Take, finished_run: RunTrace) -> None:
    assert lineage.ways_out(finished_run) == {}
    assert take("way-pool", finished_run).query_params["run"] == finished_run.run_id


def test_the_simulated_pool_leaves_a_dead_conductor_too(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (
        Part(role="conductor", name=DEAD.name, ok=False, detail="nobody answers there"),
        *(Part(role="worker", name=f"w{number}", ok=False, detail="nobody answers there") for number in range(7)),
    )
    state = {run_settings.POOL: "paper", run_settings.CONDUCTOR: DEAD.name}
    found: Future[Preflight] = Future()
    found.set_result(Preflight(parts=parts))
    monkeypatch.setattr(preflight, "_begin_checks", lambda *_: found)
    app = visit(state=dict(state))
    app.button("use-simulated").click().run()
    assert app.session_state[run_settings.POOL] == "rehearsal"
    assert app.session_state[run_settings.CONDUCTOR] == "tiny"
