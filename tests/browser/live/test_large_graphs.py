"""A run of forty steps: folded, unfolded, as a list, and from a step to one that it reads, while it goes on."""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Locator, Page, expect

from conductor_core.chat.messages import Message
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.request import new_run_id
from conductor_core.run.values import PoolInfo, SharedOutput
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import App
from tests.support.run_events import created, planned, run_completed, sha256, step_completed, step_started

OpenPage = Callable[..., Page]

N = 12  # suppliers
PLAN = Workflow(
    steps=(
        *(Step(agent="scientist", instruction=f"Facts on supplier {each}") for each in range(N)),
        *(Step(agent="calculator", instruction=f"Cost of {each}", access_list=(each,)) for each in range(N)),
        *(Step(agent="reasoner", instruction=f"Risks of {each}", access_list=(each, N + each)) for each in range(N)),
        *(
            Step(agent="verifier", instruction=f"Check the {each}", access_list=tuple(range(2 * N, 3 * N)))
            for each in ("costs", "deliveries", "risks")
        ),
        Step(agent="writer", instruction="Recommend one", access_list=tuple(range(3 * N, 3 * N + 3))),
    )
)
RUNNING = range(28, 32)


class LargeRun:
    """The run, written event by event into the app's database."""

    def __init__(self, app: App) -> None:
        self.run_id = new_run_id()
        self._app = app
        self._at_ms = 30.0
        pool = PoolInfo(name="rehearsal", workers=tuple(rehearsal_specs()))
        self._write([created(self.run_id, "Which supplier?", pool=pool), *planned(self.run_id, PLAN)])
        self._write(event for index in range(RUNNING.start) for event in (self._begun(index), self._done(index)))
        self._write(map(self._begun, RUNNING))
        self._write(
            ev.StepDelta(run_id=self.run_id, at_ms=500, path=(index,), text=f"1.\nNewest of {index}", output_tokens=9)
            for index in RUNNING
        )

    def finish(self) -> None:
        self._write(map(self._done, RUNNING))
        rest = range(RUNNING.stop, len(PLAN.steps))
        self._write(event for index in rest for event in (self._begun(index), self._done(index)))
        self._write([run_completed(self.run_id, "Supplier 3", at_ms=self._at_ms)])

    def _write(self, events: Iterable[Event]) -> None:
        # Playwright's event loop has this thread.
        with ThreadPoolExecutor(1) as aside:
            aside.submit(self._app.store.log.append_and_wait, *events).result()

    def _begun(self, index: int) -> Event:
        shared = [(each, each in PLAN.reads(index)) for each in range(min(index, RUNNING.start))]
        return step_started(self.run_id, index, self._at_ms).model_copy(
            update={
                "agent": PLAN.steps[index].agent,
                "messages": (Message(role="user", content=PLAN.steps[index].instruction),),
                "granted": tuple(_output(each) for each, granted in shared if granted),
                "withheld": tuple(_output(each) for each, granted in shared if not granted),
            }
        )

    def _done(self, index: int) -> Event:
        self._at_ms += 10
        return step_completed(self.run_id, index, f"Output of {index}", self._at_ms)


def _output(index: int) -> SharedOutput:
    text = f"Output of {index}"
    return SharedOutput(
        path=(index,), agent=PLAN.steps[index].agent, sha256=sha256(text), characters=len(text), tokens=3
    )


@pytest.fixture
def large_run(app: App) -> LargeRun:
    return LargeRun(app)


def view(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name="View of the graph").get_by_role("button", name=name)


def folded(page: Page, named: str) -> Locator:
    return page.get_by_role("toolbar").get_by_role("button", name=named, exact=True)


def step(page: Page, number: int) -> Locator:
    return page.locator(f'.twin button[data-step="{number}"]')


def row(page: Page, number: int) -> Locator:
    return page.locator(f'.graph-list tr[data-step="{number}"]')


def test_forty_steps_are_folded_unfolded_followed_and_listed(
    app: App, open_page: OpenPage, large_run: LargeRun
) -> None:
    page = open_page(app.run_url(large_run.run_id), width=1280, height=720)
    shown = page.locator(".inspector h3")

    # Finished and waiting steps are stacks; what runs is not.
    expect(view(page, "Folded")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".twin button")).to_have_text(
        ["✓ 0–11", "✓ 12–23", "✓ 24–27", *(f"◔ {each}" for each in RUNNING), re.compile("32–35"), "○ 36–38", "○ 39"]
    )
    stack = folded(page, "Steps 0–11, scientist, 12 done, folded")
    expect(stack).to_have_attribute("aria-expanded", "false")

    # By key a stack unfolds to its first step, and folds again.
    stack.focus()
    page.keyboard.press("Enter")
    expect(step(page, 0)).to_be_focused()
    expect(shown).to_have_text("Step 0 · scientist")
    page.keyboard.press("ArrowRight")
    expect(step(page, 1)).to_be_focused()
    expect(page.locator(".twin button")).to_have_count(21)
    expect(page.locator(".graph-map")).to_be_visible()
    page.keyboard.press("Escape")
    expect(stack).to_be_focused()
    expect(page.locator(".graph-map")).to_be_hidden()

    # From a step along its edge to one that it reads, which leaves its stack.
    step(page, 29).click()
    expect(shown).to_have_text("Step 29 · reasoner")
    expect(page.locator(".got .name")).to_have_text(["5 · scientist", "17 · calculator"])
    expect(page.locator(".held .group-name").first).to_have_text("11 × scientist")
    page.get_by_role("button", name="Show 11 × scientist").click()
    expect(page.locator(".held.group .held")).to_have_count(11)
    page.locator(".got .name").first.click()
    expect(shown).to_have_text("Step 5 · scientist")
    expect(folded(page, "Steps 0–4, 6–11, scientist, 11 done, folded")).to_be_visible()

    # Every step at full size, with a map; the chosen one is in view.
    view(page, "All 40").click()
    expect(page.locator(".twin button")).to_have_count(40)
    expect(page.locator(".graph-map")).to_be_visible()
    expect(page.locator(".zoom .number")).to_have_text("100 %")
    expect(page.get_by_role("button", name="Zoom out")).to_be_disabled()

    # The list: layers open where something happens, and rows lead to their step.
    view(page, "List").click()
    layers = page.locator(".graph-list tr.layer")
    expect(layers).to_have_count(4)
    expect(layers.nth(1)).to_have_attribute("aria-expanded", "false")
    expect(layers.nth(2)).to_have_attribute("aria-expanded", "true")
    expect(row(page, 29)).to_contain_text("Newest of 29")
    expect(row(page, 24)).to_have_attribute("aria-label", re.compile("^Step 24 · reasoner, done, reads 0, 12$"))
    row(page, 29).focus()
    page.keyboard.press("ArrowDown")
    expect(row(page, 30)).to_be_focused()
    expect(shown).to_have_text("Step 30 · reasoner")
    page.keyboard.press("Enter")
    expect(shown).to_be_focused()
    layers.nth(1).focus()
    page.keyboard.press("ArrowRight")
    expect(row(page, 12)).to_be_visible()

    # At the end all but the chosen step are folded.
    view(page, "Folded").click()
    large_run.finish()
    expect(page.locator(".bar .status")).to_contain_text("Completed 40 of 40")
    step(page, 39).click()
    expect(page.locator(".twin button")).to_have_text(["✓ 0–11", "✓ 12–23", "✓ 24–35", "✓ 36–38", "✓ 39"])
