"""What a run costs, the Conductor's tokens included; what is unknown is never counted as nothing."""

import pytest

from conductor_core.chat.messages import ConductorInfo, Price, WorkerSpec
from conductor_core.chat.usage import estimate_input_tokens
from conductor_core.errors import ConductorUnavailable
from conductor_core.run.costs import basis, cost_of_part, cost_so_far, interruption
from conductor_core.run.events import PlanRejected, RunFailed
from conductor_core.run.trace import fold
from conductor_core.run.values import Limits
from tests.support.fakes import MemorySink, Reply, ScriptedConductor, ScriptedWorker, lists_of, run, workflow_of

LISTS = lists_of(workflow_of(("a", "x", ())), ("a",))
LIST_PRICE = Price(input=100.0, output=1000.0)
PLAN_USD = (20 * 100.0 + len(LISTS) // 4 * 1000.0) / 1e6
STEP_USD = (10 * 1.0 + 5 * 10.0) / 1e6
"""By the scripted worker's usage and price."""


async def test_a_conductors_tokens_cost_their_price() -> None:
    trace, sink = await run(ScriptedWorker("a"), conductor=ScriptedConductor(LISTS, usd_per_mtok=LIST_PRICE))
    assert trace.cost_usd == pytest.approx(PLAN_USD + STEP_USD, abs=1e-12)
    assert trace.root.cost_usd == pytest.approx(PLAN_USD, abs=1e-12)
    assert basis(trace.root) == "list_price"
    assert fold(sink.events).known_usd == trace.known_usd == trace.cost_usd


async def test_what_the_conductors_provider_says_goes_before_its_price() -> None:
    conductor = ScriptedConductor(LISTS, usd_per_mtok=LIST_PRICE, cost_usd=0.25)
    trace, _ = await run(ScriptedWorker("a"), conductor=conductor)
    assert (trace.root.cost_usd, basis(trace.root)) == (0.25, "provider")


async def test_a_conductor_without_a_price_makes_the_cost_unknown_and_leaves_what_is_known() -> None:
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor(LISTS, usd_per_mtok=None))
    assert (trace.cost_usd, trace.root.cost_usd) == (None, None)
    assert trace.known_usd == pytest.approx(STEP_USD, abs=1e-12)
    assert basis(trace) == "unknown"


async def test_a_rejected_plan_was_paid_for() -> None:
    conductor = ScriptedConductor("no plan", LISTS, usd_per_mtok=LIST_PRICE)
    trace, sink = await run(ScriptedWorker("a"), conductor=conductor)
    [rejected] = [event for event in sink.events if isinstance(event, PlanRejected)]
    first_usd = (20 * 100.0 + 1 * 1000.0) / 1e6
    assert rejected.cost_usd == pytest.approx(first_usd, abs=1e-12)
    assert trace.root.cost_usd == pytest.approx(first_usd + PLAN_USD, abs=1e-12)


async def test_a_failed_plan_costs_what_it_took() -> None:
    trace, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor("no plan", usd_per_mtok=LIST_PRICE))
    assert trace.status == "failed"
    assert trace.cost_usd == pytest.approx(2 * (20 * 100.0 + 1 * 1000.0) / 1e6, abs=1e-12)


async def test_the_budget_sees_the_conductors_tokens() -> None:
    conductor = ScriptedConductor(LISTS, usd_per_mtok=LIST_PRICE)
    trace, _ = await run(ScriptedWorker("a"), conductor=conductor, limits=Limits(max_usd=PLAN_USD / 2))
    assert trace.error_code == "LimitReached"
    assert "cost limit" in (trace.error or "")
    assert conductor.closed == 1, "it is stopped while it writes"


async def test_a_plan_that_used_the_budget_up_leaves_none_for_workers() -> None:
    worker = ScriptedWorker("a")
    conductor = ScriptedConductor(LISTS, usd_per_mtok=Price(input=0, output=0), cost_usd=1.0)
    trace, _ = await run(worker, conductor=conductor, limits=Limits(max_usd=0.5))
    assert (trace.error_code, worker.calls) == ("LimitReached", [])


async def test_a_call_of_unknown_price_is_unknown_from_its_beginning_on() -> None:
    sink = MemorySink()
    worker = ScriptedWorker("a", usd_per_mtok=None).then(Reply(text="x", cost_usd=0.5))
    await run(worker, conductor=ScriptedConductor(LISTS, usd_per_mtok=None, cost_usd=0.25), sink=sink)
    so_far = [cost_so_far(fold(sink.events[: count + 1])).usd for count in range(len(sink.events))]
    kinds = sink.kinds()
    assert so_far[kinds.index("run.created")] == 0.0
    assert so_far[kinds.index("plan.started")] is None, "it may cost something: not $0.0000"
    assert so_far[kinds.index("plan.completed")] == 0.25, "then its provider has said"
    assert so_far[kinds.index("step.started")] is None
    assert so_far[-1] == 0.75


async def test_a_plan_that_broke_off_is_of_unknown_cost_where_it_had_begun() -> None:
    broken, begun = ConductorUnavailable("gone"), ScriptedConductor(LISTS, usd_per_mtok=None)
    silent, _ = await run(ScriptedWorker("a"), conductor=ScriptedConductor(broken, usd_per_mtok=None))
    assert (silent.cost_usd, cost_of_part(silent, silent.root).usd) == (0.0, 0.0), "what said nothing cost nothing"
    cut, sink = await run(ScriptedWorker("a"), conductor=begun, limits=Limits(max_tokens=25))
    assert isinstance(sink.events[-1], RunFailed)
    assert (cut.cost_usd, cost_of_part(cut, cut.root).usd) == (None, None)


async def test_a_killed_run_costs_what_it_paid_and_by_estimate_what_was_on() -> None:
    conductor = ScriptedConductor(LISTS, usd_per_mtok=LIST_PRICE)
    _, sink = await run(ScriptedWorker("a").then(Reply(text="word " * 8)), conductor=conductor)
    completed = sink.kinds().index("step.completed")
    left = fold(sink.events[:completed])
    assert left.known_usd == pytest.approx(PLAN_USD, abs=1e-12)
    killed = fold([*sink.events[:completed], interruption(left)])
    read = estimate_input_tokens(left.steps[0].messages)
    on_usd = (read * 1.0 + 10 * 10.0) / 1e6
    assert killed.known_usd == killed.cost_usd == pytest.approx(PLAN_USD + on_usd, abs=1e-12)
    assert killed.broken_off_usd == pytest.approx(on_usd, abs=1e-12)
    assert basis(killed) == "estimated"
    assert killed.broken_off.total_tokens == read + 10


async def test_what_is_known_stays_beside_a_broken_off_call_without_a_price() -> None:
    """Two calls are on when the run's time is up: one has a price."""
    hangs = Reply(text="word " * 8, hang=True)
    workers = [ScriptedWorker("a").then(hangs), ScriptedWorker("b", usd_per_mtok=None).then(hangs)]
    plan = workflow_of(("a", "x", ()), ("b", "x", ()))
    trace, _ = await run(*workers, workflow=plan, limits=Limits(max_seconds=0.3))
    assert (trace.error_code, trace.cost_usd) == ("LimitReached", None)
    assert trace.known_usd == trace.broken_off_usd > 10 * 10.0 / 1e6


def test_what_runs_in_this_process_is_free_and_a_server_is_not_known_to_be() -> None:
    assert ConductorInfo(name="tiny", kind="local", model="m").price == Price(input=0, output=0)
    assert ConductorInfo(name="u#m", kind="remote", model="m").price is None
    assert WorkerSpec(name="w", provider="local", model="m").price == Price(input=0, output=0)
    assert WorkerSpec(name="w", provider="openai", model="m").price is None
    assert WorkerSpec(name="w", provider="local", model="m", usd_per_mtok=LIST_PRICE).price == LIST_PRICE
