"""A client's conversation with tools, followed on the Run page while it goes on elsewhere."""

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from conductor_core.chat.messages import ToolCall, ToolResultPart
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor
from conductor_core.run.events import Event
from conductor_core.run.request import ClientRequest, new_run_id
from tests.browser.conftest import App, append
from tests.support.run_events import created_otherwise, planned, step_completed, step_started, whole_run

CLIENT = ClientRequest(api="responses", model="fugu-ultra")
KEY = Actor(kind="service", id="key-1", name="my app")


def test_a_conversation_is_followed_turn_by_turn(app: App, open_page: Callable[..., Page]) -> None:
    first, second, third = new_run_id(), new_run_id(), new_run_id()

    def begun(run_id: str, task: str) -> tuple[Event, list[Event]]:
        head, *rest = whole_run(run_id, task)
        of = {"client": CLIENT, "actor": KEY, "door": "api", "conversation_id": None if run_id == first else first}
        return created_otherwise(head, **of), rest

    head, rest = begun(first, "Hello there")
    append(app, head, *rest)
    head, _ = begun(second, "And in Oslo?")
    call = ToolCall(call_id="call_0", name="weather", arguments='{"place": "Oslo"}')
    called = ev.ToolCalled(run_id=second, path=(0,), calls=(call,))
    append(app, head, *planned(second), step_started(second, 0, 30), called)
    append(app, ev.RunWaiting(run_id=second, waits_for="tool_results"))

    page = open_page(f"{app.url}/run?run={second}", width=1280, height=720)
    bar, turns = page.locator(".live-workflow .bar"), page.locator(".turn-card")
    expect(bar).to_contain_text("Waits for its client’s tools: weather")
    expect(bar.get_by_role("button", name="Approve")).to_have_count(0)
    expect(page.locator(".inspector .turn")).to_contain_text("Waits for the client since")
    expect(turns).to_have_count(2)
    expect(turns.nth(1)).to_have_attribute("aria-current", "page")

    results = (ToolResultPart(call_id="call_0", text="<b>7 degrees</b>"),)
    append(app, ev.RunTaken(run_id=second), ev.ToolReturned(run_id=second, results=results))
    expect(page.locator(".inspector .tool-result")).to_contain_text("<b>7 degrees</b>")
    expect(bar.locator(".status")).to_contain_text("Running")
    done = [step_completed(second, number, "7 degrees", 60 + number) for number in range(2)]
    append(app, done[0], step_started(second, 1, 61), done[1], *whole_run(second)[-1:])
    expect(bar.locator(".status")).to_contain_text("Completed")

    # The next turn appears by itself; keys lead back to the first one.
    head, rest = begun(third, "Thanks!")
    append(app, head, *rest)
    expect(turns).to_have_count(3)
    turns.nth(1).focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"run={first}"))
    expect(turns.first).to_have_attribute("aria-current", "page")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
