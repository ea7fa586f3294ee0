"""What else the Conductor considered stands in the Plan tab, beside what it wrote."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Page, expect

from conductor_core.engine.models import EXAMPLES
from conductor_core.run import events as ev
from conductor_core.run.request import RunRequest
from conductor_core.run.values import Alternative, Alternatives
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App
from tests.support.run_events import created, planned

RUN = "considered"
HOSTILE = "<img src=x onerror=alert(1)>"


def test_the_probabilities_of_a_plan_are_words_with_a_bar_beside_them(app: App, open_page: Callable[..., Page]) -> None:
    agents = (Alternative(value="solver", probability=0.5), Alternative(value=HOSTILE, probability=0.5))
    access = (Alternative(value="some", probability=0.75), Alternative(value="none", probability=0.25))
    *begun, whole = planned(RUN, Workflow(steps=(Step(instruction="Solve: {question}", agent="solver"),)))
    assert isinstance(whole, ev.PlanCompleted)
    considered = (
        Alternatives(step=0, field="agent", options=agents),
        Alternatives(step=0, field="access_list", options=access),
    )
    whole = whole.model_copy(update={"considered": considered})
    cancelled = ev.RunCancelled(run_id=RUN, door="page")
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, created(RUN), *begun, whole, cancelled).result()
    page = open_page(app.run_url(RUN), width=1280, height=720)
    page.locator(".plan-button").click()
    rows = page.locator(".considered dd")
    expect(rows).to_have_count(2)
    expect(rows.first.locator(".option")).to_have_text(["solver 0.50", f"{HOSTILE} 0.50"])
    expect(rows.last.locator(".option")).to_have_text(["reads some 0.75", "reads none 0.25"])
    expect(page.locator(".considered dt")).to_have_text(["Step 0 · agent", "Step 0 · access list"])
    widths = rows.last.locator(".odds i").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert abs(widths[0] / widths[1] - 3) < 0.1
    assert page.locator(".considered img").count() == 0


def test_the_shipped_conductor_says_what_else_it_considered(app: App, open_page: Callable[..., Page]) -> None:
    with ThreadPoolExecutor(1) as aside:
        request = RunRequest(task=EXAMPLES[-1].task, conductor="tiny", door="page", plan_only=True)
        run_id = aside.submit(app.engine.start, request).result()
        aside.submit(app.engine.wait, run_id, 60).result()
    page = open_page(app.run_url(run_id), width=1280, height=720)
    page.locator(".plan-button").click()
    expect(page.get_by_role("heading", name="What else it considered")).to_be_visible()
    expect(page.locator(".considered dd").first).to_contain_text("planner 0.")
