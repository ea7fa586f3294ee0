"""What holds for every page: it fits, hardly moves as it loads, follows the theme, can be read, and lacks nothing."""

import re

import pytest
from playwright.sync_api import expect

from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import MOST_SHIFTED, SHIFTS, SIDEWAYS, App, Make, OpenPage, append, at_rest, becomes, status
from tests.support.failing_runs import failing_runs
from tests.support.run_events import answered, created, planned, run_completed

STEPS, ROW = 40, 5
# What is smaller than ``least`` px, in its words.
SMALL = """
least => {
  const found = []
  const look = (root) => {
    for (const each of root.querySelectorAll("*")) {
      if (each.shadowRoot) look(each.shadowRoot)
      const { width, height } = each.getBoundingClientRect()
      const said = [...each.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent.trim())
      if (!said.join("") || Math.min(width, height) < 2 || each.closest("#js-plotly-tester, .katex")) continue
      const style = getComputedStyle(each)
      if (style.visibility !== "hidden" && parseFloat(style.fontSize) < least - 0.05) found.push(said.join(" "))
    }
  }
  look(document)
  return found
}
"""
GROUND = "getComputedStyle(document.querySelector('.stApp')).backgroundColor"


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
    append(app, created("forty"), *planned("forty", Workflow(steps=tuple(steps))), *told, end)
    return "forty"


@pytest.mark.parametrize(("width", "height", "least", "dark"), [(1280, 720, 12, False), (1920, 1080, 14, True)])
def test_every_page_fits_hardly_moves_has_the_theme_no_small_text_and_lacks_nothing(
    app: App, open_page: OpenPage, make_run: Make, forty: str, width: int, height: int, least: float, dark: bool
) -> None:
    run = make_run().run_id
    for events in failing_runs(12):
        append(app, *events)
    page = open_page("about:blank", width=width, height=height, dark=dark)
    page.add_init_script(SHIFTS)
    faults: list[str] = []
    page.on("response", lambda response: faults.append(response.url) if response.status >= 400 else None)
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    for address, shown, rests in (
        ("", ".st-key-task", False),
        (f"run?run={run}", ".timeline-row", False),
        ("history", ".cells.runs", True),
        ("compare", "h1", True),
        (f"context?run={forty}", ".sankey-node", True),
        (f"blame?run={forty}", "h1", True),
        (f"audit?run={run}", ".stHtml", False),
        ("training", ".js-plotly-plot .annotation-text", False),
        ("evaluate", ".js-plotly-plot .annotation-text", False),
        ("workers", ".cells.workers", False),
        ("models", ".cells.machine-model", False),
        ("keys", ".stCode code span", False),
        ("failures?period=all", ".failure-row", False),
    ):
        page.goto(f"{app.url}/{address}")
        expect(page.locator(shown).first).to_be_attached()
        at_rest(page)
        assert page.evaluate(SMALL, least) == [], address
        assert page.evaluate(SIDEWAYS) == [], address
        assert page.evaluate(GROUND) == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)"), address
        assert not rests or page.evaluate("window.shifted") < MOST_SHIFTED, address
    assert faults == []


def test_forty_steps_are_a_matrix_with_both_names_in_view_and_a_ranking_in_readable_letters(
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

    page.goto(f"{app.url}/blame?run={forty}")
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


def test_history_opens_a_run_keeps_a_typed_task_and_reads_at_200_percent(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    run = make_run(task="A task that only this test has, and is long enough to need the room that it is given")
    make_run(task="ما هي عاصمة أستراليا؟ only this test")
    page = open_page(app.url, width=1280, height=720)
    task = page.get_by_label("Task", exact=True)
    task.fill("half a thought")
    task.blur()
    page.get_by_role("link", name="History").click()
    page.get_by_label("Search runs").fill("only this test")
    page.get_by_label("Search runs").press("Enter")
    rows = page.locator('[class*="st-key-run-row-"] .cells.runs:not(.head)')
    expect(rows).to_have_count(2)
    way = "each => getComputedStyle(each).direction"
    names = page.locator('[data-testid="stPageLink"] p')
    assert names.filter(has_text="ما هي عاصمة").first.evaluate(way) == "rtl"
    assert names.filter(has_text="A task that only").first.evaluate(way) == "ltr"
    # A browser at 200 % has half the pixels for the page.
    page.set_viewport_size({"width": 640, "height": 400})
    link = page.get_by_role("link", name="A task that only this test has").first
    becomes(link, "each => each.getBoundingClientRect().width > 400")
    for said in ("Plan by hand", "simulated", "just now"):
        expect(page.get_by_text(said).first).to_be_attached()
    assert page.evaluate(SIDEWAYS) == []
    page.set_viewport_size({"width": 1280, "height": 720})
    link.click()
    page.wait_for_url(re.compile(run.run_id))
    expect(status(page)).to_contain_text("5 of 5")
    expect(task).to_have_value("half a thought")
    expect(page.get_by_text("The task of the run below: A task that only this test has")).to_be_visible()
