"""History and Workers in a real browser, and what holds for every page: both themes, 1280 px, inert text."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import TASK, App, Make, begin_by_menu, run_of, status
from tests.support.provider import ScriptedProvider

OpenPage = Callable[..., Page]
HOSTILE = (
    '<img src="http://evil.example/a.png" onerror="window.pwned=1"><script>window.pwned=1</script> '
    "![x](http://evil.example/b.png) [y](javascript:window.pwned=1) :red[z] $x$"
)


def test_history_opens_a_run_and_the_typed_task_is_not_lost(app: App, open_page: OpenPage, make_run: Make) -> None:
    run = make_run(task="A task that only this test has")
    page = open_page(app.url)
    page.get_by_label("Task", exact=True).fill("half a thought")
    page.get_by_label("Task", exact=True).blur()
    page.get_by_role("link", name="History").click()
    page.get_by_label("Search runs").fill("only this test")
    page.get_by_label("Search runs").press("Enter")
    rows = page.locator('[class*="st-key-run-row-"] .cells.runs:not(.head)')
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("simulated")
    page.get_by_role("link", name="A task that only this test has").click()
    page.wait_for_url(re.compile(run.run_id))
    expect(status(page)).to_contain_text("5 of 5")
    expect(page.get_by_label("Task", exact=True)).to_have_value("half a thought")
    expect(page.get_by_text("The task of the run below: A task that only this test has")).to_be_visible()


@pytest.mark.parametrize("width", [640, 720, 960])
def test_history_keeps_its_tasks_at_200_percent(app: App, open_page: OpenPage, make_run: Make, width: int) -> None:
    # A browser at 200 % has half the pixels for the page.
    make_run(task=f"A task that is read in {width} pixels, and is long enough to need the room that it is given")
    page = open_page(f"{app.url}/history", width=width, height=400)
    page.get_by_label("Search runs").fill(f"read in {width} pixels")
    page.get_by_label("Search runs").press("Enter")
    task = page.get_by_role("link", name=f"A task that is read in {width} pixels").first
    expect(page.locator('[class*="st-key-run-row-"] .cells.runs:not(.head)')).to_have_count(1)
    box = task.bounding_box()
    assert box is not None
    assert box["width"] > 400
    for said in ("Plan by hand", "simulated", "just now"):
        expect(page.get_by_text(said).first).to_be_in_viewport()
    assert page.evaluate(SIDEWAYS) == []


def test_a_task_in_arabic_reads_from_the_right(app: App, open_page: OpenPage, make_run: Make) -> None:
    make_run(task="ما هي عاصمة أستراليا؟ اشرح الجواب خطوة بخطوة ثم تحقق منه مرة أخرى قبل أن تكتب الجواب")
    make_run(task="Where does عاصمة come from?")
    page = open_page(f"{app.url}/history", width=1280)
    way = "each => getComputedStyle(each).direction"
    arabic = page.locator('[data-testid="stPageLink"] p', has_text="ما هي عاصمة").first
    expect(arabic).to_be_visible()
    assert arabic.evaluate(way) == "rtl"
    assert page.locator('[data-testid="stPageLink"] p', has_text="Where does").first.evaluate(way) == "ltr"


def test_a_worker_left_out_is_in_no_plan(app: App, open_page: OpenPage) -> None:
    page = open_page(f"{app.url}/workers")
    planner = page.locator('[class*="st-key-worker-row-"]', has_text="planner").first
    expect(planner).to_contain_text("simulated")
    use = planner.get_by_role("switch", name="Use planner")
    expect(use).to_be_checked()
    planner.locator("label").last.click()
    expect(planner.get_by_text("left out")).to_be_visible()
    page.get_by_role("link", name="Run", exact=True).click()
    expect(page.get_by_text("6 of 7 workers, without planner")).to_be_visible()
    page.reload()
    expect(page.get_by_text("6 of 7 workers, without planner")).to_be_visible()
    page.get_by_role("button", name="Merge bookings").click()
    expect(page.get_by_label("Task", exact=True)).to_have_value(re.compile("merge_bookings"))
    begin_by_menu(page, "Plan only")
    page.wait_for_url(re.compile("run="))
    expect(status(page)).to_contain_text("Plan")
    pool = run_of(page, app).pool
    assert "planner" not in [spec.name for spec in pool.workers]
    assert pool.excluded == ("planner",)
    page.locator(".plan-button").click()
    expect(page.locator(".inspector")).to_contain_text("left out of the pool: planner")


def test_a_check_says_how_each_worker_is(app: App, open_page: OpenPage) -> None:
    page = open_page(f"{app.url}/workers")
    page.get_by_role("button", name="Check all").click()
    expect(page.locator('[class*="st-key-worker-row-"]', has_text="simulated")).to_have_count(7)
    expect(page.locator(".st-key-workers").get_by_text("check_circle")).to_have_count(7)
    expect(page.locator(".st-key-conductors").get_by_text("check_circle")).to_have_count(1)


@pytest.mark.parametrize("dark", [False, True])
def test_every_page_fits_1280_px_and_follows_the_theme(
    app: App, open_page: OpenPage, make_run: Make, dark: bool
) -> None:
    run = make_run()
    page = open_page(app.run_url(run.run_id), dark=dark, width=1280)
    expect(page.locator(".timeline-row").last).to_be_attached()
    _fits(page, dark)
    page.get_by_role("button", name="Change a step").click()
    expect(page.locator(".plan-list")).to_be_visible()
    _fits(page, dark)
    for link, shown in (
        ("History", ".cells.runs"),
        ("Workers", ".cells.workers"),
        ("Models", ".cells.machine-model"),
        ("Run", ".live-workflow"),
    ):
        page.get_by_role("link", name=link, exact=True).click()
        expect(page.locator(shown).first).to_be_visible()
        _fits(page, dark)


def _fits(page: Page, dark: bool) -> None:
    assert page.evaluate(SIDEWAYS) == []
    ground = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    assert ground == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")


# What is wider than the window, or scrolls sideways inside the page.
SIDEWAYS = """
() => {
  const wide = [document.scrollingElement, document.querySelector('[data-testid="stMain"]')]
    .filter((each) => each.scrollWidth > each.clientWidth + 1)
  const out = [...document.querySelectorAll('.stMain [class*="st-key-"]')]
    .filter((each) => each.getBoundingClientRect().right > window.innerWidth + 1)
  return [...wide, ...out].map((each) => each.className)
}
"""


# What is smaller than ``least`` px, in its words..
SMALL = """
least => {
  const found = []
  const look = (root) => {
    for (const each of root.querySelectorAll("*")) {
      if (each.shadowRoot) look(each.shadowRoot)
      const { width, height } = each.getBoundingClientRect()
      const said = [...each.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent.trim())
      if (!said.join("") || Math.min(width, height) < 2 || each.closest("#js-plotly-tester, .katex")) continue
      const style = getComputedStyle(each)
      if (style.visibility !== "hidden" && parseFloat(style.fontSize) < least - 0.05) found.push(said.join(" "))
    }
  }
  look(document)
  return found
}
"""


@pytest.mark.parametrize(("width", "height", "least"), [(1280, 720, 12), (1920, 1080, 14)])
def test_no_text_is_small(app: App, open_page: OpenPage, make_run: Make, width: int, height: int, least: float) -> None:
    run_id = make_run().run_id
    page = open_page("about:blank", width=width, height=height)
    for address, shown in (
        ("", ".st-key-task"),
        (f"run?run={run_id}", ".timeline-row"),
        (f"context?run={run_id}", ".sankey-node"),
        (f"audit?run={run_id}", ".stHtml"),
        ("training", ".js-plotly-plot .annotation-text"),
        ("evaluate", ".js-plotly-plot .annotation-text"),
        ("history", ".cells.runs"),
        ("workers", ".cells.workers"),
        ("models", ".cells.machine-model"),
    ):
        page.goto(f"{app.url}/{address}")
        expect(page.locator(shown).first).to_be_attached()
        assert page.evaluate(SMALL, least) == [], address


@pytest.mark.parametrize(
    "address",
    ["", "run", "history", "compare", "context", "blame", "audit", "workers", "models", "evaluate", "training"],
)
def test_no_page_asks_for_what_is_not_there(app: App, open_page: OpenPage, address: str) -> None:
    page = open_page("about:blank")
    faults: list[str] = []
    page.on("response", lambda response: faults.append(response.url) if response.status >= 400 else None)
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(f"{app.url}/{address}")
    expect(page.locator("h1, .st-key-task").first).to_be_visible()
    page.get_by_role("link", name="History").click()
    expect(page.get_by_label("Search runs")).to_be_visible()
    page.wait_for_url(f"{app.url}/history")
    assert faults == []


def test_hostile_text_does_nothing_on_any_page(app: App, open_page: OpenPage, make_run: Make) -> None:
    run = make_run(("planner", f"{HOSTILE} {{question}}", ()), task=HOSTILE, plan_only=True)
    page = open_page("about:blank")
    foreign: list[str] = []

    def watch(route: Route) -> None:
        foreign.append(route.request.url)
        route.abort()

    page.route(lambda url: not url.startswith((app.url, "data:", "blob:", "about:")), watch)
    page.goto(f"{app.url}/history")
    expect(page.get_by_text("<script>window.pwned=1</script>").first).to_be_visible()
    page.goto(app.run_url(run.run_id))
    expect(page.get_by_label("Task", exact=True)).to_have_value(HOSTILE)
    page.get_by_label("Task", exact=True).fill(TASK)
    page.get_by_label("Task", exact=True).blur()
    expect(page.get_by_text("The task of the run below")).to_contain_text("<script>window.pwned=1</script>")
    page.get_by_role("button", name="Change a step").click()
    page.locator(".plan-rows li").first.click()
    expect(page.locator(".plan-rows li").first).to_contain_text("<script>window.pwned=1</script>")
    expect(page.get_by_role("textbox", name="Instruction of step 0")).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert page.locator('.stMain img[src*="evil"], .stMain a[href*="javascript"]').count() == 0
    assert foreign == []


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("m",)) as running:
        yield running


def test_missing_keys_are_one_line_and_one_click(
    start_app: Callable[..., AbstractContextManager[App]], open_page: OpenPage, tmp_path: Path, server: ScriptedProvider
) -> None:
    pool = tmp_path / "two.toml"
    pool.write_text(
        "".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "m"\nbase_url = "{server.url}"\n{more}\n'
            for name, more in (("keyless", ""), ("locked", 'api_key_env = "A_KEY_THAT_NO_TEST_SETS_API_KEY"'))
        )
    )
    # An app of its own: what is left out is kept in the data folder.
    with start_app(tmp_path / "data", pool=str(pool)) as app:
        page = open_page(app.url, width=1280, height=720)
        notice = page.locator(".st-key-key-notice")
        expect(notice).to_contain_text("two: 0 of 1 key. Not set: A_KEY_THAT_NO_TEST_SETS_API_KEY")
        box = notice.bounding_box()
        assert box is not None
        assert box["height"] < 60
        expect(notice.get_by_role("button", name="1 of 3 does not answer")).to_be_visible()
        page.get_by_role("button", name="Use only what answers").click()
        expect(notice.get_by_role("button", name="The Conductor and 1 worker answer")).to_be_visible()
        expect(page.get_by_text("1 of 2 workers, without locked").first).to_be_visible()
        # Before its app goes: what it asks then would fail.
        page.close()
