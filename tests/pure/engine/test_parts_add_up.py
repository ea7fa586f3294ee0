"""The figures of a run's parts add up to those of the run, also where calls failed or were cut by its end."""

from collections.abc import AsyncGenerator

import pytest

from conductor_core.analysis.documents import run_document
from conductor_core.chat.messages import PlanFinished, PlanRequest, Price, TextDelta, Usage
from conductor_core.cli.show import run_lines
from conductor_core.errors import ConductorStreamCut
from conductor_core.run import events as ev
from conductor_core.run.costs import cost_of_part, interruption, spent_on
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace, fold
from conductor_core.run.values import Limits
from tests.support.fakes import (
    Reply,
    ScriptedConductor,
    ScriptedWorker,
    lists_of,
    quick_settings,
    run,
    workflow_of,
)
from tests.support.run_events import created, planned, recursive_run

PRICE = Price(input=100.0, output=1000.0)
PLAN = workflow_of(("a", "x", ()), ("b", "x", ()))


def parts_of(trace: RunTrace) -> list[RoundTrace | StepTrace]:
    return [*trace.root.rounds(), *trace.walk()]


def assert_they_add_up(trace: RunTrace) -> None:
    parts = parts_of(trace)
    assert sum((part.usage for part in parts), Usage()).total_tokens == trace.usage.total_tokens > 0
    assert sum(part.known_usd for part in parts) == pytest.approx(trace.known_usd, abs=1e-12)


class Dying(ScriptedConductor):
    """Every call writes 32 characters, then its connection breaks."""

    async def write(self, request: PlanRequest) -> AsyncGenerator[TextDelta | PlanFinished]:
        pieces = ScriptedConductor.write(self, request)
        for _ in range(2):
            yield await anext(pieces)
        await pieces.aclose()
        raise ConductorStreamCut("gone")


async def test_the_last_of_a_conductors_failed_calls_counts_for_its_plan() -> None:
    conductor = Dying(lists_of(PLAN, ("a", "b")), usd_per_mtok=PRICE, pause_s=0.01)
    settings = quick_settings()
    trace, _ = await run(ScriptedWorker("a"), conductor=conductor, settings=settings)
    assert (trace.status, len(trace.root.retries)) == ("failed", settings.step_attempts - 1)
    assert_they_add_up(trace)
    assert cost_of_part(trace, trace.root).usd == trace.cost_usd
    first, took = trace.root.first_token_ms, trace.root.duration_ms
    assert first is not None
    assert took is not None
    assert first <= took, "the first token is that of the last call, and its time counts"
    (line,) = [line for line in run_lines(trace) if line.startswith("plan: unfinished")]
    assert "by conductor" in line
    assert f"{trace.usage.input_tokens} tokens in, {trace.usage.output_tokens} out (estimated)" in line


async def test_calls_that_the_end_cuts_count_for_their_steps() -> None:
    hangs = Reply(text="word " * 8, hang=True)
    workers = [ScriptedWorker("a").then(hangs), ScriptedWorker("b", usd_per_mtok=PRICE).then(hangs)]
    trace, _ = await run(*workers, workflow=PLAN, limits=Limits(max_seconds=0.3))
    assert [step.status for step in trace.steps] == ["cancelled", "cancelled"]
    assert_they_add_up(trace)
    assert trace.steps[1].cost_usd == pytest.approx(PRICE.cost_usd(trace.steps[1].usage), abs=1e-12), (
        "each at its own worker's price"
    )
    for step, told in zip(trace.steps, run_document(trace)["steps"], strict=True):
        assert told["usage"]["output_tokens"] == step.usage.output_tokens == 10
        assert told["cost_basis"] == "estimated"
        (line,) = [line for line in run_lines(trace) if line.startswith(f"step {step.index} · ")]
        assert "10 out (estimated)" in line


async def test_a_killed_run_adds_up() -> None:
    _, sink = await run(ScriptedWorker("a").then(Reply(text="word " * 8)), workflow=workflow_of(("a", "x", ())))
    left = sink.events[: sink.kinds().index("step.completed")]
    assert_they_add_up(fold([*left, interruption(fold(left))]))


def test_a_plan_that_was_cancelled_is_the_conductors() -> None:
    events = [created("r"), *planned("r")][:2]
    assert isinstance(events[-1], ev.PlanStarted)
    cut = ev.BrokenOff(path=(), usage=Usage(input_tokens=40, output_tokens=4, estimated=True), cost_usd=0.5)
    end = ev.RunCancelled(
        run_id="r", at_ms=90, usage=cut.usage, cost_usd=0.5, known_usd=0.5, broken_off=(cut,), duration_ms=90
    )
    trace = fold([*events, end])
    assert_they_add_up(trace)
    (line,) = [line for line in run_lines(trace) if line.startswith("plan: ")]
    assert "by conductor, " in line
    assert "40 tokens in, 4 out (estimated) · $0.5000 estimated" in line


def test_a_step_of_the_conductor_is_not_called_free_in_json() -> None:
    recursive = workflow_of(("conductor", "On.", ()))
    trace = fold(recursive_run("r", recursive, workflow_of(("solver", "x", ()))))
    (step,) = run_document(trace)["steps"]
    assert (step["cost_basis"], step["with_round"]["cost_basis"]) == ("with_round", "provider")
    assert step["with_round"]["cost_usd"] == spent_on(trace, trace.steps[0]).cost_usd
