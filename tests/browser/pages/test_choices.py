"""What is chosen for the next run is remembered for each browser."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import App, choose

OpenPage = Callable[..., Page]


def choose_pool(page: Page, name: str) -> None:
    page.locator(".st-key-settings summary").click()
    choose(page.get_by_role("combobox", name="Pool"), name)
    expect(page.locator(".st-key-settings summary")).to_contain_text(f"Pool: {name}")


def test_a_reload_and_a_new_tab_find_what_this_browser_chose(app: App, open_page: OpenPage) -> None:
    mine = open_page(app.url)
    choose_pool(mine, "paper")
    theirs = open_page(app.url)  # another browser begins with what was chosen last
    expect(theirs.locator(".st-key-settings summary")).to_contain_text("Pool: paper")
    choose_pool(theirs, "small")
    mine.reload()
    expect(mine.locator(".st-key-settings summary")).to_contain_text("Pool: paper")
    tab = mine.context.new_page()
    tab.goto(f"{app.url}/run")
    expect(tab.locator(".st-key-settings summary")).to_contain_text("Pool: paper")
    cookie = next(each for each in mine.context.cookies() if each["name"] == "conductor_inspector_browser")
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    for page in (tab, mine, theirs):
        page.close()
