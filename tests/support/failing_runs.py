"""Runs as clients ask them over four weeks, drawn by seed, of which some fail in each way that the catalogue knows."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from conductor_core.chat.messages import ToolCall
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.request import ClientRequest, new_run_id
from conductor_core.workflow.model import Fault
from tests.support.run_events import answered, created, planned, run_completed, step_completed, step_started

_TASKS = (
    "Book a flight from Oslo to Bergen for three people on Friday", "Summarise the meeting notes and list open points",
    "Which invoices of March are unpaid?", "Translate chapter 3 of the manual into German",
    "Fix the failing test in the payment module", "Plan a week of dinners for a family of four",
)  # fmt: skip
_LATE = "checker at api.example.com did not answer within 120 s"
_WAYS = ("plan", "late", "busy", "empty", "refused", "loop", "form")
_FAILS = 0.25


def failing_runs(count: int, seed: int = 7) -> Iterator[list[Event]]:
    """Yields the events of ``count`` runs, the oldest first."""
    chance, now = random.Random(seed), datetime.now(UTC)
    ages = sorted((28 * chance.random() ** 2 for _ in range(count)), reverse=True)
    for age in ages:
        run_id, way = new_run_id(), chance.choice(_WAYS) if chance.random() < _FAILS else ""
        client = ClientRequest(api="chat", model=chance.choice(("fugu", "fugu", "fugu-ultra")))
        first = created(run_id, chance.choice(_TASKS), client=client, simulated=False)
        first = first.model_copy(update={"at_utc": now - timedelta(days=age)})
        rejected = [_rejected(run_id)] if way == "plan" else []
        yield [first, *rejected, *planned(run_id), *answered(run_id, 0), *_last_step(run_id, way)]


def _rejected(run_id: str) -> ev.PlanRejected:
    fault = Fault(code="unknown_agent", message="step 1 names agent 9, but the pool has 2 workers")
    return ev.PlanRejected(run_id=run_id, raw="model_id = [0, 9]", faults=(fault,), will_retry=True)


def _last_step(run_id: str, way: str) -> list[Event]:
    begun, end = step_started(run_id, 1, 50), run_completed(run_id)
    match way:
        case "late":
            failed = ev.StepFailed(run_id=run_id, path=(1,), error_code="WorkerTimedOut", error=_LATE)
            return [begun, failed, ev.RunFailed(run_id=run_id, error_code="WorkerTimedOut", error=f"step 1: {_LATE}")]
        case "busy":
            busy = "status 429: too many requests; try again in 20 s"
            return [begun, _retried(run_id, "WorkerRateLimited", busy), step_completed(run_id, 1, "42", 90), end]
        case "form":
            wrong = "at $.total it does not fit the schema: '12' is not of type 'number'"
            again = _retried(run_id, "AnswerForm", wrong, correction="Write it again as JSON.")
            return [begun, again, step_completed(run_id, 1, "{}", 90), end]
        case "empty" | "refused":
            said = {"ending": way, "incomplete": True, "refusal": "" if way == "empty" else "I cannot help with that."}
            done = step_completed(run_id, 1, "", 90).model_copy(update=said)
            return [begun, done, end.model_copy(update={"ending": way})]
        case "loop":
            call = ToolCall(name="search_files", arguments='{"query": "invoice"}')
            calls = [call.model_copy(update={"call_id": f"{run_id}-{number}"}) for number in range(4)]
            return [begun, *(ev.ToolCalled(run_id=run_id, path=(1,), calls=(each,)) for each in calls),
                    ev.RunCancelled(run_id=run_id)]  # fmt: skip
    return [*answered(run_id, 1, at_ms=50), end]


def _retried(run_id: str, code: str, error: str, correction: str = "") -> ev.StepRetried:
    return ev.StepRetried(
        run_id=run_id, path=(1,), attempt=1, error_code=code, error=error, wait_ms=0, correction=correction
    )
