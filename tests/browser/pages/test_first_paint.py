"""What a page shows before Streamlit runs, and before a figure is drawn: what is coming, in the page's colours."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from pages.components.app.places import ALL
from tests.browser.conftest import MOST_SHIFTED, SHIFTS, App
from tests.browser.pages.test_run_layout import Held, places_at_rest, stay

OpenPage = Callable[..., Page]
RAIL = ".shell-rail"
COLOURS = "part => [getComputedStyle(part).backgroundColor, getComputedStyle(document.body).backgroundColor]"
PAINTED = {False: ["rgb(245, 246, 248)", "rgb(255, 255, 255)"], True: ["rgb(25, 31, 42)", "rgb(13, 17, 23)"]}


def test_the_frame_is_painted_before_any_script_or_sheet_nothing_moves_and_an_unknown_address_has_it(
    app: App, open_page: OpenPage
) -> None:
    page = open_page("about:blank", dark=True, width=1280, height=720, cold=True)
    page.add_init_script(SHIFTS)
    held = [Held(page, "**/static/js/**"), Held(page, "**/static/css/**")]
    page.goto(f"{app.url}/history", wait_until="commit")
    rail = page.locator(RAIL)
    expect(rail.get_by_text("History")).to_be_visible()
    assert rail.evaluate(COLOURS) == PAINTED[True]
    assert page.locator('[data-testid="stApp"]').count() == 0
    before = rail.get_by_text("History").bounding_box()
    for each in held:
        each.let_go()
    link = page.get_by_role("link", name="History")
    expect(link).to_be_visible()
    expect(rail).to_be_hidden()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    after = link.locator("p").bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["y"] + before["height"] / 2 - after["y"] - after["height"] / 2) <= 4
    assert page.evaluate("window.shifted") < MOST_SHIFTED

    # An address without a page has the frame, too, and leads back.
    page.goto(f"{app.url}/no/such/page")
    expect(page.get_by_role("heading", name="No page here")).to_be_visible()
    expect(page.get_by_text("/no/such/page")).to_be_visible()
    assert page.locator(RAIL).evaluate(COLOURS) == PAINTED[True]
    page.evaluate("document.fonts.ready.then(() => null)")
    widths = page.locator(".shell-rail li i").evaluate_all("icons => icons.map((each) => each.scrollWidth)")
    assert len(widths) == len(ALL)
    assert max(widths) < 24, "each is one sign, not the letters of its name"
    page.get_by_role("link", name="History", exact=True).click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()


def test_a_figure_says_that_it_is_coming_until_it_is_drawn_and_moves_nothing(app: App, open_page: OpenPage) -> None:
    page = open_page("about:blank", width=1280, height=720, cold=True)
    held = Held(page, "**/api/plotly*.js")
    page.goto(f"{app.url}/training")
    expect(page.get_by_text("Drawing the figure…").first).to_be_attached()
    expect(page.locator(".st-key-training-config")).to_be_attached()
    before = places_at_rest(page)
    assert len(before) > 10
    held.let_go()
    expect(page.locator(".js-plotly-plot").first).to_be_attached()
    expect(page.locator(".js-plotly-plot").last).to_be_attached()
    stay(page, before)
    expect(page.locator(".js-plotly-plot ~ .figure-coming, .figure-coming:has(~ .js-plotly-plot)")).to_have_count(0)
