"""One file of a run, opened from the disk with the network off: it shows, plays and fetches nothing."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Page, expect

from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.redaction import Redactor, words
from conductor_core.run.request import new_run_id
from conductor_core.run.share import read_shared
from conductor_core.run.values import SharedOutput
from conductor_core.workflow.model import Step, Workflow
from pages.components.live_workflow.shared_page import shared_page
from tests.browser.conftest import App, OpenFile
from tests.support.run_events import (
    created,
    planned,
    run_completed,
    run_of_seven_seconds,
    sha256,
    step_completed,
    step_started,
)

PAYLOADS = (
    "<script>window.pwned={0}</script>",
    "</script><script>window.pwned={0}</script>",
    "<!--<script>window.pwned={0}</script>",
    '<img src="https://evil.example/{0}.png" onerror="window.pwned={0}">',
    "<svg onload=window.pwned={0}><image href='https://evil.example/{0}'/></svg>",
    '<iframe srcdoc="<script>parent.pwned={0}</script>"></iframe>',
    "<style>@import url(https://evil.example/{0}.css);</style>",
    '<link rel="stylesheet" href="https://evil.example/{0}.css">',
    '<meta http-equiv="refresh" content="0;url=https://evil.example/{0}">',
    '<base href="https://evil.example/{0}/">',
    "![pixel](https://evil.example/{0}.png)",
    "[a link](javascript:window.pwned={0})",
    "<a href='javascript:window.pwned={0}' autofocus onfocus='window.pwned={0}'>x</a>",
    "<details open ontoggle=window.pwned={0}>x</details>",
    "<video autoplay src=https://evil.example/{0}.mp4 onloadstart=window.pwned={0}></video>",
    "$\\href{{javascript:window.pwned={0}}}{{x}}$ $\\includegraphics{{https://evil.example/{0}.png}}$",
    '"}}</script><script type="module">window.pwned={0}</script>',
    "<form action=https://evil.example/{0}><button autofocus>x</button></form>",
    "<object data=https://evil.example/{0}></object><embed src=https://evil.example/{0}>",
    "\u2028</style><body onload=window.pwned={0}>{{{{constructor.constructor('window.pwned={0}')()}}}}",
)
HOSTILE = [payload.format(number) for number, payload in enumerate(PAYLOADS * 5)]


def hostile_run(run_id: str) -> list[Event]:
    """A run of ten steps in whose texts a hundred strings try to run, or to fetch, something."""
    workflow = Workflow(
        steps=tuple(
            Step(instruction=HOSTILE[at], agent=HOSTILE[99 - at], access_list=(at - 1,) if at else ())
            for at in range(10)
        )
    )
    events: list[Event] = [created(run_id, HOSTILE[1]), *planned(run_id, workflow)]
    for at in range(10):
        output = "\n\n".join(HOSTILE[at * 10 : at * 10 + 10])
        begins = 100.0 * (at + 1)
        events += [
            step_started(run_id, at, begins),
            ev.StepDelta(run_id=run_id, at_ms=begins + 10, path=(at,), text=HOSTILE[at + 40], reasoning=True),
            ev.StepDelta(run_id=run_id, at_ms=begins + 20, path=(at,), text=output, output_tokens=3),
            step_completed(run_id, at, output, begins + 90),
        ]
    return [*events, run_completed(run_id, "\n\n".join(HOSTILE), at_ms=1200)]


def run_with_a_formula() -> list[Event]:
    """The run of seven seconds with something withheld, a long answer, and a formula in its first output."""
    answer = "Both ways lead to 42, and nothing in the task speaks against either of them, so it is the answer. " * 2
    events = run_of_seven_seconds("r")
    held = SharedOutput(path=(0,), agent="planner", sha256=sha256("forty-two"), characters=9, tokens=105)
    for at, event in enumerate(events):
        if isinstance(event, ev.StepStarted) and event.path == (1,):
            events[at] = event.model_copy(update={"withheld": (held,)})
        elif isinstance(event, ev.StepCompleted) and event.path == (0,):
            told = "By $x^2$ and \\(\\frac{1}{2}\\) it follows."
            events[at] = event.model_copy(update={"output": told, "output_sha256": sha256(told)})
        elif isinstance(event, ev.RunCompleted):
            events[at] = event.model_copy(update={"answer": answer})
    return events


def test_the_file_shows_and_plays_the_run_carries_moments_in_its_address_and_asks_for_nothing(
    open_file: OpenFile,
) -> None:
    page, asked = open_file(shared_page(run_with_a_formula(), {}, Redactor()), "#at=5", dark=True)
    expect(page.locator(".replay-clock")).to_have_text("0:05.0 / 0:07.0")
    expect(page.locator('.pane[data-step="1"] .prose')).to_have_text("42")
    page.evaluate("location.hash = '#at=2.3'")
    expect(page.locator(".replay-clock")).to_have_text("0:02.3 / 0:07.0")
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="What is 6 times 7?")).to_be_visible()
    expect(page.locator("body > header")).to_contain_text("An unsigned copy")
    expect(page.locator("body > header")).to_contain_text("Its workers are simulated.")
    expect(page.locator(".bar .status")).to_contain_text("Completed 3 of 3")
    expect(page.locator('.pane[data-step="0"] .formula .katex')).to_have_count(2)
    for name in ("Change a step", "Share", "Cancel"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()
    _no_font_of_the_reader_pushes_words_over_each_other(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="▶ Replay").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()
    page.locator(".speed").select_option("20")
    expect(page.locator(".replay-clock")).to_have_text("0:07.0 / 0:07.0")
    expect(page.locator('.pane[data-step="2"] .prose')).to_have_text("42, both ways")
    page.locator(".moment").focus()
    page.keyboard.press("Home")
    expect(page.locator(".pane")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator(".bar .status")).to_contain_text("Completed 3 of 3")
    assert asked == []


def _no_font_of_the_reader_pushes_words_over_each_other(page: Page) -> None:
    """The file brings no font of its own, and the reader's may be wide."""
    page.get_by_label(re.compile("^Step 1, ")).click()
    name = page.locator(".held .name")
    expect(name).to_have_text("0 · planner")
    assert name.evaluate("(at) => at.scrollWidth <= at.clientWidth"), "it is not cut"
    page.get_by_role("button", name="▶ Replay").click()
    controls = page.get_by_role("group", name="Replay")
    expect(controls).to_be_visible()
    said = page.locator(".bar .lines").bounding_box()
    first = controls.locator(":scope > :first-child").bounding_box()
    assert said is not None
    assert first is not None
    assert said["x"] + said["width"] <= first["x"]


def test_a_person_saves_the_file_and_hides_words_in_it(
    app: App, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    run_id = new_run_id()
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, *run_of_seven_seconds(run_id)).result()
    page = open_page(app.run_url(run_id))
    page.get_by_role("button", name="Share", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Link or file…")).to_be_focused()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Share this run")
    dialog.get_by_label("Hide these words").fill("FORTY-TWO\n\n")
    with page.expect_download() as saving:
        dialog.get_by_role("button", name="Download").click()
    file = tmp_path / "saved.html"
    saving.value.save_as(file)
    assert saving.value.suggested_filename == f"run-{run_id}.html"
    ((shared, events, _),) = read_shared(file.read_text(encoding="utf-8"), "file")
    expected = Redactor(words(["forty-two"])).events(run_of_seven_seconds(run_id))
    assert [event.kind for event in events] == [event.kind for event in expected]
    assert not [event for event in events if "forty-two" in event.model_dump_json()]
    assert shared.redactions == 2
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Share", exact=True)).to_be_focused()
