"""The Keys page in Chromium: whoever presses twice still sees the key, copies it, and sees it no more."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import App


@pytest.mark.parametrize("between_ms", [0, 150])
def test_a_key_whose_button_was_pressed_twice_is_shown_and_copied_once(
    app: App, open_page: Callable[..., Page], between_ms: int
) -> None:
    name = f"pressed again after {between_ms} ms"
    page = open_page(f"{app.url}/keys", width=1280, height=720)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_label("Name").fill(name)
    button = page.get_by_role("button", name="Create the key")
    button.hover()
    button.dblclick(delay=between_ms)
    page.get_by_role("button", name="Done").wait_for()
    expect(page.locator("[class*=st-key-key-row-]").filter(has_text=name)).to_be_visible()
    shown = page.locator(".st-key-new-key")
    text = shown.locator("code").inner_text()
    shown.get_by_role("button", name="Copy to clipboard").click()
    assert page.evaluate("navigator.clipboard.readText()") == text
    keys = app.store.service_keys
    assert keys.find(text) is not None
    assert [each.name for each in keys.list()].count(name) == 1
    page.get_by_role("button", name="Done").click()
    expect(button).to_be_visible()
    assert text not in page.content()
    page.reload()
    expect(button).to_be_visible()
    assert text not in page.content()
