"""The answer as a browser lays it out: its value large, all of it in one column over the page, from the right or left.

What is said in place of an answer is in ``tests/js/answer.test.js``.
"""

import pytest
from playwright.sync_api import FloatRect, Locator, expect

from conductor_core.run.events import Event
from tests.browser.conftest import View
from tests.support.run_events import one_step

WORDS = "a sentence that goes on and on, " * 40
EACH_KIND = (
    f"{WORDS}\n\n- {WORDS}\n\n> {WORDS}\n\n| a | b |\n|---|---|\n| {WORDS} | {WORDS} |\n\n```\n{'x' * 400}\n```\n"
)
LONG = "\n\n".join(
    f"Paragraph {number} weighs one more side of it, at some length, and goes on." for number in range(40)
)
WIDTHS = """(body) => {
    const { paddingLeft, paddingRight } = getComputedStyle(body)
    const inner = body.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight)
    const kinds = ["p", "ul", "blockquote", "table", "pre"]
    return kinds.map((kind) => [kind, body.querySelector(kind).getBoundingClientRect().width / inner])
}"""


def box(part: Locator) -> FloatRect:
    found = part.bounding_box()
    assert found is not None
    return found


def direction(part: Locator) -> str:
    return str(part.evaluate("part => getComputedStyle(part).direction"))


def test_the_value_is_large_and_the_text_is_read_from_its_start_in_one_column_over_the_page(
    view: View, ended: list[Event]
) -> None:
    page = view(ended)
    conclusion, body = page.locator(".conclusion"), page.locator(".answer-body")
    expect(conclusion).to_have_text("13:37")
    assert conclusion.evaluate("part => parseFloat(getComputedStyle(part).fontSize)") >= 24
    assert box(page.locator(".bar"))["height"] <= 70
    page.get_by_role("tab", name="Answer").click()
    placed = "part => [part.scrollLeft, part.scrollTop, getComputedStyle(part).columnCount]"
    assert body.evaluate(placed) == [0, 0, "auto"]
    first = body.locator(".prose > *").first
    assert box(body)["y"] <= box(first)["y"] < box(body)["y"] + 20, "the text is seen from its first line"

    page = view(one_step(f"{LONG}\n\n{EACH_KIND}"))
    page.get_by_role("tab", name="Answer").click()
    before = box(page.locator(".bar"))
    page.get_by_role("button", name="Read all of the answer in full width").click()
    reader = page.locator("dialog.reader")
    paragraphs = reader.locator(".reader-part > p")
    expect(paragraphs).to_have_count(41)
    lefts = paragraphs.evaluate_all("parts => parts.map((part) => part.getBoundingClientRect().left)")
    assert len(set(lefts)) == 1, "never columns"
    for kind, share in reader.locator(".reader-body").evaluate(WIDTHS):
        assert share == pytest.approx(1, abs=0.01), kind
    page.keyboard.press("Escape")
    expect(reader).to_be_hidden()
    assert box(page.locator(".bar")) == before
    for told in (ARABIC, HEBREW):
        _reads_from_the_right(view, *told)


ARABIC = (
    "ما هي عاصمة مصر؟",
    "القاهرة عاصمة مصر وأكبر مدنها.\n\n- تقع على ضفاف النيل\n- فيها متاحف كثيرة\n\n"
    "The end is in English.\n\n**الإجابة: القاهرة**",
    "القاهرة",
)
HEBREW = (
    "מהי בירת ישראל?",
    "ירושלים היא בירת ישראל.\n\n- היא בהרים\n- היא עתיקה\n\nThe end is in English.\n\nהתשובה היא ירושלים.",
    "ירושלים",
)


def _reads_from_the_right(view: View, task: str, output: str, conclusion: str) -> None:
    page = view(one_step(output, task=task, instruction=task))
    expect(page.locator(".conclusion")).to_have_text(conclusion)
    assert direction(page.locator(".conclusion")) == "rtl"
    pane = page.locator(".pane .prose")
    assert [direction(paragraph) for paragraph in pane.locator("p").all()] == ["rtl", "ltr", "rtl"]
    assert direction(pane.locator("ul")) == "rtl", "bullets stand on the right"
    assert direction(page.locator(".inspector .instruction")) == "rtl"
    page.get_by_role("tab", name="Output", exact=True).click()
    assert direction(page.locator(".inspector .prose p").first) == "rtl"
    page.get_by_role("tab", name="Messages").click()
    assert direction(page.locator(".inspector .message pre").first) == "rtl"
