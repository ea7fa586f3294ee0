"""The Blame page in a real browser: from the run to the ranking and to a replay, by keyboard."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from conductor_core.run.trace import RunTrace
from tests.browser.conftest import SIDEWAYS, App, Make

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def run(make_run: Make) -> RunTrace:
    return make_run()


def test_from_the_run_to_what_decided_it_and_into_a_replay(app: App, open_page: OpenPage, run: RunTrace) -> None:
    page = open_page(app.run_url(run.run_id), width=1280, height=720)
    page.get_by_role("button", name="Why this answer?").click()
    count = page.get_by_role("spinbutton", name="Replays of each")
    expect(page.get_by_text("Nothing is measured yet")).to_be_visible()
    count.fill("1")
    count.press("Enter")
    start = page.get_by_role("button", name="Start")
    expect(page.locator(".st-key-blame-start")).to_contain_text("16 replays,")
    start.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".st-key-blame-start")).to_contain_text("all of it is recorded", timeout=60_000)
    expect(page.locator(".blame-graph img")).to_be_visible()
    # While the page is drawn anew, what it was may stand beside what it becomes.
    expect(page.locator(".st-key-blame-rows", has_text="inconclusive").first).to_be_visible()
    assert page.evaluate(SIDEWAYS) == []
    row = page.get_by_role("button", name="re-run").first
    row.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".st-key-blame-replays")).to_contain_text("re-run")
    replay = page.locator(".blame-pairs a").first
    replay.click()
    expect(page.get_by_text("Completed", exact=False).first).to_be_visible()
    assert "/run?run=" in page.url
