"""While a plan is edited the graph draws the edited plan: what is painted, and the same for who does not see it."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from conductor_core.run.trace import RunTrace
from tests.browser.conftest import App
from tests.browser.pages.conftest import Make, becomes, choose, run_of, status

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
# Where the graph is, from the beginning of what scrolls.
PLACE = """
() => {
  const { x, y, width } = document.querySelector(".st-key-live").getBoundingClientRect()
  return [x, y + document.querySelector("[data-testid=stMain]").scrollTop, width].map(Math.round)
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
    page.get_by_role("button", name="Change a step").click()
    expect(instruction(page, 1)).to_be_visible()
    paints(page, "1 · reasoner", without="~ changed")
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


def test_a_step_told_otherwise_is_marked_while_one_types_and_the_graph_stays_in_view(page: Page) -> None:
    # The editor is whole. What the page scrolls by itself depends on when its parts came, so it is scrolled here.
    expect(page.get_by_role("combobox", name="Steps that step 1 sees")).to_be_visible()
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    page.locator(".st-key-plan-editor").evaluate("part => part.scrollIntoView({ block: 'start' })")
    expect(page.locator(".graph-canvas")).to_be_in_viewport(ratio=0.9)
    place = page.evaluate(PLACE)
    instruction(page, 1).fill("Solve it in another way: {question}")
    paints(page, "~ changed", "▶ runs · instruction changed", "↺ reused · unchanged", "Solve it in another")
    expect(page.locator(".bar .conclusion")).to_have_text("↻ step 1 runs again")
    expect(page.locator(".bar .hint")).to_have_text("↺ steps 0, 2 and 3 reused, not paid again")
    hears(
        page, "^Step 0, planner, reused", "^Step 1, reasoner, changed, runs", "^Step 2, calc", "^Step 3, writer, reused"
    )
    expect(instruction(page, 1)).to_be_focused()
    assert page.evaluate(PLACE) == place, "nothing jumps"
    expect(page.locator(".graph-canvas")).to_be_in_viewport(ratio=0.9)


def test_access_that_is_gained_and_lost_is_drawn_and_told(page: Page) -> None:
    page.get_by_label(re.compile("Step 3, writer")).click()
    expect(instruction(page, 3)).to_be_visible()
    expect(marks(page)).not_to_contain_text("sees")
    page.get_by_role("button", name="Remove 2 · calculator").click()
    expect(marks(page)).to_have_text("⊖ sees no more")
    paints(page, "~ changed")
    draws(page, LOST, 1)
    seen = page.get_by_role("combobox", name="Steps that step 3 sees")
    expect(seen).to_have_count(1)  # the field of before stays until the new one is whole
    choose(seen, "0 · planner")
    expect(marks(page)).to_have_text(re.compile("⊕ sees now +⊖ sees no more"))
    paints(page, "~ changed")
    draws(page, LOST, 1)
    draws(page, GAINED, 1)
    said = "changed, runs, also reads step 0, no longer reads step 2, reads 0$"
    hears(page, "^Step 0", "^Step 1", "^Step 2", f"^Step 3, writer, {said}")


def test_an_added_step_is_new_and_can_be_chosen_though_it_never_ran(page: Page) -> None:
    page.get_by_role("button", name="Add a step after step 0").click()
    paints(page, "+ new", "1 · planner", "2 · reasoner", "▶ runs · new step")
    hears(page, "^Step 0", "^Step 1, planner, new, runs.*reads 0$", "^Step 2, reasoner, reused", "^Step 3", "^Step 4")
    page.get_by_label(re.compile("^Step 4, writer")).click()
    expect(instruction(page, 4)).to_be_visible()
    page.get_by_label(re.compile("^Step 1, planner")).click()
    expect(instruction(page, 1)).to_be_visible()
    expect(page.locator(".inspector h3")).to_have_text("Step 1 · planner, new")
    expect(page.locator(".inspector")).to_contain_text("It has not run")


def test_a_removed_step_stays_in_the_picture_struck_out(page: Page) -> None:
    page.get_by_role("button", name="Remove step 2").click()
    paints(page, "− removed", "was step 2", "~ changed")
    draws(page, LOST, 2)
    hears(page, "^Step 0", "^Step 1", "^Step 2, writer.*the removed step 2", "^Removed step 2, calculator$")
    page.get_by_label("Removed step 2, calculator").click()
    expect(page.locator(".inspector h3")).to_have_text("Step 2 · calculator, as it ran")
    expect(instruction(page, 1)).to_be_visible()
    page.get_by_role("button", name="Undo", exact=True).first.click()
    paints(page, "2 · calculator", without="− removed")
    hears(page, "done, reads nothing$", "^Step 1", "^Step 2, calculator, done", "^Step 3")


def test_a_plan_that_cannot_be_read_keeps_its_last_drawing_and_says_so(page: Page) -> None:
    instruction(page, 1).fill("Solve it anew: {question}")
    paints(page, "~ changed", "Solve it anew:")
    instruction(page, 1).fill(" ")
    said = page.get_by_role("status").filter(has_text="Step 1 has an empty instruction. Drawn as it was before.")
    expect(said).to_be_visible()
    paints(page, "~ changed", "Solve it anew:", "↺ reused · unchanged")
    hears(page, "^Step 0", "^Step 1, reasoner, changed, fault, Step 1 has an empty instruction", "^Step 2", "^Step 3")
    instruction(page, 1).fill("Solve it at last: {question}")
    paints(page, "~ changed", "Solve it at last:")
    expect(page.locator(".plan-fault")).to_be_empty()


def test_who_takes_all_back_or_leaves_sees_the_run_again(page: Page) -> None:
    for way in ("Undo", "Reset", "Close"):
        instruction(page, 1).fill(f"Solve it in another way, then {way}: {{question}}")
        paints(page, "~ changed")
        page.locator(".st-key-plan-editor").get_by_role("button", name=way, exact=True).first.click()
        paints(page, "1 · reasoner", "✓", without="~ changed")
        hears(page, *(f"^Step {index}, .*, done" for index in range(4)))
        if way != "Close":  # else what is typed next goes into a field that is about to be replaced
            expect(instruction(page, 1)).to_have_value(PLAN[1][1])
    expect(page.locator(".st-key-plan-editor")).to_have_count(0)
    # The draft is kept, and so is its drawing.
    page.get_by_role("button", name="Change a step").click()
    paints(page, "~ changed")


def test_a_rerun_of_the_edited_plan_is_drawn_as_it_runs(app: App, page: Page, source: RunTrace) -> None:
    instruction(page, 1).fill("Solve it in another way: {question}")
    paints(page, "~ changed")
    page.locator(".st-key-start-edited").get_by_role("button").click()
    page.wait_for_url(lambda url: source.run_id not in url)
    expect(status(page)).to_contain_text("Completed 4 of 4")
    paints(page, "1 · reasoner", "✓", without="~ changed")
    assert [step.status for step in run_of(page, app).steps] == ["reused", "completed", "reused", "reused"]


def test_a_step_that_opens_below_the_others_comes_into_view(page: Page) -> None:
    page.locator('[class*="st-key-edit-row-2"] button').first.click()
    page.locator('[class*="st-key-edit-row-3"] button').first.click()
    expect(instruction(page, 3)).to_be_in_viewport(ratio=1)
    instruction(page, 3).click(timeout=5_000)
    page.get_by_label(re.compile("^Step 1, reasoner")).click()
    page.get_by_label(re.compile("^Step 3, writer")).click()
    expect(instruction(page, 3)).to_be_in_viewport(ratio=1)
