"""Answers that are no whole ones, on the page: the status, whose words there are, what was done, what can be done."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from conductor_core.chat.messages import ToolCall
from conductor_core.run.events import Event, PlanRetried, RunFailed, StepFailed, StepRetried
from conductor_core.run.request import new_run_id
from tests.browser.conftest import App
from tests.support.run_events import answered, created, planned, run_completed, step_completed, step_started

OpenPage = Callable[..., Page]


def append(app: App, *events: Event) -> None:
    # Playwright's event loop has this thread.
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, *events).result()


def ended(app: App, status: str, output: str, **fields: Any) -> str:
    """A run whose last step ended so."""
    run_id = new_run_id()
    last = step_completed(run_id, 1, output, 60).model_copy(update={"ending": status, "incomplete": True, **fields})
    end = run_completed(run_id, output).model_copy(update={"ending": status})
    append(app, created(run_id), *planned(run_id), *answered(run_id, 0), step_started(run_id, 1, 50), last, end)
    return run_id


@pytest.mark.parametrize(
    ("status", "output", "fields", "pill", "title", "conclusion", "hint"),
    [
        ("refused", "", {"refusal": "I cannot."}, "⊗ Refused", "No answer: refused", "I cannot.", "other words"),
        ("filtered", "The way", {}, "▽ Filtered", "No answer: filtered", "The way", "A filter of the provider"),
        ("cut", "The legs are", {}, "◐ Cut off", "Answer, cut off", "The legs are", "max_tokens"),
        ("empty", "", {}, "∅ Empty", "No answer: empty", "The answer is empty.", "another worker"),
        (
            "empty",
            "",
            {"tool_calls": (ToolCall(name="search", arguments='{"q": 1}'),)},
            "∅ Empty",
            "No answer: empty",
            "It called the tool search instead of answering.",
            "another worker",
        ),
    ],
)
def test_a_run_without_a_whole_answer_says_so_everywhere(
    app: App,
    open_page: OpenPage,
    status: str,
    output: str,
    fields: dict[str, Any],
    pill: str,
    title: str,
    conclusion: str,
    hint: str,
) -> None:
    run_id = ended(app, status, output, **fields)
    page = open_page(app.run_url(run_id), width=1280, height=720)
    expect(page.locator(".bar .status")).to_contain_text(pill)
    expect(page.locator(".bar")).to_have_class("card bar declined")
    expect(page.locator(".bar .title")).to_have_text(title)
    expect(page.locator(".conclusion")).to_have_text(conclusion)
    expect(page.locator(".bar .hint")).to_contain_text(hint)
    expect(page.locator(".go-on")).to_have_text("▶ Ask again")
    if fields.get("tool_calls"):
        expect(page.locator("[data-step='1'].pane")).to_contain_text('it called the tool search with {"q": 1}')
    page.goto(f"{app.url}/history")
    expect(page.locator(f".st-key-run-row-{run_id} .mark.{status}")).to_be_visible()


def test_what_was_done_about_it_stands_at_the_step(app: App, open_page: OpenPage) -> None:
    run_id = new_run_id()
    retried = StepRetried(
        run_id=run_id,
        at_ms=55,
        path=(1,),
        attempt=1,
        error_code="AnswerRefused",
        error="the model refused to answer",
        refusal="I cannot.",
        wait_ms=0,
        then="fallback",
        then_agent="solver",
    )
    done = step_completed(run_id, 1, "42", 60).model_copy(update={"answered_by": "solver"})
    start = step_started(run_id, 1, 50)
    append(app, created(run_id), *planned(run_id), *answered(run_id, 0), start, retried, done, run_completed(run_id))
    page = open_page(app.run_url(run_id), width=1280, height=720)
    pane = page.locator("[data-step='1'].pane")
    expect(pane).to_contain_text("attempt 1: the model refused to answer (I cannot.); solver was asked instead")
    expect(pane).to_contain_text("answered by solver in the place of checker")


def test_a_model_that_is_being_loaded_is_said_to_be_at_step_and_plan(app: App, open_page: OpenPage) -> None:
    run_id = new_run_id()
    loading = {"wait_ms": 2000, "loading": True, "attempt": 1}
    first, *rest = planned(run_id)
    waits = PlanRetried(run_id=run_id, at_ms=7, error_code="ConductorLoading", error="(503): Loading model", **loading)
    append(app, created(run_id), first, waits)
    page = open_page(app.run_url(run_id), width=1280, height=720)
    expect(page.locator(".bar")).to_contain_text("the Conductor’s server is loading its model")
    again = StepRetried(
        run_id=run_id, at_ms=35, path=(0,), error_code="WorkerLoading", error="503 (Loading model)", **loading
    )
    append(app, *rest, step_started(run_id, 0, 30), again)
    pane = page.locator("[data-step='0'].pane")
    expect(pane).to_contain_text("the server is loading its model and is asked again until it answers")
    expect(pane).to_have_attribute("data-status", "loading")


def test_a_wait_that_a_server_asks_for_is_said_at_step_and_plan(app: App, open_page: OpenPage) -> None:
    run_id = new_run_id()
    busy = {"wait_ms": 20_000, "attempt": 1, "error": "it limits requests, 429"}
    first, *rest = planned(run_id)
    append(app, created(run_id), first)
    append(app, PlanRetried(run_id=run_id, at_ms=7, error_code="ConductorRateLimited", **busy))
    page = open_page(app.run_url(run_id), width=1280, height=720)
    expect(page.locator(".bar")).to_contain_text("the Conductor’s server failed and is asked again after 20.0 s")
    expect(page.locator(".inspector")).to_contain_text("it limits requests, 429; asked again after 20.0 s")
    again = StepRetried(run_id=run_id, at_ms=35, path=(0,), error_code="WorkerRateLimited", **busy)
    append(app, *rest, step_started(run_id, 0, 30), again)
    expect(page.locator("[data-step='0'].pane")).to_contain_text("it limits requests, 429; asked again after 20.0 s")


def test_the_advice_is_about_what_went_wrong(app: App, open_page: OpenPage) -> None:
    run_id = new_run_id()
    code, error = "WorkerContextOverflow", "the request is longer than the model's context"
    failed = StepFailed(run_id=run_id, at_ms=40, path=(0,), error_code=code, error=error)
    end = RunFailed(run_id=run_id, at_ms=50, error_code=code, error=error, duration_ms=50)
    append(app, created(run_id), *planned(run_id), step_started(run_id, 0, 30), failed, end)
    page = open_page(app.run_url(run_id), width=1280, height=720)
    for part in (page.locator(".bar .hint"), page.locator("[data-step='0'].pane")):
        expect(part).to_contain_text("longer context")
    expect(page.locator(".bar .hint")).not_to_contain_text("environment variable")
