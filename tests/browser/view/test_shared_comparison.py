"""One file of a comparison, opened from the disk with the network off: it shows the differences and fetches nothing."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from conductor_core.run.events import Event
from conductor_core.run.redaction import Redactor
from conductor_core.run.share import read_shared
from conductor_core.workflow.model import Step, Workflow
from pages.components.compare.view import shared_comparison
from tests.browser.conftest import App, OpenFile, Tell
from tests.browser.view.test_shared_file import hostile_run
from tests.support.run_events import created, planned, run_completed, step_completed, step_started


def told(run_id: str, answer: str, *, sees: tuple[int, ...] = ()) -> list[Event]:
    steps = (
        Step(instruction="Solve it.", agent="solver"),
        Step(instruction="Check.", agent="checker", access_list=sees),
    )
    events = [created(run_id), *planned(run_id, Workflow(steps=steps))]
    for at, output in enumerate(("It is 42.", answer)):
        events += [step_started(run_id, at, 30 + 20 * at), step_completed(run_id, at, output, 40 + 20 * at)]
    return [*events, run_completed(run_id, answer, at_ms=100)]


def test_runs_are_a_table_each_is_compared_with_the_first_and_hostile_strings_do_nothing(open_file: OpenFile) -> None:
    runs = [told("a", "The answer is 42."), told("b", "The answer is 41.", sees=(0,)), told("c", "The answer is 42.")]
    runs.append(hostile_run("d"))
    page, asked = open_file(shared_comparison([(events, {}) for events in runs], Redactor()), dark=True)
    expect(page.locator("body > header")).to_contain_text("An unsigned copy")
    with_b, with_c, with_d = (page.get_by_role("button", name=f"A with {name}") for name in "BCD")
    expect(with_b).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".compared-headline")).to_contain_text("step 1 also reads step 0")
    changed = page.locator('.compared-row[data-step="1"] .text.together')
    expect(changed.last.locator("del")).to_have_text("42")
    expect(changed.last.locator("ins")).to_have_text("41")
    with_c.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".compared-below")).to_have_text("Below: run A, and run C as B.")
    expect(page.locator(".compared-headline")).to_contain_text("Both have the same plan.")
    page.get_by_role("button", name="Only differences").click()
    expect(page.get_by_text("No step differs.")).to_be_visible()
    with_d.click()
    expect(page.locator(".compared-row:not(.head)")).to_have_count(12)
    page.get_by_role("button", name="Side by side").click()
    page.locator('.twin [data-step="3"]').click()
    assert page.evaluate("window.pwned") is None
    tags = ["script", "img", "iframe", "style", "object", "embed", "video", "form", "link", "base", "a"]
    assert [tag for tag in (*tags, "svg image") if page.locator(f".compared {tag}").count()] == []
    assert page.locator("a[href]").count() == 0, "there is no page to lead to"
    assert asked == []


def test_a_person_saves_it_from_the_compare_page(
    app: App, open_page: Callable[..., Page], open_file: OpenFile, tell: Tell, tmp_path: Path
) -> None:
    ids = tell("It is seven, says Ada.", task="To share"), tell("It is eight, says Ada.", task="To share")
    page = open_page(f"{app.url}/compare?a={ids[0]}&b={ids[1]}", width=1280, height=720)
    expect(page.locator(".compared-headline")).to_be_visible()
    page.get_by_role("button", name="Share", exact=True).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Share this comparison")
    dialog.get_by_label("Hide these words").fill("ADA\n")
    with page.expect_download() as saving:
        dialog.get_by_role("button", name="Download").click()
    file = tmp_path / "saved.html"
    saving.value.save_as(file)
    assert saving.value.suggested_filename == f"comparison-{ids[0]}-{ids[1]}.html"
    text = file.read_text(encoding="utf-8")
    assert [told.run_id for told, _, _ in read_shared(text, "file")] == list(ids)
    expect(dialog).to_be_hidden()
    opened, asked = open_file(text)
    expect(opened.locator(".compared-answer").first).to_contain_text("It is seven, says [redacted]")
    expect(opened.locator('.compared-row[data-step="0"] ins').first).to_have_text(re.compile("eight"))
    assert asked == []
