"""A finished run played again, in a real browser: by keyboard alone, from a link, and without a jump."""

import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Locator, Page, expect

from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.request import new_run_id
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App, OpenPage, View, append, becomes, status
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

BEGAN = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
PLAN = Workflow(
    steps=(
        Step(instruction="Solve it.", agent="solver"),
        Step(instruction="Solve it otherwise.", agent="solver"),
        Step(instruction="Compare both.", agent="checker", access_list=(0, 1)),
    )
)
SHIFT = """
() => {
  window.shift = 0
  new PerformanceObserver((list) => {
    for (const { value } of list.getEntries()) window.shift += value
  }).observe({ type: "layout-shift" })
}
"""


def _step(run_id: str, index: int, output: str, at_ms: float) -> list[Event]:
    delta = ev.StepDelta(run_id=run_id, at_ms=at_ms + 200, path=(index,), text=output, output_tokens=3)
    return [step_started(run_id, index, at_ms), delta, step_completed(run_id, index, output, at_ms + 400)]


def run_of_seven_seconds(run_id: str, waited_s: float = 0.0) -> list[Event]:
    """Steps begin after 2, 4.5 and 6.5 s and take 0.4 s; the run takes 7 s, and it can wait before the third."""
    events = [
        created(run_id),
        *planned(run_id, PLAN, at_ms=1_500),
        *_step(run_id, 0, "forty-two", 2_000),
        *_step(run_id, 1, "42", 4_500),
        *_step(run_id, 2, "42, both ways", 6_500),
        run_completed(run_id, "42, both ways", at_ms=7_000),
    ]
    return [
        event.model_copy(
            update={
                "at_utc": BEGAN + timedelta(milliseconds=event.at_ms, seconds=waited_s if event.at_ms >= 6_500 else 0)
            }
        )
        for event in events
    ]


def _clock(page: Page) -> Locator:
    return page.locator(".replay-clock")


def _opened(page: Page) -> None:
    """Opens the replay by keyboard, and stands at its beginning."""
    opener = page.get_by_role("button", name=re.compile("^▶ Replay"))
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("group", name="Replay")).to_be_visible()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_focused()
    page.keyboard.press("Home")
    expect(_clock(page)).to_have_text("0:00.0 / 0:07.0")


def test_by_keyboard_alone_a_person_reaches_a_moment_and_comes_back(view: View) -> None:
    page = view(run_of_seven_seconds("r"))
    expect(status(page)).to_contain_text("Completed 3 of 3")
    before = page.locator(".bar").inner_text()
    _opened(page)
    expect(status(page)).to_contain_text("Running · planning")
    expect(page.locator(".pane")).to_have_count(0)
    for _ in range(3):  # the plan began, was written, step 0 began
        page.keyboard.press("ArrowRight")
    expect(page.locator('.pane[data-step="0"]')).to_have_attribute("data-status", "running")
    page.keyboard.press("ArrowRight")
    expect(page.locator('.pane[data-step="0"] .prose')).to_have_text("forty-two")
    expect(page.locator('.pane[data-step="2"]')).to_have_attribute("data-status", "waiting")
    expect(page.locator(".bar .tokens")).to_have_text("25 tokens")
    expect(page.locator(".bar .cost")).to_have_text("$0.5000")
    page.keyboard.press("ArrowLeft")
    expect(page.locator('.pane[data-step="0"]')).to_have_attribute("data-status", "running")
    page.keyboard.press("End")
    expect(status(page)).to_contain_text("Completed 3 of 3")
    expect(page.get_by_text("Replay", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("group", name="Replay")).to_be_hidden()
    expect(page.get_by_role("button", name=re.compile("^▶ Replay"))).to_be_focused()
    assert page.locator(".bar").inner_text() == before
    assert "at=" not in page.url


def test_space_plays_and_pauses_wherever_no_control_has_the_focus(view: View) -> None:
    page = view(run_of_seven_seconds("r"))
    _opened(page)
    page.locator(".moment").focus()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    expect(page.locator('.pane[data-step="0"] .prose')).to_have_text("forty-two")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.locator(".speed").select_option("20")
    page.locator(".moment").focus()
    page.keyboard.press("Space")
    expect(_clock(page)).to_have_text("0:07.0 / 0:07.0")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()


def test_a_wait_is_cut_and_the_page_says_so(view: View) -> None:
    page = view(run_of_seven_seconds("r", waited_s=3600), "#at=0")
    expect(_clock(page)).to_have_text("0:00.0 / 0:08.4")
    expect(page.locator(".replay-cut")).to_have_text("pauses cut to 3 s")
    expect(page.locator(".replay-cut")).to_have_attribute("title", re.compile("59 min 59 s"))


def test_a_replay_in_the_app_has_a_link_offers_no_change_and_moves_nothing(app: App, open_page: OpenPage) -> None:
    run_id = new_run_id()
    append(app, *run_of_seven_seconds(run_id)[:-1])
    page = open_page(f"{app.run_url(run_id)}&at=1", width=1280, height=720)
    # A run that goes on is not played; then it ends.
    expect(status(page)).to_contain_text("Running 3 of 3")
    expect(page.get_by_role("button", name=re.compile("^▶ Replay"))).to_be_hidden()
    append(app, run_of_seven_seconds(run_id)[-1])
    expect(_clock(page)).to_have_text("0:01.0 / 0:07.0")

    page.goto(f"{app.run_url(run_id)}&at=5")
    expect(_clock(page)).to_have_text("0:05.0 / 0:07.0")
    expect(page.locator('.pane[data-step="1"] .prose')).to_have_text("42")
    expect(page.locator('.pane[data-step="2"]')).to_have_attribute("data-status", "slot")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.locator(".moment").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile(r"at=4\.9$"))
    page.reload()
    expect(_clock(page)).to_have_text("0:04.9 / 0:07.0")
    page.goto(page.url.replace("4.9", "soon"))
    page.wait_for_url(lambda url: "at=" not in url)
    expect(status(page)).to_contain_text("Completed")

    expect(page.locator(".timeline-row")).to_have_count(4)
    page.evaluate(SHIFT)
    place = page.locator(".map").bounding_box()
    height = page.locator(".live-workflow").bounding_box()
    _opened(page)
    for name in ("Change a step", "Share", "Cancel"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()
    for key in ("Home", *["ArrowRight"] * 9):
        page.keyboard.press(key)
        becomes(
            page, "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
        )
        assert page.locator(".map").bounding_box() == place
    assert page.locator(".live-workflow").bounding_box() == height
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Change a step")).to_be_visible()
    assert page.evaluate("window.shift") < 0.02
