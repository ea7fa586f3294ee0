"""The Run page at 200 % zoom of a projector's window: everything can be read and reached, in one column."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect

from conductor_core.run.request import RunRequest, read_gate
from tests.browser.conftest import App, Make, begin_here, status
from tests.support.fakes import workflow_of

OpenPage = Callable[..., Page]
WIDTH, HEIGHT = 640, 360


@pytest.fixture
def zoomed(open_page: OpenPage) -> Callable[[str], Page]:
    return lambda url: open_page(url, width=2 * WIDTH, height=2 * HEIGHT, zoom=2)


def boxes(parts: Locator) -> list[FloatRect]:
    """Where the visible ones are, all at one moment: a run that goes on moves them."""
    found: list[FloatRect] = parts.evaluate_all(
        """parts => parts
             .filter((part) => part.checkVisibility({ visibilityProperty: true }))
             .map((part) => part.getBoundingClientRect().toJSON())"""
    )
    return [box for box in found if box["width"] > 0]


def apart(one: FloatRect, other: FloatRect) -> bool:
    beside = one["x"] + one["width"] <= other["x"] + 0.5 or other["x"] + other["width"] <= one["x"] + 0.5
    below = one["y"] + one["height"] <= other["y"] + 0.5 or other["y"] + other["height"] <= one["y"] + 0.5
    return beside or below


def is_whole(page: Page, parts: Locator) -> None:
    """None covers another, reaches beyond the window, or cuts its own text."""
    found = boxes(parts)
    assert len(found) > 1
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= WIDTH for box in found), found
    assert all(apart(one, other) for one, other in combinations(found, 2)), found
    for part in parts.all():
        if part.is_visible():
            assert part.evaluate("part => part.scrollWidth <= part.clientWidth + 1"), part.inner_text()
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth <= window.innerWidth")


def test_a_run_is_whole_as_it_goes_on_and_after_it_and_all_is_reached_in_one_column(
    app: App, zoomed: Callable[[str], Page], make_run: Make
) -> None:
    page = zoomed("about:blank")
    _what_an_approval_is_asked_for_is_whole(app, page)
    begin_here(page, app, make_run(plan_only=True))
    is_whole(page, page.locator(".bar .status, .bar .pill, .bar .number, .bar button"))
    expect(status(page)).to_contain_text("Completed 5 of 5")
    expect(page.locator(".conclusion")).to_have_text("13:37")
    is_whole(page, page.locator(".bar .status, .bar .pill, .bar .number, .bar button"))
    is_whole(page, page.locator(".bar .conclusion, .bar button"))
    is_whole(page, page.locator(".graph-footer > button, .twin button"))
    expect(page.locator(".pane")).to_have_count(5)
    found = boxes(page.locator(".card.map, .pane, .card.inspector"))
    assert len(found) == 7
    assert all(apart(one, other) for one, other in combinations(found, 2)), found
    expect(page.get_by_role("button", name="More ways to begin")).to_be_visible()
    is_whole(page, page.locator(".st-key-task-box button, .st-key-task-box textarea, .st-key-task-box summary"))
    lefts = set()
    for part in (".bar", ".map", ".panes", ".inspector"):
        page.locator(part).scroll_into_view_if_needed()
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["width"] > 0.9 * WIDTH, part
        lefts.add(round(box["x"]))
    assert len(lefts) == 1
    page.get_by_role("button", name="Expand sidebar").or_(page.get_by_test_id("stExpandSidebarButton")).first.click()
    page.get_by_role("link", name="History").click()
    page.wait_for_url("**/history")


def _what_an_approval_is_asked_for_is_whole(app: App, page: Page) -> None:
    plan = workflow_of(("planner", "Plan: {question}", ()), ("reasoner", "Solve: {question}", ()))
    asked = RunRequest(task="What is 6 times 7?", workflow=plan, gates=(read_gate("steps"),))
    # Playwright's event loop has this thread; the engine is asked from another.
    with ThreadPoolExecutor(1) as aside:
        run_id = aside.submit(app.engine.start, asked).result()
        aside.submit(app.engine.wait, run_id, 60).result()
    page.goto(app.run_url(run_id))
    expect(page.get_by_role("button", name="Approve both")).to_be_visible()
    is_whole(page, page.locator(".asks-title, .asks .what, .asks-hint, .asks-actions > *"))
    page.get_by_role("button", name="Deny").click()
    page.keyboard.type("seen")
    page.get_by_role("button", name="Deny").click()
    expect(status(page)).to_contain_text("Denied")
