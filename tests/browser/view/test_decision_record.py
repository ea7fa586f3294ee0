"""A decision record, opened from the disk with the network off: it reads in both themes, runs and fetches nothing."""

from itertools import product

from playwright.sync_api import expect

from conductor_core.analysis.decision_record import decision_record, record_page
from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor
from conductor_core.run.events import Event
from conductor_core.run.request import Given
from conductor_core.run.values import PoolInfo, SharedOutput
from conductor_core.workflow.model import Fault, Step, Workflow
from tests.browser.conftest import OpenFile
from tests.browser.view.test_shared_file import PAYLOADS
from tests.pure.analysis.test_reading import edited_run
from tests.support.run_events import created, planned, run_completed, sha256, step_completed

STEPS = 20
HOSTILE = [payload.format(number) for number, payload in product(range(500), PAYLOADS)]


def _texts(begin: int, count: int = 490) -> str:
    return "\n\n".join(HOSTILE[begin : begin + count])


def hostile_run(run_id: str) -> list[Event]:
    """A run in whose every field that people, models, providers or files write strings try to run or fetch."""
    names = [HOSTILE[at][:80] for at in range(STEPS)]
    workers = tuple(WorkerSpec(name=name, provider="rehearsal", model=HOSTILE[20]) for name in dict.fromkeys(names))
    hostile = Actor(kind="local", id=HOSTILE[40], name=HOSTILE[41])
    steps = tuple(Step(instruction=HOSTILE[50 + at], agent=names[at], access_list="all") for at in range(STEPS))
    fault = Fault(code="unknown_agent", message=HOSTILE[80])
    edited = Workflow(steps=(Step(instruction=HOSTILE[81], agent=names[0], access_list=()), *steps[1:]))
    events: list[Event] = [
        created(
            run_id,
            _texts(100, 100),
            pool=PoolInfo(name=HOSTILE[90], workers=workers, excluded=(HOSTILE[91],)),
            actor=hostile,
            purpose=HOSTILE[92],
            app_version=HOSTILE[93],
        ),
        *planned(run_id, Workflow(steps=steps))[:-1],
        ev.PlanRejected(run_id=run_id, raw=_texts(0, 100), faults=(fault,), will_retry=True),
        planned(run_id, Workflow(steps=steps))[-1],
        ev.PlanEdited(run_id=run_id, actor=hostile, before=Workflow(steps=steps), after=edited, topology=HOSTILE[94]),
        ev.ApprovalRequested(
            run_id=run_id, number=1, of="step", path=(1,), rules=(HOSTILE[95],), identity="i", agent=HOSTILE[96]
        ),
        ev.ApprovalGranted(run_id=run_id, actor=hostile, numbers=(1,), note=HOSTILE[97]),
        ev.CommandRefused(run_id=run_id, actor=hostile, command=9, asked=HOSTILE[98], reason=HOSTILE[99]),
        ev.StepGiven(
            run_id=run_id,
            path=(0,),
            agent=names[0],
            output=_texts(200),
            output_sha256=HOSTILE[89],
            given=Given(how="written", actor=hostile, door="page"),
        ),
    ]
    for at in range(1, STEPS):
        output = _texts(200 + 490 * at)
        shared = SharedOutput(path=(0,), agent=names[0], sha256=HOSTILE[at], characters=1, tokens=1)
        events += [
            ev.StepStarted(
                run_id=run_id,
                path=(at,),
                agent=names[at],
                identity=HOSTILE[at],
                messages=(Message(role="user", content=HOSTILE[at]),),
                granted=(shared,),
            ),
            ev.StepDelta(run_id=run_id, path=(at,), text=HOSTILE[at + 1], reasoning=True),
            ev.StepRetried(
                run_id=run_id, path=(at,), attempt=1, error_code=HOSTILE[at + 2], error=HOSTILE[at + 3], wait_ms=0
            ),
            step_completed(run_id, at, output, 90).model_copy(update={"output_sha256": sha256(output)}),
        ]
    return [*events, run_completed(run_id, _texts(200), at_ms=1200)]


def test_ten_thousand_hostile_strings_do_nothing_and_it_reads_in_the_dark_and_prints_light_with_everything_open(
    open_file: OpenFile,
) -> None:
    assert len(set(HOSTILE)) == 10_000
    text = record_page(decision_record(hostile_run("r")), {})
    page, asked = open_file(text)
    expect(page.locator("article")).to_have_count(STEPS)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    shown = " ".join(page.evaluate("document.body.textContent").split())
    assert [payload for payload in HOSTILE if " ".join(payload.split()) not in shown] == []
    assert page.evaluate("window.pwned") is None
    tags = ("script", "img", "iframe", "object", "embed", "video", "form", "svg", "base", "a[href]:not([href^='#'])")
    assert [tag for tag in tags if page.locator(tag).count()] == []
    assert page.locator("style").count() == 1
    assert asked == []

    text = record_page(decision_record(edited_run("r")), {})
    page, asked = open_file(text, dark=True)
    expect(page.get_by_role("heading", name="What went to which provider and host")).to_be_visible()
    expect(page.locator("#egress")).to_contain_text("It never got: step 1.")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(13, 17, 23)"
    page.emulate_media(media="print")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    expect(page.get_by_text("model_id = [0, 1]")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert asked == []
