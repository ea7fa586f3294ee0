"""Presenting in a real browser: by its key and by its menu, and back."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import TASK, App, Make

WIDTHS = """
() => {
  const main = document.querySelector('[data-testid="stMain"]')
  return [document.scrollingElement.scrollWidth - innerWidth, main.scrollHeight - innerHeight]
}
"""


def test_p_shows_the_run_alone_in_larger_type_and_escape_brings_all_back(
    app: App, open_page: Callable[..., Page], make_run: Make
) -> None:
    url = app.run_url(make_run().run_id)
    page = open_page(url, width=1280, height=720)
    rail, task = page.locator(".stSidebar"), page.get_by_role("textbox", name="Task")
    html, line = page.locator("html"), page.locator(".presented")
    expect(page.locator(".bar .conclusion")).to_be_visible()
    expect(line).to_be_hidden()

    # A letter that somebody types is a letter.
    task.click()
    page.keyboard.press("p")
    expect(task).not_to_have_value(TASK)
    expect(rail).to_be_visible()
    page.keyboard.press("Backspace")
    task.blur()

    page.keyboard.press("p")
    expect(rail).to_be_hidden()
    expect(task).to_be_hidden()
    expect(line).to_contain_text(TASK)
    expect(line.get_by_role("button", name="Esc: leave")).to_be_in_viewport(ratio=1)
    expect(html).to_have_css("font-size", "17px")
    for part in (".map", ".lower", ".inspector"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
    assert page.evaluate(WIDTHS) == [0, 0]
    assert page.url == url

    page.keyboard.press("Escape")
    expect(rail).to_be_visible()
    expect(task).to_have_value(TASK)
    expect(html).to_have_css("font-size", "14px")

    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_role("button", name="Present").click()
    expect(rail).to_be_hidden()
    page.reload()
    expect(page.locator(".bar .conclusion")).to_be_visible()
    expect(rail).to_be_visible()
    page.keyboard.press("p")
    expect(rail).to_be_hidden()
    page.keyboard.press("p")
    expect(rail).to_be_visible()

    # Escape leaves a replay first, and another page is not presented.
    replay = page.locator(".live-workflow[data-replay]")
    page.keyboard.press("p")
    page.locator(".bar").get_by_role("button", name="Replay").click()
    expect(replay).to_be_visible()
    page.keyboard.press("Escape")
    expect(replay).to_have_count(0)
    expect(rail).to_be_hidden()
    page.keyboard.press("Escape")
    rail.get_by_role("link", name="History").click()
    page.wait_for_url("**/history")
    page.go_back()
    expect(page.locator(".bar .conclusion")).to_be_visible()
    page.keyboard.press("p")
    expect(rail).to_be_hidden()
    page.go_forward()
    page.wait_for_url("**/history")
    expect(rail).to_be_visible()
