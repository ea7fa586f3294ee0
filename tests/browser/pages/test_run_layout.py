"""The Run page at the size of a projector: before, during and after a run what matters is in view and stays there."""

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import App, Make, begin_here, status

OpenPage = Callable[..., Page]
BOXES = "parts => parts.map((part) => part.getBoundingClientRect().toJSON())"
PARALLEL = (
    ("planner", "Plan this step by step, without solving it: {question}", ()),
    ("reasoner", "Solve this, following the plan: {question}", (0,)),
    ("scientist", "Solve this independently: {question}", ()),
    ("verifier", "Recompute both results: {question}", (1, 2)),
)
SEEN_TO_ITS_END = """
part => {
  const { left, bottom } = part.getBoundingClientRect()
  return part.contains(document.elementFromPoint(left + 20, bottom - 4))
}
"""
# Where what has a key and is in view begins, once its fonts are there.
PLACES = """
async () => {
  await document.fonts.ready
  const places = {}
  for (const part of document.querySelectorAll('[class*="st-key-"]')) {
    const { x, y, width, height } = part.getBoundingClientRect()
    const keys = [...part.classList].filter((each) => each.startsWith("st-key-"))
    if (width && height && y < innerHeight) places[keys.join(" ")] = [x, y].map(Math.round)
  }
  return places
}
"""


class Held:
    """What a page asks for and gets only when it is let go: so both states can be looked at, at any pace."""

    def __init__(self, page: Page, what: str) -> None:
        self._held: list[Route] = []
        self._free = False
        page.route(what, self._meet)

    def _meet(self, route: Route) -> None:
        if self._free:
            route.continue_()
        else:
            self._held.append(route)

    def let_go(self) -> None:
        self._free = True
        for route in self._held:
            route.continue_()


def places_at_rest(page: Page) -> dict[str, list[int]]:
    """Where the parts of the page begin, once its script has ended."""
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    return dict(page.evaluate(PLACES))


def stay(page: Page, before: dict[str, list[int]]) -> None:
    """Whether all that was there is there now. A pixel is rounding."""
    now = places_at_rest(page)
    moved = {
        part: (place, now.get(part))
        for part, place in before.items()
        if part not in now or max(abs(one - other) for one, other in zip(place, now[part], strict=True)) > 1
    }
    assert moved == {}


def scrolled(page: Page) -> float:
    return float(page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop"))


def is_in_view(page: Page, part: Locator, *, at_least: float = 1.0) -> None:
    """Whether that share of ``part``'s height stands inside the window, and all of its width."""
    found, window = part.bounding_box(), page.viewport_size
    assert found is not None
    assert window is not None
    assert found["x"] >= 0
    assert found["x"] + found["width"] <= window["width"]
    seen = min(found["y"] + found["height"], window["height"]) - max(found["y"], 0)
    assert seen >= at_least * found["height"] - 0.5, (seen, found)


def top_of(page: Page, part: str) -> float:
    found = page.locator(part).bounding_box()
    assert found is not None
    return found["y"]


def test_graph_panes_and_inspector_are_in_view_and_stay_where_they_are(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    width, height = 1280, 720
    make_run()  # after the first run there is no first screen
    page = open_page(app.url, width=width, height=height)
    # Without a run in its address words say how the program works, and no box is empty.
    expect(page.get_by_text("The Conductor plans")).to_be_visible()
    for part in (".bar", ".how"):
        is_in_view(page, page.locator(part))
    for part in (".map", ".panes", ".inspector"):
        expect(page.locator(part)).to_be_hidden()
    _a_task_has_one_line_and_opens_over_the_page_while_it_is_written(page)

    begin_here(page, app, make_run(*PARALLEL, plan_only=True))
    running = page.locator('.pane[data-status="running"]')
    expect(running).to_have_count(2)
    # All at once: on a busy machine the steps end while one part after another is looked at.
    panes, *found = page.locator('.panes, .pane[data-status="running"]').evaluate_all(BOXES)
    assert len(found) == 2
    for pane in found:
        assert 0 <= pane["top"] < pane["bottom"] <= height
        assert panes["left"] <= pane["left"] + 1
        assert pane["right"] <= panes["right"] + 1, "both streams are seen"
    expect(page.locator(".aside > div").first).to_have_text("The answer will come from 3 · verifier")
    for part in (".map", ".inspector", ".panes"):
        is_in_view(page, page.locator(part))
    during = top_of(page, ".map")

    expect(status(page)).to_contain_text("Completed 4 of 4")
    expect(page.locator(".conclusion")).to_have_text(re.compile(r"^\d\d:\d\d$"))
    expect(page.locator(".timeline-row").first).to_be_attached()
    assert top_of(page, ".map") == during, "the graph stays in place when the answer grows"
    assert scrolled(page) == 0
    for part in (".bar", ".map", ".inspector", ".panes", ".pane.selected"):
        is_in_view(page, page.locator(part))

    # What a click changes is in view; a long inspector scrolls in itself: beside it there is no empty space.
    for key in ("0", "3", "1"):
        page.locator(f'.twin [data-step="{key}"]').click()
        is_in_view(page, page.locator(f'.pane[data-step="{key}"]'))
        expect(page.locator(".inspector h3")).to_contain_text(f"Step {key}")
        is_in_view(page, page.locator(".inspector h3"))
        assert scrolled(page) == 0
    page.get_by_role("tab", name="Messages").click()
    ends = [
        page.locator(part).evaluate("part => part.getBoundingClientRect().bottom") for part in (".panes", ".inspector")
    ]
    assert abs(ends[0] - ends[1]) <= 2, ends


def test_nothing_moves_when_the_run_comes(app: App, open_page: OpenPage, make_run: Make) -> None:
    page, held = _held_back(open_page, app.url, width=1280, height=720)
    before = places_at_rest(page)
    assert {"st-key-task", "st-key-run", "st-key-live"} <= before.keys()
    held.let_go()
    expect(page.get_by_text("The Conductor plans")).to_be_visible()
    stay(page, before)

    page, held = _held_back(open_page, app.run_url(make_run().run_id), width=1440, height=900)
    expect(page.get_by_role("button", name="More ways to begin")).to_be_visible()
    before = places_at_rest(page)
    held.let_go()
    expect(page.locator(".pane")).to_have_count(5)
    expect(page.locator(".timeline-row").first).to_be_attached()
    stay(page, before)


def _held_back(open_page: OpenPage, address: str, **size: int) -> tuple[Page, Held]:
    """Opens the page, whose live view is held back."""
    page = open_page("about:blank", cold=True, **size)
    held = Held(page, "**/conductor-inspector.live_workflow/style.css*")
    with page.expect_request("**/style.css*"):
        page.goto(address)
    expect(page.locator(".st-key-live")).to_be_attached()
    return page, held


def _a_task_has_one_line_and_opens_over_the_page_while_it_is_written(page: Page) -> None:
    before = top_of(page, ".how")
    page.get_by_role("button", name="When does the train arrive?").click()
    task = page.get_by_label("Task")
    expect(task).to_have_value(re.compile("train leaves"))
    assert task.evaluate("part => part.scrollHeight <= part.clientHeight"), "no line is cut in its height"
    box = page.locator(".st-key-task-box").bounding_box()
    assert box is not None
    assert box["height"] <= 50
    # Nothing that the example shows stands before the button that runs it.
    page.locator(".st-key-run button").click(trial=True, timeout=2_000)
    assert (top_of(page, ".how"), scrolled(page)) == (before, 0)
    task.fill(task.input_value() + "\nSay it in one line." * 30)
    assert task.evaluate("part => part.clientHeight") > 100
    # Its end is written over the page, beside the button that runs it.
    assert task.evaluate(SEEN_TO_ITS_END)
    page.locator(".st-key-run button").click(trial=True, timeout=2_000)
    assert (top_of(page, ".how"), scrolled(page)) == (before, 0)
    task.blur()
    assert task.evaluate("part => part.clientHeight") < 60
