"""The main job in a real browser: a task in, a workflow drawn and run, changed and run again."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from conductor_core.rehearsal import EXAMPLES
from conductor_core.workflow.parser import parse_workflow_file
from tests.browser.conftest import (
    App,
    Make,
    at_rest,
    begin_by_menu,
    begin_here,
    run_of,
    start,
    status,
)

OpenPage = Callable[..., Page]
TASK_FIELD = "Task"
OFFERS = next(example.task for example in EXAMPLES if example.title == "Which of three offers is cheapest?")
PANES_WIDE_PX, MOST_MOVED_PX = 800, 16
# Keeps which parts moved, from where to where. A move that follows a person's input is theirs.
MOVES = """
window.moves = []
new PerformanceObserver((list) => {
  for (const { hadRecentInput, sources } of list.getEntries()) {
    if (hadRecentInput) continue
    for (const { previousRect, currentRect } of sources) {
      window.moves.push({ width: previousRect.width, from: previousRect.y, to: currentRect.y })
    }
  }
}).observe({ type: "layout-shift" })
"""
# Sums all shifts, also those that follow a person's press.
SHIFT = """
window.shifted = 0
new PerformanceObserver((list) => {
  for (const { value } of list.getEntries()) window.shifted += value
}).observe({ type: "layout-shift" })
"""


def test_by_keyboard_alone_a_task_is_planned_drawn_streamed_answered_and_its_steps_opened(
    app: App, open_page: OpenPage
) -> None:
    page = open_page(app.url, width=1280, height=720)
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    _tab_to(page, "document.activeElement?.getAttribute('aria-label') === 'Task'")
    page.keyboard.type(OFFERS)
    page.evaluate(MOVES)
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile("run="))
    expect(page.locator(".plan-button")).to_contain_text("plan by tiny")
    expect(page.locator('.pane[data-status="running"] .prose.streaming').first).to_be_visible()
    expect(status(page)).to_contain_text("Completed")
    trace = run_of(page, app)
    assert trace.conductor is not None
    assert trace.conductor.name == "tiny"
    expect(page.locator(".pane")).to_have_count(len(list(trace.walk())))
    expect(page.locator(".bar .title")).to_have_text("Answer")
    expect(page.get_by_text("critical path").first).to_be_attached()
    expect(page.locator(".timeline-row")).to_have_count(len(list(trace.walk())) + 1)
    expect(page.get_by_label(TASK_FIELD)).to_have_value(OFFERS)
    assert len(trace.root.steps) == 4, "three steps side by side need more height than the graph has before the plan"
    for move in page.evaluate("window.moves"):
        assert move["width"] < PANES_WIDE_PX or move["to"] - move["from"] <= MOST_MOVED_PX, move
    _tab_to(page, "deepest().dataset?.step !== undefined && deepest().closest('.twin') !== null")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.locator(".inspector h3")).to_be_focused()
    expect(page.locator(".inspector h3")).to_contain_text("Step 0")


def test_two_of_five_steps_run_again_three_are_reused_and_nothing_moves(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    source = make_run()
    page = open_page(app.run_url(source.run_id), width=1280, height=720)
    expect(status(page)).to_contain_text("Completed 5 of 5")
    page.get_by_label(re.compile("Step 3, verifier")).click()
    page.get_by_role("tab", name="Edit").click()
    expect(page.get_by_role("textbox", name="Instruction of step 3")).to_be_in_viewport()
    page.get_by_label(re.compile("Step 1, reasoner")).click()
    expect(page.get_by_role("textbox", name="Instruction of step 1")).to_be_visible()
    expect(page.get_by_role("textbox", name="Instruction of step 3")).to_have_count(0)  # its old field is gone
    page.get_by_label(re.compile("Step 3, verifier")).click()
    page.get_by_role("textbox", name="Instruction of step 3").fill("Check both results in another way: {question}")
    expect(start(page)).to_contain_text("Re-run 2 steps")
    expect(page.locator(".edit-says")).to_contain_text("3 and 4 run again")
    expect(page.locator(".edit-says")).to_contain_text("0, 1 and 2 reused")
    at_rest(page)
    before = page.locator(".map").bounding_box()
    page.evaluate(SHIFT)
    start(page).click()
    page.wait_for_url(lambda url: source.run_id not in url)
    expect(status(page)).to_contain_text("Completed 5 of 5")
    related = page.get_by_role("group", name="Related runs")
    expect(related).to_contain_text("edited")
    assert page.locator(".map").bounding_box()["y"] == before["y"]  # type: ignore[index]  # both are seen
    assert page.evaluate("window.shifted") < 0.02
    expect(page.locator('.pane[data-status="reused"]')).to_have_count(3)
    expect(page.locator('.pane[data-status="completed"]')).to_have_count(2)
    trace = run_of(page, app)
    assert [step.output for step in trace.steps[:3]] == [step.output for step in source.steps[:3]]
    where = page.locator('.pane[data-step="1"]').get_by_role("link")
    expect(where).to_have_attribute("href", f"?run={source.run_id}")
    related.get_by_role("button", name="Re-run").click()
    page.wait_for_url(re.compile(source.run_id))
    expect(page.locator('.pane[data-status="completed"]')).to_have_count(5)
    expect(related).to_contain_text("Re-run just now")


def test_an_example_is_planned_only_then_changed_then_run(app: App, open_page: OpenPage) -> None:
    page = open_page(app.url)
    page.get_by_label(TASK_FIELD).fill(EXAMPLES[0].task)
    begin_by_menu(page, "Plan only")
    expect(status(page)).to_contain_text("Plan")
    planned = run_of(page, app)
    # The editor opens at the step that is selected.
    page.get_by_label(re.compile("Step 0, ")).click()
    page.get_by_role("button", name="Change a step").click()
    page.get_by_role("textbox", name="Instruction of step 0").fill("Answer in one word: {question}")
    page.get_by_role("textbox", name="Instruction of step 0").blur()
    expect(page.locator(".edit-title:visible")).to_contain_text("instruction of step 0 edited")
    page.get_by_role("button", name="Export plan").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Workflow file (JSON)").click()
    file = parse_workflow_file(saved.value.path().read_text("utf-8"))
    assert (file.task, file.faults) == (planned.task, ())
    assert [step.instruction for step in file.steps or ()] == ["Answer in one word: {question}"]
    # Simulated workers cannot be called by a script, and the menu says so.
    expect(page.get_by_role("button", name="Script for LangGraph")).to_be_disabled()
    expect(page.get_by_text("No script: step 0")).to_contain_text("is simulated")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    start(page).click()
    expect(status(page)).to_contain_text("Completed")
    trace = run_of(page, app)
    assert trace.parent_run_id == planned.run_id
    assert trace.steps[0].instruction == "Answer in one word: {question}"


def test_a_run_is_cancelled_and_taken_up_again(app: App, open_page: OpenPage, make_run: Make) -> None:
    page = open_page("about:blank")
    begin_here(page, app, make_run(plan_only=True))
    expect(page.locator('.pane[data-step="0"]')).to_have_attribute("data-status", "completed")
    place = page.locator(".live-workflow").bounding_box()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(status(page)).to_contain_text("Cancelled")
    cancelled = run_of(page, app)
    assert cancelled.steps[0].status == "completed"
    expect(page.locator(".bar")).to_contain_text("Cancelled from this page")
    elsewhere = open_page(app.run_url(cancelled.run_id))
    expect(elsewhere.locator(".bar")).to_contain_text("Cancelled from a page of the inspector")
    resume = page.get_by_role("button", name="Resume")
    expect(resume).to_be_visible()
    now = page.locator(".live-workflow").bounding_box()
    assert place is not None
    assert now is not None
    assert (now["x"], now["y"]) == (place["x"], place["y"]), "nothing jumps at the end"
    resume.click()
    page.wait_for_url(lambda url: cancelled.run_id not in url)
    expect(status(page)).to_contain_text("Completed 5 of 5")
    resumed = run_of(page, app)
    assert (resumed.resumed, resumed.parent_run_id) == (True, cancelled.run_id)
    assert resumed.steps[0].status == "reused"
    assert resumed.steps[0].output == cancelled.steps[0].output


def test_a_page_that_stays_open_offers_to_resume_once_a_killed_server_is_back(
    start_app: Callable[..., contextlib.AbstractContextManager[App]], open_page: OpenPage, tmp_path: Path
) -> None:
    with start_app(tmp_path, rehearsal_tokens_per_s=5) as first:
        page = open_page(first.url)
        page.get_by_role("button", name="When does the train arrive?").click()
        expect(page.get_by_label(TASK_FIELD)).to_have_value(re.compile("train"))
        page.locator(".st-key-run button").click()
        expect(page.locator('.pane[data-status="running"] .prose.streaming').first).to_be_visible()
        first.process.kill()
        first.process.wait()
    with start_app(tmp_path, port=urlsplit(first.url).port, rehearsal_tokens_per_s=0) as second:
        expect(status(page)).to_contain_text("Interrupted")
        interrupted = run_of(page, second)
        page.get_by_role("button", name=re.compile("Resume|Run again")).click()
        page.wait_for_url(lambda url: interrupted.run_id not in url)
        expect(status(page)).to_contain_text("Completed")
        assert run_of(page, second).resumed


def _tab_to(page: Page, found: str) -> None:
    deepest = "const deepest = () => { let e = document.activeElement; while (e?.shadowRoot?.activeElement) "
    deepest += "e = e.shadowRoot.activeElement; return e }"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"() => {{ {deepest}; return {found} }}"):
            return
    pytest.fail(f"60 tabs did not lead to where {found}")
