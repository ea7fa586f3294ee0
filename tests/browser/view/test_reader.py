"""All of a long text: found, copied and kept from a dialog over the page, at megabytes, too."""

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import App, OpenPage, Tell, View, becomes
from tests.support.run_events import one_step

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


MEGABYTES = {
    "59999": "\n".join(f"line {number}: some output of a program, as it came" for number in range(60_000)),
    "word": "word " * 600_000,
}
WHOLE = """
() => [...document.querySelectorAll("*")].some((each) => each.shadowRoot?.querySelector(".reader-body")?.dataset.whole)
"""


def test_three_megabytes_in_lines_and_in_one_line_are_scrolled_and_searched(view: View) -> None:
    for sought, text in MEGABYTES.items():
        page = view(one_step(text, agent="real"))
        reader = open_reader(page)
        becomes(page, WHOLE)
        box = reader.locator(".reader-body").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 100, box["y"] + 100)
        for number in range(1, 6):
            page.mouse.wheel(0, 2500)
            becomes(page, SCROLLED_BEYOND, 2000 * number)
        page.get_by_role("searchbox").fill(sought)
        expect(reader.locator(".found")).to_have_text("1 of 600,000" if sought == "word" else "1 of 1")
