"""Pages other than Run with forty steps, and how little they move while they load."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App
from tests.browser.live.test_first_screen import MOST_SHIFTED, SHIFTS
from tests.browser.pages.test_other_pages import SIDEWAYS
from tests.support.run_events import answered, created, planned, run_completed

OpenPage = Callable[..., Page]
STEPS, ROW = 40, 5


@pytest.fixture(scope="module")
def forty(app: App) -> str:
    """A run of eight rows of five steps, each of which reads two of the row before."""
    steps = [
        Step(
            instruction=f"Work on part {number}.",
            agent=("solver", "checker")[number % 2],
            access_list=(number - ROW, number - number % ROW - 1) if number >= ROW else (),
        )
        for number in range(STEPS)
    ]
    told = [
        event for number in range(STEPS) for event in answered("forty", number, f"Part {number}.", 30 + 20 * number)
    ]
    end = run_completed("forty", f"Part {STEPS - 1}.", at_ms=30 + 20 * STEPS)
    app.store.log.append_and_wait(created("forty"), *planned("forty", Workflow(steps=tuple(steps))), *told, end)
    return "forty"


def test_the_matrix_of_forty_steps_scrolls_inside_with_both_names_in_view(
    app: App, open_page: OpenPage, forty: str
) -> None:
    page = open_page(f"{app.url}/context?run={forty}", width=1280, height=720)
    last = page.locator('.context-cell[data-key="38>39"]')
    last.scroll_into_view_if_needed()
    row = page.get_by_role("rowheader", name="step 38")
    column = page.get_by_role("columnheader", name="39", exact=True)
    for head in (row, column):
        expect(head).to_be_in_viewport(ratio=0.99)
    cell, left, top = last.bounding_box(), row.bounding_box(), column.bounding_box()
    assert cell is not None
    assert left is not None
    assert top is not None
    assert left["x"] + left["width"] <= cell["x"], "the cell is beside its row's name, not below it"
    assert top["y"] + top["height"] <= cell["y"]
    assert page.evaluate(SIDEWAYS) == []


def test_the_blame_of_forty_steps_is_drawn_in_readable_letters_and_ranks_the_first(
    app: App, open_page: OpenPage, forty: str
) -> None:
    page = open_page(f"{app.url}/blame?run={forty}", width=1280, height=720)
    picture = page.locator(".blame-graph img")
    expect(picture).to_be_visible()
    shown, natural = picture.evaluate("(image) => [image.getBoundingClientRect().width, image.naturalWidth]")
    assert shown >= natural, "letters of 12 px stay that large"
    box = page.locator(".blame-graph").bounding_box()
    assert box is not None
    assert box["height"] < 720
    assert page.evaluate(SIDEWAYS) == []
    rows = page.locator('[class*="st-key-blame-row-"]')
    expect(rows).to_have_count(40)
    page.get_by_role("button", name="Show all").click()
    expect(rows.nth(40)).to_be_attached()


@pytest.mark.parametrize(
    "address", ["history", "compare", "blame", "context", "context?run=forty", "blame?run=forty", "models"]
)
def test_hardly_anything_moves_while_a_page_loads(app: App, open_page: OpenPage, forty: str, address: str) -> None:
    page = open_page("about:blank", width=1280, height=720)
    page.add_init_script(SHIFTS)
    page.goto(f"{app.url}/{address}")
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_attached()
    expect(page.locator("[data-testid=stSkeleton]")).to_have_count(0)
    assert page.evaluate("window.shifted") < MOST_SHIFTED
