"""The README's pictures: `make pictures` runs the last example with the shipped Conductor and the
simulated workers in the real app, and writes docs/images/run.png and run-dark.png. Made-up failing runs of four weeks
give failures.png; requests that ``conductor serve`` forwards to a scripted model give audit.png."""

import http.client
import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import closing
from os import environ
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from storage import open_store
from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium
from tests.browser.serving import IMAGES, app_for_pictures, free_port
from tests.support.eventually import eventually
from tests.support.failing_runs import failing_runs
from tests.support.provider import Cut, Pause, Reply, ScriptedProvider

EXAMPLE = "When does the train arrive?"
SIZE = ViewportSize(width=1440, height=900)
THEMES: dict[str, Literal["light", "dark"]] = {"run.png": "light", "run-dark.png": "dark"}

FORWARDED = {
    "Translate into French: the invoice is due on 1 March.": "La facture est due le 1er mars.",
    "Which of these tickets is about billing? 1: cannot sign in. 2: charged twice.": "Ticket 2: charged twice.",
    "Summarise in one sentence: the pump was replaced on Monday and runs again.": "A new pump runs since Monday.",
    "Write a polite reply: the parcel will be three days late.": "We are sorry: your parcel will come three days late.",
    "How many working days lie between 3 and 14 March 2025?": "Ten working days, both ends counted.",
    "Classify: 'Great service, thank you!' as praise, complaint or question.": "Praise",
    "Extract the order number: 'Where is 4711-0815?'": "4711-0815",
}
_POOL = """\
[[worker]]
name = "writer"
provider = "openai"
model = "team-model"
base_url = "{url}"
usd_per_mtok = {{ input = 1.25, output = 10.0 }}
"""


def _take(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(url)
    page.get_by_role("button", name=EXAMPLE).click()
    page.wait_for_timeout(2_000)
    page.locator(".st-key-run button").click()
    page.locator(".bar .status.completed").wait_for(timeout=120_000)
    for name, theme in THEMES.items():
        shown = browser.new_page(viewport=SIZE, color_scheme=theme)
        shown.goto(page.url)
        shown.locator(".bar .status.completed").wait_for()
        shown.wait_for_timeout(2_500)
        shown.screenshot(path=IMAGES / name)


def _take_failures(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(f"{url}/failures?period=month")
    page.locator(".failure-row").first.wait_for(timeout=60_000)
    page.locator(".st-key-failures-trend .plot-container").wait_for()
    page.wait_for_timeout(1_500)
    page.screenshot(path=IMAGES / "failures.png")


def _chat_answer(task: str, text: str) -> Reply:
    usage = {"prompt_tokens": 400 + 7 * len(task), "completion_tokens": 5 * len(text)}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"id": "c1", "object": "chat.completion", "model": "team-model", "choices": [choice], "usage": usage}
    return Reply([Pause(len(text) / 40), json.dumps(body).encode()], content_type="application/json")


def _forward(folder: Path, database: str) -> None:
    """Sends FORWARDED through ``conductor serve --pass-through``; one answer breaks off, one request is refused."""
    port = free_port()
    with ScriptedProvider() as provider:
        pool = folder / "team.toml"
        pool.write_text(_POOL.format(url=provider.url))
        served = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "conductor_core",
                "serve",
                f"--port={port}",
                f"--pool={pool}",
                "--pass-through",
                "writer",
            ],
            env=environ | {"CONDUCTOR_DATA_FOLDER": str(folder), "CONDUCTOR_DATABASE_URL": database},
        )
        url = f"http://127.0.0.1:{port}/v1"
        try:
            eventually(lambda: served.poll() is not None or _asked(f"{url}/models") == 200)
            for number, (task, text) in enumerate(FORWARDED.items()):
                answer = _chat_answer(task, text)
                if number == 2:
                    answer = Reply([b'{"choices": [', Cut()], content_type="application/json")
                if number == 4:
                    answer = Reply([b'{"error": {"message": "Rate limit reached"}}'], 429, "application/json")
                provider.then(answer)
                body = {"model": "team-model", "messages": [{"role": "user", "content": task}]}
                _asked(f"{url}/chat/completions", json.dumps(body).encode())
        finally:
            served.terminate()
            served.wait()


def _asked(url: str, body: bytes | None = None) -> int | None:
    """Returns the status of the answer; None if no whole one came."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except (OSError, http.client.HTTPException):
        return None


def _take_audit(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(f"{url}/history")
    page.get_by_label("Runs", exact=True).click()
    page.get_by_role("option", name="forwarded").click()
    page.get_by_text("charged twice").first.wait_for(timeout=60_000)
    page.wait_for_timeout(1_500)
    page.screenshot(path=IMAGES / "audit.png", clip={"x": 0, "y": 0, "width": 1440, "height": 620})


def main() -> int:
    chromium = find_chromium()
    if chromium is None:
        print(ABSENT, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        with app_for_pictures() as url:
            _take(browser, url)
        database = f"sqlite:///{Path(folder) / 'runs.sqlite3'}"
        with closing(open_store(database)) as store:
            for events in failing_runs(600):
                store.log.append_and_wait(*events)
        with app_for_pictures(database_url=database) as url:
            _take_failures(browser, url)
        traffic = f"sqlite:///{Path(folder) / 'traffic.sqlite3'}"
        _forward(Path(folder), traffic)
        with app_for_pictures(database_url=traffic, recorded_runs="false") as url:
            _take_audit(browser, url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
