"""The timeline of a run that is over, in its tab: a way to its steps, drawn without a library that blocks the page."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import App, Make, begin_here, status

OpenPage = Callable[..., Page]


@pytest.mark.parametrize("dark", [False, True])
def test_a_click_in_the_timeline_selects_its_step_in_graph_and_inspector(
    app: App, open_page: OpenPage, make_run: Make, dark: bool
) -> None:
    page = open_page(app.run_url(make_run().run_id), dark=dark)
    rows = page.locator(".timeline-row")
    expect(rows).to_have_count(5)
    page.get_by_role("tab", name="Timeline").click()
    expect(rows.nth(4)).to_have_attribute("aria-pressed", "true")
    rows.nth(1).click()
    _selected(page, 1, "reasoner")
    page.get_by_label(re.compile("^Step 3, verifier")).click()
    _selected(page, 3, "verifier")
    rows.nth(3).focus()
    page.keyboard.press("ArrowUp")
    _selected(page, 2, "calculator")
    expect(rows.nth(2)).to_be_focused()
    assert rows.nth(2).get_attribute("tabindex") == "0"
    assert rows.nth(3).get_attribute("tabindex") == "-1"


def test_the_timeline_comes_with_the_end_of_the_run_and_moves_nothing(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    page = open_page("about:blank")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    begin_here(page, app, make_run(*PAIR, plan_only=True))
    expect(page.locator('.pane[data-status="running"]').first).to_be_visible()
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".timeline")).to_be_hidden()
    expect(page.get_by_text("It appears here when the run ends.")).to_be_visible()
    place = page.locator(".map").bounding_box()
    expect(status(page)).to_contain_text("Completed 2 of 2")
    expect(page.locator(".timeline-row")).to_have_count(2)
    expect(page.locator(".timeline")).to_contain_text("critical path")
    assert page.locator(".map").bounding_box() == place
    wide = [row.bounding_box() for row in page.locator(".timeline-bar").all()]
    assert all(box is not None and box["width"] > 40 for box in wide), wide
    assert [url for url in asked if "plotly" in url.lower()] == [], "its script alone would block the page for a second"


PAIR = (
    ("planner", "Break the journey into legs: {question}", ()),
    ("reasoner", "Solve each leg, following the plan: {question}", (0,)),
)


def _selected(page: Page, step: int, agent: str) -> None:
    expect(page.locator(".inspector h3")).to_have_text(f"Step {step} · {agent}")
    expect(page.locator(f'.pane[data-step="{step}"]')).to_have_class(re.compile("selected"))
    expect(page.locator(f'.twin [data-step="{step}"]')).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".timeline-row[aria-pressed='true']")).to_have_attribute("data-step", str(step))
