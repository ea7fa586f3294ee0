"""Formulas and tables as models write them: drawn, and copied as they were written.

What is a formula is in ``tests/js/drawn_formulas.test.js``.
"""

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import App, OpenPage, Tell, View, becomes
from tests.support.run_events import one_step

ROOT = Path(__file__).parents[3]
FORMULAS = [
    json.loads(line)["formula"]
    for line in (ROOT / "tests" / "support" / "formulas.jsonl").read_text(encoding="utf-8").splitlines()[1:]
]
# The shortest: an answer of more than 40,000 characters is shown in part.
TABLES = sorted(
    (
        table.rstrip("\n")
        for page in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE)
    ),
    key=len,
)[:50]

# Selects each part as a person would by dragging over it, copies, and gives what came to the clipboard.
COPIES = """
([parts, from, end]) => {
  const hosts = [...document.querySelectorAll("*")].filter((each) => each.shadowRoot?.querySelector(".live-workflow"))
  const copied = []
  const listen = (event) => copied.push(event.clipboardData.getData("text/plain"))
  document.addEventListener("copy", listen)
  const selection = hosts[0].shadowRoot.getSelection?.() ?? document.getSelection()
  for (const part of [...hosts[0].shadowRoot.querySelectorAll(parts)].slice(from, end)) {
    const range = document.createRange()
    range.selectNodeContents(part)
    selection.removeAllRanges()
    selection.addRange(range)
    document.execCommand("copy")
  }
  document.removeEventListener("copy", listen)
  return copied
}
"""


def copies(page: Page, parts: str) -> list[str]:
    """In batches: a page may copy only for some seconds after a person did something."""
    copied: list[str] = []
    while batch := page.evaluate(COPIES, [parts, len(copied), len(copied) + 20]):
        copied += batch
    return copied


def output(view: View, answer: str) -> Page:
    """Shows a run with that answer, and all of its output."""
    page = view(one_step(answer), width=1440, height=1100)
    page.locator(".inspector").get_by_role("tab", name="Output").click()
    return page


def test_200_real_formulas_are_drawn_and_with_50_tables_copied_as_they_were_written_and_hostile_ones_are_inert(
    view: View,
) -> None:
    answer = "\n\n".join(f"Formula {number}: {formula} stands here." for number, formula in enumerate(FORMULAS))
    page = output(view, answer)
    prose = page.locator(".inspector .prose")
    assert len(set(FORMULAS)) == 200
    expect(prose.locator(".formula")).to_have_count(200)
    expect(prose.locator(".formula.source")).to_have_count(0)
    expect(prose.locator(".formula .katex")).to_have_count(200)
    assert copies(page, ".inspector .formula") == FORMULAS
    assert copies(page, ".inspector .prose") == [answer]

    answer = "\n\n".join(f"Table {number}:\n\n{table}" for number, table in enumerate(TABLES))
    page = output(view, answer)
    expect(page.locator(".inspector .prose table")).to_have_count(50)
    assert copies(page, ".inspector .prose table") == TABLES
    assert copies(page, ".inspector .prose") == [answer]
    _hostile_formulas_are_inert_and_show_their_source(view)


HOSTILE = {
    "link": "\\(\\href{https://evil.example/}{x}\\)",
    "image": "\\(\\includegraphics[width=9em]{https://evil.example/x.png}\\)",
    "class": "\\(\\htmlClass{outcome}{x}\\)",
    "style": "\\(\\htmlStyle{position: fixed; inset: 0}{x}\\)",
    "bomb": "\\(\\def\\a{\\b\\b\\b\\b\\b\\b\\b\\b}\\def\\b{\\c\\c\\c\\c\\c\\c\\c\\c}\\def\\c{xxxxx}\\a\\a\\)",
    "loop": "\\(\\def\\a{\\a x}\\a\\)",
    "deep": "\\(" + "{" * 2400 + "x" + "}" * 2400 + "\\)",
    "roots": "\\(" + "\\sqrt{" * 600 + "x" + "}" * 600 + "\\)",
    "long": "\\[" + "x_1 + " * 2000 + "y\\]",
    "broken": "\\(\\frac{1}{\\)",
    "unknown": "\\(\\notacommand{x}\\)",
    "markup": "\\(<img src=x onerror=window.pwned=1>\\text{</span><script>window.pwned=1</script>}\\)",
}


def test_the_app_brings_katex_once_there_is_a_formula_and_copies_an_answer_byte_for_byte(
    app: App, open_page: OpenPage, tell: Tell
) -> None:
    page = open_page("about:blank")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(app.run_url(tell("It costs $5 and $10.")))
    expect(page.locator(".pane .prose")).to_contain_text("$5 and $10")
    assert [url for url in asked if "katex" in url] == []
    answer = "\r\n\r\n".join([*FORMULAS[:40], *TABLES[:10], '{"a":1.0,"a":12345678901234567890}', "tail \u200b end \n"])
    page.goto(app.run_url(tell(answer)))
    page.get_by_role("tab", name="Answer").click()
    expect(page.locator(".answer-body .katex").first).to_be_visible()
    page.get_by_role("button", name="Copy the answer").click()
    assert becomes(page, "() => navigator.clipboard.readText()") == answer
    assert [url for url in asked if "katex.min.js" in url]
    assert [url for url in asked if not url.startswith((app.url, "data:", "blob:"))] == []


def _hostile_formulas_are_inert_and_show_their_source(view: View) -> None:
    page = output(view, "\n\n".join([*HOSTILE.values(), "$\\rule{900em}{900em}$", "Fine: $x^2$."]))
    prose = page.locator(".inspector .prose")
    expect(prose.locator(".formula").last.locator(".katex")).to_be_visible()
    sources = prose.locator(".formula").evaluate_all("parts => parts.map((part) => part.dataset.source)")
    assert sources[: len(HOSTILE)] == list(HOSTILE.values())
    shown = prose.locator(".formula.source").evaluate_all("parts => parts.map((part) => part.textContent)")
    refused = ("link", "image", "class", "style", "bomb", "loop", "long", "broken", "unknown")
    assert [HOSTILE[name] for name in refused if HOSTILE[name] not in shown] == []
    assert prose.locator("a, img, script, .outcome").count() == 0
    assert page.evaluate("window.pwned") is None
    box, panel = prose.bounding_box(), page.locator(".inspector").bounding_box()
    assert box is not None
    assert panel is not None
    assert box["width"] <= panel["width"]
