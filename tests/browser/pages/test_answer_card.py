"""The bar: the value of the answer, large and first; or why there is none and what to do. The tab has all of it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect

from tests.browser.conftest import App
from tests.browser.pages.conftest import Make, Tell, status

OpenPage = Callable[..., Page]
SIZES = [(1280, 720), (1440, 900)]
LONG = "\n\n".join(
    f"Paragraph {number} weighs one more side of it, at some length, and goes on." for number in range(40)
)
CODE = (
    "**Answer:**\n\n```python\ndef merge_bookings(spans):\n    return sorted(spans)\n```\n\n— coder, simulated (ab12cd)"
)
UNKNOWN_TASK = "How tall is my neighbour's dog?"


def box(part: Locator) -> FloatRect:
    found = part.bounding_box()
    assert found is not None
    return found


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_conclusion_stands_first_and_large_and_the_text_begins_at_its_start(
    app: App, open_page: OpenPage, make_run: Make, width: int, height: int
) -> None:
    page = open_page(app.run_url(make_run().run_id), width=width, height=height)
    conclusion, body = page.locator(".conclusion"), page.locator(".answer-body")
    expect(conclusion).to_have_text("13:37")
    assert conclusion.evaluate("part => parseFloat(getComputedStyle(part).fontSize)") >= 24
    expect(page.locator(".bar .sentence")).to_contain_text("13:37")
    assert box(page.locator(".bar"))["height"] <= 70
    page.get_by_role("tab", name="Answer").click()
    assert body.evaluate("part => [part.scrollLeft, part.scrollTop, getComputedStyle(part).columnCount]") == [
        0,
        0,
        "auto",
    ]
    first = body.locator(".prose > *").first
    assert box(body)["y"] <= box(first)["y"] < box(body)["y"] + 20, "the text is seen from its first line"
    expect(page.locator(".bar")).to_have_class("card bar answered")


def test_all_of_a_long_answer_is_read_over_the_page_in_one_column(app: App, open_page: OpenPage, tell: Tell) -> None:
    page = open_page(app.run_url(tell(LONG)), width=1280, height=720)
    expect(page.locator(".bar .sentence")).to_have_text(
        "Paragraph 0 weighs one more side of it, at some length, and goes on."
    )
    expect(page.locator(".answer-body")).to_be_visible()
    expect(page.locator(".answer-body p").last).to_contain_text("Paragraph 39")
    expect(page.locator(".conclusion")).to_be_hidden()
    expect(page.locator(".bar .title")).to_be_hidden()
    before = box(page.locator(".bar"))
    page.get_by_role("button", name="Read all of the answer").click()
    paragraphs = page.locator("dialog.reader p")
    expect(paragraphs).to_have_count(40)
    lefts = paragraphs.evaluate_all("parts => parts.map((part) => part.getBoundingClientRect().left)")
    assert len(set(lefts)) == 1, "never columns"
    page.keyboard.press("Escape")
    expect(page.locator("dialog.reader")).to_be_hidden()
    assert box(page.locator(".bar")) == before


def test_an_answer_of_code_is_named_by_its_function(app: App, open_page: OpenPage, tell: Tell) -> None:
    page = open_page(app.run_url(tell(CODE, task="Write merge_bookings(spans).")), width=1280, height=720)
    expect(page.locator(".conclusion")).to_have_text("merge_bookings(spans)")
    page.get_by_role("tab", name="Answer").click()
    expect(page.locator(".answer-body")).to_contain_text("return sorted(spans)")


def test_a_short_answer_is_not_said_twice(app: App, open_page: OpenPage, tell: Tell) -> None:
    page = open_page(app.run_url(tell("W")), width=1280, height=720)
    expect(page.locator(".conclusion")).to_have_text("W")
    expect(page.locator(".bar .sentence")).to_be_hidden()
    expect(page.locator(".panes")).to_be_visible()


def test_a_simulated_worker_that_cannot_answer_is_amber_and_leads_to_real_ones(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    run = make_run(("reasoner", "Answer this: {question}", ()), task=UNKNOWN_TASK)
    page = open_page(app.run_url(run.run_id), width=1280, height=720)
    card = page.locator(".bar")
    expect(card).to_have_class("card bar declined")
    expect(card.locator(".title")).to_have_text("No answer")
    expect(card.locator(".conclusion")).to_have_text("Simulated workers know the example tasks only.")
    expect(card.locator(".hint")).to_contain_text("The plan and what each step saw are real.")
    amber = "part => getComputedStyle(part).borderTopColor === getComputedStyle(part.querySelector('.title')).color"
    assert card.evaluate(amber)
    expect(status(page)).to_contain_text("Not answered")
    expect(status(page)).to_have_css("color", card.locator(".title").evaluate("part => getComputedStyle(part).color"))
    card.get_by_role("button", name="Choose real workers").click()
    expect(page.locator(".st-key-who-answers")).to_contain_text("Who should answer this?")


def test_a_real_worker_that_refuses_is_amber_in_its_own_words(app: App, open_page: OpenPage, tell: Tell) -> None:
    run_id = tell("I'm sorry, but I can't help with that. Please ask about something else.", agent="real")
    page = open_page(app.run_url(run_id), width=1280, height=720)
    expect(page.locator(".bar")).to_have_class("card bar declined")
    expect(page.locator(".conclusion")).to_have_text("I'm sorry, but I can't help with that.")
    expect(page.locator(".bar .hint")).to_contain_text("another worker under Change a step")
    expect(page.get_by_role("button", name="Choose real workers")).to_be_hidden()


@pytest.mark.parametrize(
    ("answer", "finish", "title", "hint"),
    [
        ("", {}, "No answer", "another worker"),
        ("The legs are", {"incomplete": True, "finish_reason": "length"}, "Answer, cut off", "max_tokens"),
    ],
)
def test_an_empty_or_cut_answer_says_so(
    app: App, open_page: OpenPage, tell: Tell, answer: str, finish: dict[str, object], title: str, hint: str
) -> None:
    page = open_page(app.run_url(tell(answer, agent="real", **finish)), width=1280, height=720)
    expect(page.locator(".bar")).to_have_class("card bar declined")
    expect(page.locator(".bar .title")).to_have_text(title)
    expect(page.locator(".bar .hint")).to_contain_text(hint)


def test_products_and_json_stand_as_they_were_written(app: App, open_page: OpenPage, tell: Tell) -> None:
    page = open_page(app.run_url(tell("2*3*4 = 24")))
    expect(page.locator(".conclusion")).to_have_text("2*3*4 = 24")
    text = "First *x* is 2*3*4, then x**2 + y**2 = **z**, and **2*3**, (a+b)*c*(d); **bold**er.\n\nAnswer: 24"
    page.goto(app.run_url(tell(text)))
    shown = page.locator(".pane .prose p").first
    expect(shown).to_have_text("First x is 2*3*4, then x**2 + y**2 = z, and 2*3, (a+b)*c*(d); bolder.")
    expect(shown.locator("em")).to_have_text(["x"])
    expect(shown.locator("strong")).to_have_text(["z", "2*3", "bold"])
    page.goto(
        app.run_url(tell('{"name": "Ada_L_", "note": "x_y *b* **c**", "more": [1, 2, 3], "and": "so that it is long"}'))
    )
    expect(page.locator(".conclusion")).to_contain_text('"note": "x_y *b* **c**"')
