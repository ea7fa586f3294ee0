"""What must not stop a run that waits, or others: damaged commands, a run that nobody can take up."""

import sqlite3
from contextlib import closing

import pytest

from conductor_core.chat.messages import FREE, Price
from conductor_core.conductors import catalogue
from conductor_core.engine import host as opened
from conductor_core.engine.host import EngineHost
from conductor_core.errors import BadInput, EventOutOfOrder
from conductor_core.run.values import Limits
from storage import Store
from tests.support.eventually import eventually
from tests.support.fakes import ScriptedConductor, ScriptedWorker, lists_of, pool_of, workflow_of
from tests.support.gated_runs import FAN, at_rest, gated, said, waits_for


def test_a_damaged_command_stops_nobody_else(host: EngineHost, store: Store, url: str) -> None:
    run_id = gated(host, "plan")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        row = "INSERT INTO commands (run_id, kind, at_utc, payload) VALUES (?, 'approve', '', ?)"
        connection.executemany(row, [(run_id, "no json"), (run_id, '{"kind": "of_tomorrow"}')])
        connection.commit()
    # The watch meets them first, as it reads commands in their order.
    assert at_rest(store, run_id, said(store, run_id)).status == "completed"


def test_a_run_that_can_never_be_taken_up_is_left_alone(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = gated(host, "plan")
    tried: list[str] = []

    async def never(run_id: str) -> None:
        tried.append(run_id)
        raise EventOutOfOrder("always another one")

    monkeypatch.setattr(host, "_resume", never)
    said(store, run_id)
    eventually(lambda: "cannot be resumed" in caplog.text)
    assert 1 < len(tried) < 50
    assert store.read(run_id).status == "waiting"


@pytest.mark.parametrize("name", ["openai", "FAR.example", "far.EXAMPLE:8443"])
def test_a_provider_is_told_whatever_the_case(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pool = pool_of(*(ScriptedWorker(step.agent, base_url="https://Far.Example:8443/v1") for step in FAN.steps))
    monkeypatch.setattr(opened, "open_pool", lambda ref, settings, *, seed: pool)
    assert waits_for(store.read(gated(host, f"provider:{name}"))) == ["step 0"]


def test_what_is_sent_to_a_run_that_cannot_go_on_here_is_refused_with_the_reason(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = gated(host, "plan")

    def gone(*_: object, **__: object) -> None:
        raise BadInput("the pool is not here")

    monkeypatch.setattr(opened, "reopen_pool", gone)
    trace = at_rest(store, run_id, said(store, run_id))
    assert (trace.status, waits_for(trace)) == ("waiting", ["the plan"])
    (refused,) = trace.refused
    assert refused.reason == "the run cannot continue here: the pool is not here"


@pytest.mark.parametrize(
    ("price", "waits"),
    [(FREE, []), (Price(input=1e6, output=1e6), ["the plan"]), (None, ["the plan"])],
)
def test_a_gate_for_money_counts_what_the_conductor_may_cost(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch, price: Price | None, waits: list[str]
) -> None:
    inner = lists_of(workflow_of(("a", "Answer: {question}", ())), ["a"])
    conductor = ScriptedConductor(inner, usd_per_mtok=price)
    monkeypatch.setattr(opened, "open_pool", lambda ref, settings, *, seed: pool_of(ScriptedWorker("a")))
    monkeypatch.setattr(catalogue, "open_conductor", lambda *_: conductor)
    plan = workflow_of(("a", "Begin: {question}", ()), ("conductor", "Do it.", (0,)))
    trace = store.read(gated(host, "usd:1", workflow=plan, conductor="scripted", limits=Limits(max_depth=1)))
    assert (waits_for(trace), trace.status) == (waits, "waiting" if waits else "completed")


def test_a_gate_for_a_provider_that_nobody_has_is_refused(host: EngineHost, store: Store) -> None:
    with pytest.raises(BadInput, match=r"provider:opnai.*rehearsal"):
        gated(host, "provider:opnai")
    assert store.runs() == []
