"""The same marks and words at every door: bounds, estimates, limits, cut plans, keys, notes of a call."""

from collections.abc import AsyncGenerator

import pytest

from conductor_core.chat.messages import (
    Departure,
    PlanFinished,
    PlanRequest,
    Price,
    TextDelta,
    Usage,
)
from conductor_core.cli.batch import BatchProgress, task_line
from conductor_core.cli.live import ProgressView
from conductor_core.cli.rerun import preview_lines
from conductor_core.engine.estimates import preview
from conductor_core.engine.repeats import Again, forecast_repeats
from conductor_core.errors import advice
from conductor_core.run.costs import Cost
from conductor_core.run.request import Overrides
from conductor_core.run.trace import fold
from conductor_core.run.values import Limits
from tests.support.fakes import Reply, ScriptedConductor, ScriptedWorker, lists_of, run, workflow_of
from tests.support.run_events import created, planned, step_completed, step_started

CACHED = Usage(input_tokens=100_000, output_tokens=10, cached_input_tokens=90_000)
PRICE = Price(input=1.0, output=10.0)
ONE = workflow_of(("a", "x", ()))


async def test_a_bound_stays_a_bound_in_a_dry_run_and_in_a_refusal() -> None:
    worker = ScriptedWorker("a", usd_per_mtok=PRICE).then(Reply(text="42", usage=CACHED))
    trace, _ = await run(worker, workflow=ONE)
    assert trace.root.workflow is not None
    afresh = Overrides().with_seeds({0: 7})
    forecast = preview(trace, trace.root.workflow, [worker.spec], overrides=afresh)
    assert preview_lines(forecast)[-1].endswith("about 100010 tokens, at most $0.1001")
    repeats = forecast_repeats(trace, Again(step=0, times=3), [worker.spec])
    assert repeats.cost.in_line == "at most $0.3003"
    two = workflow_of(("a", "x", ()), ("a", "y", (0,)))
    again = ScriptedWorker("a", usd_per_mtok=PRICE).then(Reply(text="42", usage=CACHED))
    refused, _ = await run(again, workflow=two, limits=Limits(max_usd=0.05))
    assert "at most 0.100100 USD spent" in (refused.error or "")


def test_a_task_of_a_batch_and_its_total_say_that_they_are_estimated() -> None:
    guess = {"usage": Usage(output_tokens=3, estimated=True), "cost_estimated": True}
    step = step_completed("r", 0, "x", 40, 0.5).model_copy(update=guess)
    trace = fold([created("r"), *planned("r"), step_started("r", 0, 30), step])
    assert "· ≈ $0.5000 ·" in task_line("1", trace)
    told = BatchProgress(1, 0, Cost(), estimated=False, quiet=True, answers=False)
    told.begun()
    told.ended("1", trace)
    assert told.line.endswith("· ≈ $0.5000")


class CutShort(ScriptedConductor):
    """Every plan stops at the limit of tokens."""

    async def write(self, request: PlanRequest) -> AsyncGenerator[TextDelta | PlanFinished]:
        self.requests.append(request)
        yield TextDelta(text='steps = [{"agent": 0, "instruction": "x", "access_list": []}, {"agent": 0, "instr')
        yield PlanFinished(finish_reason="length", usage=Usage(input_tokens=5, output_tokens=6))


async def test_a_plan_cut_within_its_lists_says_so_and_what_raises_the_limit() -> None:
    trace, _ = await run(ScriptedWorker("a"), conductor=CutShort())
    said = trace.error or ""
    assert said.startswith("Conductor scripted was asked")
    assert "reached its limit of tokens" in said
    assert "max_tokens of the Conductor" in said
    assert "CONDUCTOR_PLAN_MAX_TOKENS" in said


async def test_a_call_that_a_budget_refuses_has_not_begun_and_the_advice_names_the_option() -> None:
    conductor = ScriptedConductor(lists_of(ONE, ("a",)), usd_per_mtok=Price(input=100.0, output=1000.0))
    trace, sink = await run(ScriptedWorker("a"), conductor=conductor, limits=Limits(max_usd=0.0001))
    assert "plan.started" not in sink.kinds()
    assert conductor.requests == []
    assert "would leave room for it" in (trace.error or "")
    assert trace.usage.total_tokens == 0
    said = advice("LimitReached", trace.run_id, trace.error or "")
    assert said.startswith(f"Raise the limit: conductor rerun {trace.run_id} --max-usd USD")
    assert advice("LimitReached", "r", trace.error or "", planned=False).endswith("again with --max-usd USD.")


def test_advice_on_a_refused_key_does_not_repeat_or_deny_what_the_error_says() -> None:
    for code in ("WorkerKeyRefused", "ConductorKeyRefused"):
        assert "variable" not in advice(code, "r")


def test_a_note_of_a_call_is_said_while_the_run_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    departure = Departure(kind="turn_token", what="<|im_end|>")
    done = step_completed("r", 0, "x", 40, 0.5).model_copy(update={"departures": (departure,)})
    view = ProgressView(quiet=False, answer=False)
    for event in [created("r"), *planned("r"), step_started("r", 0, 30), done]:
        view.show(event)
    assert f"  note: {departure.in_words}\n" in capsys.readouterr().err
