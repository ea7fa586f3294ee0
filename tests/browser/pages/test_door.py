"""What a foreign page open in the same browser can do to the app: nothing, not even see that it is there."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, ViewportSize, sync_playwright

from tests.browser.conftest import App, Make
from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium

FOREIGN = "evil.example"
TRY_ALL = """
async ([app, run]) => {
  const tried = {}
  const asking = async (name, work) => {
    try { tried[name] = await work() } catch (error) { tried[name] = "refused" }
  }
  const socket = (path) => new Promise((resolve, reject) => {
    const opened = new WebSocket(app.replace("http", "ws") + path)
    opened.onopen = () => resolve("open")
    opened.onerror = reject
  })
  const loads = (tag, path) => new Promise((resolve, reject) => {
    const element = document.createElement(tag)
    element.onload = () => resolve("loaded")
    element.onerror = reject
    element.src = app + path
    document.body.append(element)
  })
  await asking("read", async () => (await fetch(app + "/_stcore/health")).status)
  await asking("see", async () => (await fetch(app + "/_stcore/health", { mode: "no-cors" })).type)
  await asking("cancel", async () =>
    (await fetch(`${app}/api/runs/${run}/cancel`, { method: "POST", mode: "no-cors" })).type)
  await asking("script", () => loads("script", "/api/plotly.js"))
  await asking("streamlit's socket", () => socket("/_stcore/stream"))
  await asking("the run's socket", () => socket(`/api/runs/${run}/live`))
  return tried
}
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><body>a page of another server")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def foreign_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def rebound() -> Iterator[Page]:
    """A page in a browser whose name service says that a foreign name is this machine."""
    chromium = find_chromium()
    if chromium is None:
        pytest.fail(ABSENT)
    with sync_playwright() as playwright:
        flags = [*FLAGS, f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1"]
        opened = playwright.chromium.launch(executable_path=str(chromium), args=flags)
        yield opened.new_page(viewport=ViewportSize(width=1280, height=720))
        opened.close()


def test_a_foreign_page_can_read_start_and_see_nothing_and_a_foreign_name_is_not_served(
    app: App, rebound: Page, foreign_port: int, make_run: Make
) -> None:
    run = make_run(task="Something that only its owner may read")
    for host in ("127.0.0.1", "localhost", FOREIGN):
        rebound.goto(f"http://{host}:{foreign_port}/")
        tried = rebound.evaluate(TRY_ALL, [app.url, run.run_id])
        assert len(tried) == 6
        assert set(tried.values()) == {"refused"}, (host, tried)
    address = app.url.replace("127.0.0.1", FOREIGN)
    for path in ("/", "/history", "/_stcore/health", "/api/plotly.js"):
        response = rebound.goto(f"{address}{path}")
        assert response is not None
        assert response.status == 403
        assert "CONDUCTOR_ALLOWED_HOSTS" in response.text()
    # From where the page now is the app's own socket would be of the same origin.
    opened = f"new Promise((done) => {{ const s = new WebSocket('{address.replace('http', 'ws')}/_stcore/stream'); "
    assert (
        rebound.evaluate(f"{opened} s.onopen = () => done('open'); s.onerror = () => done('refused') }})") == "refused"
    )
