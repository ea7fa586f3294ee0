"""A slow model in this process: the page says what it does while there is nothing else to see."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Page, expect

from conductor_core.chat.progress import Progress
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App
from tests.support.run_events import created, planned, step_started

RUN = "local-models"


def _append(app: App, *events: Event) -> None:
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, *events).result()


def test_loading_reading_and_writing_are_told_where_their_text_will_stand(
    app: App, open_page: Callable[..., Page]
) -> None:
    plan = planned(RUN, Workflow(steps=(Step(instruction="Solve: {question}", agent="solver"),)))
    loading = Progress(phase="loading", done=250_000_000, total=1_000_000_000, per_s=1e8, left_s=7.5)
    _append(app, created(RUN), plan[0], ev.PlanProgress(run_id=RUN, progress=loading))
    page = open_page(app.run_url(RUN), width=1280, height=720)
    graph = page.locator(".graph-empty")
    expect(graph).to_have_text("The Conductor: Loading the model, 25 % of 1.0 GB · about 10 s left…")
    expect(page.locator(".plan-button")).to_have_text("tiny · loading…")
    bar = "element => getComputedStyle(element, '::after').backgroundImage"
    assert "25%" in graph.evaluate(bar)
    reading = Progress(phase="reading", done=380, total=1520, per_s=26.4, left_s=43.2)
    _append(app, ev.PlanProgress(run_id=RUN, progress=reading))
    expect(graph).to_have_text("The Conductor: Reading the prompt, 380 of 1,520 tok · 26/s · about 45 s left…")
    expect(page.locator(".inspector")).to_contain_text("Reading the prompt, 380 of 1,520 tok · 26/s · about 45 s left…")
    expect(page.locator(".bar")).to_contain_text("the Conductor is reading its prompt")
    thinking = Progress(phase="thinking", done=20, total=1024, per_s=1.52, left_s=85.5)
    thought = ev.PlanDelta(run_id=RUN, text="This is one sum.")
    _append(app, thought, ev.PlanProgress(run_id=RUN, progress=thinking))
    expect(graph).to_have_text("The Conductor: Thinking, 20 tok · 1.5/s · about 85 s left…")
    expect(graph).not_to_have_attribute("data-share", "")
    expect(page.locator(".plan-button")).to_have_text("tiny · thinking…")
    _append(app, *plan[1:], step_started(RUN, 0, 30), ev.StepProgress(run_id=RUN, path=(0,), progress=loading))
    pane = page.locator('.pane[data-step="0"]')
    expect(pane).to_contain_text("Loading the model, 25 % of 1.0 GB · about 10 s left…")
    writing = Progress(phase="writing", done=12, total=1024, per_s=3.25)
    delta = ev.StepDelta(run_id=RUN, path=(0,), text="It is", output_tokens=12)
    _append(app, ev.StepProgress(run_id=RUN, path=(0,), progress=reading), delta)
    expect(pane.locator(".prose")).to_have_text("It is")
    _append(app, ev.StepProgress(run_id=RUN, path=(0,), progress=writing))
    expect(pane.locator(".figures")).to_contain_text("3.3/s")
    _append(app, ev.RunCancelled(run_id=RUN, door="page"))
