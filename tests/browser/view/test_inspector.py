"""The view of a run as a browser paints it: its colours can be read in both themes, and buttons leave texts free."""

from playwright.sync_api import Page, expect

from conductor_core.run.events import Event
from tests.browser.conftest import View, becomes, status

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


def test_every_colour_of_ours_can_be_read_in_both_themes_and_the_buttons_of_a_pane_leave_its_text_free(
    view: View, ended: list[Event]
) -> None:
    page = view(ended)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        expect(page.locator(".live-workflow")).to_have_attribute("data-theme", theme)
        expect(status(page)).to_contain_text("Completed")
        ratio = page.evaluate(CONTRAST)
        assert min(ratio.values()) >= 4.5, ratio
    _leave_its_text_free(page)


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
