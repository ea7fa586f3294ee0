"""What a run costs, on the page while it goes on and when it is over."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Page, expect

from conductor_core.chat.messages import ConductorInfo, Price, Usage
from conductor_core.run.events import Event
from conductor_core.run.request import new_run_id
from tests.browser.conftest import App
from tests.pure.run.test_spending import WRITTEN
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

OpenPage = Callable[..., Page]
REMOTE = ConductorInfo(name="http://127.0.0.1:9/v1#m", kind="remote", model="m")


def append(app: App, *events: Event) -> None:
    # Playwright's event loop has this thread.
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, *events).result()


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
    page.goto(f"{app.url}/history")
    expect(page.locator(f".st-key-run-row-{run_id} [data-name=Cost]")).to_have_text("at least $0.0123")
    # Of this run alone: other tests' runs are in the same database.
    page.get_by_placeholder("Words in tasks").fill(run_id)
    page.keyboard.press("Enter")
    expect(page.get_by_text("with a part of no known price")).to_contain_text("at least $0.0123")


def test_a_priced_conductor_is_counted_as_it_writes_and_stands_in_its_own_tab(app: App, open_page: OpenPage) -> None:
    run_id, rest = begun(app, REMOTE.model_copy(update={"usd_per_mtok": Price(input=1000.0, output=10_000.0)}))
    page = open_page(app.run_url(run_id))
    cost = page.locator(".bar .cost")
    expect(cost).to_have_text("$0.0350")  # 5 tokens read and 3 written, by estimate
    usage = Usage(input_tokens=10, output_tokens=5)
    ended = rest[-1].model_copy(update={"usage": usage, "cost_usd": 0.06, "at_list_price": True})
    append(app, *rest[:-1], ended)
    expect(cost).to_have_text("$0.0600")
    page.locator(".plan-button").click()
    page.get_by_role("tab", name="Cost").click()
    expect(page.locator(".inspector")).to_contain_text("$0.0600 · at list price")
    expect(page.locator(".inspector")).to_contain_text("$1000 in, $10000 out per million")


def test_the_live_view_writes_costs_as_everything_else_does(app: App, open_page: OpenPage) -> None:
    page = open_page(app.url)
    script = f"{app.url}/_stcore/bidi-components/conductor-inspector.live_workflow/format.js"
    written = page.evaluate(
        """async ({ script, costs }) => {
          const { usd, usdInLine } = await import(script)
          return costs.map(([total, known]) => [usd(total, known), usdInLine(total, known)])
        }""",
        {"script": script, "costs": [[cost.usd, cost.known_usd] for cost, _ in WRITTEN]},
    )
    assert written == [[str(cost), cost.in_line] for cost, _ in WRITTEN]
