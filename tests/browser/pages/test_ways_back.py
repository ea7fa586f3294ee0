"""A run looks the same whatever the way to it, in both themes; its canvas takes its colours from the stylesheet."""

from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import TASK, App, Make, at_rest, becomes, status

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


def test_the_graph_has_its_colours_on_every_way_back_and_follows_a_change_of_theme(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    dark = False
    run_id = make_run().run_id
    other = make_run().run_id
    page = open_page("about:blank", cold=True)
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
    for dark in (True, False):
        page.emulate_media(color_scheme="dark" if dark else "light")
        _is_painted(page, dark)
    _to_history(page)
    page.emulate_media(color_scheme="dark")
    page.go_back()
    _is_painted(page, dark=True)
    page.set_viewport_size({"width": 1280, "height": 720})
    _the_rail_leads_to_the_page_without_a_run(app, page)


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
    at_rest(page)
    for route in held:
        route.continue_()
    _is_painted(page, dark=True)


def _to_history(page: Page) -> None:
    page.get_by_role("link", name="History").click()
    expect(page.locator(".st-key-runs")).to_be_visible()


def _is_painted(page: Page, dark: bool) -> None:
    expect(status(page)).to_contain_text("Completed 5 of 5")
    root = page.locator(".live-workflow")
    expect(root).to_have_attribute("data-theme", "dark" if dark else "light")
    becomes(page, IS_DONE)


def _the_rail_leads_to_the_page_without_a_run(app: App, page: Page) -> None:
    """Over the rail to the page without a run, and back to the output in view."""
    selected = page.locator(".pane.selected")
    expect(status(page)).to_contain_text("Completed")
    expect(selected).to_be_in_viewport(ratio=0.9)
    page.get_by_role("link", name="Run", exact=True).click()
    expect(status(page)).to_contain_text("No run is open")
    assert page.url == f"{app.url}/run"
    settings = page.locator(".st-key-settings details")
    settings.locator("summary").click()
    expect(settings).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(settings).not_to_have_attribute("open", "")
    settings.locator("summary").click()
    expect(settings).to_have_attribute("open", "")
    page.mouse.click(300, 650)
    expect(settings).not_to_have_attribute("open", "")
    page.go_back()
    expect(status(page)).to_contain_text("Completed")
    expect(selected).to_be_in_viewport(ratio=0.9)
