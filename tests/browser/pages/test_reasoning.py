"""Reasoning, of the Conductor and of workers: shown, folded, apart from what came of it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Page, expect

from conductor_core.run import events as ev
from conductor_core.run.request import new_run_id
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

OpenPage = Callable[..., Page]


def test_reasoning_is_folded_where_the_writing_shows(app: App, open_page: OpenPage) -> None:
    run_id = new_run_id()
    plan = planned(run_id, Workflow(steps=(Step(instruction="Solve: {question}", agent="solver"),)))
    events = [
        created(run_id),
        plan[0],
        ev.PlanDelta(run_id=run_id, text="One step should be enough here.", reasoning=True),
        *plan[1:],
        step_started(run_id, 0, 30),
        ev.StepDelta(run_id=run_id, path=(0,), text="Let me add them first.", reasoning=True),
        step_completed(run_id, 0, "It is 4.", 2000),
        run_completed(run_id, "It is 4.", 2010),
    ]
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, *events).result()
    page = open_page(app.run_url(run_id), width=1280, height=720)
    folded = page.locator(".pane .reasoning")
    expect(folded.locator("summary")).to_have_text("Reasoning")
    expect(folded.get_by_text("Let me add them first.")).to_be_hidden()
    folded.locator("summary").click()
    expect(folded.get_by_text("Let me add them first.")).to_be_visible()
    expect(page.locator(".pane .prose")).to_have_text("It is 4.")
    page.locator(".plan-button").click()
    thoughts = page.locator(".inspector .reasoning")
    expect(thoughts.get_by_text("One step should be enough here.")).to_be_hidden()
    thoughts.locator("summary").click()
    expect(thoughts.get_by_text("One step should be enough here.")).to_be_visible()
    expect(page.locator(".inspector .plan-text")).not_to_contain_text("One step should be enough")
