"""A page that folds what it is sent must hold, at any moment, what the log says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.trace import RoundTrace, RunTrace, fold
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.parser import partial_steps
from conductor_core.workflow.source import PartialStep
from pages.components.live_workflow import messages as live_view
from pages.components.live_workflow.messages import LiveView, draft_steps, shape_in_words
from storage import StoredEvent
from tests.support.run_events import TWO_STEPS, answered, created, planned, run_completed, step_started, whole_run

RUN = "run-1"


def numbered(events: list[Event], first: int = 1) -> list[StoredEvent]:
    return [StoredEvent(first + place, event) for place, event in enumerate(events)]


class Page:
    """What the browser does with the messages (assets/model.js), in a few lines."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        run = dict(snapshot["run"])
        self.sequence = snapshot["sequence"]
        self.rounds: dict[tuple[int, ...], dict[str, Any]] = {}
        self.steps: dict[tuple[int, ...], dict[str, Any]] = {}
        self._add(run.pop("root"))
        self.run = run
        self.timeline = snapshot["timeline"]
        self.conclusion = snapshot["conclusion"]
        self.values = dict(snapshot["values"])

    def _add(self, round_: dict[str, Any]) -> None:
        self.rounds[tuple(round_["path"])] = {name: value for name, value in round_.items() if name != "steps"}
        for step in round_["steps"]:
            self.steps[tuple(step["path"])] = {name: value for name, value in step.items() if name != "round"}
            if step["round"] is not None:
                self._add(step["round"])

    def take(self, message: dict[str, Any]) -> None:
        assert message["sequence"] > self.sequence
        self.sequence = message["sequence"]
        match message["type"]:
            case "delta":
                step = self.steps[tuple(message["path"])]
                step["reasoning" if message["reasoning"] else "output"] += message["text"]
            case "plan_delta":
                self.rounds[tuple(message["round"])]["raw"] += message["text"]
            case "patch":
                self.run |= message["run"]
                self.timeline = message.get("timeline")
                for each in message["steps"]:
                    self.values.pop(".".join(map(str, each["path"])), None)
                self.values |= message["values"]
                self.conclusion = message.get("conclusion", self.conclusion)
                self.rounds |= {tuple(each["path"]): each for each in message["rounds"]}
                self.steps |= {tuple(each["path"]): each for each in message["steps"]}

    def shown(self) -> tuple[Any, ...]:
        timeless = {"last_at_ms"}
        # What streaming alone fixes (first token) is in the next patch of the step.
        passing = {"first_token_ms"}
        return (
            self.conclusion,
            self.values,
            {name: value for name, value in self.run.items() if name not in timeless},
            {path: {n: v for n, v in each.items() if n not in passing} for path, each in self.rounds.items()},
            {path: {n: v for n, v in each.items() if n not in passing} for path, each in self.steps.items()},
            self.timeline,
        )


def eventful_run() -> list[Event]:
    """Reasoning, a retry, a failure, a skipped step, a recursion, an inner plan."""
    workflow = Workflow(
        steps=(
            Step(instruction="a", agent="solver"),
            Step(instruction="b", agent="conductor", access_list=(0,)),
            Step(instruction="c", agent="checker", access_list="all"),
        )
    )
    inner: list[Event] = [
        ev.PlanStarted(run_id=RUN, round=(1,), messages=()),
        ev.PlanDelta(run_id=RUN, round=(1,), text="model_id = [0]\nsubtasks = ['x']\naccess_list = [[]]"),
        ev.PlanCompleted(run_id=RUN, round=(1,), source="conductor", workflow=TWO_STEPS, topology="chain"),
        ev.StepStarted(run_id=RUN, path=(1, 0), agent="solver", identity="i", messages=()),
        ev.StepDelta(run_id=RUN, path=(1, 0), text="in", output_tokens=1),
    ]
    return [
        created(RUN),
        *planned(RUN, workflow),
        step_started(RUN, 0, 30),
        ev.StepDelta(run_id=RUN, path=(0,), text="hm", reasoning=True, output_tokens=1),
        ev.StepDelta(run_id=RUN, path=(0,), text="hm", reasoning=True, output_tokens=2),
        ev.StepDelta(run_id=RUN, path=(0,), text="half", output_tokens=3),
        ev.StepRetried(
            run_id=RUN, path=(0,), attempt=1, error_code="WorkerFailed", error="x", wait_ms=1, partial="half"
        ),
        *answered(RUN, 0)[1:],
        step_started(RUN, 1, 50),
        ev.RecursionEntered(run_id=RUN, path=(1,), depth=1),
        *inner,
        ev.StepFailed(run_id=RUN, path=(1, 0), error_code="WorkerRefused", error="401", partial="in"),
        ev.StepSkipped(run_id=RUN, path=(1, 1), because=((1, 0),)),
        ev.RecursionLeft(run_id=RUN, path=(1,), how="failed"),
        ev.StepFailed(run_id=RUN, path=(1,), error_code="WorkerRefused", error="401"),
        ev.StepSkipped(run_id=RUN, path=(2,), because=((1,),)),
        ev.RunFailed(run_id=RUN, error_code="WorkerRefused", error="401"),
    ]


def final(events: list[Event]) -> Page:
    return Page(LiveView(fold(events), len(events)).snapshot())


@pytest.mark.parametrize("events", [whole_run(RUN), eventful_run()], ids=["plain", "eventful"])
@given(data=st.data())
def test_a_page_that_joins_anywhere_and_is_sent_any_batches_ends_with_the_same(
    events: list[Event], data: st.DataObject
) -> None:
    joined = data.draw(st.integers(1, len(events)))
    view = LiveView(fold(events[:joined]), joined)
    page = Page(view.snapshot())
    rest = numbered(events)[joined:]
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        for message in view.messages(rest[:size]):
            page.take(message)
        rest = rest[size:]
    assert page.sequence == len(events)
    assert page.shown() == final(events).shown()


def test_what_the_snapshot_holds_is_not_sent_again() -> None:
    events = numbered(whole_run(RUN))
    view = LiveView(fold(at.event for at in events[:6]), 6)
    assert [message["sequence"] for message in view.messages(events[3:8])] == [7, 8]


def test_text_of_one_step_in_a_row_is_one_message() -> None:
    events = [created(RUN), *planned(RUN), step_started(RUN, 0, 30), step_started(RUN, 1, 30)]
    view = LiveView(fold(events), len(events))
    deltas: list[Event] = [
        ev.StepDelta(run_id=RUN, path=(0,), text="a", output_tokens=1),
        ev.StepDelta(run_id=RUN, path=(0,), text="b", output_tokens=2),
        ev.StepDelta(run_id=RUN, path=(1,), text="c", output_tokens=1),
        ev.StepDelta(run_id=RUN, path=(0,), text="d", output_tokens=3),
    ]
    sent = list(view.messages(numbered(deltas, first=100)))
    assert [(message["path"], message["text"], message["sequence"]) for message in sent] == [
        ([0], "ab", 101),
        ([1], "c", 102),
        ([0], "d", 103),
    ]


def test_steps_appear_while_the_plan_is_being_written() -> None:
    start: list[Event] = [created(RUN), ev.PlanStarted(run_id=RUN, messages=())]
    view = LiveView(fold(start), 2)
    pieces = ["I think.\nmodel_id = [0, 1]\nsubtasks = ['Solve", " it.', 'Check", "']\naccess_list = [[], [0]]"]
    drafts, layouts = [], []
    for place, piece in enumerate(pieces):
        (message,) = view.messages([StoredEvent(10 + place, ev.PlanDelta(run_id=RUN, text=piece))])
        drafts.append(message["draft"]["steps"])
        layouts.append(len(message["layout"]["edges"]) if "layout" in message else None)
    assert [step["agent"] for step in drafts[0]] == ["solver", "checker"]
    assert drafts[1][0]["instruction"] == "Solve it."
    assert drafts[2][1]["reads"] == (0,)
    assert layouts == [0, None, 1]


def test_an_access_list_that_is_still_open_is_not_known_yet() -> None:
    trace = fold([created("r")])
    raw = 'model_id = [0, 1, 0]\nsubtasks = ["a", "b", "c"]\naccess_list = [[], ['
    assert [step.access_list for step in draft_steps(RoundTrace(raw=raw), trace)] == [(), None, None]


def test_a_draft_that_did_not_change_is_not_sent_again() -> None:
    view = LiveView(fold([created(RUN), ev.PlanStarted(run_id=RUN, messages=())]), 2)
    (message,) = view.messages([StoredEvent(3, ev.PlanDelta(run_id=RUN, text="Let me think about"))])
    assert message["draft"] is None
    assert "layout" not in message


def test_a_page_that_joins_while_the_plan_is_written_gets_its_draft() -> None:
    text = "model_id = [1]\nsubtasks = ['Solve it.']"
    events: list[Event] = [
        created(RUN),
        ev.PlanStarted(run_id=RUN, messages=()),
        ev.PlanDelta(run_id=RUN, text=text),
    ]
    snapshot = LiveView(fold(events), 3).snapshot()
    (draft,) = snapshot["drafts"]
    assert [step["instruction"] for step in draft["steps"]] == ["Solve it."]
    assert [node["id"] for node in snapshot["layout"]["nodes"]] == ["0"]


def test_a_draft_names_an_ordinal_that_the_pool_does_not_have() -> None:
    trace = fold([created(RUN)])
    assert draft_steps(RoundTrace(raw="model_id = [9]"), trace)[0].agent == "agent 9"


def test_what_the_answer_comes_to_is_sent_with_it_and_only_then() -> None:
    events = whole_run(RUN)
    view = LiveView(fold(events[:1]), 1)
    assert view.snapshot()["conclusion"] is None
    *earlier, last = view.messages(numbered(events)[1:])
    assert not any("conclusion" in message for message in earlier)
    assert last["conclusion"] == {"kind": "value", "text": "42, checked", "formula": ""}
    assert view.snapshot()["conclusion"] == last["conclusion"]


def test_the_value_that_an_output_marks_is_sent_with_its_end() -> None:
    events = whole_run(RUN)
    view = LiveView(fold(events[:1]), 1)
    assert view.snapshot()["values"] == {}
    sent = list(view.messages(numbered(events)[1:]))
    (last,) = (message for message in sent if message.get("values", {}).get("1"))
    assert last["steps"][0]["status"] == "completed"
    assert last["values"] == {"1": "42, checked"}
    assert view.snapshot()["values"]["1"] == "42, checked"


def test_the_plan_brings_its_layout_and_live_text_does_not() -> None:
    events = whole_run(RUN)
    view = LiveView(fold(events[:1]), 1)
    sent = list(view.messages(numbered(events)[1:]))
    with_layout = [message["type"] for message in sent if "layout" in message]
    assert "delta" not in with_layout
    assert any(
        message["type"] == "patch" and len(message["layout"]["nodes"]) == 2 for message in sent if "layout" in message
    )


def _trace(*steps: tuple[str, tuple[int, ...]]) -> RunTrace:
    workflow = Workflow(steps=tuple(Step(instruction="x", agent=agent, access_list=reads) for agent, reads in steps))
    return fold([created(RUN), *planned(RUN, workflow)])


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([], ""),
        ([("planner", ()), ("coder", (0,)), ("coder", (0,)), ("checker", (0, 1, 2))], "planner → coder × 2 → checker"),
        ([("a", ()), ("b", ()), ("c", ()), ("d", ()), ("w", (0, 1, 2, 3))], "4 workers → w"),
        ([("a", ()), ("b", ()), ("w", (0, 1))], "a + b → w"),
    ],
)
def test_the_shape_in_words(steps: list[tuple[str, tuple[int, ...]]], words: str) -> None:
    trace = _trace(*steps) if steps else fold([created(RUN)])
    assert shape_in_words(trace) == words


def test_an_ended_run_stands_still() -> None:
    events = [*whole_run(RUN)[:-1], run_completed(RUN, at_ms=1234)]
    view = LiveView(fold(events), len(events))
    assert view.ended
    assert view.snapshot()["elapsed_ms"] == 1234


def test_a_plan_of_a_thousand_steps_is_shown_as_far_as_plans_go() -> None:
    lists = "model_id = [{}]\nsubtasks = [{}]\naccess_list = [{}]"
    raw = lists.format(*(", ".join([entry] * 1000) for entry in ("0", "'a'", "'all'")))
    trace = fold([created(RUN), ev.PlanStarted(run_id=RUN, messages=()), ev.PlanDelta(run_id=RUN, text=raw)])
    assert len(draft_steps(trace.root, trace)) == 32
    snapshot = LiveView(trace, 3).snapshot()
    assert len(snapshot["drafts"][0]["steps"]) == 32


def test_the_work_for_a_long_plan_grows_no_faster_than_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counting(text: str, most: int) -> tuple[PartialStep, ...]:
        read.append(len(text))
        return partial_steps(text, most)

    monkeypatch.setattr(live_view, "partial_steps", counting)
    opening: list[Event] = [created(RUN), ev.PlanStarted(run_id=RUN, messages=())]
    for size in (60_000, 240_000):
        read.clear()
        view = LiveView(fold(opening), len(opening))
        text = "model_id = [" + "," * size
        pieces = [text[at : at + 50] for at in range(0, len(text), 50)]
        for number, piece in enumerate(pieces):
            (message,) = view.messages([StoredEvent(10 + number, ev.PlanDelta(run_id=RUN, text=piece))])
            assert message["text"] == piece
        assert sum(read) < 60 * len(text)
    again = ev.PlanStarted(run_id=RUN, attempt=2, messages=())
    (message,) = view.messages([StoredEvent(100_000, again)])
    (message,) = view.messages([StoredEvent(100_001, ev.PlanDelta(run_id=RUN, text="model_id = [0]"))])
    assert message["draft"]["steps"][0]["agent"] == "solver"
