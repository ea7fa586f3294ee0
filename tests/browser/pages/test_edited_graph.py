"""While a plan is edited the graph draws the edited plan: what is painted, and the same for who does not see it."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from conductor_core.run.trace import RunTrace
from tests.browser.conftest import App, Make, becomes, line, of_edit, run_of, start, status

OpenPage = Callable[..., Page]
PLAN = (
    ("planner", "Break the journey into legs: {question}", ()),
    ("reasoner", "Solve each leg, following the plan: {question}", (0,)),
    ("calculator", "Compute the total, following the plan: {question}", (0,)),
    ("writer", "State the arrival time in one sentence.", (2,)),
)
# What the graph's canvas was last painted with: its words, and the dashes and widths of its lines. Every repaint begins
# with an empty canvas.
PAINTED = """
const of = (ctx) => (ctx.canvas.painted ??= { words: [], lines: [] })
const { clearRect, fillText, stroke } = CanvasRenderingContext2D.prototype
Object.assign(CanvasRenderingContext2D.prototype, {
  clearRect(...box) {
    this.canvas.painted = { words: [], lines: [] }
    return clearRect.apply(this, box)
  },
  fillText(text, ...at) {
    of(this).words.push(text)
    return fillText.call(this, text, ...at)
  },
  stroke(...path) {
    of(this).lines.push(`${this.getLineDash().join("-") || "whole"} ${this.lineWidth.toFixed(1)}`)
    return stroke.apply(this, path)
  },
})
"""
CANVAS = """
[...document.querySelectorAll(".st-key-live *")]
  .map((each) => each.shadowRoot?.querySelector(".graph canvas")).find(Boolean)
"""
# Where the parts of the view are.
PLACES = """
() => {
  const { shadowRoot } = [...document.querySelectorAll(".st-key-live *")].find((each) => each.shadowRoot)
  return [".bar", ".map", ".graph-canvas", ".lower", ".inspector"].map((part) => {
    const { x, y, width, height } = shadowRoot.querySelector(part).getBoundingClientRect()
    return [x, y, width, height].join(" ")
  })
}
"""
GAINED, LOST = "whole 2.4", "6-5 1.5"


@pytest.fixture
def source(make_run: Make) -> RunTrace:
    return make_run(*PLAN)


@pytest.fixture
def page(app: App, open_page: OpenPage, source: RunTrace) -> Page:
    """The editor of ``source``, at the size of a projector, open at step 1."""
    page = open_page("about:blank", width=1280, height=720)
    page.add_init_script(PAINTED)
    page.goto(app.run_url(source.run_id))
    expect(status(page)).to_contain_text("Completed 4 of 4")
    page.get_by_label(re.compile("Step 1, reasoner")).click()
    place = page.evaluate(PLACES)
    page.get_by_role("button", name="Change a step").click()
    expect(instruction(page, 1)).to_be_visible()
    paints(page, "1 · reasoner", without="~ changed")
    assert page.evaluate(PLACES) == place, "nothing moves"
    return page


def instruction(page: Page, index: int) -> Locator:
    return page.get_by_role("textbox", name=f"Instruction of step {index}")


def draws(page: Page, kind: str, count: int) -> None:
    """Waits until ``count`` lines of that kind stand on the canvas."""
    becomes(
        page,
        f"([kind, count]) => ({CANVAS})?.painted?.lines.filter((each) => each === kind).length === count",
        [kind, count],
    )


def paints(page: Page, *words: str, without: str | None = None) -> None:
    """Waits until all of ``words`` stand on the canvas, and ``without`` nowhere."""
    becomes(
        page,
        f"""([wanted, unwanted]) => {{
          const words = ({CANVAS})?.painted?.words.join(" ") ?? ""
          return wanted.every((each) => words.includes(each)) && !(unwanted && words.includes(unwanted))
        }}""",
        [words, without],
    )


def hears(page: Page, *steps: str) -> None:
    """Who does not see the picture has the same steps, in this order, each with these words."""
    buttons = page.locator(".twin button")
    expect(buttons).to_have_count(len(steps))
    for button, said in zip(buttons.all(), steps, strict=True):
        expect(button).to_have_attribute("aria-label", re.compile(said))


def marks(page: Page) -> Locator:
    """What the marks on the edges mean, as far as there are any."""
    return page.locator(".legend .statuses")


def test_what_one_edits_is_drawn_and_told_while_one_types_taken_back_and_run(
    app: App, page: Page, source: RunTrace
) -> None:
    place = page.evaluate(PLACES)
    instruction(page, 1).fill("Solve it in another way: {question}")
    paints(page, "~ changed", "▶ runs", "was 13:37", "↺ reused · unchanged", "Solve it in another way")
    expect(page.locator(".edit-title:visible")).to_have_text("1 change: instruction of step 1 edited")
    expect(page.locator(".edit-says")).to_contain_text("↻ 1 runs again")
    expect(page.locator(".edit-says")).to_contain_text("↺ 0, 2 and 3 reused")
    hears(
        page, "^Step 0, planner, reused", "^Step 1, reasoner, changed, runs", "^Step 2, calc", "^Step 3, writer, reused"
    )
    expect(instruction(page, 1)).to_be_focused()

    # A plan that cannot be read keeps its last drawing.
    instruction(page, 1).fill(" ")
    expect(page.locator(".edit-title:visible")).to_have_text("✕ Step 1 has an empty instruction.")
    expect(page.locator(".edit-fields")).to_contain_text("✕ Step 1 has an empty instruction.")
    expect(page.locator(".edit-hint")).to_have_text("Drawn as it was before the fault")
    expect(start(page)).to_be_disabled()
    paints(page, "~ changed", "Solve it in another way", "↺ reused · unchanged")
    hears(page, "^Step 0", "^Step 1, reasoner, changed, fault, Step 1 has an empty instruction", "^Step 2", "^Step 3")

    # Who takes all back or leaves sees the run again; the draft is kept.
    of_edit(page, "Discard").click()
    paints(page, "1 · reasoner", "✓", without="~ changed")
    hears(page, *(f"^Step {index}, .*, done" for index in range(4)))
    expect(instruction(page, 1)).to_have_value(PLAN[1][1])
    instruction(page, 1).fill("Solve it once more: {question}")
    paints(page, "~ changed", "Solve it once more")
    of_edit(page, "Close").click()
    paints(page, "1 · reasoner", "✓", without="~ changed")
    expect(instruction(page, 1)).to_have_count(0)
    assert page.evaluate(PLACES) == place, "nothing moves"
    page.get_by_role("button", name="Change a step").click()
    paints(page, "~ changed")

    of_edit(page, "Discard").click()
    _access_new_steps_and_removed_ones_are_drawn_and_told(page)
    line(page, 1).click()
    instruction(page, 1).fill("Solve it once more: {question}")
    expect(page.locator(".edit-says")).to_contain_text("↻ 1 runs again")
    start(page).click()
    page.wait_for_url(lambda url: source.run_id not in url)
    expect(status(page)).to_contain_text("Completed 4 of 4")
    paints(page, "1 · reasoner", "✓", without="~ changed")
    assert [step.status for step in run_of(page, app).steps] == ["reused", "completed", "reused", "reused"]


def _access_new_steps_and_removed_ones_are_drawn_and_told(page: Page) -> None:
    page.get_by_label(re.compile("^Step 3, writer")).click()
    expect(instruction(page, 3)).to_be_visible()
    expect(marks(page)).not_to_contain_text("sees")
    page.get_by_role("checkbox", name="2 · calculator").uncheck()
    expect(marks(page)).to_have_text("⊖ sees no more")
    paints(page, "~ changed")
    draws(page, LOST, 1)
    page.get_by_role("checkbox", name="0 · planner").check()
    expect(marks(page)).to_have_text(re.compile("⊕ sees now +⊖ sees no more"))
    draws(page, LOST, 1)
    draws(page, GAINED, 1)
    expect(page.locator(".access-row", has_text="0 · planner")).to_contain_text("added")
    expect(page.locator(".access-row", has_text="2 · calculator")).to_contain_text("cut")
    expect(page.locator(".access-list")).to_contain_text(re.compile(r"Reads \d+ tokens"))
    said = "changed, runs, also reads step 0, no longer reads step 2, reads 0$"
    hears(page, "^Step 0", "^Step 1", "^Step 2", f"^Step 3, writer, {said}")
    of_edit(page, "Discard").click()
    paints(page, "3 · writer", without="~ changed")

    line(page, 0).get_by_role("button", name="Add a step after step 0").click(force=True)
    paints(page, "+ new", "1 · planner", "2 · reasoner", "▶ runs · new step")
    hears(page, "^Step 0", "^Step 1, planner, new, runs.*reads 0$", "^Step 2, reasoner, reused", "^Step 3", "^Step 4")
    expect(page.locator(".inspector h3")).to_have_text("Step 1 · planner, new")
    expect(instruction(page, 1)).to_be_focused()
    of_edit(page, "Undo").click()
    paints(page, "3 · writer", without="+ new")

    line(page, 2).get_by_role("button", name="Remove step 2").click(force=True)
    paints(page, "− removed", "was step 2", "~ changed")
    draws(page, LOST, 2)
    hears(page, "^Step 0", "^Step 1", "^Step 2, writer.*the removed step 2", "^Removed step 2, calculator$")
    page.get_by_label("Removed step 2, calculator").click()
    expect(page.locator(".inspector h3")).to_have_text("Step 2 · calculator, as it ran")
    expect(page.locator(".inspector")).to_contain_text("This step is removed.")
    of_edit(page, "Undo").click()
    paints(page, "2 · calculator", without="− removed")
    hears(page, "done, reads nothing$", "^Step 1", "^Step 2, calculator, done", "^Step 3")
