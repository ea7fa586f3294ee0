"""The live component against the real app: it streams, is cancelled, is cut off, comes back, and moves nothing."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from conductor_core.run.actor import local_caller
from conductor_core.run.request import RunRequest
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App, OpenPage, becomes, status
from tests.support.provider import Answer, Part, Pause, Reply, ScriptedProvider, delta, sse

StartRun = Callable[..., str]
WORKER = '[[worker]]\nname = "{}"\nprovider = "openai"\nmodel = "m"\nbase_url = "{}"\n'
LINES = "\n\n".join(f"Line {number} of an answer." for number in range(1000))

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


def once(let_go: Event, *first: str) -> Callable[[object], Reply]:
    """An answer whose end comes when it is let go."""

    def parts() -> Iterator[Part]:
        yield from (sse(delta(words)) for words in first)
        while not let_go.is_set():
            yield Pause(0.05)
        yield sse(delta("Answer: 13:37"), delta(finish="stop"), "[DONE]")

    return lambda _: Reply(parts())


def started(app: App, pool: Path, *steps: Step) -> str:
    # Playwright's event loop has this thread; the engine is asked from another.
    with ThreadPoolExecutor(1) as aside:
        request = RunRequest(task="A long one", workflow=Workflow(steps=steps), pool=str(pool), door="page")
        return aside.submit(app.engine.start, request).result()


def test_a_run_streams_in_two_browsers_and_over_a_reload_and_moves_nothing_as_it_ends(
    app: App, open_page: OpenPage, tmp_path: Path
) -> None:
    let_go, pool = Event(), tmp_path / "pool.toml"
    with ScriptedProvider() as provider:
        provider.always(once(let_go, "First I add the legs. ", "Then I am "))
        pool.write_text(WORKER.format("writer", provider.url))
        steps = (Step(agent="writer", instruction="{question}", access_list=sees) for sees in ((), (), (0, 1)))
        run_id = started(app, pool, *steps)
        page = open_page(app.run_url(run_id), width=1280, height=720)
        expect(page.locator('.pane[data-status="running"] .prose.streaming')).to_have_count(2)
        page.reload()
        second = open_page(app.run_url(run_id), width=1920, height=1080, dark=True)
        for each in (page, second):
            expect(each.locator(".pane")).to_have_count(3)
            expect(each.locator('.pane[data-step="0"] .prose')).to_have_text("First I add the legs. Then I am")
        second.get_by_role("tab", name="Timeline").click()
        expect(second.locator(".timeline")).to_be_hidden()
        expect(second.get_by_text("It appears here when the run ends.")).to_be_visible()
        places = [each.evaluate(PLACES) for each in (page, second)]
        let_go.set()
        for each, before in zip((page, second), places, strict=True):
            expect(status(each)).to_contain_text("Completed 3 of 3")
            expect(each.locator(".bar")).to_contain_text("13:37")
            expect(each.locator('.pane[data-step="1"] .prose')).to_contain_text("Then I am Answer: 13:37")
            assert each.evaluate(PLACES) == before
            assert each.evaluate("document.scrollingElement.scrollWidth <= window.innerWidth")
        expect(second.locator(".timeline-row")).to_have_count(3)
        expect(second.locator(".timeline")).to_contain_text("critical path")
        assert page.evaluate(CARD_CENTRES)["painted"] > 10_000


def test_a_broken_connection_comes_back_with_nothing_lost_or_doubled(
    app: App, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page("about:blank")
    let_go, pool = Event(), tmp_path / "pool.toml"
    broken: list[str | bytes] = []

    def break_twice(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def forward(message: str | bytes) -> None:
            socket.send(message)
            if len(broken) < 2:
                broken.append(message)
                server.close()
                socket.close(code=1011)
            else:
                let_go.set()

        server.on_message(forward)

    page.route_web_socket(re.compile("/live$"), break_twice)
    with ScriptedProvider() as provider:
        provider.always(once(let_go, "First I add the legs. ", "Then I am at "))
        pool.write_text(WORKER.format("writer", provider.url))
        steps = (Step(agent="writer", instruction="{question}", access_list=sees) for sees in ((), (0,)))
        page.goto(app.run_url(started(app, pool, *steps)))
        expect(status(page)).to_contain_text("Completed 2 of 2")
    assert len(broken) == 2
    for key in range(2):
        prose = page.locator(f'.pane[data-step="{key}"] .prose')
        expect(prose).to_have_text("First I add the legs. Then I am at Answer: 13:37")


AT_THE_END = "body => body.scrollHeight - body.scrollTop - body.clientHeight < 60"


def _grows(page: Page, body: Locator) -> None:
    """Waits until three more lines have come: the page has had several turns since what was done before."""
    lines = body.locator("p").count()
    expect(body.locator("p").nth(lines + 2)).to_be_attached()


def test_panes_follow_their_text_unless_one_reads_elsewhere_and_do_not_slide_away_from_one_that_is_read(
    app: App, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(app.url, width=1280, height=720)
    with ScriptedProvider() as provider, ThreadPoolExecutor(1) as aside:
        # Longer than anybody waits: it is cancelled when it has been seen to grow.
        provider.always(Answer(LINES, pieces=1000, pause_s=0.1))
        pool = tmp_path / "pool.toml"
        pool.write_text(WORKER.format("writer", provider.url))
        run_id = started(app, pool, *(Step(agent="writer", instruction="{question}") for _ in range(3)))
        page.goto(app.run_url(run_id))
        nobody, wheel, keys = bodies = [page.locator(f'.pane[data-step="{index}"] .pane-body') for index in range(3)]
        for body in bodies:
            becomes(body, "body => body.scrollTop > 400")
        # As a browser does where the text changes: nobody reads there.
        nobody.evaluate("body => { body.querySelector('.prose').append('More.'); body.scrollTop = 30 }")
        wheel.hover()
        page.mouse.wheel(0, -250)
        becomes(wheel, "body => body.scrollHeight - body.scrollTop - body.clientHeight > 150")
        # Until it reads elsewhere: text that comes between two presses leads back to the end.
        keys.focus()
        while keys.evaluate("body => body.scrollHeight - body.scrollTop - body.clientHeight") < 100:
            page.keyboard.press("ArrowUp")
        for body in bodies:
            _grows(page, body)
        becomes(nobody, AT_THE_END)
        for body in (wheel, keys):
            assert not body.evaluate(AT_THE_END)
        app.engine.cancel(run_id, local_caller("page"))
        expect(status(page)).to_contain_text("Cancelled")
        expect(page.locator(".pane .notice").first).to_contain_text("what had arrived is kept")
        aside.submit(app.engine.wait, run_id, 60).result()
    expect(nobody).to_have_js_property("scrollTop", 0)
    for body in (wheel, keys):
        assert body.evaluate("body => body.scrollTop") > 0
    _do_not_slide_away_from_one_that_is_read(app, page, tmp_path)


def _do_not_slide_away_from_one_that_is_read(app: App, page: Page, tmp_path: Path) -> None:
    reading = Event()
    with ScriptedProvider() as slow, ScriptedProvider() as quick:
        slow.always(Answer(LINES, pieces=1000, pause_s=0.1))
        quick.always(once(reading))
        pool = tmp_path / "pool.toml"
        pool.write_text(WORKER.format("slow", slow.url) + WORKER.format("quick", quick.url))
        chain = (Step(agent="quick", instruction="{question}", access_list=sees) for sees in ((), (1,), (2,)))
        last = Step(agent="slow", instruction="{question}", access_list=(3,))
        run_id = started(app, pool, Step(agent="slow", instruction="{question}"), *chain, last)
        page.goto(app.run_url(run_id))
        read = page.locator('.pane[data-step="0"] .pane-body')
        becomes(read, "body => body.scrollTop > 100")
        read.hover()
        page.mouse.wheel(0, -80)
        _grows(page, read)
        reading.set()
        expect(page.locator('.pane[data-step="4"][data-status="running"]')).to_have_count(1)
        _grows(page, read)
        panes = page.locator(".panes")
        assert panes.evaluate("panes => [panes.scrollLeft, panes.scrollWidth > panes.clientWidth]") == [0, True]
        app.engine.cancel(run_id, local_caller("page"))
