"""Long tasks of a replay in Chromium: 40 steps, one output of 100,000 tokens; in a shared file, which has no server.

Counted are the browser's tasks over 50 ms while the file opens, while the run is played at 20 times its pace, and while
a person jumps through it by key and by slider. The bar for both: no task over 200 ms. The same run, finished and not
played, stands beside it.

python -m benchmarks.replay [--rounds 3]
"""

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from benchmarks.compare_runs import plan, text
from benchmarks.page_load import WATCH
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.redaction import Redactor
from pages.components.live_workflow.shared_page import shared_page
from tests.browser.find_chromium import FLAGS, find_chromium
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

BAR_MS = 200.0
STEPS, WORDS, LONG_WORDS = 40, 400, 75_000
WORDS_A_PIECE = 6
PIECE_MS, STEP_MS = 80.0, 1000.0
JUMPS = 40


def run() -> list[Event]:
    """Steps that stream their texts one after another; the sixth writes 100,000 tokens."""
    draw = random.Random(0)
    workflow = plan(draw, STEPS)
    events: list[Event] = [created("replayed"), *planned("replayed", workflow)]
    at_ms = 30.0
    for index in range(STEPS):
        written = "\n".join(text(draw, 15) for _ in range(LONG_WORDS // 15)) if index == 5 else text(draw, WORDS)
        words = written.split(" ")
        events.append(step_started("replayed", index, at_ms))
        for number in range(0, len(words), WORDS_A_PIECE):
            piece = " ".join(words[number : number + WORDS_A_PIECE]) + " "
            at_ms += PIECE_MS
            events.append(
                ev.StepDelta(run_id="replayed", at_ms=at_ms, path=(index,), text=piece, output_tokens=number * 4 // 3)
            )
        at_ms += STEP_MS
        events.append(step_completed("replayed", index, " ".join(words), at_ms))
    return [*events, run_completed("replayed", "done", at_ms=at_ms + 1)]


def measure(browser: Browser, address: str) -> tuple[float, float, float]:
    """Milliseconds of the longest task: while the file opens, plays and is jumped through."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True).new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    page.get_by_role("button", name="▶ Replay").wait_for(timeout=120_000)
    page.wait_for_timeout(1000)
    found = [page.evaluate("window.longTasks")]

    def longest(do: object) -> None:
        page.evaluate("window.longTasks = []")
        do()  # type: ignore[operator]
        page.wait_for_timeout(500)
        found.append(page.evaluate("window.longTasks"))

    def play() -> None:
        page.get_by_role("button", name="▶ Replay").click()
        page.locator(".speed").select_option("20")
        page.wait_for_timeout(8000)

    def jump() -> None:
        slider = page.locator(".moment")
        end = int(slider.get_attribute("max") or 0)
        draw = random.Random(1)
        for _ in range(JUMPS):
            slider.evaluate(
                "(it, at) => { it.value = String(at); it.dispatchEvent(new Event('input')) }", draw.randrange(end)
            )
            page.wait_for_timeout(60)
            page.keyboard.press(draw.choice(("ArrowLeft", "ArrowRight")))
            page.wait_for_timeout(60)

    longest(play)
    longest(jump)
    page.context.close()
    opening, playing, jumping = (max(each, default=0.0) for each in found)
    return opening, playing, jumping


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium was found: see python -m tests.browser.find_chromium", file=sys.stderr)
        return 2
    events = run()
    page = shared_page(events, {}, Redactor())
    said = sum(len(event.output) for event in events if isinstance(event, ev.StepCompleted))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "run.html"
        file.write_text(page, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        rounds = [measure(browser, file.as_uri()) for _ in range(given.rounds)]
        browser.close()
    print(f"{STEPS} steps, {len(events):,} events, {said / 1e6:.2f} MB of outputs, a file of {len(page) / 1e6:.2f} MB")
    print("longest task in ms, median (all rounds)")
    medians = [statistics.median(each) for each in zip(*rounds, strict=True)]
    for name, middle, each in zip(("opening", "playing", "jumping"), medians, zip(*rounds, strict=True), strict=True):
        print(f"{name:8} {middle:5.0f}   ({', '.join(f'{ms:.0f}' for ms in each)})")
    print(f"playing / opening: {medians[1] / max(medians[0], 1):.2f}")
    print("the bar is", "met" if max(medians[1:]) <= BAR_MS else "missed", f"(no task over {BAR_MS:.0f} ms)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
