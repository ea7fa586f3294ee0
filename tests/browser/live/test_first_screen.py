"""The first minute: a story of two recorded runs plays on the first screen, out of the way, until something has run."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import MOST_SHIFTED, SHIFTS, App, becomes, status

OpenPage = Callable[..., Page]
FOCUS = "() => document.activeElement === document.body"
# The sentence, the tour's button, the steps, the box, the examples, and of the story its beats and both outputs.
PARTS = (
    ".st-key-first-screen h1",
    ".st-key-take-tour button",
    ".three-steps",
    ".st-key-task-box",
    ".st-key-examples",
    ".story-beats",
    ".story-pane.first",
    ".story-pane.second",
)


@pytest.fixture(scope="module")
def first_start(
    start_app: Callable[..., AbstractContextManager[App]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[App]:
    """The app on a database that is new, with the runs that come with it."""
    folder = tmp_path_factory.mktemp("first")
    with start_app(folder, recorded_runs=True, rehearsal_tokens_per_s=60, delta_interval_ms=40) as app:
        yield app


def _beat(page: Page, number: int) -> None:
    expect(page.locator(".story")).to_have_attribute("data-beat", str(number))


def test_from_the_story_to_the_first_run_and_back(first_start: App, open_page: OpenPage) -> None:
    page = open_page("about:blank", width=1280, height=720)
    page.add_init_script(SHIFTS)
    page.goto(first_start.url)
    pause = page.get_by_role("button", name="Pause", exact=True)
    expect(pause).to_be_visible()
    _beat(page, 1)
    for part in PARTS:
        box = page.locator(part).bounding_box()
        assert box is not None, part
        assert box["y"] >= 0, part
        assert box["y"] + box["height"] <= 720, part
    assert page.evaluate(FOCUS), "it takes no focus"
    expect(page.get_by_text("Simulated workers")).to_be_visible()
    expect(page.locator(".story-card.running").first).to_be_visible()
    assert page.evaluate("window.shifted") < MOST_SHIFTED

    # It plays from the wrong answer over the change to the right one.
    first, second = page.locator(".story-pane.first"), page.locator(".story-pane.second")
    expect(first.locator(".story-value")).to_have_text("14:13")
    assert second.locator(".story-value").inner_text() == ""
    _beat(page, 2)
    expect(page.get_by_text("now also reads step 1")).to_be_visible()
    _beat(page, 3)
    expect(second.locator(".story-value")).to_have_text("13:43")
    # And again, until it is stopped, which is remembered.
    _beat(page, 1)
    pause.click()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    _beat(page, 3)
    page.get_by_role("button", name="Wrong answer: 14:13").click()
    _beat(page, 1)
    expect(first.locator(".story-value")).to_have_text("14:13")

    # Who types has the page to themselves.
    page.get_by_role("button", name="Play", exact=True).click()
    task = page.get_by_label("Task")
    task.press_sequentially("What is")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.get_by_role("button", name="When does the train arrive?").click()
    expect(task).to_have_value(re.compile("train leaves"))
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile("run="))
    expect(page.locator(".story")).to_have_count(0)
    expect(status(page)).to_contain_text("Completed")

    # After the first run it is gone, and the rail's name brings it back.
    page.goto(first_start.url)
    expect(page.locator(".how")).to_be_visible()
    expect(page.locator(".st-key-first-screen")).to_have_count(0)
    page.get_by_role("link", name="Conductor Inspector").click()
    expect(page.locator(".st-key-first-screen h1")).to_be_visible()
    assert becomes(page, "() => document.querySelector('.st-key-story') !== null")
