"""The tour in a real browser: by keyboard alone from the empty page to the record, played, left and taken up again."""

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from pages.components.tour.drive import RIGHT, STOPS, WRONG
from tests.browser.conftest import App, becomes, run_of, status
from tests.browser.pages.test_compare import tab_to

OpenPage = Callable[..., Page]
# Whether the ring is in the window, and the strip over no part of it.
APART = """
() => {
  const root = [...document.querySelectorAll(".st-key-tour-strip *")].map((each) => each.shadowRoot).find(Boolean)
  const [strip, ring] = [".strip", ".lead rect"].map((name) => root?.querySelector(name)?.getBoundingClientRect())
  if (!strip || !ring?.width) return false
  return (strip.bottom <= ring.top || strip.top >= ring.bottom) && strip.top >= 0 && ring.bottom <= innerHeight
}
"""
WATCH_SHIFTS = """
() => {
  window.shift = 0
  new PerformanceObserver((list) => {
    for (const { value } of list.getEntries()) window.shift += value
  }).observe({ type: "layout-shift" })
}
"""


def still(page: Page) -> None:
    """Fails if more than a little of the page has moved since it was asked before."""
    assert page.evaluate("() => [window.shift, (window.shift = 0)][0]") < 0.02


def button(page: Page) -> Locator:
    """What begins the tour, or takes it up."""
    return page.get_by_role("button", name=re.compile("^(Take the|Resume)"))


def strip(page: Page) -> Locator:
    return page.locator(".st-key-tour-strip .strip")


def at(page: Page, name: str) -> None:
    """Waits until the stop ``name`` is shown, with a ring around what it is about, and can be left for the next one."""
    place, stop = next((place, stop) for place, stop in enumerate(STOPS) if stop.name == name)
    expect(strip(page)).to_have_attribute("data-stop", name)
    expect(strip(page)).to_contain_text(f"{place + 1}of {len(STOPS)}")
    expect(strip(page)).to_contain_text(stop.title)
    expect(strip(page).locator(".next")).to_have_attribute("aria-disabled", "false")
    becomes(page, APART)


def go_on_to(page: Page, name: str) -> None:
    """Presses Next until the stop ``name`` is there."""
    while (shown := strip(page).get_attribute("data-stop") or "") != name:
        strip(page).locator('.next[aria-disabled="false"]').click()
        expect(strip(page)).not_to_have_attribute("data-stop", shown)
    at(page, name)


def test_by_keyboard_alone_from_the_empty_page_to_a_task_of_ones_own(app: App, open_page: OpenPage) -> None:
    page = open_page(app.url, width=1280, height=720)
    tab_to(page, page.get_by_role("button", name="Take the 60-second tour"))
    page.keyboard.press("Enter")
    expect(strip(page).get_by_role("button", name="Pause the tour")).to_be_visible()
    expect(strip(page)).to_be_focused()
    page.keyboard.press("Space")
    at(page, "plan")
    expect(status(page)).to_contain_text("5 steps")
    height = strip(page).bounding_box()
    page.evaluate(WATCH_SHIFTS)

    page.keyboard.press("ArrowRight")
    expect(page.locator('.pane[data-status="running"] .prose.streaming').first).to_be_visible()
    at(page, "streaming")
    still(page)
    first = run_of(page, app)
    page.keyboard.press("ArrowLeft")
    at(page, "plan")
    page.keyboard.press("Enter")
    at(page, "streaming")
    page.keyboard.press("ArrowRight")
    at(page, "wrong")
    still(page)
    expect(page.locator(".bar .conclusion")).to_contain_text(WRONG)
    page.keyboard.press("ArrowRight")
    at(page, "saw")
    still(page)
    expect(page.locator(".inspector")).to_contain_text("verifier")
    expect(page.locator(".inspector .withheld")).to_contain_text(f"Answer: {RIGHT}")
    page.keyboard.press("ArrowRight")
    at(page, "change")
    expect(page.locator(".bar")).to_contain_text("3 and 4 run again")
    assert strip(page).bounding_box() == height
    still(page)

    page.reload()
    at(page, "change")
    expect(page.locator(".bar")).to_contain_text("3 and 4 run again")
    expect(strip(page).get_by_role("button", name="Play the tour by itself")).to_be_visible()
    page.go_back()
    at(page, "saw")
    page.keyboard.press("ArrowRight")
    at(page, "change")
    page.evaluate(WATCH_SHIFTS)
    page.keyboard.press("ArrowRight")
    at(page, "rerun")
    still(page)
    second = run_of(page, app)
    assert second.parent_run_id == first.run_id
    expect(page.locator(".bar .conclusion")).to_contain_text(RIGHT)
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(f"/compare.*a={first.run_id}.*b={second.run_id}"))
    at(page, "compare")
    still(page)
    answers = page.locator(".compared-answer")
    expect(answers.first).to_contain_text(WRONG)
    expect(answers.last).to_contain_text(RIGHT)
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(f"/audit.*run={second.run_id}"))
    at(page, "record")
    still(page)
    expect(page.locator(".st-key-audit-top")).to_contain_text("A person changed the plan")
    page.keyboard.press("ArrowLeft")
    at(page, "compare")
    page.keyboard.press("ArrowRight")
    at(page, "record")

    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url.endswith("/run"))
    expect(page.get_by_role("textbox", name="Task")).to_be_focused()
    expect(strip(page)).to_have_count(0)


def test_it_plays_by_itself_until_paused_and_outlives_an_edit_and_being_left(app: App, open_page: OpenPage) -> None:
    page = open_page(app.url, width=1280, height=720)
    page.get_by_role("button", name="Take the 60-second tour").click()
    expect(strip(page)).to_have_attribute("data-stop", "plan")
    expect(strip(page)).to_have_attribute("data-stop", "streaming")
    strip(page).get_by_role("button", name="Pause the tour").click()
    go_on_to(page, "change")
    first = run_of(page, app)
    # The plan is edited by hand. The tour is still there, and arranges its stop again when it is taken up.
    step = page.locator('.twin [data-step="3"]')
    step.focus()
    page.keyboard.press("g")
    page.locator('.access-menu [data-read="1"][data-reader="3"]').click()
    expect(step).to_have_attribute("aria-label", re.compile("reads 2$"))
    expect(strip(page)).to_have_attribute("data-stop", "change")
    strip(page).get_by_role("button", name="Leave").click()
    expect(strip(page)).to_have_count(0)
    expect(button(page)).to_be_focused()
    expect(page.get_by_role("textbox", name="Task")).to_be_visible()

    button(page).click()
    at(page, "change")
    assert run_of(page, app).run_id == first.run_id
    expect(step).to_have_attribute("aria-label", re.compile("reads 1, 2$"))
    go_on_to(page, "rerun")
    second = run_of(page, app)
    assert (second.parent_run_id, second.purpose) == (first.run_id, "tour")
    expect(page.locator(".bar .conclusion")).to_contain_text(RIGHT)

    # Another tab goes its own way, with the same runs.
    other = open_page(page.url, width=1280, height=720)
    at(other, "rerun")
    strip(other).get_by_role("button", name="Back").click()
    at(other, "change")
    go_on_to(other, "rerun")
    assert run_of(other, app).run_id == second.run_id
    expect(strip(page)).to_have_attribute("data-stop", "rerun")
