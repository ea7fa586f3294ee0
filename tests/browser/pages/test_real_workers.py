"""From a simulated answer to a real one without leaving the page: a download, and the same task again."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from conductor_core.engine.pools import read_specs
from tests.browser.conftest import App
from tests.browser.pages.conftest import run_of, status
from tests.support.hub import LoopbackHub
from tests.support.tiny_models import random_model

OpenPage = Callable[..., Page]
QUESTION = "How tall is my neighbour's dog?"
REFS = [spec.model for spec in read_specs("small")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random weights under the names of the small pool's models."""
    folder = tmp_path_factory.mktemp("models")
    return {ref: random_model(folder / str(seed), seed=seed) for seed, ref in enumerate(REFS)}


def ask(page: Page) -> None:
    page.get_by_label("Task").fill(QUESTION)
    page.locator(".st-key-run button").click()
    page.get_by_role("button", name="Choose real workers").click()


def test_a_question_of_ones_own_is_answered_by_models_that_were_not_there(
    start_app: Callable[..., AbstractContextManager[App]],
    open_page: OpenPage,
    tmp_path: Path,
    models: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LoopbackHub(models) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        with start_app(tmp_path / "data", rehearsal_tokens_per_s=0) as app:
            page = open_page(app.url, width=1280, height=720)
            ask(page)
            dialog = page.get_by_role("dialog")
            for spec in read_specs("small"):
                expect(dialog).to_contain_text(spec.name)
            simulated = run_of(page, app)
            dialog.get_by_role("button", name="Download these 3 models (3.5 GB)").click()
            dialog.get_by_role("button", name="Run with these 3 models").click()
            page.wait_for_url(lambda url: simulated.run_id not in url)
            expect(status(page)).not_to_contain_text("Simulated")
            expect(dialog).to_be_hidden()
            expect(page.locator(".pane").first).to_be_visible()
            real = run_of(page, app)
            assert real.task == QUESTION
            assert {worker.model for worker in real.pool.workers} == set(REFS)
            assert not real.simulated
            expect(page.locator(".st-key-settings")).to_contain_text("my-small-models")


def test_servers_and_keys_that_are_there_come_first(
    start_app: Callable[..., AbstractContextManager[App]],
    open_page: OpenPage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "a-key-of-nobody-0123456789")
    with start_app(tmp_path, rehearsal_tokens_per_s=0) as app:
        page = open_page(app.url, width=1280, height=720)
        ask(page)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("GEMINI_API_KEY")
        expect(dialog.get_by_role("button", name="Run with this worker")).to_be_visible()
        expect(dialog).not_to_contain_text("a-key-of-nobody")
        expect(dialog).not_to_contain_text("Or install a model server")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        page.get_by_role("link", name="Workers").click()
        page.get_by_role("button", name="Use this worker").click()
        expect(page.locator(".st-key-workers .cells.workers")).to_have_count(1)
        expect(page.locator(".st-key-workers .cells.workers")).to_contain_text("gemini-2.5-pro")


def test_the_dialog_stays_until_it_is_closed_however_often_the_page_is_drawn(app: App, open_page: OpenPage) -> None:
    page = open_page(app.url, width=1280, height=720)
    ask(page)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Small open models")
    _draw_anew(page)
    expect(dialog).to_contain_text("Small open models")
    # Streamlit forgets that it was closed if the page is drawn anew at that very moment: then it is closed once more.
    for _ in range(3):
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        page.wait_for_timeout(1_000)
        _draw_anew(page)
        if dialog.is_hidden():
            return
    pytest.fail("the dialog cannot be closed")


# A drawing can be over between two looks from outside, so the page itself watches for its beginning. Even the page may
# miss it, if it draws the beginning and the end at once: after ten seconds it is over.
GO_BACK = """
() => new Promise((begun) => {
  const app = document.querySelector("[data-testid=stApp]")
  const state = () => app.getAttribute("data-test-script-state")
  new MutationObserver((_, observer) => {
    if (state() !== "running") return
    observer.disconnect()
    begun()
  }).observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] })
  history.pushState({}, "", location.href)
  history.back()
  setTimeout(begun, 10_000)
})
"""


def _draw_anew(page: Page) -> None:
    """As Streamlit does when the browser goes back to an address of the same page."""
    page.evaluate(GO_BACK)
    expect(page.locator("[data-testid=stApp]")).to_have_attribute("data-test-script-state", "notRunning")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_main_button_of_a_dialog_can_be_read_in_both_schemes(app: App, open_page: OpenPage, scheme: str) -> None:
    page = open_page(app.url, width=1280, height=720)
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.reload()
    ask(page)
    button = page.get_by_role("dialog").locator('[data-testid^="stBaseButton-primary"]').first
    expect(button).to_have_css("color", {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme])
    muted = page.get_by_role("dialog").locator(".muted").first
    expect(muted).to_have_css("color", {"light": "rgb(89, 97, 111)", "dark": "rgb(163, 172, 186)"}[scheme])
