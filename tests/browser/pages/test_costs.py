"""What a run costs, on the page while it goes on and when it is over."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from conductor_core.chat.messages import ConductorInfo, Price, Usage
from conductor_core.run.events import Event
from conductor_core.run.request import new_run_id
from tests.browser.conftest import App, append
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

OpenPage = Callable[..., Page]
REMOTE = ConductorInfo(name="http://127.0.0.1:9/v1#m", kind="remote", model="m")


def begun(app: App, conductor: ConductorInfo) -> tuple[str, list[Event]]:
    """A run whose plan is being written, and the events of the plan that are to come."""
    run_id = new_run_id()
    started, written, *rest = planned(run_id)
    append(app, created(run_id, f"What does {run_id} cost?", conductor=conductor, simulated=False), started, written)
    return run_id, rest


def test_an_unknown_cost_is_unknown_while_the_run_goes_on_and_what_is_known_is_a_bound(
    app: App, open_page: OpenPage
) -> None:
    run_id, rest = begun(app, REMOTE)
    page = open_page(app.run_url(run_id))
    cost = page.locator(".bar .cost")
    expect(cost).to_have_text("cost unknown")
    ended = rest[-1].model_copy(update={"cost_usd": None, "at_list_price": False})
    append(app, *rest[:-1], ended, step_started(run_id, 0, 30), step_completed(run_id, 0, "42", 40, cost_usd=0.0123))
    expect(cost).to_have_text("at least $0.0123")
    append(app, step_started(run_id, 1, 50), step_completed(run_id, 1, "42", 60, cost_usd=0.0))
    append(app, run_completed(run_id, "42", 100).model_copy(update={"cost_usd": None}))
    expect(page.locator(".bar .status")).to_contain_text("Completed")
    expect(cost).to_have_text("at least $0.0123")
    expect(cost).to_have_attribute(
        "title", "What this run itself spent, Conductor and workers: the price of a part is unknown"
    )
    # A priced Conductor is counted as it writes, and stands in its own tab.
    priced, rest = begun(app, REMOTE.model_copy(update={"usd_per_mtok": Price(input=1000.0, output=10_000.0)}))
    page.goto(app.run_url(priced))
    expect(cost).to_have_text("$0.0350")  # 5 tokens read and 3 written, by estimate
    usage = Usage(input_tokens=10, output_tokens=5)
    append(app, *rest[:-1], rest[-1].model_copy(update={"usage": usage, "cost_usd": 0.06, "at_list_price": True}))
    expect(cost).to_have_text("$0.0600")
    page.locator(".plan-button").click()
    page.get_by_role("tab", name="Cost").click()
    expect(page.locator(".inspector")).to_contain_text("$0.0600 · at list price")
    expect(page.locator(".inspector")).to_contain_text("$1000 in, $10000 out per million")
    page.goto(f"{app.url}/history")
    expect(page.locator(f".st-key-run-row-{run_id} [data-name=Cost]")).to_have_text("at least $0.0123")
    # Of this run alone: other tests' runs are in the same database.
    page.get_by_placeholder("Words in tasks").fill(run_id)
    page.keyboard.press("Enter")
    expect(
        page.get_by_text("1 run · 35 tokens · at least $0.0123 (1 run with a part of no known price)")
    ).to_be_visible()
