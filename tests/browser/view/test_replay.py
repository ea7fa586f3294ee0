"""A finished run played again in the app: from a link, and without a jump. ``tests/js/replay.test.js`` has the rest."""

import re

from playwright.sync_api import Locator, Page, expect

from conductor_core.run.request import new_run_id
from tests.browser.conftest import App, OpenPage, append, becomes, status
from tests.support.run_events import run_of_seven_seconds

SHIFT = """
() => {
  window.shift = 0
  new PerformanceObserver((list) => {
    for (const { value } of list.getEntries()) window.shift += value
  }).observe({ type: "layout-shift" })
}
"""


def _clock(page: Page) -> Locator:
    return page.locator(".replay-clock")


def _opened(page: Page) -> None:
    """Opens the replay by keyboard, and stands at its beginning."""
    opener = page.get_by_role("button", name=re.compile("^▶ Replay"))
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("group", name="Replay")).to_be_visible()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_focused()
    page.keyboard.press("Home")
    expect(_clock(page)).to_have_text("0:00.0 / 0:07.0")


def test_a_replay_in_the_app_has_a_link_offers_no_change_and_moves_nothing(app: App, open_page: OpenPage) -> None:
    run_id = new_run_id()
    append(app, *run_of_seven_seconds(run_id)[:-1])
    page = open_page(f"{app.run_url(run_id)}&at=1", width=1280, height=720)
    # A run that goes on is not played; then it ends.
    expect(status(page)).to_contain_text("Running 3 of 3")
    expect(page.get_by_role("button", name=re.compile("^▶ Replay"))).to_be_hidden()
    append(app, run_of_seven_seconds(run_id)[-1])
    expect(_clock(page)).to_have_text("0:01.0 / 0:07.0")

    page.goto(f"{app.run_url(run_id)}&at=5")
    expect(_clock(page)).to_have_text("0:05.0 / 0:07.0")
    expect(page.locator('.pane[data-step="1"] .prose')).to_have_text("42")
    expect(page.locator('.pane[data-step="2"]')).to_have_attribute("data-status", "slot")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.locator(".moment").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile(r"at=4\.9$"))
    page.reload()
    expect(_clock(page)).to_have_text("0:04.9 / 0:07.0")
    page.goto(page.url.replace("4.9", "soon"))
    page.wait_for_url(lambda url: "at=" not in url)
    expect(status(page)).to_contain_text("Completed")

    expect(page.locator(".timeline-row")).to_have_count(4)
    page.evaluate(SHIFT)
    place = page.locator(".map").bounding_box()
    height = page.locator(".live-workflow").bounding_box()
    _opened(page)
    for name in ("Change a step", "Share", "Cancel"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()
    for key in ("Home", *["ArrowRight"] * 9):
        page.keyboard.press(key)
        becomes(
            page, "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
        )
        assert page.locator(".map").bounding_box() == place
    assert page.locator(".live-workflow").bounding_box() == height
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Change a step")).to_be_visible()
    assert page.evaluate("window.shift") < 0.02
