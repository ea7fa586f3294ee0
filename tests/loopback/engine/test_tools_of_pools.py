"""Workers call tool servers of their pool: at once, recorded before and after, at most once where they have effects."""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from conductor_core.chat.messages import Message, ToolCall, ToolSpec
from conductor_core.chat.tools import MOST_TOOL_TURNS, ToolAnswer
from conductor_core.engine.estimates import preview
from conductor_core.engine.host import EngineHost
from conductor_core.engine.pools import Pool
from conductor_core.engine.request import rerun_of, resume_of
from conductor_core.engine.runner import Engine
from conductor_core.run.commands import Approve, Deny, ToolResults
from conductor_core.run.events import Event, RunInterrupted
from conductor_core.run.request import SHADOW_PURPOSE, RunRequest, read_gate
from conductor_core.run.trace import RunTrace, fold
from conductor_core.settings import Settings
from conductor_core.workflow.model import CONDUCTOR_AGENT
from storage import Store
from tests.support.fakes import MemorySink, Reply, ScriptedConductor, ScriptedWorker, lists_of, pool_of, workflow_of
from tests.support.gated_runs import at_rest, said, waits_for
from tests.support.tool_servers import Hand, offered

ONE = workflow_of(("a", "Use the tool: {question}", ()))


def calls(*names: str, text: str = "") -> Reply:
    made = tuple(ToolCall(name=name, arguments=f'{{"n": {place}}}') for place, name in enumerate(names))
    return Reply(text, finish_reason="tool_calls", tool_calls=made)


def results_of(messages: Sequence[Message]) -> list[str]:
    parts = (part for message in messages if not isinstance(message.content, str) for part in message.content)
    return [part.text for part in parts if part.kind == "tool_result"]


class World:
    """Two workers that may call ``hand``, in memory. ``script``: what worker a does, call by call."""

    def __init__(self, *script: str | Reply | Exception, tools: tuple[str, ...] = ("hand",)) -> None:
        self.hand = Hand()
        self.a = ScriptedWorker("a", self._answers, tools=tools).then(*script)
        self.b = ScriptedWorker("b", self._answers)
        self.conductor = ScriptedConductor(lists_of(ONE, ("a", "b")))
        self.sink = MemorySink()

    @staticmethod
    def _answers(messages: Sequence[Message]) -> str:
        return f"so: {', '.join(results_of(messages))}"

    @property
    def pool(self) -> Pool:
        return dataclasses.replace(pool_of(self.a, self.b), tool_servers={"hand": self.hand})

    def engine(self) -> Engine:
        return Engine(self.sink, Settings(), self.sink.read)

    def request(self, **fields: object) -> RunRequest:
        return RunRequest.model_validate({"task": "Rain?", "workflow": ONE} | fields)

    def run(self, request: RunRequest | None = None, **fields: object) -> RunTrace:
        return asyncio.run(self.engine().run(request or self.request(**fields), self.conductor, self.pool))

    def kinds(self) -> list[str]:
        return [event.kind for event in self.sink.events]


def test_a_call_is_recorded_before_it_leaves_and_before_its_worker_is_told() -> None:
    world = World(calls("hand__read", text="Let me look."))
    trace = world.run()
    assert (trace.status, trace.answer) == ("completed", "so: read {'n': 0}")
    assert world.hand.done == [("read", {"n": 0})]
    kinds = [kind for kind in world.kinds() if kind.startswith(("tool", "step"))]
    assert [kind for kind in kinds if kind != "step.delta"] == [
        "tools.listed", "step.started", "tool.called", "tool.sent", "tool.ran", "step.completed",
    ]  # fmt: skip
    (turn,) = trace.steps[0].turns
    assert (turn.text, turn.ran[0].outcome, turn.ran[0].effects, turn.ran[0].size_bytes) == (
        "Let me look.", "returned", False, 9,
    )  # fmt: skip
    assert trace.usage.total_tokens == 2 * 15, "both turns of the worker are paid"
    assert fold(world.sink.events) == trace


def test_each_worker_is_offered_what_its_pool_lets_it_call() -> None:
    world = World(tools=("hand.read",))
    world.run(workflow=workflow_of(("a", "One.", ()), ("b", "Two.", (0,))))
    assert [[tool.name for tool in terms.tools] for terms in (*world.a.terms, *world.b.terms)] == [["hand__read"], []]
    assert world.hand.listed == 1


@pytest.mark.parametrize("name", ["hand__write", "hand__raed", "x" * 10_000, "../hand", ""])
def test_a_call_of_what_the_worker_may_not_call_is_told_and_the_rest_is_carried_out(name: str) -> None:
    world = World(calls("hand__read", name), tools=("hand.read",))
    world.b = ScriptedWorker("b", tools=("hand",))
    trace = world.run(workflow=workflow_of(("a", "One.", ()), ("b", "Two.", (0,))))
    assert (trace.status, world.hand.done) == ("completed", [("read", {"n": 0})])
    done, refused = trace.steps[0].turns[0].results or ()
    assert (done.text, refused.is_error) == ("read {'n': 0}", True)
    assert trace.steps[0].turns[0].ran[-1].outcome == "unoffered"
    assert refused.text == "There is no tool of this name, so nothing was called. There are: hand__read."


def test_a_worker_that_calls_only_what_is_not_there_learns_what_is() -> None:
    world = World(calls("hand__raed"), calls("hand__read"))
    trace = world.run()
    assert (trace.status, len(world.hand.done), len(world.a.calls)) == ("completed", 1, 3)


def test_reads_go_at_once_and_writes_one_after_the_other() -> None:
    world = World(calls("hand__read", "hand__read", "hand__write", "hand__write"))
    trace = world.run()
    assert [tool for tool, _ in world.hand.done] == ["read", "read", "write", "write"]
    assert world.hand.most_at_once == 2
    assert [result.text for result in trace.steps[0].turns[0].results or ()] == [
        "read {'n': 0}", "read {'n': 1}", "write {'n': 2}", "write {'n': 3}",
    ]  # fmt: skip


def test_a_failed_call_is_told_to_the_worker_and_the_step_goes_on() -> None:
    world = World(calls("hand__write"))
    world.hand.answer = lambda *_: ToolAnswer(outcome="timed_out", text="It took too long.")
    trace = world.run()
    assert (trace.status, trace.answer) == ("completed", "so: It took too long.")
    assert len(world.hand.done) == 1, "a call with effects is never repeated"
    (turn,) = trace.steps[0].turns
    assert turn.results is not None
    assert turn.results[0].is_error


def test_a_worker_that_only_calls_tools_is_stopped_and_all_is_paid() -> None:
    world = World(*(calls("hand__read") for _ in range(MOST_TOOL_TURNS + 5)))
    trace = world.run()
    assert (trace.status, trace.error_code) == ("failed", "TooManyToolCalls")
    assert (len(world.hand.done), len(world.a.calls)) == (MOST_TOOL_TURNS, MOST_TOOL_TURNS + 1)
    assert trace.usage.total_tokens == (MOST_TOOL_TURNS + 1) * 15


def test_a_server_that_is_away_stops_its_worker_before_anything_is_paid() -> None:
    world = World()
    world.hand.fault = "its program hand-server is not there"
    trace = world.run()
    assert (trace.status, trace.error_code, trace.usage.total_tokens) == ("failed", "WorkerToolsAway", 0)
    assert "hand-server is not there" in (trace.error or "")
    assert world.a.calls == []


def test_a_fallback_without_tools_answers_in_its_place() -> None:
    world = World()
    world.a = ScriptedWorker("a", tools=("hand",), fallback="b")
    world.hand.fault = "away"
    trace = world.run()
    assert (trace.status, trace.steps[0].answered_by) == ("completed", "b")
    assert [tool.name for tool in world.b.terms[0].tools] == []


def test_a_rerun_reuses_a_step_with_its_tools_also_when_the_server_is_away() -> None:
    world = World(calls("hand__write"))
    first = world.run()
    world.hand.fault = "away"
    again = world.run(rerun_of(first, door="page"))
    assert (again.status, again.steps[0].status, len(world.hand.done), len(world.a.calls)) == (
        "completed", "reused", 1, 2,
    )  # fmt: skip
    assert [run.outcome for run in again.steps[0].turns[0].ran] == ["returned"]


def test_other_tools_are_another_step() -> None:
    world = World()
    first = world.run()
    world.hand.tools = (*world.hand.tools, offered("hand", "more"))
    again = world.run(rerun_of(first, door="page"))
    assert (again.steps[0].status, len(world.a.calls)) == ("completed", 2)


def test_the_preview_knows_what_the_tools_were() -> None:
    world = World(calls("hand__read"))
    first = world.run()
    assert [step.index for step in preview(first, ONE, world.pool.specs).will_reuse] == [0]


@pytest.mark.parametrize("purpose", [SHADOW_PURPOSE, "blame"])
def test_a_run_that_only_repeats_another_changes_nothing(purpose: str) -> None:
    world = World(calls("hand__read", "hand__write"))
    trace = world.run(purpose=purpose)
    assert [tool for tool, _ in world.hand.done] == ["read"]
    assert [run.outcome for run in trace.steps[0].turns[0].ran] == ["returned", "denied"]
    assert trace.status == "completed"


def interrupted(world: World, request: RunRequest, at: str) -> RunTrace:
    """Carries out a run whose process dies while the tool works (``sent``), or right before the call (``called``)."""

    async def dies() -> None:
        world.hand.hold = asyncio.Event()
        task = asyncio.create_task(world.engine().run(request, world.conductor, world.pool))
        await world.hand.begun.wait()
        kept = list(world.sink.events)
        task.cancel()
        await asyncio.wait({task})
        world.sink.events[:] = kept

    asyncio.run(dies())
    world.hand.hold = None
    if at == "called":
        while world.sink.events[-1].kind != "tool.called":
            world.sink.events.pop()
        world.hand.done.clear()
    world.sink.events.append(RunInterrupted(run_id=request.run_id))
    return world.sink.read(request.run_id)


@pytest.mark.parametrize("effects", [True, False])
@pytest.mark.parametrize("at", ["called", "sent"])
@pytest.mark.parametrize("below", [False, True])
def test_what_a_dead_process_called_is_never_called_again(at: str, *, effects: bool, below: bool) -> None:
    world = World(calls("hand__write" if effects else "hand__read"))
    workflow = workflow_of((CONDUCTOR_AGENT, "Do it.", ())) if below else ONE
    request = world.request(workflow=workflow)
    dead = interrupted(world, request, at)
    assert dead.status == "interrupted"
    trace = world.run(resume_of(dead, door="page"))
    assert trace.status == "completed"
    assert len(world.hand.done) == (1 if at == "sent" else 0), "it is told to the worker instead"
    assert len(world.a.calls) == 2, "and the worker's first turn is not paid again"
    assert len(world.conductor.requests) == int(below)
    told = "It is not known whether" if effects and at == "sent" else "was not carried out"
    assert told in (trace.answer or "")
    # The resumed run is resumed once more: it still knows.
    again = world.run(rerun_of(trace, door="page"))
    assert (again.steps[0].status, len(world.a.calls)) == ("reused", 2)


def test_finished_steps_are_not_paid_again_when_a_server_has_new_tools_meanwhile() -> None:
    world = World("done", calls("hand__write"))
    request = world.request(workflow=workflow_of(("a", "One.", ()), ("a", "Two.", (0,))))
    dead = interrupted(world, request, "sent")
    world.hand.tools = (*world.hand.tools, offered("hand", "more"))
    trace = world.run(resume_of(dead, door="page"))
    assert [step.status for step in trace.steps] == ["reused", "completed"]
    assert len(world.a.calls) == 3


# On a store, with commands.


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    pool = made.pool
    monkeypatch.setattr("conductor_core.engine.host.open_pool", lambda *_, **__: pool)
    monkeypatch.setattr("conductor_core.engine.host.reopen_pool", lambda *_, **__: pool)
    return made


def begun(host: EngineHost, **fields: object) -> str:
    asked = {"task": "Rain?", "workflow": ONE, "pool": "rehearsal"}
    run_id = host.start(RunRequest.model_validate(asked | fields))
    host.wait(run_id, 30)
    return run_id


def test_a_gate_holds_back_each_call_that_has_effects(host: EngineHost, store: Store, world: World) -> None:
    world.a.then(calls("hand__read", "hand__write", "hand__write"))
    run_id = begun(host, gates=(read_gate("tools"),))
    trace = store.read(run_id)
    assert (trace.status, world.hand.done) == ("waiting", [("read", {"n": 0})])
    assert waits_for(trace) == ["the call of hand.write by step 0"] * 2
    first, second = (approval.number for approval in trace.asked_for)
    trace = at_rest(store, run_id, said(store, run_id, kind=Approve, numbers=(second,)))
    assert (trace.status, world.hand.done[1:]) == ("waiting", [("write", {"n": 2})])
    trace = at_rest(store, run_id, said(store, run_id, kind=Approve, numbers=(first,)))
    assert (trace.status, world.hand.done[2:], len(world.a.calls)) == ("completed", [("write", {"n": 1})], 2)
    assert store.unproven(run_id) == []


def test_a_denied_call_never_leaves(host: EngineHost, store: Store, world: World) -> None:
    world.a.then(calls("hand__write"))
    run_id = begun(host, gates=(read_gate("tools"),))
    trace = at_rest(store, run_id, said(store, run_id, kind=Deny))
    assert (trace.status, world.hand.done) == ("denied", [])
    assert "the call of hand.write by step 0 was denied" in (trace.error or "")


def test_the_client_brings_the_rest_of_a_mixed_turn(host: EngineHost, store: Store, world: World) -> None:
    world.a.then(calls("hand__read", "mine"))
    run_id = begun(host, tools=(ToolSpec(name="mine"),))
    trace = store.read(run_id)
    assert (trace.status, [call.name for call in trace.open_calls]) == ("waiting", ["mine"])
    (call,) = trace.open_calls
    brought = [{"call_id": call.call_id, "text": "my result"}]
    trace = at_rest(store, run_id, said(store, run_id, kind=ToolResults, results=brought))
    assert (trace.status, trace.answer) == ("completed", "so: read {'n': 0}, my result")
    assert (len(world.hand.done), len(world.a.calls)) == (1, 2)


def test_an_unread_event_of_tools_breaks_no_fold(host: EngineHost, store: Store, world: World) -> None:
    world.a.then(calls("hand__read"))
    run_id = begun(host)
    events: list[Event] = [stored.event for stored in store.events(run_id)]
    assert fold(events) == store.read(run_id)
