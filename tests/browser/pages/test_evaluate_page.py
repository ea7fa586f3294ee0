"""Evaluate in a real browser: from a figure down to the run it comes from, names that do not cover each other."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SIDEWAYS, App, Make, becomes, status
from tests.support.records import ORCHESTRATORS, evaluation_plan, outcomes, write_evaluation

OpenPage = Callable[..., Page]
NAMES = """
() => [...document.querySelectorAll('.st-key-chart-pareto .annotation-text')]
  .map((each) => each.getBoundingClientRect())
"""

CUT = """
() => [...document.querySelectorAll('[class*="st-key-standing-row-"] button p')]
  .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)
"""

RIGHT_BELOW = """
() => {
  const [own, opened, after] = ['standing-row-1', 'runs-of', 'standing-row-2']
    .map((key) => document.querySelector(`.st-key-${key}`)?.getBoundingClientRect());
  return Boolean(own && opened && after) && opened.top - own.bottom < 2 && after.top - opened.bottom < 2;
}
"""
RUNS_BEGIN_AT = "() => document.querySelector('.st-key-runs-of').getBoundingClientRect().top"


@pytest.fixture
def root(app: App) -> Iterator[Path]:
    folder = app.data_folder / "evaluations"
    yield folder
    shutil.rmtree(folder)


def test_eighteen_names_are_whole_stand_beside_their_points_and_open_their_runs_right_below(
    app: App, open_page: OpenPage, root: Path, make_run: Make
) -> None:
    run = make_run(task="A task that was evaluated")
    plan = evaluation_plan("e", tuple(ORCHESTRATORS), 300)
    told = outcomes(plan)
    name = plan.orchestrators[1]
    at = next(at for at, each in enumerate(told) if each.orchestrator == name)
    told[at] = told[at].model_copy(update={"run_id": run.run_id, "score": 0.0, "fault": None})
    write_evaluation(root / "e", plan, told)
    page = open_page(f"{app.url}/evaluate", width=1280, height=720, dark=True)
    expect(page.locator(".st-key-chart-pareto .annotation-text-g")).to_have_count(18)
    expect(page.locator(".st-key-chart-steps-by-difficulty .js-plotly-plot")).to_be_visible()
    boxes = page.evaluate(NAMES)
    over = [
        (one, other)
        for at, one in enumerate(boxes)
        for other in boxes[at + 1 :]
        if one["left"] < other["right"] - 1
        and other["left"] < one["right"] - 1
        and one["top"] < other["bottom"] - 1
        and other["top"] < one["bottom"] - 1
    ]
    assert over == []
    assert page.evaluate(SIDEWAYS) == []
    ink = page.evaluate("document.querySelector('.st-key-chart-pareto .js-plotly-plot').data[1].marker.color")
    assert set(ink) <= {"#e8ebf0", "#a3acba"}
    for width in (1440, 1280):
        page.set_viewport_size({"width": width, "height": 720})
        assert becomes(page, f"() => ({CUT})().length === 0")
    page.get_by_role("button", name=name, exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".st-key-runs-of")).to_contain_text(f"Runs of {name}")
    # Once the page has come to rest.
    becomes(page, RIGHT_BELOW)
    assert page.evaluate(RUNS_BEGIN_AT) < 720
    expect(page.get_by_text("not in this database").first).to_be_visible()
    page.get_by_text("✕ wrong ·").click()
    page.get_by_role("link", name="A task that was evaluated").click()
    page.wait_for_url(re.compile(f"run={run.run_id}"))
    expect(status(page)).to_contain_text("5 of 5")
