"""All of a long text: found, copied and kept from a dialog over the page, at megabytes, too."""

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from conductor_core.run.events import Event
from tests.browser.conftest import App, OpenPage, Tell, View, becomes, one_step

PARAGRAPH = "Paragraph {0} weighs **one more side** of it, with $x_{{{0}}}$, and goes on at some length."
LONG = "\n\n".join(PARAGRAPH.format(number) for number in range(2500)) + "\n\nThe Needle stands here.\n"
FOCUS = "() => { let at = document.activeElement; while (at?.shadowRoot) at = at.shadowRoot.activeElement; return at }"

SCROLLED_BEYOND = """
px => [...document.querySelectorAll("*")].some((each) => each.shadowRoot?.querySelector(".reader-body")?.scrollTop > px)
"""


def focused(page: Page) -> str | None:
    """What the focused element is called."""
    name = page.evaluate(f"() => {{ const at = ({FOCUS})(); return at?.ariaLabel || at?.textContent || null }}")
    assert name is None or isinstance(name, str)
    return name


def open_reader(page: Page) -> Locator:
    page.get_by_role("tab", name="Answer").click()
    page.get_by_role("button", name="Read all of the answer in full width").click()
    reader = page.locator("dialog.reader")
    expect(reader).to_be_visible()
    return reader


def test_a_long_answer_is_searched_copied_and_kept(app: App, open_page: OpenPage, tell: Tell, tmp_path: Path) -> None:
    assert len(LONG) > 200_000
    page = open_page("about:blank", width=1280, height=720)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(app.run_url(tell(LONG)))
    reader = open_reader(page)
    expect(reader.locator("p").first).to_contain_text("Paragraph 0 weighs one more side of it")
    expect(reader.locator("strong").first).to_have_text("one more side")
    page.keyboard.press("Control+f")
    page.keyboard.type("rR", delay=20)  # single letters are shortcuts of the page
    page.get_by_role("searchbox").fill("paragraph 2499")
    expect(reader.locator(".found")).to_have_text("1 of 1")
    last = reader.locator("p", has_text="Paragraph 2499")
    expect(last).to_be_in_viewport()
    page.get_by_role("searchbox").fill("one more side")
    expect(reader.locator(".found")).to_have_text("1 of 2,500")
    expect(reader.locator("p").first).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(reader.locator(".found")).to_have_text("2 of 2,500")
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    expect(reader.locator(".found")).to_have_text("2,500 of 2,500")
    expect(last).to_be_in_viewport()
    page.get_by_role("searchbox").fill("x_{1234}")
    expect(reader.locator(".found")).to_have_text("1 of 1")
    expect(reader.locator("p", has_text="Paragraph 1234")).to_be_in_viewport()
    page.get_by_role("searchbox").fill("nowhere")
    expect(reader.locator(".found")).to_have_text("none")
    reader.get_by_role("button", name="Copy all of it").click()
    assert becomes(page, "() => navigator.clipboard.readText()") == LONG
    for kind in ("md", "txt"):
        with page.expect_download() as download:
            reader.get_by_role("button", name=f"Save .{kind}").click()
        download.value.save_as(tmp_path / kind)
        assert download.value.suggested_filename.endswith(f".{kind}")
        assert (tmp_path / kind).read_bytes() == LONG.encode()
    page.keyboard.press("Escape")
    expect(reader).to_be_hidden()
    assert focused(page) == "Read all of the answer in full width"


WORDS = "a sentence that goes on and on, " * 40
EACH_KIND = (
    f"{WORDS}\n\n- {WORDS}\n\n> {WORDS}\n\n| a | b |\n|---|---|\n| {WORDS} | {WORDS} |\n\n```\n{'x' * 400}\n```\n"
)
WIDTHS = """(body) => {
    const { paddingLeft, paddingRight } = getComputedStyle(body)
    const inner = body.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight)
    const kinds = ["p", "ul", "blockquote", "table", "pre"]
    return kinds.map((kind) => [kind, body.querySelector(kind).getBoundingClientRect().width / inner])
}"""


def test_text_tables_and_code_are_as_wide_as_the_reader(view: View) -> None:
    reader = open_reader(view(one_step(f"{EACH_KIND}\n\n{LONG}")))
    expect(reader.locator("pre").first).to_be_attached()
    for kind, share in reader.locator(".reader-body").evaluate(WIDTHS):
        assert share == pytest.approx(1, abs=0.01), kind


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"line {number}: some output of a program, as it came" for number in range(60_000)),
        "word " * 600_000,
    ],
    ids=["lines", "one line"],
)
def test_three_megabytes_are_scrolled_and_searched(view: View, text: str) -> None:
    page = view(one_step(text, agent="real"))
    reader = open_reader(page)
    becomes(
        page,
        "() => { const all = document.querySelectorAll('*'); for (const each of all) { const body = "
        "each.shadowRoot?.querySelector('.reader-body'); if (body?.dataset.whole) return true } return false }",
    )
    box = reader.locator(".reader-body").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    for number in range(1, 6):
        page.mouse.wheel(0, 2500)
        becomes(page, SCROLLED_BEYOND, 2000 * number)
    page.get_by_role("searchbox").fill("59999" if "line" in text else "word")
    expect(reader.locator(".found")).to_have_text("1 of 1" if "line" in text else "1 of 600,000")


def test_a_step_is_read_from_its_pane_and_from_the_inspector(view: View) -> None:
    page = view(one_step('{"a": {"b": 1.0}}'))
    page.locator(".inspector").get_by_role("tab", name="Output").click()
    page.locator(".inspector").get_by_role("button", name="Show all of the output").click()
    expect(page.locator("dialog.reader pre")).to_have_text('{\n  "a": {\n    "b": 1.0\n  }\n}')
    page.keyboard.press("Escape")
    page.locator(".pane").hover()
    page.locator(".pane").get_by_role("button", name="Show all of the output of step 0").click()
    expect(page.locator("dialog.reader h2")).to_have_text("0 · scientist")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("dialog.reader")).to_be_hidden()


SEEN_TO_ITS_RIGHT = """
part => {
  const { right, top, bottom } = part.getBoundingClientRect()
  return part.contains(part.getRootNode().elementFromPoint(right - 8, (top + bottom) / 2))
}
"""


def test_the_buttons_of_a_pane_leave_its_head_free(view: View, ended: list[Event]) -> None:
    page = view(ended)
    pane = page.locator(".pane").nth(1)
    expect(pane.locator(".chip")).to_contain_text("s")
    pane.hover()
    expect(pane.locator(".pane-actions")).to_have_css("opacity", "1")
    for part in (".chip", ".figures", ".copy"):
        assert pane.locator(part).evaluate(SEEN_TO_ITS_RIGHT), part
    page.mouse.wheel(0, 3_000)
    scroller = pane.locator(".pane-body").element_handle()
    becomes(page, "part => part.scrollTop + part.clientHeight > part.scrollHeight - 1", scroller)
    last, buttons = pane.locator(".prose > :last-child").bounding_box(), pane.locator(".pane-actions").bounding_box()
    assert last is not None
    assert buttons is not None
    assert last["y"] + last["height"] <= buttons["y"] + 1, "the end of the text can be read"
