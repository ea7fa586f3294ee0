"""A run that waits, in a browser: what is asked, the decision, the edit, a second browser."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Locator, Page, expect

from conductor_core.run.request import RunRequest, read_gate
from conductor_core.workflow.model import Workflow
from tests.browser.conftest import App
from tests.support.fakes import workflow_of

OpenPage = Callable[..., Page]
PLAN = workflow_of(
    ("planner", "Plan: {question}", ()),
    ("reasoner", "Solve it.", (0,)),
    ("calculator", "Compute it.", (0,)),
    ("writer", "Say it.", (1, 2)),
)


def gated(app: App, *gates: str, workflow: Workflow = PLAN) -> str:
    asked = RunRequest(
        task="What is the chemical symbol of tungsten?", workflow=workflow, gates=tuple(map(read_gate, gates))
    )
    # Playwright's event loop has this thread; the engine is asked from another.
    with ThreadPoolExecutor(1) as aside:
        run_id = aside.submit(app.engine.start, asked).result()
        aside.submit(app.engine.wait, run_id, 60).result()
    return run_id


def banner(page: Page) -> Locator:
    return page.get_by_role("region", name="Approval")


def note(page: Page, words: str) -> None:
    """Writes a note. On a busy machine the page may be drawn once more under it, so it looks whether it stands."""
    field = page.get_by_label("Note for the record")
    field.fill(words)
    expect(field).to_have_value(words)


def approve(page: Page, what: str) -> None:
    page.get_by_role("button", name=f"Approve {what}", exact=True).click()


def status(page: Page) -> Locator:
    return page.locator(".bar .status")


def test_a_plan_is_approved_with_a_note_then_step_by_step_by_keyboard_and_the_record_says_so(
    app: App, open_page: OpenPage
) -> None:
    run_id = gated(app, "plan", "steps")
    page = open_page(app.run_url(run_id))
    expect(banner(page)).to_contain_text("the plan")
    expect(banner(page)).to_contain_text("before any worker is called")
    expect(banner(page)).to_contain_text("goes to simulated workers")
    expect(page).to_have_title(re.compile(r"^‖ \d+ waits? · "))
    # Letters of the field are no keys of the page.
    field = page.get_by_label("Note for the record")
    field.click()
    expect(field).to_be_focused()
    page.keyboard.type("a banana")
    expect(field).to_have_value("a banana")
    expect(field).to_be_focused()
    note(page, "looks <b>right</b>")
    approve(page, "the plan")

    expect(page.get_by_role("button", name="Approve step 0")).to_be_visible()
    expect(page.get_by_text("If you approve, exactly this is sent")).to_be_visible()
    expect(page.locator(".message pre").first).to_have_text("Plan: What is the chemical symbol of tungsten?")
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Approve both")).to_be_visible()
    page.locator(".pane .name").nth(2).click()
    approve(page, "step 2")
    expect(page.locator(".pane").nth(2)).to_contain_text(re.compile("✓"))
    assert app.store.read(run_id).steps[1].status == "waiting"
    page.get_by_role("button", name="Approve the rest").click()
    expect(status(page)).to_contain_text("4 of 4")

    page.get_by_role("button", name=re.compile("^Step 1")).first.click()
    decisions = page.locator(".decision")
    expect(decisions).to_have_text(re.compile("^✓ step 1 → reasoner approved, and all that follows, by .*, page, "))
    page.get_by_role("button", name="given plan · view").click()
    expect(decisions.first).to_have_text(re.compile("^✓ the plan approved by .*: looks <b>right</b>$"))
    plan, *_ = app.store.read(run_id).approvals
    assert (plan.status, plan.note) == ("granted", "looks <b>right</b>")
    assert plan.decided_by is not None
    assert plan.decided_by.door == "page"


def test_a_step_that_waits_is_edited_approved_in_a_second_browser_and_another_denied(
    app: App, open_page: OpenPage
) -> None:
    run_id = gated(app, "step:1", "step:3")
    first, second = open_page(app.run_url(run_id)), open_page(app.run_url(run_id))
    edit = first.get_by_role("button", name="Edit this step")
    first.get_by_role("button", name=re.compile("^Step 0")).first.click()
    first.get_by_role("tab", name="Edit").click()
    expect(edit).to_be_disabled()
    expect(first.get_by_text("This step has begun")).to_be_visible()
    first.get_by_role("button", name=re.compile("^Step 1")).first.click()
    edit.click()
    field = first.get_by_role("textbox", name="Instruction of step 1")
    expect(field).to_have_value("Solve it.")
    field.fill("Solve it thrice.")
    expect(first.locator(".edit-says")).to_contain_text("steps 0 and 2 have run and stay")
    expect(first.get_by_role("button", name="Use this plan")).to_be_enabled()
    expect(first.get_by_role("button", name="Approve step 1")).to_be_hidden()
    first.locator(".edit-actions").get_by_role("button", name="Discard").click()
    expect(first.get_by_role("button", name="Approve step 1")).to_be_visible()

    field.fill("Solve it twice.")
    expect(first.get_by_role("button", name="Use this plan")).to_be_enabled()
    first.get_by_role("button", name="Use this plan").click()
    for page in (first, second):
        expect(page.locator(".message pre").last).to_have_text("Solve it twice.")
    approve(second, "step 1")
    for page in (first, second):
        expect(page.get_by_role("button", name="Approve step 3")).to_be_visible()

    first.get_by_role("button", name="Deny").click()
    expect(first.get_by_label("Note for the record")).to_be_focused()
    first.keyboard.type("too dear")
    expect(first.get_by_label("Note for the record")).to_have_value("too dear")
    first.get_by_role("button", name="Deny").click()
    for page in (first, second):
        expect(status(page)).to_contain_text("Denied")
    expect(second.get_by_text(re.compile("step 3 was denied by .*, page: too dear")).first).to_be_visible()
    expect(first.locator(".pane .chip").nth(3)).to_contain_text("denied")
    trace = app.store.read(run_id)
    assert trace.steps[1].messages[-1].content == "Solve it twice."
    assert [approval.status for approval in trace.approvals] == ["replaced", "granted", "denied"]
