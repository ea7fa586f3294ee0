"""The live component in a real browser, against the real app."""

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from conductor_core.engine.host import EngineHost
from conductor_core.errors import StoreFull
from conductor_core.run.actor import local_caller
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import StepTrace, fold
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from pages.components.live_workflow.messages import LiveView
from tests.browser.conftest import App
from tests.support.provider import Answer, Hang, Part, Pause, Reply, ScriptedProvider, delta, sse

OpenPage = Callable[..., Page]
StartRun = Callable[..., str]

CARD_CENTRES = """
() => {
  const host = [...document.querySelectorAll("*")].find((each) => each.shadowRoot?.querySelector(".live-workflow"))
  const canvas = host.shadowRoot.querySelector(".graph-canvas canvas")
  const box = canvas.getBoundingClientRect()
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
  let painted = 0
  for (let at = 3; at < pixels.length; at += 4) painted += pixels[at] > 0
  return { painted, left: box.left, top: box.top, width: box.width, height: box.height }
}
"""


def test_a_run_streams_and_ends_with_its_answer(app: App, open_page: OpenPage, start_run: StartRun) -> None:
    page = open_page(app.url)
    # The app's first page takes longest; the run shall not be over before it is there.
    expect(page.get_by_role("heading", name="One model plans")).to_be_visible()
    page.goto(app.run_url(start_run()))
    expect(page.locator(".pane")).to_have_count(5)
    expect(page.get_by_text("Simulated workers")).to_be_visible()
    expect(page.locator('.pane[data-status="running"] .prose.streaming').first).to_be_visible()
    expect(page.locator(".bar .status")).to_contain_text("Completed 5 of 5")
    expect(page.locator(".bar")).to_contain_text("13:37")
    assert page.evaluate(CARD_CENTRES)["painted"] > 10_000


def test_a_node_of_the_canvas_opens_its_step(app: App, open_page: OpenPage, start_run: StartRun) -> None:
    page = open_page(app.run_url(start_run()))
    expect(page.locator(".bar .status")).to_contain_text("Completed")
    canvas = page.locator(".graph-canvas canvas")
    box = canvas.bounding_box()
    assert box is not None
    # The plan has four columns; step 0 stands alone in the first, in the middle of the drawing's height.
    canvas.click(position={"x": 120, "y": box["height"] / 2 + 8})
    expect(page.locator(".inspector h3")).to_have_text("Step 0 · planner")
    expect(page.locator('.pane[data-step="0"]')).to_have_class(re.compile("selected"))


def test_the_keyboard_goes_where_the_mouse_can(app: App, open_page: OpenPage, start_run: StartRun) -> None:
    page = open_page(app.run_url(start_run()))
    expect(page.locator(".bar .status")).to_contain_text("Completed")
    page.get_by_label(re.compile("^Step 0, planner, done, .*reads nothing$")).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label(re.compile("^Step 3, verifier, done, .*reads 0, 1, 2$"))).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".inspector h3")).to_have_text("Step 3 · verifier")
    expect(page.locator(".inspector h3")).to_be_focused()
    page.get_by_role("tab", name="What it saw").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Edit")).to_be_focused()
    assert (
        page.locator(".map").evaluate("map => map.querySelectorAll('[aria-hidden=true] [tabindex=\"0\"]').length") == 0
    )


def test_the_inspector_says_what_a_step_saw_and_what_was_withheld(
    app: App, open_page: OpenPage, start_run: StartRun
) -> None:
    page = open_page(app.run_url(start_run()))
    expect(page.locator(".bar .status")).to_contain_text("Completed")
    page.get_by_label(re.compile("Step 4, writer")).click()
    inspector = page.locator(".inspector")
    read, held = inspector.locator(".got"), inspector.locator(".held:not(.absent)")
    expect(read).to_have_count(1)
    expect(read).to_contain_text("3 · verifier")
    trace = app.store.trace(page.url.split("run=")[1])[0]
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


def test_what_a_remote_conductor_writes_before_its_plan_is_seen_at_once(app: App, open_page: OpenPage) -> None:
    prose = "First I weigh who is good at sums. "
    with ScriptedProvider(("planner",)) as server, ThreadPoolExecutor(1) as aside:
        server.then(Reply([sse(*map(delta, [prose] * 8)), Hang()]))
        request = RunRequest(task="What is 6 times 7?", conductor=f"{server.url}#planner", door="page")
        run_id = aside.submit(app.engine.start, request).result()
        page = open_page(app.run_url(run_id))
        expect(page.get_by_text("The Conductor writes before its plan, 70 tokens so far")).to_be_visible()
        expect(page.get_by_text(prose.strip()).first).to_be_visible()
        aside.submit(app.engine.cancel, run_id, local_caller("page")).result()
        expect(page.locator(".bar .status")).to_contain_text("Cancelled")
        expect(page.get_by_text("tokens so far")).to_have_count(0)


def test_a_reload_and_a_second_browser_show_the_same_run_in_flight(
    app: App, open_page: OpenPage, start_run: StartRun
) -> None:
    url = app.run_url(start_run())
    page = open_page(url)
    expect(page.locator('.pane[data-status="completed"]').first).to_be_visible()
    page.reload()
    second = open_page(url)
    for each in (page, second):
        expect(each.locator(".pane")).to_have_count(5)
    trace = app.engine.wait(url.split("run=")[1], 60)
    for each in (page, second):
        expect(each.locator(".bar .status")).to_contain_text("Completed 5 of 5")
        for key, step in enumerate(trace.steps):
            shown = each.locator(f'.pane[data-step="{key}"] .prose')
            expect(shown).to_contain_text(step.output.splitlines()[-1].replace("**", "").replace("`", "").strip())


# Where everything stands in the component: panes are scrolled sideways to those that run, which moves none of them.
PLACES = """
() => {
  const host = [...document.querySelectorAll("*")].find((each) => each.shadowRoot?.querySelector(".live-workflow"))
  const places = (part) => [...host.shadowRoot.querySelectorAll(part)].map((each) => {
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = each
    return [part, offsetLeft, offsetTop, offsetWidth, offsetHeight]
  })
  const parts = [".bar", ".map", ".graph-canvas", ".graph-footer", ".lower-line", ".panes", ".pane", ".inspector"]
  return [host.getBoundingClientRect().top, ...parts.flatMap(places)]
}
"""


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1440, 900)])
def test_live_updates_and_the_end_move_nothing(
    app: App, open_page: OpenPage, start_run: StartRun, width: int, height: int
) -> None:
    page = open_page(app.run_url(start_run()), width=width, height=height)
    expect(page.locator('.pane[data-status="running"]').first).to_be_visible()
    before = page.evaluate(PLACES)
    expect(page.locator(".bar .status")).to_contain_text("Completed")
    expect(page.locator(".conclusion")).to_have_text("13:37")
    assert page.evaluate(PLACES) == before


def test_a_run_of_another_engine_can_be_cancelled_from_the_page(
    app: App, open_page: OpenPage, start_run: StartRun
) -> None:
    # Slow workers: it goes on long enough to be pressed, however busy the machine is.
    slow = EngineHost(app.store.log, Settings(rehearsal_tokens_per_s=4), app.store)
    page = open_page(app.run_url(start_run(host=slow)))
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator(".bar .status")).to_contain_text("Cancelled")
    expect(page.get_by_text("Cancelled from this page").first).to_be_visible()
    with ThreadPoolExecutor(1) as aside:
        aside.submit(slow.close).result()


def test_a_cancellation_that_is_refused_is_told(app: App, open_page: OpenPage, start_run: StartRun) -> None:
    slow = EngineHost(app.store.log, Settings(rehearsal_tokens_per_s=4), app.store)
    run_id = start_run(host=slow)
    page = open_page(app.run_url(run_id))
    page.route("**/api/runs/*/cancel", lambda route: route.fulfill(status=404, body="{}"))
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator(".notice-line")).to_contain_text("could not be cancelled")
    expect(page.locator(".bar .status")).to_contain_text("Running")
    slow.cancel(run_id, local_caller("cli"))
    expect(page.locator(".bar .status")).to_contain_text("Cancelled")
    with ThreadPoolExecutor(1) as aside:
        aside.submit(slow.close).result()


@pytest.mark.parametrize("width", [1280, 1920])
def test_nothing_needs_a_sideways_scroll(app: App, open_page: OpenPage, start_run: StartRun, width: int) -> None:
    page = open_page(app.run_url(start_run()), width=width)
    expect(page.locator(".pane")).to_have_count(5)
    assert page.evaluate("document.scrollingElement.scrollWidth <= window.innerWidth")
    work = page.locator(".live-workflow").bounding_box()
    assert work is not None
    assert work["x"] + work["width"] <= width


def test_light_and_dark_take_the_pages_colours(app: App, open_page: OpenPage, start_run: StartRun) -> None:
    url = app.run_url(start_run())
    app.engine.wait(url.split("run=")[1], 60)
    for dark in (False, True):
        page = open_page(url, dark=dark)
        root = page.locator(".live-workflow")
        expect(root).to_have_attribute("data-theme", "dark" if dark else "light")
        expect(page.locator(".bar .status")).to_contain_text("Completed")
        ratio = page.evaluate(CONTRAST)
        assert min(ratio.values()) >= 4.5, ratio


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


def test_a_broken_connection_comes_back_with_nothing_lost_or_doubled(
    app: App, open_page: OpenPage, start_run: StartRun
) -> None:
    page = open_page("about:blank")
    broken: list[int] = []

    def break_after_a_while(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        passed = 0

        def forward(message: str | bytes) -> None:
            nonlocal passed
            passed += 1
            if passed == 6 and len(broken) < 2:
                broken.append(passed)
                server.close()
                socket.close(code=1011)
            else:
                socket.send(message)

        server.on_message(forward)

    page.route_web_socket(re.compile("/live$"), break_after_a_while)
    run_id = start_run()
    page.goto(app.run_url(run_id))
    expect(page.locator(".bar .status")).to_contain_text("Completed 5 of 5")
    trace = app.store.trace(run_id)[0]
    whole = open_page(app.run_url(run_id))
    expect(whole.locator(".bar .status")).to_contain_text("Completed 5 of 5")
    for key in range(len(trace.steps)):
        prose = f'.pane[data-step="{key}"] .prose'
        expect(page.locator(prose)).to_have_text(whole.locator(prose).inner_text(), use_inner_text=True)
    assert broken


def test_a_run_whose_end_could_not_be_written_is_shown_as_failed(
    app: App, open_page: OpenPage, start_run: StartRun
) -> None:
    run_id = start_run()
    app.engine.wait(run_id, 60)
    stored = app.store.events(run_id)
    half = next(number for number, each in enumerate(stored) if each.event.kind == "step.completed")
    view = LiveView(fold(each.event for each in stored[: half + 1]), stored[half].sequence)

    def stop(socket: WebSocketRoute) -> None:
        socket.send(json.dumps(view.snapshot()))
        socket.send(json.dumps(view.stopped(StoreFull("no space left for the database"))))
        socket.close(code=1000)

    page = open_page("about:blank")
    page.route_web_socket(re.compile("/live$"), stop)
    page.goto(app.run_url(run_id))
    expect(page.locator(".bar .status")).to_have_text("✕ Failed 1 of 5")
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_hidden()
    expect(page.get_by_role("button", name="Change a step")).to_be_disabled()
    expect(page.locator(".bar")).to_contain_text("no space left for the database")
    expect(page.locator(".bar")).to_contain_text("then resume the run")


def test_another_run_takes_the_place_of_the_first(app: App, open_page: OpenPage, start_run: StartRun) -> None:
    first, second = (
        start_run(),
        start_run(("scientist", "{question}", ()), task="What is the chemical symbol of tungsten?"),
    )
    app.engine.wait(first, 60)
    app.engine.wait(second, 60)
    page = open_page(app.run_url(first))
    expect(page.locator(".pane")).to_have_count(5)
    page.goto(app.run_url(second))
    expect(page.locator(".pane")).to_have_count(1)
    expect(page.locator(".bar")).to_contain_text("W")


PATIENCE_S = 90.0
PLACE = "body => [body.scrollTop, body.scrollHeight, body.clientHeight, body.innerText.slice(-60)].join(' · ')"


def _grows(page: Page, body: Locator) -> None:
    """Waits until three more lines have come: the page has had several turns since what was done before."""
    lines = body.locator("p").count()
    expect(body.locator("p").nth(lines + 2)).to_be_attached()


@pytest.mark.parametrize("moved", ["nowhere", "by itself", "by wheel", "by keyboard", "by focus"])
def test_a_pane_follows_its_text_and_then_shows_its_beginning_unless_one_reads_elsewhere(
    app: App, open_page: OpenPage, tmp_path: Path, moved: str
) -> None:
    lines = "\n\n".join(f"Line {number} of an answer." for number in range(1000))
    page = open_page(app.url, width=1280, height=720)
    with ScriptedProvider() as provider, ThreadPoolExecutor(1) as aside:
        # Longer than anybody waits: it is cancelled when it has been seen to grow.
        provider.always(Answer(lines, pieces=1000, pause_s=0.15))
        pool = tmp_path / "pool.toml"
        pool.write_text(f'[[worker]]\nname = "writer"\nprovider = "openai"\nmodel = "m"\nbase_url = "{provider.url}"\n')
        plan = Workflow(steps=(Step(agent="writer", instruction="{question}"),))
        request = RunRequest(task="A long one", workflow=plan, pool=str(pool), door="page")
        run_id = aside.submit(app.engine.start, request).result()
        page.goto(app.run_url(run_id))
        body = page.locator('.pane[data-status="running"] .pane-body')
        # Found anew each time: on a busy machine the page may be drawn twice, and the first pane goes.
        until_s = time.monotonic() + PATIENCE_S
        while body.evaluate("body => body.scrollTop") < 900:
            page.wait_for_timeout(50)
            assert time.monotonic() < until_s, body.evaluate(PLACE)
        if moved == "by itself":
            # As a browser does where the text changes.
            body.evaluate("body => { body.querySelector('.prose').append('More.'); body.scrollTop = 30 }")
        elif moved == "by wheel":
            body.hover()
            page.mouse.wheel(0, -250)
        elif moved == "by keyboard":
            # Until it reads elsewhere: text that comes between two presses leads back to the end.
            body.focus()
            while body.evaluate("body => body.scrollHeight - body.scrollTop - body.clientHeight") < 100:
                page.keyboard.press("ArrowUp")
                assert time.monotonic() < until_s, body.evaluate(PLACE)
        elif moved == "by focus":
            line = body.locator("p").nth(15)  # above what the pane shows, below what it shows at its top
            line.evaluate("line => { line.tabIndex = -1; line.focus() }")
        _grows(page, body)
        app.engine.cancel(run_id, local_caller("page"))
        expect(page.locator(".bar .status")).to_contain_text("Cancelled")
        expect(page.locator(".pane .notice")).to_contain_text("what had arrived is kept")
    if moved in ("nowhere", "by itself"):
        expect(page.locator(".pane-body")).to_have_js_property("scrollTop", 0)
    else:
        assert page.locator(".pane-body").evaluate("body => body.scrollTop") > 0


def test_the_panes_do_not_slide_away_from_one_that_is_read(app: App, open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(app.url, width=1280, height=720)
    lines = "\n\n".join(f"Line {number} of an answer." for number in range(1000))
    reading = Event()

    def once_one_reads() -> Iterator[Part]:
        while not reading.is_set():
            yield Pause(0.05)
        yield sse(delta("Short and soon."), delta(finish="stop"), "[DONE]")

    with ScriptedProvider() as slow, ScriptedProvider() as quick, ThreadPoolExecutor(1) as aside:
        slow.always(Answer(lines, pieces=1000, pause_s=0.1))
        quick.always(lambda _: Reply(once_one_reads()))
        pool = tmp_path / "pool.toml"
        worker = '[[worker]]\nname = "{}"\nprovider = "openai"\nmodel = "m"\nbase_url = "{}"\n'
        pool.write_text(worker.format("slow", slow.url) + worker.format("quick", quick.url))
        chain = (Step(agent="quick", instruction="{question}", access_list=sees) for sees in ((), (1,), (2,)))
        last = Step(agent="slow", instruction="{question}", access_list=(3,))
        plan = Workflow(steps=(Step(agent="slow", instruction="{question}"), *chain, last))
        request = RunRequest(task="A long one", workflow=plan, pool=str(pool), door="page")
        run_id = aside.submit(app.engine.start, request).result()
        page.goto(app.run_url(run_id))
        read = page.locator('.pane[data-step="0"] .pane-body')
        expect(page.locator('.pane[data-step="0"][data-status="running"]')).to_be_visible()
        read.hover()
        until_s = time.monotonic() + PATIENCE_S
        while read.evaluate("body => body.scrollTop") < 100:
            page.wait_for_timeout(50)
            assert time.monotonic() < until_s, read.evaluate(PLACE)
        page.mouse.wheel(0, -80)
        _grows(page, read)
        reading.set()
        expect(page.locator('.pane[data-step="4"][data-status="running"]')).to_have_count(1)
        _grows(page, read)
        panes = page.locator(".panes")
        assert panes.evaluate("panes => [panes.scrollLeft, panes.scrollWidth > panes.clientWidth]") == [0, True]
        app.engine.cancel(run_id, local_caller("page"))
