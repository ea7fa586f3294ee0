"""A run looks the same whatever the way to it, in both themes; its canvas takes its colours from the stylesheet."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Page, Route, expect

from conductor_core.run.request import new_run_id
from tests.browser.conftest import TASK, App, Make, becomes, status
from tests.support.run_events import answered, created, planned, run_completed

OpenPage = Callable[..., Page]

# The colours of the page's stylesheet, and what the canvas shows: each opaque colour with its number of pixels.
PAINTED = """
() => {
  const host = [...document.querySelectorAll("*")].find((each) => each.shadowRoot?.querySelector(".live-workflow"))
  const root = host?.shadowRoot.querySelector(".live-workflow")
  const canvas = root?.querySelector(".graph-canvas canvas")
  if (!canvas?.width) return null
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
  const seen = {}
  for (let at = 0; at < pixels.length; at += 4) {
    if (pixels[at + 3] < 255) continue
    const colour = "#" + [0, 1, 2].map((part) => pixels[at + part].toString(16).padStart(2, "0")).join("")
    seen[colour] = (seen[colour] ?? 0) + 1
  }
  const named = (name) => getComputedStyle(root).getPropertyValue(name).trim()
  return { seen, done: named("--done-fill"), theme: root.dataset.theme }
}
"""
# Five finished cards: the colour of what is done covers most of what is painted.
IS_DONE = f"""
() => {{
  const painted = ({PAINTED})()
  const colours = Object.entries(painted?.seen ?? {{}}).sort(([, one], [, other]) => other - one)
  return colours.length > 20 && colours[0][0] === painted.done
}}
"""


def test_the_graph_has_its_colours_on_every_way_back(app: App, open_page: OpenPage, make_run: Make) -> None:
    dark = False
    run_id = make_run().run_id
    other = make_run().run_id
    page = open_page("about:blank", cold=True)
    page.route("**/style.css*", _after_a_while)
    page.goto(app.run_url(run_id))
    _is_painted(page, dark)
    _to_history(page)
    page.go_back()
    _is_painted(page, dark)
    page.go_forward()
    expect(page.locator(".st-key-runs")).to_be_visible()
    page.go_back()
    _is_painted(page, dark)
    _to_history(page)
    page.locator(f".st-key-run-row-{other} a").first.click()
    page.wait_for_url(f"**/run?run={other}")
    _is_painted(page, dark)
    page.reload()
    _is_painted(page, dark)


def test_the_graph_follows_a_change_of_theme(app: App, open_page: OpenPage, make_run: Make) -> None:
    dark = True
    page = open_page(app.run_url(make_run().run_id), dark=dark)
    _is_painted(page, dark)
    for now_dark in (not dark, dark):
        page.emulate_media(color_scheme="dark" if now_dark else "light")
        _is_painted(page, now_dark)
    _to_history(page)
    page.emulate_media(color_scheme="light" if dark else "dark")
    page.go_back()
    _is_painted(page, not dark)


def test_what_changes_while_the_script_loads_leaves_the_graph_there(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    """Streamlit then calls the script twice at once, and takes the first call back after the second."""
    page = open_page("about:blank")
    held: list[Route] = []
    page.route("**/style.css*", lambda route: held.append(route))
    with page.expect_request("**/style.css*"):
        page.goto(app.run_url(make_run().run_id))
    expect(page.get_by_label("Task")).to_have_value(TASK)
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".stApp")).to_have_css("background-color", "rgb(13, 17, 23)")
    page.wait_for_timeout(1_000)
    for route in held:
        route.continue_()
    _is_painted(page, dark=True)


def _after_a_while(route: Route) -> None:
    time.sleep(0.4)
    route.continue_()


def _to_history(page: Page) -> None:
    page.get_by_role("link", name="History").click()
    expect(page.locator(".st-key-runs")).to_be_visible()


def _is_painted(page: Page, dark: bool) -> None:
    expect(status(page)).to_contain_text("Completed 5 of 5")
    root = page.locator(".live-workflow")
    expect(root).to_have_attribute("data-theme", "dark" if dark else "light")
    becomes(page, IS_DONE)


def test_from_a_run_the_rail_leads_to_the_page_without_one_and_back(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    page = open_page(app.run_url(make_run().run_id), width=1280, height=720)
    expect(status(page)).to_contain_text("Completed")
    page.get_by_role("link", name="Run", exact=True).click()
    expect(status(page)).to_contain_text("No run is open")
    assert page.url == f"{app.url}/run"
    page.go_back()
    expect(status(page)).to_contain_text("Completed")


def test_the_output_of_the_selected_step_is_in_view_on_the_way_back(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    page = open_page(app.run_url(make_run().run_id), width=1280, height=720)
    selected = page.locator(".pane.selected")
    expect(selected).to_be_in_viewport(ratio=0.9)
    page.get_by_role("link", name="Run", exact=True).click()
    expect(status(page)).to_contain_text("No run is open")
    page.go_back()
    expect(selected).to_be_in_viewport(ratio=0.9)


def test_one_step_back_leads_from_compare_to_the_run(app: App, open_page: OpenPage, make_run: Make) -> None:
    before = make_run().run_id
    after = new_run_id()
    events = [created(after, parent_run_id=before), *planned(after), *answered(after, 0), run_completed(after)]
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, *events).result()
    page = open_page(app.run_url(after), width=1280, height=720)
    page.locator(".kin").get_by_role("link", name="Compare").click()
    expect(page.get_by_role("region", name="Timeline B")).to_be_visible()
    assert page.url == f"{app.url}/compare?a={before}&b={after}"
    page.go_back()
    expect(status(page)).to_contain_text("Completed")
    assert page.url == app.run_url(after)


def test_the_settings_close_as_a_menu_does(app: App, open_page: OpenPage) -> None:
    page = open_page(f"{app.url}/run", width=1280, height=720)
    settings = page.locator(".st-key-settings details")
    settings.locator("summary").click()
    expect(settings).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(settings).not_to_have_attribute("open", "")
    settings.locator("summary").click()
    expect(settings).to_have_attribute("open", "")
    page.mouse.click(300, 650)
    expect(settings).not_to_have_attribute("open", "")
