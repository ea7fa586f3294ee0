"""Training in a real browser: curves are drawn, grow in place while training runs, and follow the theme."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from conductor_core.lab.records.training import append
from tests.browser.conftest import SIDEWAYS, App, becomes
from tests.support.records import PLANNED, training_rows, write_training

OpenPage = Callable[..., Page]
POINTS = "[...document.querySelectorAll('.js-plotly-plot[data-seen]')].map((each) => each.data[1].x.length)"

# Each drawing: which figure, how far below the window it began, and whether another was drawn in the same task.
WATCH_DRAWING = """
window.drawn = []
let drawing = false, library
Object.defineProperty(window, "Plotly", {
  get: () => library,
  set(loaded) {
    library = { ...loaded, react(element, ...rest) {
      const key = element.closest('[class*="st-key-chart-"]').className
      window.drawn.push({ key, below: element.getBoundingClientRect().top - innerHeight, crowded: drawing })
      drawing = true
      setTimeout(() => { drawing = false })
      return loaded.react(element, ...rest)
    } }
  },
})
"""


@pytest.fixture
def root(app: App) -> Iterator[Path]:
    folder = app.data_folder / "training"
    yield folder
    shutil.rmtree(folder)


def figures(page: Page) -> int:
    expect(
        page.locator(".st-key-chart-reward .scatterlayer .trace, .st-key-chart-loss .scatterlayer .trace").last
    ).to_be_visible()
    return page.locator(".js-plotly-plot").count()


def test_curves_grow_in_place_while_training_runs_and_end_with_it(app: App, open_page: OpenPage, root: Path) -> None:
    rows = training_rows(1, cold_start=2, grpo=60, recursion=0, planned=PLANNED)
    folder = write_training(root / "live", rows[:40])
    page = open_page(f"{app.url}/training")
    expect(page.locator(".record-head")).to_contain_text("◔ training")
    expect(page.locator(".js-plotly-plot")).to_have_count(8)
    figures(page)
    page.evaluate("document.querySelectorAll('.js-plotly-plot').forEach((each) => { each.dataset.seen = 1 })")
    before = page.evaluate(POINTS)
    append(folder, *rows[40:-1])
    expect(page.locator(".record-head")).to_contain_text("60 of 120")
    becomes(page, f"{POINTS}.every((points, at) => points > {before}[at])")
    append(folder, rows[-1])
    expect(page.locator(".record-head")).to_contain_text("✓ done")
    assert len(page.evaluate(POINTS)) == 8


def test_in_the_dark_what_is_in_view_is_drawn_first_a_zoom_is_one_in_all_and_the_head_has_one_line(
    app: App, open_page: OpenPage, root: Path
) -> None:
    write_training(root / "done", training_rows(1, cold_start=5, grpo=30, recursion=0))
    page = open_page("about:blank", dark=True, width=1280, height=720)
    page.add_init_script(WATCH_DRAWING)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{app.url}/training")
    expect(page.locator(".js-plotly-plot")).to_have_count(8)
    drawn = page.evaluate("window.drawn")
    assert len({each["key"] for each in drawn}) == 8
    assert [each["key"] for each in drawn if each["crowded"]] == []
    # Those that begin just below the window may come before one in it that Streamlit mounts late.
    far = [each["below"] > 240 for each in drawn if each["below"] < 0 or each["below"] > 240]
    assert {*far} == {False, True}
    assert far == sorted(far), drawn
    # Streamlit's highlighter of code takes longer to load than all figures to draw.
    assert [url for url in asked if "SyntaxHighlighter" in url] == []
    figures(page)
    assert page.evaluate(SIDEWAYS) == []
    line = page.evaluate("document.querySelector('.st-key-chart-reward .js-plotly-plot').data.at(-2).line.color")
    assert line == "#e8ebf0"
    area = page.evaluate("document.querySelector('.st-key-chart-agents .js-plotly-plot').data[0].fillcolor")
    assert area == "#9b82ff"
    page.locator(".st-key-chart-reward").scroll_into_view_if_needed()
    box = page.locator(".st-key-chart-reward .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 60, steps=4)
    page.mouse.up()
    ranges = "[...document.querySelectorAll('.js-plotly-plot')].map((each) => each._fullLayout.xaxis.range.join())"
    becomes(page, f"new Set({ranges}).size === 1 && !{ranges}[0].startsWith('0,')")

    # The shipped Conductor's own record has all figures of the head: they are in one line.
    shutil.rmtree(root / "done")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{app.url}/training")
    expect(page.locator(".tile").nth(5)).to_be_visible()
    tops = page.evaluate("[...document.querySelectorAll('.tile')].map((each) => each.getBoundingClientRect().top)")
    assert len(tops) == 6
    assert len(set(tops)) == 1
    assert page.evaluate(SIDEWAYS) == []
