"""The view of a run as a browser paints it: each card answers the pointer over all of its surface, from the first frame
on; colours can be read in both themes; buttons leave texts free."""

import re
from typing import Any, Literal

from playwright.sync_api import Page, expect

from conductor_core.run.events import Event
from tests.browser.conftest import App, Make, OpenPage, View, becomes, begin_here, status

# The outlines of the cards in the page's pixels, told from the rest by their fill; null until the graph is painted.
CARDS = """
() => {
  const host = [...document.querySelectorAll("*")].find((each) => each.shadowRoot?.querySelector(".live-workflow"))
  const root = host?.shadowRoot.querySelector(".live-workflow")
  const canvas = root?.querySelector(".graph-canvas canvas")
  if (!canvas?.width) return null
  const { width, height } = canvas
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data
  const fill = getComputedStyle(root).getPropertyValue("--done-fill").trim()
  const wanted = [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16))
  const filled = (x, y) => wanted.every((part, at) => pixels[(y * width + x) * 4 + at] === part)
  const cards = []
  for (let y = 0; y < height; y += 4) {
    for (let x = 0; x < width; x += 4) {
      if (!filled(x, y)) continue
      const card = cards.find((each) => x >= each.left - 12 && x <= each.right + 12 && y <= each.bottom + 15)
      if (!card) cards.push({ left: x, right: x, top: y, bottom: y })
      else Object.assign(card, { left: Math.min(card.left, x), right: Math.max(card.right, x), bottom: y })
    }
  }
  const box = canvas.getBoundingClientRect()
  const scale = box.width / width
  const whole = cards.filter((card) => card.right - card.left > 120 && card.bottom - card.top > 60)
  const across = (x) => box.left + x * scale
  const down = (y) => box.top + y * scale
  const placed = whole.map((card) => ({
    left: across(card.left), right: across(card.right), top: down(card.top), bottom: down(card.bottom),
  }))
  const order = (a, b) => (Math.abs(a.left - b.left) > 20 ? a.left - b.left : a.top - b.top)
  return placed.length ? placed.sort(order) : null
}
"""
# WCAG 2 contrast of the texts whose colours are ours.
CONTRAST = """
() => {
  const host = [...document.querySelectorAll("*")].find((each) => each.shadowRoot?.querySelector(".live-workflow"))
  const root = host.shadowRoot.querySelector(".live-workflow")
  const style = getComputedStyle(root)
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
  const light = (colour) => {
    pixel.fillStyle = colour
    pixel.fillRect(0, 0, 1, 1)
    const [r, g, b] = [...pixel.getImageData(0, 0, 1, 1).data].map((value) => {
      const share = value / 255
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
    })
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const colour = (name) => light(style.getPropertyValue(`--${name}`).trim())
  const contrast = (text, ground) => {
    const [high, low] = [colour(text), colour(ground)].sort((a, b) => b - a)
    return (high + 0.05) / (low + 0.05)
  }
  const found = {}
  for (const name of ["done", "running", "reused", "failed", "warn", "simulated"]) {
    found[name] = contrast(name, `${name}-fill`)
    found[`muted on ${name}`] = contrast("muted", `${name}-fill`)
    found[`text on ${name}`] = contrast("text", `${name}-fill`)
  }
  for (const ground of ["surface", "quiet"]) {
    for (const text of ["text", "muted", "accent"]) found[`${text} on ${ground}`] = contrast(text, ground)
  }
  return found
}
"""


SEEN_TO_ITS_RIGHT = """
part => {
  const { right, top, bottom } = part.getBoundingClientRect()
  return part.contains(part.getRootNode().elementFromPoint(right - 8, (top + bottom) / 2))
}
"""


CORNERS = {
    "upper left": lambda card: (card["left"] + 12, card["top"] + 12),
    "upper right": lambda card: (card["right"] - 12, card["top"] + 12),
    "lower left": lambda card: (card["left"] + 12, card["bottom"] - 12),
    "lower right": lambda card: (card["right"] - 12, card["bottom"] - 12),
    "middle": lambda card: ((card["left"] + card["right"]) / 2, (card["top"] + card["bottom"]) / 2),
}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
AGENTS = ("planner", "reasoner", "calculator", "verifier", "writer")


def test_every_corner_of_a_card_is_pressed_a_drag_moves_the_graph_and_each_theme_can_be_read(
    view: View, ended: list[Event]
) -> None:
    page = view(ended)
    for key, corner in enumerate(CORNERS):
        page.mouse.click(*CORNERS[corner](_cards(page)[key]))
        _shows(page, f"Step {key} · {AGENTS[key]}")
    # The pointer slips, and the button comes up late.
    x, y = CORNERS["lower left"](_cards(page)[0])
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate("() => { const until = performance.now() + 600; while (performance.now() < until); }")
    page.mouse.move(x + 5, y - 5)
    page.mouse.up()
    _shows(page, "Step 0 · planner")

    before = _cards(page)[1]
    x, y = CORNERS["middle"](before)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y + 20, steps=4)
    page.mouse.up()
    becomes(page, f"([left]) => ({CARDS})()?.[1].left > left + 25", [before["left"]])
    _shows(page, "Step 0 · planner")
    page.mouse.click(*CORNERS["upper left"](_cards(page)[1]))
    _shows(page, "Step 1 · reasoner")

    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        expect(page.locator(".live-workflow")).to_have_attribute("data-theme", theme)
        ratio = page.evaluate(CONTRAST)
        assert min(ratio.values()) >= 4.5, ratio
    _leave_its_text_free(page)


def test_every_card_answers_in_the_app_after_the_way_back_and_for_the_next_run(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    page = open_page(app.run_url(make_run().run_id), dark=True)
    page.mouse.click(*CORNERS["lower left"](_cards(page)[0]))
    _shows(page, "Step 0 · planner")
    page.get_by_role("link", name="History").click()
    expect(page.locator(".st-key-runs")).to_be_visible()
    page.go_back()
    for key, agent in enumerate(AGENTS):
        page.mouse.click(*CORNERS["upper right"](_cards(page)[key]))
        _shows(page, f"Step {key} · {agent}")
    page.mouse.move(2, 2)
    expect(page.locator(".graph-canvas")).not_to_have_css("cursor", "pointer")
    page.mouse.move(*CORNERS["lower left"](_cards(page)[2]))
    expect(page.locator(".graph-canvas")).to_have_css("cursor", "pointer")
    begin_here(page, app, make_run(plan_only=True))
    expect(status(page)).to_contain_text("Completed 5 of 5")
    cards = _cards(page)
    assert len(cards) == 5
    page.mouse.click(*CORNERS["lower right"](cards[0]))
    _shows(page, "Step 0 · planner")


def _leave_its_text_free(page: Page) -> None:
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


def _cards(page: Page) -> list[dict[str, Any]]:
    """The cards, column by column, as soon as they are painted."""
    return becomes(page, CARDS)  # type: ignore[no-any-return]


def _shows(page: Page, title: str) -> None:
    expect(page.locator(".inspector h3")).to_have_text(title)
    step = title.split()[1]
    expect(page.locator(f'.pane[data-step="{step}"]')).to_have_class(re.compile("selected"))
