"""What is said of a step: in the inspector, in the timeline, below the graph, by mouse and key; in both themes."""

import re

import pytest
from playwright.sync_api import Page, expect

from conductor_core.run.events import Event
from conductor_core.run.trace import StepTrace, fold
from tests.browser.conftest import View, status

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


def test_the_keyboard_goes_where_the_mouse_can(view: View, ended: list[Event]) -> None:
    page = view(ended)
    expect(status(page)).to_contain_text("Completed")
    page.get_by_label(re.compile("^Step 0, planner, done, .*reads nothing$")).focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_label(re.compile("^Step 3, verifier, done, .*reads 0, 1, 2$"))).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".inspector h3")).to_have_text("Step 3 · verifier")
    expect(page.locator(".inspector h3")).to_be_focused()
    page.get_by_role("tab", name="What it saw").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Cost")).to_be_focused()
    hidden = "map => map.querySelectorAll('[aria-hidden=true] [tabindex=\"0\"]').length"
    assert page.locator(".map").evaluate(hidden) == 0


def test_the_inspector_says_what_a_step_saw_and_what_was_withheld(view: View, ended: list[Event]) -> None:
    page, trace = view(ended), fold(ended)
    page.get_by_label(re.compile("Step 4, writer")).click()
    inspector = page.locator(".inspector")
    read, held = inspector.locator(".got"), inspector.locator(".held:not(.absent)")
    expect(read).to_have_count(1)
    expect(read).to_contain_text("3 · verifier")
    # All of it can be read here, and a press on it stays here.
    read.get_by_text("Answer: 13:37").click()
    expect(inspector.locator("h3")).to_have_text("Step 4 · writer")
    expect(held).to_have_count(3)
    held.first.get_by_role("button", name="Show what it missed").click()
    expect(held.first.locator(".prose")).to_contain_text(trace.steps[0].output.splitlines()[-1].strip("*` "))
    held.first.get_by_role("button", name="Fold").click()
    expect(held.first.locator(".prose")).to_be_hidden()
    expect(inspector.locator(".absent")).to_have_count(0)
    read.get_by_role("button", name="3 · verifier").click()
    expect(inspector.locator("h3")).to_have_text("Step 3 · verifier")
    # Step 2 ran beside step 1, which its access list does not grant either: nothing was kept from it.
    page.get_by_label(re.compile("Step 2, calculator")).click()
    expect(inspector.locator(".section").first).to_have_text(
        re.compile("^It read1 of 1 earlier output · (\\d+) of \\1 tok")
    )
    expect(held).to_have_count(0)
    expect(inspector.locator(".section").last).to_have_text("Not there yet when it started")
    expect(inspector.locator(".absent")).to_contain_text("1 · reasoner")
    page.get_by_label(re.compile("Step 4, writer")).click()
    inspector.get_by_role("tab", name="Messages").click()
    expect(inspector.locator(".message pre").last).to_have_text(trace.steps[4].messages[-1].text)
    inspector.get_by_role("tab", name="Cost").click()
    expect(inspector).to_contain_text(f"{trace.steps[4].usage.output_tokens} tok")
    expect(inspector).to_contain_text(re.compile(rf"Speed{_speed(trace.steps[4])}"))
    expect(inspector).to_contain_text("simulated")


def _speed(step: StepTrace) -> str:
    """What the page says of a step's speed: its tokens over the time from its first one on."""
    assert step.duration_ms is not None
    assert step.first_token_ms is not None
    streaming_ms = step.duration_ms - step.first_token_ms
    return f"{round(step.usage.output_tokens / streaming_ms * 1000)} tokens/s" if streaming_ms > 300 else "–"


def test_a_click_in_the_timeline_selects_its_step_in_graph_and_inspector(view: View, ended: list[Event]) -> None:
    page = view(ended)
    rows = page.locator(".timeline-row")
    expect(rows).to_have_count(5)
    page.get_by_role("tab", name="Timeline").click()
    expect(rows.nth(4)).to_have_attribute("aria-pressed", "true")
    rows.nth(1).click()
    _selected(page, 1, "reasoner")
    page.get_by_label(re.compile("^Step 3, verifier")).click()
    _selected(page, 3, "verifier")
    rows.nth(3).focus()
    page.keyboard.press("ArrowUp")
    _selected(page, 2, "calculator")
    expect(rows.nth(2)).to_be_focused()
    assert rows.nth(2).get_attribute("tabindex") == "0"
    assert rows.nth(3).get_attribute("tabindex") == "-1"


def _selected(page: Page, step: int, agent: str) -> None:
    expect(page.locator(".inspector h3")).to_have_text(f"Step {step} · {agent}")
    expect(page.locator(f'.pane[data-step="{step}"]')).to_have_class(re.compile("selected"))
    expect(page.locator(f'.twin [data-step="{step}"]')).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".timeline-row[aria-pressed='true']")).to_have_attribute("data-step", str(step))


@pytest.mark.parametrize("dark", [False, True])
def test_every_colour_of_ours_can_be_read_in_both_themes(view: View, ended: list[Event], dark: bool) -> None:
    page = view(ended, dark=dark)
    expect(page.locator(".live-workflow")).to_have_attribute("data-theme", "dark" if dark else "light")
    expect(status(page)).to_contain_text("Completed")
    ratio = page.evaluate(CONTRAST)
    assert min(ratio.values()) >= 4.5, ratio
