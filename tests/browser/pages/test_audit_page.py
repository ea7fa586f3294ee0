"""The Audit page in a real browser: three clicks from a blank page to each answer, and nothing of a text runs.

What it exports is checked by the shipped verifier, in a Python that has nothing else of ours.
"""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.run import events as ev
from conductor_core.run.values import PoolInfo
from conductor_core.workflow.model import Step, Workflow
from storage.evidence.checking import public_key
from tests.browser.conftest import SIDEWAYS, App
from tests.support.alone import python_alone
from tests.support.run_events import PAGE, TWO_STEPS, created, planned, run_completed, step_completed

OpenPage = Callable[..., Page]
NAME = "Ada Lovelace-Quetzal"
HOSTILE = f'<img src=x onerror="document.title=1"> {NAME} ![x](http://127.0.0.1:9/x.png)'
POOL = PoolInfo(
    name="p", workers=(WorkerSpec(name="solver", provider="openai", model="m", base_url="http://one.example/v1"),)
)
AFTER = Workflow(steps=(Step(instruction=f"Ask {NAME} instead.", agent="checker"), TWO_STEPS.steps[1]))


@pytest.fixture(scope="module")
def audited(app: App) -> str:
    """A run whose plan a person changed, and whose provider was sent a name."""
    sent = (Message(role="user", content=HOSTILE),)
    app.store.log.append_and_wait(
        created("audited", HOSTILE, pool=POOL, simulated=False),
        *planned("audited"),
        ev.PlanEdited(run_id="audited", before=TWO_STEPS, after=AFTER, actor=PAGE.actor, door="page"),
        ev.StepStarted(run_id="audited", path=(0,), agent="solver", identity="i", messages=sent),
        step_completed("audited", 0, HOSTILE, 40),
        run_completed("audited", HOSTILE),
    )
    return "audited"


class Clicks:
    """Counts the clicks from a blank Audit page on."""

    def __init__(self, page: Page, url: str) -> None:
        self._page, self._url = page, url
        self.count = 0

    def begin(self) -> None:
        self._page.goto(self._url)
        self.count = 0

    def on(self, found: Locator) -> None:
        expect(found).to_have_count(1)  # while the page is drawn anew, what it was may stand beside what it becomes
        found.click()
        self.count += 1


def test_three_clicks_from_a_blank_page_to_who_changed_a_plan_what_and_who_saw_a_name_and_the_export_is_verified(
    app: App, open_page: OpenPage, audited: str, tmp_path: Path
) -> None:
    page = open_page(f"{app.url}/audit", width=1280, height=720)
    clicks = Clicks(page, f"{app.url}/audit")
    clicks.on(page.get_by_role("button", name="Who changed a plan"))
    clicks.on(page.locator(f".st-key-audit-open-{audited} button:visible"))
    changes = page.locator(".st-key-audit-part-changes")
    assert PAGE.actor is not None
    expect(changes).to_contain_text(f"The plan, by {PAGE.actor.name}")
    expect(changes.locator("del", has_text="Solve it.")).to_be_in_viewport()
    expect(changes.locator("ins", has_text=f"Ask {NAME} instead.")).to_be_in_viewport()
    assert clicks.count <= 3
    assert page.evaluate(SIDEWAYS) == []

    clicks.begin()
    field = page.get_by_role("textbox", name="Search all texts")
    field.fill(f'"{NAME}"')
    field.press("Enter")
    expect(page.locator(".audit-snippet mark").first).to_have_text(NAME)
    clicks.on(page.locator(".st-key-audit-view").get_by_text("Who received it"))
    expect(page.locator(".st-key-audit-servers")).to_contain_text("openai at one.example")
    expect(page.locator(".st-key-audit-servers")).to_contain_text("1 call in 1 run")
    expect(page.locator(".st-key-audit-calls tbody tr").first).to_be_in_viewport()
    assert clicks.count <= 3
    assert page.evaluate(SIDEWAYS) == []
    assert page.locator(".audit-snippet img, .audit-part img").count() == 0
    # Runs of other tests may wait for an approval, which the title counts.
    assert page.title().endswith("Conductor Inspector"), "the text ran nothing"

    # It is verified, and exported for a Python that has nothing else of ours.
    page.goto(f"{app.url}/audit?run={audited}")
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.locator(".st-key-audit-last")).to_contain_text("Verified just now: nothing found about this run")
    page.reload()
    expect(page.locator(".st-key-audit-top")).to_contain_text("nothing found about this run")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Make the bundle").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save run-audited.zip").click()
    bundle = tmp_path / "bundle.zip"
    saved.value.save_as(bundle)
    with zipfile.ZipFile(bundle) as archive:
        archive.extract("verify.py", tmp_path)
    places = app.store.places
    key = public_key(app.store.path, places)
    assert key is not None
    command = [sys.executable, "-S", "-s", "verify.py", "bundle.zip", "--public-key", key.line]
    command += ["--anchor", str(places.anchor.file)]
    done = subprocess.run(
        command, cwd=tmp_path, env=python_alone(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK: nothing was found" in done.stdout
    page.get_by_role("button", name="Verified just now").click()
    expect(page.locator(".st-key-audit-checked")).to_contain_text("Nothing was found")
    assert page.evaluate(SIDEWAYS) == []
