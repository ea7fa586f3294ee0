"""The first minute: a recorded run plays on the page that has no run, out of the way, and nothing jumps."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import App
from tests.browser.pages.conftest import status

OpenPage = Callable[..., Page]
SAID = "Recorded run, simulated, "
FOCUS = "() => document.activeElement === document.body"


@pytest.fixture(scope="module")
def first_start(
    start_app: Callable[..., AbstractContextManager[App]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[App]:
    """The app on a database that is new, with the runs that come with it."""
    folder = tmp_path_factory.mktemp("first")
    with start_app(folder, recorded_runs=True, rehearsal_tokens_per_s=60, delta_interval_ms=40) as app:
        yield app


def _clock(page: Page) -> str:
    return page.locator(".recorded-clock").inner_text()


def _graph(page: Page) -> tuple[float, float, float]:
    """Where the graph begins, and its width."""
    place = page.locator(".map").bounding_box()
    assert place is not None
    return place["x"], place["y"], place["width"]


def test_from_the_first_page_to_the_answer_of_the_first_run(first_start: App, open_page: OpenPage) -> None:
    page = open_page(first_start.url, width=1280, height=720)
    label = page.locator(".recorded .pill")
    expect(label).to_have_text(f"{SAID}replaying")
    expect(page.locator('.pane[data-status="running"]').first).to_be_visible()
    assert page.evaluate(FOCUS), "it takes no focus"

    # A keyboard leads in and out again, and Pause is remembered.
    pause = page.get_by_role("button", name="Pause", exact=True)
    pause.focus()
    page.keyboard.press("Enter")
    expect(label).to_have_text(f"{SAID}stopped")
    stood = _clock(page)
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Open this run")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement?.shadowRoot?.activeElement?.textContent !== 'Open this run'")
    page.reload()
    expect(label).to_have_text(f"{SAID}stopped")
    assert stood != _clock(page), "it shows the end, not where it was stopped"
    expect(page.locator(".bar .title")).to_have_text("Answer")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(label).to_have_text(f"{SAID}replaying")

    # A person who types has the page to themselves, and the first run stands where the recorded one stood.
    task = page.get_by_label("Task")
    task.press_sequentially("What is")
    expect(label).to_have_text(f"{SAID}stopped")
    page.get_by_role("button", name="The train").click()
    expect(task).to_have_value(re.compile("train leaves"))
    place = _graph(page)
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile("run="))
    expect(page.locator('.pane[data-status="running"]').first).to_be_visible()
    left, top, width = place
    place = _graph(page)
    assert (place[0], place[2]) == (left, width)
    assert place[1] < top, "the examples are gone, and nothing else"
    expect(page.locator(".recorded")).to_be_hidden()
    expect(status(page)).to_contain_text("Completed")
    expect(page.locator(".timeline-row").first).to_be_attached()
    # The answer comes first: its conclusion in letters of its own, before the graph and the working.
    order = ".bar .conclusion, .bar .sentence, .map, .pane"
    first, *_ = page.locator(order).evaluate_all("parts => parts.map((part) => part.className)")
    assert "conclusion" in first
    assert _graph(page) == place, "neither the run nor its answer moves it"


def test_who_asked_for_less_motion_sees_the_end_and_opens_the_run(first_start: App, open_page: OpenPage) -> None:
    page = open_page("about:blank")
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{first_start.url}/run")
    expect(page.locator(".recorded .pill")).to_have_text(f"{SAID}stopped")
    expect(page.locator(".bar .title")).to_have_text("Answer")
    page.get_by_role("button", name="Open this run").click()
    page.wait_for_url(re.compile("run="))
    expect(status(page)).to_contain_text("Completed")
    expect(page.locator(".bar").get_by_text("Recorded", exact=True)).to_be_visible()
    expect(page.locator(".bar").get_by_text("Simulated workers")).to_be_visible()
    expect(page.get_by_role("button", name="Change a step")).to_be_enabled()
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("link", name="recorded · ")).to_have_count(3)
