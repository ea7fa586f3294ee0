"""A plan is edited in its graph, by key and by pointer; two browsers that edit one run both keep their work."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from conductor_core.run.trace import RunTrace
from tests.browser.conftest import App, Make, at_rest, becomes, line, lines, of_edit, reads, run_of, start, status
from tests.browser.view.test_graph_clicks import CARDS

OpenPage = Callable[..., Page]
Card = dict[str, Any]
Point = tuple[float, float]
Find = Callable[[list[Card]], tuple[Point, Point]]
# Streamlit may take the view away and put it back before it shows what was changed.
TAKEN_AWAY = """
item => item.addEventListener("click", () => setTimeout(() => {
  const map = item.closest(".map")
  const { parentElement, nextSibling } = map
  map.remove()
  parentElement.insertBefore(map, nextSibling)
}), { once: true })
"""
PLAN = (
    ("planner", "Break the journey into legs: {question}", ()),
    ("reasoner", "Solve each leg, following the plan: {question}", (0,)),
    ("calculator", "Compute the total, following the plan: {question}", (0,)),
    ("writer", "State the arrival time in one sentence.", (2,)),
)


@pytest.fixture
def source(make_run: Make) -> RunTrace:
    return make_run(*PLAN)


def open_editor(page: Page) -> None:
    """Opens the editor by keyboard."""
    expect(status(page)).to_contain_text("Completed 4 of 4")
    at_rest(page)
    edit = page.get_by_role("button", name="Change a step")
    expect(edit).to_be_enabled()
    edit.press("Enter")
    expect(lines(page)).to_have_count(4)
    expect(page.locator(".edit-hint")).to_contain_text("Drag ○")


def step(page: Page, index: int) -> Locator:
    """The step's button below the graph."""
    return page.locator(f".twin button[aria-label^='Step {index}, ']")


def choose_step(page: Page, index: int) -> None:
    """Brings the focus to a step below the graph. Its fields are shown."""
    step(page, index).focus()
    expect(page.get_by_role("textbox", name=f"Instruction of step {index}")).to_be_visible()
    at_rest(page)
    step(page, index).focus()


def says(page: Page) -> Locator:
    return page.locator(".edit-note")


def test_by_keyboard_alone_access_and_order_are_edited_undone_redone_and_run(
    app: App, open_page: OpenPage, source: RunTrace
) -> None:
    page = open_page(app.run_url(source.run_id), width=1280, height=720)
    open_editor(page)
    expect(page.get_by_role("textbox", name="Instruction of step 3")).to_be_focused()
    close = of_edit(page, "Close")
    close.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Change a step")).to_be_focused()
    open_editor(page)
    choose_step(page, 3)
    page.keyboard.press("g")
    menu = page.get_by_role("menu", name="Access of step 3 · writer")
    item = menu.get_by_role("menuitemcheckbox", name="Step 3 sees step 1")
    expect(menu.get_by_role("menuitemcheckbox").first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(item).to_be_focused()
    expect(item).to_have_attribute("aria-checked", "false")
    item.evaluate(TAKEN_AWAY)
    page.keyboard.press("Space")
    expect(item).to_have_attribute("aria-checked", "true")
    expect(reads(page, 3)).to_have_text("1, 2")
    expect(says(page)).to_have_text("Step 3 now sees step 1.")
    expect(item).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Delete")
    expect(reads(page, 3)).to_have_text("1")
    expect(says(page)).to_have_text("Step 3 no longer sees step 2.")
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(step(page, 3)).to_be_focused()

    # Two presses that do not wait for the page: each counts.
    at_rest(page)
    expect(step(page, 3)).to_be_focused()
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    expect(line(page, 1)).to_contain_text("writer")
    expect(says(page)).to_contain_text("Step 2 is now step 1; with it went: step 2 reading step 1")
    expect(step(page, 1)).to_be_focused()
    expect(step(page, 1)).to_have_attribute("aria-label", re.compile("^Step 1, writer, changed.*reads nothing$"))

    for _ in range(2):
        page.keyboard.press("Control+z")
    expect(line(page, 3)).to_contain_text("writer")
    page.keyboard.press("Control+Shift+z")
    expect(line(page, 2)).to_contain_text("writer")
    page.keyboard.press("Control+z")
    expect(reads(page, 3)).to_have_text("1")

    page.keyboard.press("Control+Shift+Enter")
    page.wait_for_url(lambda url: source.run_id not in url)
    expect(page.locator('.pane[data-status="reused"]')).to_have_count(3)
    expect(status(page)).to_contain_text("Completed 4 of 4")
    trace = run_of(page, app)
    assert (trace.parent_run_id, trace.steps[3].access_list) == (source.run_id, (1,))
    assert [each.status for each in trace.steps] == ["reused", "reused", "reused", "completed"]


def test_by_pointer_an_access_is_drawn_and_cut_and_a_card_is_moved(
    app: App, open_page: OpenPage, source: RunTrace
) -> None:
    page = open_page(app.run_url(source.run_id), width=1280, height=720)
    open_editor(page)
    drag(page, lambda found: (right_of(found[0]), middle(found[3])), "crosshair", "done", 4)
    expect(reads(page, 3)).to_have_text("0, 2")
    expect(says(page)).to_have_text("Step 3 now sees step 0.")
    # What the plan does not allow is refused, with the reason. (The new line has moved the cards.)
    drag(page, lambda found: (right_of(found[2]), middle(found[0])), "crosshair")
    expect(says(page)).to_have_text("Step 0 comes before step 2.")
    expect(reads(page, 3)).to_have_text("0, 2")

    def edge(found: list[Card]) -> tuple[Point, Point]:
        planner, reasoner, calculator = found
        half_way = calculator["right"] + (reasoner["left"] - planner["right"]) / 2
        return (half_way, (middle(calculator)[1] + middle(planner)[1]) / 2), (0, 0)

    take_hold(page, edge, "pointer")
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("button", name="Cut: Step 3 sees step 2")).to_be_focused()
    page.keyboard.press("Delete")
    expect(says(page)).to_have_text("Step 3 no longer sees step 2.")
    expect(reads(page, 3)).to_have_text("0")

    # A drag that is given up changes nothing; one to the other side of a card changes places.
    def above(found: list[Card]) -> tuple[Point, Point]:
        return middle(found[2]), (middle(found[1])[0], found[1]["top"] + 4)

    drag(page, above, "grab", give_up=True)
    expect(line(page, 1)).to_contain_text("reasoner")
    drag(page, above, "grab")
    expect(line(page, 1)).to_contain_text("calculator")
    expect(says(page)).to_have_text("Step 2 is now step 1.")
    of_edit(page, "Undo").click()
    expect(line(page, 1)).to_contain_text("reasoner")

    # A click on a handle opens what the drag does, for those who do not drag.
    take_hold(page, lambda found: (right_of(found[0]), (0, 0)), "crosshair")
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("menu", name="Access of step 0 · planner")).to_be_visible()


def test_fields_are_previewed_undone_kept_over_a_reload_and_the_way_back_and_run(
    app: App, open_page: OpenPage, source: RunTrace
) -> None:
    page = open_page(app.run_url(source.run_id), width=1280, height=720)
    expect(status(page)).to_contain_text("Completed 4 of 4")
    step(page, 3).click()
    page.get_by_role("tab", name="Edit").click()
    instruction = page.get_by_role("textbox", name="Instruction of step 3")
    agent = page.get_by_role("combobox", name="Agent of step 3")
    access = page.get_by_role("checkbox", name="1 · reasoner")
    instruction.fill("State it in one word.")
    agent.select_option("scientist")
    access.check()
    title, says = page.locator(".edit-title:visible"), page.locator(".edit-says")
    expect(title).to_have_text("3 changes: step 3: writer → scientist, instruction edited, also reads step 1")
    expect(says).to_contain_text("3 runs again")
    expect(says).to_contain_text("0, 1 and 2 reused")
    of_edit(page, "Undo").click()
    expect(access).not_to_be_checked()
    expect(title).not_to_contain_text("also reads")
    of_edit(page, "Redo").click()
    expect(access).to_be_checked()
    page.wait_for_url(re.compile("edit="))
    page.reload()
    expect(title).to_contain_text("also reads step 1")
    line(page, 3).click()
    expect(instruction).to_have_value("State it in one word.")
    expect(agent).to_have_value("scientist")
    expect(access).to_be_checked()
    page.go_back()
    expect(page.locator(".live-workflow[data-editing]")).to_have_count(0)
    expect(page.get_by_role("button", name="Go on with your edit")).to_be_visible()
    expect(page).not_to_have_url(re.compile("edit="))
    page.go_forward()
    expect(instruction).to_have_value("State it in one word.")
    start(page).click()
    page.wait_for_url(lambda url: source.run_id not in url)
    expect(page.locator('.pane[data-status="reused"]')).to_have_count(3)
    expect(status(page)).to_contain_text("Completed 4 of 4")
    own = run_of(page, app).steps[3]
    assert (own.agent, own.instruction, own.access_list) == ("scientist", "State it in one word.", (1, 2))
    assert "edit=" not in page.url
    expect(page.get_by_role("tab", name="Edit")).to_have_attribute("aria-selected", "false")


def test_two_browsers_that_edit_the_same_run_both_keep_their_work(
    app: App, open_page: OpenPage, source: RunTrace
) -> None:
    pages = [open_page(app.run_url(source.run_id), width=1280, height=720) for _ in range(2)]
    for number, page in enumerate(pages):
        open_editor(page)
        choose_step(page, 3)
        page.keyboard.press("g")
        page.get_by_role("menuitemcheckbox", name=f"Step 3 sees step {number}").press("Space")
        expect(reads(page, 3)).to_have_text(f"{number}, 2")
        page.wait_for_url(re.compile("edit="))
        page.reload()
        expect(reads(page, 3)).to_have_text(f"{number}, 2")
    first = pages[0]

    # The way back and forth, and a page of the run without the edit's name, lose nothing either.
    first.get_by_role("link", name="History").click()
    expect(first.get_by_role("heading", name="History")).to_be_visible()
    first.go_back()
    expect(reads(first, 3)).to_have_text("0, 2")
    first.go_forward()
    expect(first.get_by_role("heading", name="History")).to_be_visible()
    first.goto(app.run_url(source.run_id))
    expect(status(first)).to_contain_text("Completed 4 of 4")
    expect(first.locator(".kept-edit")).to_contain_text("Go on with your edit")
    expect(lines(first)).to_have_count(0)
    first.locator(".kept-edit").click()
    expect(reads(first, 3)).to_have_text("0, 2")
    of_edit(first, "Undo").click()
    expect(reads(first, 3)).to_have_text("2")
    of_edit(first, "Redo").click()
    expect(reads(first, 3)).to_have_text("0, 2")

    children = []
    for page in pages:
        start(page).click()
        page.wait_for_url(lambda url: source.run_id not in url)
        expect(page.locator('.pane[data-status="reused"]')).to_have_count(3)
        expect(status(page)).to_contain_text("Completed 4 of 4")
        assert "edit=" not in page.url
        children.append(run_of(page, app))
    assert [child.steps[3].access_list for child in children] == [(0, 2), (1, 2)]
    assert [child.parent_run_id for child in children] == [source.run_id] * 2
    first.goto(app.run_url(source.run_id))
    expect(first.get_by_role("group", name="Related runs")).to_be_visible()
    expect(first.locator(".kept-edit")).to_have_count(0)


def cards(page: Page, fill: str, count: int) -> list[Card]:
    """The cards with the colour of that status, column by column, once the graph rests."""
    page.locator(".graph-canvas").scroll_into_view_if_needed()
    found: list[Card] = becomes(
        page,
        f"""async (count) => {{
          const cards = {CARDS.replace("--done-fill", f"--{fill}-fill")}
          const before = cards()
          await new Promise((resolve) => setTimeout(resolve, 300))
          const found = cards()
          return found?.length === count && JSON.stringify(found) === JSON.stringify(before) && found
        }}""",
        count,
    )
    return found


def middle(card: Card) -> tuple[float, float]:
    return (card["left"] + card["right"]) / 2, (card["top"] + card["bottom"]) / 2


def right_of(card: Card) -> tuple[float, float]:
    """The handle at the card's side."""
    return card["right"] + 3, middle(card)[1]


def take_hold(page: Page, find: Find, cursor: str, fill: str = "reused", count: int = 3) -> Point:
    """Brings the pointer to where it would do what ``cursor`` says. Returns where to drag from there."""
    for _ in range(10):
        start, end = find(cards(page, fill, count))
        page.mouse.move(start[0] - 1, start[1])
        page.mouse.move(*start)
        with suppress(AssertionError):  # the page moved meanwhile
            expect(page.locator(".graph-canvas")).to_have_css("cursor", cursor, timeout=2_000)
            return end
    raise AssertionError(f"nowhere the cursor {cursor}")


def drag(page: Page, find: Find, cursor: str, fill: str = "reused", count: int = 3, *, give_up: bool = False) -> None:
    end = take_hold(page, find, cursor, fill, count)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    if give_up:
        page.keyboard.press("Escape")
    page.mouse.up()
