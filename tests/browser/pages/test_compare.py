"""Two runs compared in a real browser: by keyboard alone, what is drawn, and that what models wrote stays text."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Locator, Page, expect

from conductor_core.engine.estimates import edit_step
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import rerun_of
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from tests.browser.conftest import SIDEWAYS, App, Make, becomes, status

OpenPage = Callable[..., Page]
# What the canvas of the graph was last painted with; every repaint begins with an empty canvas.
PAINTED = """
const { clearRect, fillText } = CanvasRenderingContext2D.prototype
Object.assign(CanvasRenderingContext2D.prototype, {
  clearRect(...box) { this.canvas.words = []; return clearRect.apply(this, box) },
  fillText(text, ...at) { (this.canvas.words ??= []).push(text); return fillText.call(this, text, ...at) },
})
"""
CANVAS = """
[...document.querySelectorAll(".st-key-compared *")]
  .map((each) => each.shadowRoot?.querySelector(".graph canvas")).find(Boolean)
"""


@pytest.fixture(scope="module")
def pair(app: App, make_run: Make) -> tuple[RunTrace, RunTrace]:
    """A run, and its re-run in which the writer is told more and sees one step more."""
    parent = make_run()
    workflow = parent.root.workflow
    assert workflow is not None
    edited = edit_step(workflow, 4, instruction="State the arrival time in one short sentence.", access=(2, 3))
    host = EngineHost(app.store.log, Settings(rehearsal_tokens_per_s=0), app.store)
    with ThreadPoolExecutor(1) as aside:
        request = rerun_of(parent, edited, door="page", origins=tuple(range(5)))
        child = aside.submit(lambda: host.wait(host.start(request), 60)).result()
    host.close()
    return parent, child


def row(page: Page, key: str) -> Locator:
    return page.locator(f'.compared-row[data-step="{key}"]')


def tab_to(page: Page, wanted: Locator) -> None:
    """Presses Tab until ``wanted`` has the focus."""
    for _ in range(60):
        if wanted.evaluate("(element) => element.getRootNode().activeElement === element"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {wanted}")


def test_by_keyboard_alone_from_a_rerun_over_its_tree_to_the_step_where_the_two_part_and_what_changed(
    app: App, open_page: OpenPage, pair: tuple[RunTrace, RunTrace]
) -> None:
    parent, child = pair
    page = open_page("about:blank", width=1280, height=720)
    page.add_init_script(PAINTED)
    page.goto(app.run_url(child.run_id))
    expect(status(page)).to_contain_text("Completed 5 of 5")
    tab_to(page, page.get_by_role("button", name="Tree of 2 runs"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("step 4: instruction edited, also reads step 2")
    expect(dialog).to_contain_text("this run")
    assert page.evaluate(SIDEWAYS) == []
    tab_to(page, dialog.get_by_test_id("stButton").get_by_role("button").first)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"run={parent.run_id}"))
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("group", name="Related runs")).to_be_visible()
    page.goto(app.run_url(child.run_id))
    expect(page.get_by_role("button", name="Tree of 2 runs")).to_be_visible()
    tab_to(page, page.get_by_role("group", name="Related runs").get_by_role("link", name="Compare"))
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"/compare\?a={parent.run_id}&b={child.run_id}"))
    expect(row(page, "4")).to_have_class(re.compile("selected"))

    tab_to(page, page.get_by_role("button", name="First difference"))
    page.keyboard.press("Enter")
    expect(row(page, "4")).to_be_focused()
    expect(row(page, "4")).to_be_in_viewport()

    tab_to(page, page.get_by_role("button", name=re.compile("^Step 4, writer, changed")))
    page.keyboard.press("Home")
    expect(row(page, "0")).to_have_class(re.compile("selected"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(row(page, "1")).to_be_focused()

    beside = page.get_by_role("button", name="Side by side")
    tab_to(page, beside)
    page.keyboard.press("Space")
    expect(beside).to_have_attribute("aria-pressed", "true")
    expect(row(page, "4").locator(".text.alone").first).to_be_visible()
    expect(row(page, "4").locator(".text.together").first).to_be_hidden()

    _says_what_changed(page)


def _says_what_changed(page: Page) -> None:
    """In words, in the graph, and word by word."""
    page.get_by_role("button", name="Side by side").click()
    expect(page.locator(".compared-headline")).to_contain_text(
        "2 changes of the plan: step 4: instruction edited, also reads step 2. One step ran again, 4 were reused."
    )
    expect(row(page, "4")).to_contain_text("also reads step 2")
    expect(row(page, "4").locator(".text.together ins").first).to_have_text("short")
    expect(row(page, "4").locator(".text.together del").first).to_have_text("[3]")
    expect(row(page, "3")).to_contain_text("identical, reused")
    becomes(page, f"() => ['~ changed', '= same output · reused'].every((each) => ({CANVAS})?.words?.includes(each))")
    expect(page.get_by_role("region", name="Timeline B")).to_contain_text("4 · writer")
    assert page.evaluate(SIDEWAYS) == []

    page.get_by_role("button", name="Only differences").click()
    expect(row(page, "3")).to_be_hidden()
    expect(row(page, "4")).to_be_visible()
    page.get_by_role("region", name="Timeline A").get_by_role("button", name=re.compile("3 · verifier")).click()
    expect(page.get_by_label(re.compile("^Step 3, verifier"))).to_have_attribute("aria-pressed", "true")
