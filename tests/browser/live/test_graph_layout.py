"""The canvas's own module in a real browser, given the layouts of a plan that is being written."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from conductor_core.run.graph_layout import RoundShape, lay_out
from pages.components.live_workflow.messages import network_data
from tests.browser.conftest import App

OpenPage = Callable[..., Page]

# What can be read of a plan, piece by piece: steps, then their access lists, then an inner round.
UNWRITTEN = None
WRITTEN: list[list[RoundShape]] = [
    *([RoundShape((), (UNWRITTEN,) * steps)] for steps in range(1, 6)),
    [RoundShape((), ((), UNWRITTEN, UNWRITTEN, UNWRITTEN, UNWRITTEN))],
    [RoundShape((), ((), (), UNWRITTEN, UNWRITTEN, UNWRITTEN))],
    [RoundShape((), ((), (), (), UNWRITTEN, UNWRITTEN))],
    [RoundShape((), ((), (), (), (0, 1, 2), UNWRITTEN))],
    [RoundShape((), ((), (), (), (0, 1, 2), (0, 3)))],
    [RoundShape((), ((), (), (), (0, 1, 2), (0, 3))), RoundShape((3,), ((), (0,), ()))],
]

# Shows one layout after the other, and looks at every frame for cards that cover each other.
PLAY = """
async ({ script, layouts }) => {
  const { Graph } = await import(script)
  const graph = new Graph({ onSelect: () => {} })
  document.body.replaceChildren(graph.element)
  const model = { layout: null, rounds: new Map(), step: () => null, agentIndex: () => null }
  const covered = []
  const look = (number) => {
    const places = [...graph.places.values()]
    for (const a of places) {
      for (const b of places) {
        const beside = Math.abs(a.x - b.x) >= (a.width + b.width) / 2
        const below = Math.abs(a.y - b.y) >= (a.height + b.height) / 2
        if (a.id < b.id && !beside && !below) covered.push({ layout: number, one: a.id, other: b.id })
      }
    }
    return places.length
  }
  let seen = 0
  for (const [number, layout] of layouts.entries()) {
    model.layout = layout
    graph.show(model, null)
    const until = performance.now() + 300
    while (performance.now() < until) {
      seen = look(number)
      await new Promise(requestAnimationFrame)
    }
  }
  graph.destroy()
  return { covered, seen }
}
"""


@pytest.mark.parametrize("width", [1000, 1600])
def test_no_card_covers_another_while_a_plan_is_written(app: App, open_page: OpenPage, width: int) -> None:
    page = open_page(app.url, width=width)
    played = _play(page, app, [network_data(lay_out(rounds)) for rounds in WRITTEN])
    assert played["seen"] == 8
    assert played["covered"] == []


def _play(page: Page, app: App, layouts: list[dict[str, Any]]) -> dict[str, Any]:
    script = f"{app.url}/_stcore/bidi-components/conductor-inspector.live_workflow/graph.js"
    return page.evaluate(PLAY, {"script": script, "layouts": layouts})  # type: ignore[no-any-return]
