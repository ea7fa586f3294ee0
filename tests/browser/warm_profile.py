"""A browser profile, with one page, that serves test after test and keeps nothing of one for the next but its cache.

A page in a new process of Chromium compiles all scripts of the app again: 2.2 s of the processor instead of 1.5 s.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Error, Page, ViewportSize

# What stays on a page that a test has called these on. That page serves no other test.
LASTING = (
    "on",
    "once",
    "route",
    "route_from_har",
    "route_web_socket",
    "add_init_script",
    "add_locator_handler",
    "emulate_media",
    "expose_function",
    "expose_binding",
    "set_extra_http_headers",
)


class WarmProfile:
    def __init__(self, browser: Browser, patience_ms: float) -> None:
        self._browser = browser
        self._patience_ms = patience_ms
        self._lasting: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self._context = self._browser.new_context()
        self._context.set_default_timeout(self._patience_ms)
        self._page: Page | None = None

    def open(self, viewport: ViewportSize, scheme: Literal["dark", "light"], on_error: Callable[[Error], None]) -> Page:
        """Gives the page, empty. Tells ``on_error`` of each script error until the page is forgotten."""
        if self._page is None:
            self._page = self._watched(self._context.new_page())
        self._page.set_viewport_size(viewport)
        self._page.emulate_media(color_scheme=scheme)
        self._page.on("pageerror", on_error)
        self._lasting.clear()
        return self._page

    def forget(self, on_error: Callable[[Error], None], *, keep_page: bool) -> None:
        """Leaves nothing in the profile but its cache. ``keep_page``: the test has left the page in order."""
        if self._page is None or self._page.is_closed():  # nobody knows any more where something is stored
            self._context.close()
            self._begin()
            return
        for page in self._context.pages:
            kept = page is self._page and keep_page and not self._lasting
            self._clear(page, empty=kept)
            if kept:
                page.remove_listener("pageerror", on_error)
            else:
                page.close()
        if self._page.is_closed():
            self._page = None
        self._context.clear_cookies()
        self._context.clear_permissions()

    def _watched(self, page: Page) -> Page:
        """Makes ``page`` note what a test calls of LASTING."""

        def noted(name: str, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
            self._lasting.add(name)
            return call(*args, **named)

        for name in LASTING:
            setattr(page, name, functools.partial(noted, name, getattr(page, name)))
        return page

    def _clear(self, page: Page, *, empty: bool) -> None:
        address = urlsplit(page.url)
        session = self._context.new_cdp_session(page)
        if empty:
            if address.scheme.startswith("http"):
                page.evaluate("sessionStorage.clear()")
            page.goto("about:blank")
            page.mouse.move(-1, -1)  # or the next page begins with something hovered
            session.send("Page.resetNavigationHistory")
        if address.scheme.startswith("http"):
            origin = f"{address.scheme}://{address.netloc}"
            stored = {"origin": origin, "storageTypes": "cookies,local_storage,indexeddb"}
            session.send("Storage.clearDataForOrigin", stored)
        session.detach()
