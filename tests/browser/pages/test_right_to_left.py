"""Arabic and Hebrew read from the right wherever a task, an instruction or an output stands, English from the left."""

import io
from collections.abc import Callable

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import App
from tests.browser.pages.conftest import Tell

OpenPage = Callable[..., Page]
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


def direction(part: Locator) -> str:
    return str(part.evaluate("part => getComputedStyle(part).direction"))


def ink(part: Locator) -> float:
    """Where the text stands in its field: the mean place of what is painted, from 0 (left) to 1 (right)."""
    picture = Image.open(io.BytesIO(part.screenshot())).convert("L")
    grey, width = picture.tobytes(), picture.width
    ground = grey[2 + (picture.height - 3) * width]
    painted = [place % width for place, value in enumerate(grey) if abs(value - ground) > 60]
    return sum(painted) / len(painted) / width


@pytest.mark.parametrize(("task", "output", "conclusion"), [ARABIC, HEBREW], ids=["Arabic", "Hebrew"])
def test_task_and_outputs_read_from_the_right(
    app: App, open_page: OpenPage, tell: Tell, task: str, output: str, conclusion: str
) -> None:
    page = open_page(app.run_url(tell(output, task=task)), width=1280, height=720)
    expect(page.locator(".conclusion")).to_have_text(conclusion)
    assert direction(page.locator(".conclusion")) == "rtl"
    pane = page.locator(".pane .prose")
    assert [direction(paragraph) for paragraph in pane.locator("p").all()] == ["rtl", "ltr", "rtl"]
    assert direction(pane.locator("ul")) == "rtl", "bullets stand on the right"
    page.get_by_role("tab", name="Output", exact=True).click()
    inspector = page.locator(".inspector .prose")
    assert direction(inspector.locator("p").first) == "rtl"
    box = page.get_by_label("Task", exact=True)
    expect(box).to_have_value(task)
    assert ink(box) > 0.5


def test_an_english_task_reads_from_the_left(app: App, open_page: OpenPage, tell: Tell) -> None:
    page = open_page(app.run_url(tell("W", task="What is the symbol of tungsten?")), width=1280, height=720)
    expect(page.locator(".conclusion")).to_have_text("W")
    assert direction(page.locator(".conclusion")) == "ltr"
    assert ink(page.get_by_label("Task", exact=True)) < 0.5


def test_an_instruction_reads_from_the_right_in_inspector_messages_and_editor(
    app: App, open_page: OpenPage, tell: Tell
) -> None:
    told = "أجب عن هذا السؤال بجملة واحدة."
    page = open_page(app.run_url(tell("القاهرة", task=ARABIC[0], instruction=told)), width=1280, height=720)
    expect(page.locator(".inspector .instruction")).to_have_text(told)
    assert direction(page.locator(".inspector .instruction")) == "rtl"
    page.get_by_role("tab", name="Messages").click()
    assert direction(page.locator(".inspector .message pre").first) == "rtl"
    page.get_by_role("tab", name="Edit").click()
    field = page.get_by_role("textbox", name="Instruction of step 0")
    expect(field).to_have_value(told)
    assert ink(field) > 0.5
