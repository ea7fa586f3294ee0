"""The tour in a real browser: by keyboard alone to the right answer, and left, tried by hand and taken up again."""

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from pages.components.tour.story import RIGHT, STOPS, WRONG
from tests.browser.conftest import App
from tests.browser.pages.conftest import becomes, run_of, status
from tests.browser.pages.test_compare import tab_to

OpenPage = Callable[..., Page]
# Whether the card covers nothing of what it points at, and both are in the window.
BESIDE = """
() => {
  const roots = [...document.querySelectorAll(".st-key-tour-card *")].map((each) => each.shadowRoot).filter(Boolean)
  const [card, spot] = [".card", ".spot"].map((name) => roots[0]?.querySelector(name)?.getBoundingClientRect())
  if (!card || !spot?.width) return false
  const apart = card.right <= spot.left || card.left >= spot.right || card.bottom <= spot.top || card.top >= spot.bottom
  const shown = spot.top >= -1 && spot.top < innerHeight && card.top >= 0 && card.bottom <= innerHeight
  return apart && shown
}
"""


def card(page: Page) -> Locator:
    return page.locator(".st-key-tour-card .card")


def at(page: Page, name: str) -> None:
    """Waits until the stop ``name`` is shown beside what it explains, and can be left for the next one."""
    place, stop = next((place, stop) for place, stop in enumerate(STOPS) if stop.name == name)
    expect(card(page)).to_have_attribute("data-stop", name)
    expect(card(page)).to_contain_text(f"{place + 1} of {len(STOPS)}")
    expect(card(page)).to_contain_text(stop.title)
    becomes(page, BESIDE)
    expect(card(page).locator(".next")).to_have_attribute("aria-disabled", "false")


def go_on_to(page: Page, name: str) -> None:
    """Presses Next until the stop ``name`` is there."""
    while (shown := card(page).get_attribute("data-stop") or "") != name:
        card(page).locator('.next[aria-disabled="false"]').click()
        expect(card(page)).not_to_have_attribute("data-stop", shown)
    at(page, name)


def test_by_keyboard_alone_from_the_empty_page_to_the_comparison(app: App, open_page: OpenPage) -> None:
    page = open_page(app.url, width=1280, height=720)
    tab_to(page, page.get_by_role("button", name="Take the 60-second tour"))
    page.keyboard.press("Enter")
    at(page, "plan")
    expect(card(page)).to_be_focused()
    page.keyboard.press("ArrowRight")
    at(page, "graph")
    expect(status(page)).to_contain_text("5 steps")
    page.keyboard.press("ArrowLeft")
    at(page, "plan")
    page.keyboard.press("Enter")
    at(page, "graph")

    page.keyboard.press("Enter")
    expect(page.locator('.pane[data-status="running"] .prose.streaming').first).to_be_visible()
    at(page, "streaming")
    first = run_of(page, app)
    page.keyboard.press("ArrowRight")
    at(page, "wrong")
    expect(page.locator(".bar .conclusion")).to_contain_text(WRONG)
    page.keyboard.press("ArrowRight")
    at(page, "saw")
    expect(page.locator(".inspector")).to_contain_text("Step 3 · verifier")
    expect(page.locator(".inspector .held", has_text="1 · calculator")).to_be_visible()

    page.keyboard.press("ArrowRight")
    at(page, "change")
    expect(page.locator(".st-key-edit-fields-3")).to_contain_text("1 · calculator")
    page.reload()
    at(page, "change")
    expect(page.locator(".st-key-edit-fields-3")).to_contain_text("1 · calculator")
    page.keyboard.press("ArrowRight")
    at(page, "preview")
    expect(page.locator(".st-key-plan-editor")).to_contain_text("3, 4 will run")

    page.keyboard.press("ArrowRight")
    at(page, "rerun")
    second = run_of(page, app)
    assert second.parent_run_id == first.run_id
    page.keyboard.press("ArrowRight")
    at(page, "right")
    expect(page.locator(".bar .conclusion")).to_contain_text(RIGHT)
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(f"/compare.*a={first.run_id}.*b={second.run_id}"))
    at(page, "compare")
    answers = page.locator(".compared-answer")
    expect(answers.first).to_contain_text(WRONG)
    expect(answers.last).to_contain_text(RIGHT)
    page.keyboard.press("ArrowLeft")
    at(page, "right")
    page.keyboard.press("ArrowRight")
    at(page, "compare")
    page.keyboard.press("Enter")
    expect(card(page)).to_have_count(0)
    expect(answers.last).to_contain_text(RIGHT)
    expect(page.get_by_test_id("stMain")).to_be_focused()


def test_played_then_left_at_a_stop_then_tried_by_hand_then_taken_up_again(app: App, open_page: OpenPage) -> None:
    page = open_page(app.url, width=1280, height=720)
    page.get_by_role("button", name="Take the 60-second tour").click()
    at(page, "plan")
    page.keyboard.press("Space")
    expect(card(page)).not_to_have_attribute("data-stop", "plan")
    card(page).get_by_role("button", name="Pause the tour").click()
    expect(card(page).get_by_role("button", name="Play the tour by itself")).to_be_visible()
    go_on_to(page, "change")
    page.keyboard.press("Escape")
    expect(card(page)).to_have_count(0)
    expect(page.get_by_role("button", name="Resume tour")).to_be_focused()
    first = run_of(page, app)

    # By hand the writer is told otherwise as well, so this is no run of the tour.
    page.locator(".st-key-plan-editor").get_by_role("button", name="4 · writer").click()
    page.get_by_role("textbox", name="Instruction of step 4").fill("State the arrival time in one word.")
    page.get_by_role("textbox", name="Instruction of step 4").blur()
    expect(page.locator(".st-key-edit-row-4")).to_contain_text("instruction changed")
    page.locator(".st-key-start-edited").get_by_role("button").click()
    page.wait_for_url(lambda url: first.run_id not in url)
    expect(status(page)).to_contain_text("Completed")
    own = run_of(page, app)
    assert (own.parent_run_id, own.purpose) == (first.run_id, "")

    page.get_by_role("button", name="Resume tour").click()
    at(page, "change")
    assert run_of(page, app).run_id == first.run_id
    go_on_to(page, "preview")
    # The page's own button goes on with the tour, because it runs the same plan.
    page.locator(".st-key-start-edited").get_by_role("button").click()
    at(page, "rerun")
    second = run_of(page, app)
    assert (second.parent_run_id, second.purpose) == (first.run_id, "tour")
    card(page).get_by_role("button", name="Next").click()
    at(page, "right")
    expect(page.locator(".bar .conclusion")).to_contain_text(RIGHT)
