"""History while runs go on elsewhere: it follows them, and a filter stays as its counts change."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from playwright.sync_api import Page, expect

from conductor_core.run.actor import local_caller
from conductor_core.run.request import RunRequest
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App, choose, runs_in

OpenPage = Callable[..., Page]
ONE_STEP = Workflow(steps=(Step(instruction="Answer: {question}", agent="writer"),))
ROWS = '[class*="st-key-run-row-"] .cells.runs:not(.head)'


def test_history_follows_what_runs_elsewhere_and_keeps_its_filter(
    start_app: Callable[..., AbstractContextManager[App]], open_page: OpenPage, tmp_path: Path
) -> None:
    with start_app(tmp_path, rehearsal_tokens_per_s=4) as app, runs_in(app.store) as make:
        make(task="The first of them")
        page = open_page(f"{app.url}/history", width=1280, height=720)
        chosen = page.get_by_role("combobox", name="Status")
        choose(chosen, "completed")
        expect(page.locator(ROWS)).to_have_count(1)
        expect(page.get_by_text(re.compile(r"^1 run · [\d,]+ tokens"))).to_be_visible()

        going_on = app.engine.start(
            RunRequest(task="One that goes on: What is the chemical symbol of tungsten?", workflow=ONE_STEP, door="cli")
        )
        make(task="The second of them")
        expect(page.get_by_role("link", name="The second of them")).to_be_visible()
        expect(page.locator(ROWS)).to_have_count(2)
        expect(chosen).to_have_value(re.compile("completed · 2"))

        choose(chosen, "running")
        expect(page.get_by_role("link", name="One that goes on")).to_be_visible()
        app.engine.cancel(going_on, local_caller("cli"))
        expect(page.get_by_text("No run matches")).to_be_visible()
        expect(chosen).to_have_value(re.compile("running · 0"))
