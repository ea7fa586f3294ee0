"""An image on the Run page: chosen, dropped or pasted, seen by its step, shown in the inspector."""

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Locator, Page, WebSocketRoute, expect

from tests.browser.conftest import App
from tests.support.pictures import encoded
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, deterministic_answer

OpenPage = Callable[..., Page]
PLAN = """One looks, one writes.
model_id = [0, 1]
subtasks = ["Describe it: {question}", "Say it shorter."]
access_list = [[], [0]]
"""
RED = encoded(size=(400, 300))
BRING = """
([kind, encoded, name, type]) => {
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0))
  const data = new DataTransfer()
  data.items.add(new File([bytes], name, { type }))
  const target = document.querySelector(".st-key-task textarea")
  const options = { bubbles: true, cancelable: true }
  const event = kind === "paste"
    ? new ClipboardEvent("paste", { ...options, clipboardData: data })
    : new DragEvent(kind, { ...options, dataTransfer: data })
  return !target.dispatchEvent(event)
}
"""


def planner_and_workers(call: Call) -> Answer | Reply:
    return Answer(PLAN, pieces=8) if call.model == "planner" else deterministic_answer(call)


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def own_app(
    start_app: Callable[..., AbstractContextManager[App]],
    tmp_path_factory: pytest.TempPathFactory,
    provider: ScriptedProvider,
) -> Iterator[App]:
    """An app whose workers are a scripted server's: ``eye`` sees images, ``pen`` does not."""
    provider.always(planner_and_workers)
    worker = '[[worker]]\nname = "{0}"\nprovider = "openai"\nmodel = "{0}"\nbase_url = "{1}"\n{2}\n'
    folder = tmp_path_factory.mktemp("images")
    pool = folder / "pool.toml"
    sees = 'accepts = ["text", "image"]'
    pool.write_text(worker.format("eye", provider.url, sees) + worker.format("pen", provider.url, ""))
    with start_app(folder / "data", pool=str(pool), conductor=f"{provider.url}#planner") as app:
        yield app


def bring(page: Page, kind: str, data: bytes = RED, name: str = "red.png", media_type: str = "image/png") -> bool:
    """Drops or pastes a file at the task; whether the page kept the browser from acting on it itself."""
    done: bool = page.evaluate(BRING, [kind, base64.b64encode(data).decode(), name, media_type])
    return done


def open_at_rest(open_page: OpenPage, url: str) -> Page:
    """Opens the page and waits until its first drawing is whole."""
    page = open_page(url)
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    expect(page.locator(".st-key-task-image-field button")).to_be_visible()
    return page


def shown(page: Page) -> Locator:
    return page.locator(".st-key-task-images img")


def choose(page: Page, *files: FilePayload | Path) -> None:
    page.locator(".st-key-task-image-field input[type=file]").set_input_files(list(files))  # type: ignore[arg-type]


def is_drawn(image: Locator) -> None:
    expect(image).to_be_visible()
    image.page.wait_for_function("image => image.naturalWidth > 0", arg=image.element_handle())


def test_images_are_chosen_removed_kept_and_refused_and_one_is_seen_by_its_step_and_shown(
    own_app: App, open_page: OpenPage, provider: ScriptedProvider, tmp_path: Path
) -> None:
    page, before = open_at_rest(open_page, own_app.url), len(provider.calls)
    blue = FilePayload(name="blue.jpg", mimeType="image/jpeg", buffer=encoded("JPEG", colour=(0, 0, 255)))
    choose(page, FilePayload(name="red.png", mimeType="image/png", buffer=RED), blue)
    expect(shown(page)).to_have_count(2)
    page.get_by_role("link", name="Workers").click()
    expect(shown(page)).to_have_count(0)
    page.get_by_role("link", name="Run").click()
    expect(shown(page)).to_have_count(2)
    page.get_by_role("button", name="Remove image 1").click()
    expect(shown(page)).to_have_count(1)
    assert "40 by 30" in (shown(page).get_attribute("alt") or "")
    page.get_by_role("button", name="Remove image 1").click()
    expect(shown(page)).to_have_count(0)

    choose(page, FilePayload(name="<b>cat</b>.png", mimeType="image/png", buffer=b"<svg onload=alert(1)>"))
    fault = page.locator(".stAlert")
    expect(fault).to_contain_text("not a PNG, JPEG, WebP or GIF image")
    expect(fault).to_contain_text("<b>cat</b>.png")
    assert bring(page, "drop", b"%PDF-1.7", "report.pdf", "application/pdf")
    expect(fault).to_contain_text("report.pdf: not a PNG, JPEG, WebP or GIF image")
    huge = tmp_path / "huge.png"
    huge.write_bytes(b"\x89PNG" + bytes(21 << 20))
    choose(page, huge)
    expect(fault).to_contain_text("huge.png: it has more than 20 MiB")
    assert not bring(page, "paste", b"Hello", "a.txt", "text/plain")
    assert shown(page).count() == 0

    assert bring(page, "paste")
    is_drawn(shown(page))
    page.get_by_role("textbox", name="Task", exact=True).fill("What is it?")
    page.locator(".st-key-run button").click()
    expect(page.locator(".bar .status")).to_contain_text("Completed")
    (call,) = [each for each in provider.calls[before:] if each.model == "eye" and each.body]
    assert [part["type"] for part in call.messages[-1]["content"]] == ["image_url", "text"]
    page.get_by_role("tab", name="What it saw").or_(
        page.get_by_role("button", name=re.compile("^Step 0"))
    ).first.click()
    page.get_by_role("tab", name="What it saw").click()
    is_drawn(page.locator(".pictures img"))
    expect(page.locator(".pictures figcaption")).to_contain_text("PNG · 400 × 300")
    page.get_by_role("tab", name="Messages").click()
    is_drawn(page.locator(".message .picture img"))
    # The run brings its image back into the card.
    page.reload()
    is_drawn(shown(page))


def test_an_image_comes_though_streamlit_loses_its_answer_to_the_field(own_app: App, open_page: OpenPage) -> None:
    """A drawing of the page that begins clears Streamlit's queue, and with it where the field is to send its files."""
    page = open_at_rest(open_page, own_app.url)
    lost: list[str | bytes] = []

    def forward(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def to_page(message: str | bytes) -> None:
            if not lost and isinstance(message, bytes) and b"_stcore/upload_file" in message:
                lost.append(message)
            else:
                socket.send(message)

        server.on_message(to_page)

    page.route_web_socket(re.compile("_stcore/stream"), forward)
    page.reload()
    expect(page.locator(".st-key-task-image-field button")).to_be_visible()
    choose(page, FilePayload(name="red.png", mimeType="image/png", buffer=RED))
    is_drawn(shown(page))
    assert len(lost) == 1
