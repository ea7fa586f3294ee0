"""A run whose Conductor never wrote: nothing says that its plan was given."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from conductor_core.run.request import RunRequest
from tests.browser.conftest import App


def test_each_way_out_of_a_failure_is_one_press(app: App, open_page: Callable[..., Page]) -> None:
    failed = app.engine.start(RunRequest(task="Anything.", door="page", conductor="http://127.0.0.1:9/v1#planner"))
    app.engine.wait(failed, 120)
    page = open_page(app.run_url(failed), width=1280, height=720)
    expect(page.locator(".live-workflow")).to_contain_text("no plan")
    expect(page.locator(".live-workflow")).not_to_contain_text("given plan")
    bar = page.locator(".bar")
    for name in ("Try again", "Plan with tiny", "Settings"):
        expect(bar.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
    bar.get_by_role("button", name="Plan with tiny").click()
    page.wait_for_url(lambda url: failed not in url)
    expect(bar.get_by_role("button", name="Plan with tiny")).to_be_hidden()
