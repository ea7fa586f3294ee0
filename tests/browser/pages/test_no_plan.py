"""A run whose Conductor never wrote: nothing says that its plan was given."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from conductor_core.run.request import RunRequest
from tests.browser.conftest import App


def test_a_run_without_a_plan_was_given_none(app: App, open_page: Callable[..., Page]) -> None:
    run_id = app.engine.start(RunRequest(task="Anything.", door="page", conductor="http://127.0.0.1:9/v1#planner"))
    assert app.engine.wait(run_id, 120).status == "failed"
    page = open_page(app.run_url(run_id))
    expect(page.locator(".live-workflow")).to_contain_text("no plan")
    expect(page.locator(".live-workflow")).not_to_contain_text("given plan")
