"""The Shadow page in Chromium: a row opens both answers, and one key judges the pair."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from conductor_core.run.request import PASS_PURPOSE, SHADOW_PURPOSE
from tests.browser.conftest import App, append
from tests.support.run_events import answered, created, planned, run_completed


def test_a_pair_is_judged_by_one_key(app: App, open_page: Callable[..., Page]) -> None:
    today, own = "shadow-page-today", "shadow-page-own"
    for run_id, purpose, about, said in ((today, PASS_PURPOSE, None, "41"), (own, SHADOW_PURPOSE, today, "42")):
        first = created(run_id, "Which number is it?", purpose=purpose, about_run_id=about)
        append(app, first, *planned(run_id), *answered(run_id, 0, said), run_completed(run_id, said))
    page = open_page(f"{app.url}/shadow", width=1280, height=720)
    expect(page.get_by_text("On 1 compared request the Conductor")).to_be_visible()
    page.get_by_role("button", name="Which number is it?").click()
    answers = page.locator(".shadow-answer-text")
    expect(answers).to_have_text(["41", "42"])
    page.keyboard.press("b")
    expect(page.locator(".pill.better")).to_be_visible()
    assert [(each.mark, each.compared_with) for each in app.store.judgements.of(own)] == [("better", today)]
