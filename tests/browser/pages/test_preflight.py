"""What the Run page says before Run is pressed, of servers that are there and servers that are not."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import App, choose
from tests.support.provider import ScriptedProvider

OpenPage = Callable[..., Page]
StartApp = Callable[..., AbstractContextManager[App]]


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("m", "planner")) as running:
        yield running


def pool_file(folder: Path, **urls: str) -> str:
    file = folder / "mine.toml"
    file.write_text(
        "".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "m"\nbase_url = "{url}"\n'
            for name, url in urls.items()
        )
    )
    return str(file)


def test_what_does_not_answer_and_a_blind_budget_are_said_and_left_out_by_one_click(
    start_app: StartApp, open_page: OpenPage, tmp_path: Path, server: ScriptedProvider
) -> None:
    away = "http://127.0.0.1:9/v1"
    conductors = tmp_path / "data" / "conductors"
    conductors.mkdir(parents=True)
    (conductors / "mine.toml").write_text(
        f'[[conductor]]\nname = "sharp"\nmodel = "planner"\nbase_url = "{server.url}"\n'
        f'\n[[conductor]]\nname = "gone"\nmodel = "planner"\nbase_url = "{away}"\n'
    )
    pool = pool_file(tmp_path, alpha=server.url, beta=away, gamma=server.url)
    with start_app(tmp_path / "data", pool=pool) as app:
        page = open_page(app.url, width=1280, height=720)
        notice = page.locator(".st-key-key-notice")
        expect(notice).to_contain_text("Worker beta")
        expect(notice).to_contain_text("refuses connections")
        box = notice.bounding_box()
        assert box is not None
        assert box["height"] < 60
        notice.get_by_role("button", name="1 of 4 does not answer").click()
        listed = page.get_by_test_id("stPopoverBody")
        for name in ("Conductor tiny", "alpha", "beta", "gamma"):
            expect(listed).to_contain_text(name)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Use only what answers").click()
        expect(notice.get_by_role("button", name="The Conductor and 2 workers answer")).to_be_visible()
        expect(page.get_by_text("2 of 3 workers, without beta").first).to_be_visible()
        page.locator(".st-key-settings summary").click()
        conductor = page.get_by_label("Conductor", exact=True)
        choose(conductor, "gone")
        expect(notice).to_contain_text("Conductor gone")
        choose(conductor, "sharp")
        expect(notice.get_by_role("button", name="The Conductor and 2 workers answer")).to_be_visible()
        page.get_by_label("USD", exact=True).fill("1")
        page.get_by_label("USD", exact=True).press("Enter")
        expect(notice).to_contain_text("cannot see what Conductor sharp, alpha")
        assert server.completions == []
        page.close()
