"""The Models page in Chromium: one model through all states of its download, in use, and deleted, on one page."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import App
from tests.support.hub import LoopbackHub
from tests.support.tiny_models import random_model

REF = "Qwen/Qwen2.5-7B-Instruct"
SIDEWAYS = "() => { const m = document.querySelector('[data-testid=stMain]'); return m.scrollWidth - m.clientWidth }"


def press(row: Locator, name: str) -> None:
    row.get_by_role("button", name=name, exact=True).click()


def top_and_height(row: Locator) -> tuple[float, float]:
    box = row.bounding_box()
    assert box is not None
    return box["y"], box["height"]


def test_a_model_is_downloaded_used_and_deleted(
    start_app: Callable[..., AbstractContextManager[App]],
    open_page: Callable[..., Page],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = random_model(tmp_path / "model")
    with LoopbackHub({REF: model}, bytes_per_s=10_000) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        with start_app(tmp_path / "data") as app:
            page = open_page(f"{app.url}/models?model=Qwen%2FQwen2.5-7B-Instruct", width=1280, height=720)
            row = page.locator('[class*="st-key-model-row-"]', has_text=REF)
            expect(row).to_contain_text("not here")
            # While Streamlit draws the page, the header of before may stand there for a moment, too.
            expect(page.locator(".models-header", has_text=f"✓ {hub.url} answers")).to_have_count(1)
            before = top_and_height(row)
            press(row, "Download")
            bar = row.get_by_role("progressbar")
            for share in (r"[5-9]|[1-9]\d", r"2[5-9]|[3-9]\d"):
                expect(bar).to_have_attribute("aria-valuenow", re.compile(f"^({share})$"))
                assert top_and_height(row) == before, "nothing moves while a download ticks"
            expect(row).to_contain_text("kB/s")
            press(row, "Pause")
            expect(row).to_contain_text("paused")
            page.reload()
            expect(row).to_contain_text("paused")
            here = int(str(bar.get_attribute("aria-valuenow")))
            assert here >= 25
            hub.refusal = (429, {"Retry-After": "30"})
            press(row, "Resume")
            expect(row.locator(".model-fault")).to_contain_text("the hub takes no more requests now: try again in 30 s")
            hub.refusal, hub.bytes_per_s = None, 0
            press(row, "Resume")
            expect(row).to_contain_text("ready")
            press(row, "Use this one")
            expect(row).to_contain_text("in use")
            assert page.evaluate(SIDEWAYS) == 0
            page.set_viewport_size({"width": 640, "height": 360})  # as at 200 %
            expect(page.locator(".st-key-model-row-head")).to_be_hidden()
            assert page.evaluate(SIDEWAYS) == 0
            row.get_by_role("button", name=f"Delete {REF}").focus()
            page.keyboard.press("Enter")
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text("tiny takes its place")
            dialog.get_by_role("button", name="Delete").click()
            expect(row).to_contain_text("not here")
            assert not list((tmp_path / "hub").rglob("*.safetensors"))
