"""The Audit page in a real browser: three clicks from a blank page to each answer, by keyboard, and nothing runs."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from conductor_core import events as ev
from conductor_core.chat import Message, WorkerSpec
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App
from tests.browser.pages.test_other_pages import SIDEWAYS
from tests.support.run_events import PAGE, TWO_STEPS, created, planned, run_completed, step_completed

OpenPage = Callable[..., Page]
NAME = "Ada Lovelace-Quetzal"
HOSTILE = f'<img src=x onerror="document.title=1"> {NAME} ![x](http://127.0.0.1:9/x.png)'
POOL = ev.PoolInfo(
    name="p", workers=(WorkerSpec(name="solver", provider="openai", model="m", base_url="http://one.example/v1"),)
)
AFTER = Workflow(steps=(Step(instruction=f"Ask {NAME} instead.", agent="checker"), TWO_STEPS.steps[1]))


def test_from_a_blank_page_to_who_changed_what_and_who_saw_a_name(app: App, open_page: OpenPage) -> None:
    sent = (Message(role="user", content=HOSTILE),)
    app.store.log.append_and_wait(
        created("audited", HOSTILE, pool=POOL, simulated=False),
        *planned("audited"),
        ev.PlanEdited(run_id="audited", before=TWO_STEPS, after=AFTER, actor=PAGE.actor, door="page"),
        ev.StepStarted(run_id="audited", path=(0,), agent="solver", identity="i", messages=sent),
        step_completed("audited", 0, HOSTILE, 40),
        run_completed("audited", HOSTILE),
    )
    page = open_page(f"{app.url}/audit", width=1280, height=720)
    page.get_by_role("button", name="Who changed a plan").click()
    found = page.locator(".st-key-audit-open-audited button")
    expect(found).to_have_count(1)  # while the page is drawn anew, what it was may stand beside what it becomes
    found.click()
    expect(page.locator(".st-key-audit-part-changes ins", has_text=NAME)).to_be_visible()
    assert page.evaluate(SIDEWAYS) == []
    page.get_by_role("button", name="Clear all").click()
    field = page.get_by_role("textbox", name="Search all texts")
    field.fill(f'"{NAME}"')
    field.press("Enter")
    expect(page.locator(".audit-snippet mark").first).to_have_text(NAME)
    page.locator(".st-key-audit-view").get_by_text("Who received it").click()
    expect(page.locator(".st-key-audit-servers")).to_contain_text("openai at one.example")
    expect(page.locator(".st-key-audit-servers")).to_contain_text("1 call in 1 run")
    assert page.evaluate(SIDEWAYS) == []
    assert page.locator(".audit-snippet img, .audit-part img").count() == 0
    assert page.title() == "Conductor Inspector", "the text ran nothing"
