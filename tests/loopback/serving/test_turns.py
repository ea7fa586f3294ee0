"""A client's requests are answered by runs: what it is told, what it costs, and what results of its tools do."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import (
    AnswerRules,
    Message,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    Usage,
)
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.host import EngineHost
from conductor_core.errors import BadInput
from conductor_core.run.actor import THE_PROGRAM, Actor, Caller
from conductor_core.run.commands import ToolResults
from conductor_core.run.events import ToolReturned
from conductor_core.serving import chat, messages, responses
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Began, Ended, Outcome, Summary, Text
from conductor_core.serving.reading import Asked
from conductor_core.serving.served_models import ServedModels
from conductor_core.serving.turns import Turn, Turns
from storage import Privacy, open_store
from tests.loopback.serving.fuzz import BODIES
from tests.support.eventually import eventually
from tests.support.fakes import Reply, ScriptedConductor, ScriptedWorker, lists_of, pool_of, workflow_of
from tests.support.gated_runs import FAST
from tests.support.serving_cases import changed

_READ: Mapping[str, tuple[Callable[[bytes], Asked], Callable[[Outcome], dict[str, Any]]]] = {
    "/v1/chat/completions": (chat.read, chat.whole),
    "/v1/responses": (lambda body: responses.read(body, lambda _: None, b""), responses.whole),
    "/v1/messages": (messages.read, messages.whole),
}
WORKFLOW = {"steps": [{"instruction": "Solve {question}", "agent": "a", "access_list": []}]}
ADA = Caller(actor=Actor(kind="service", id="key-a", name="ada"), door="api")
BOB = Caller(actor=Actor(kind="service", id="key-b", name="bob"), door="api")
WEATHER = ToolSpec(name="weather", parameters={"type": "object"})
ONE = workflow_of(("a", "Answer: {question}", ()))
TWO = workflow_of(("b", "Draft: {question}", ()), ("a", "Answer from the draft.", (0,)))


class World:
    """An endpoint's turns over scripted workers."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch, privacy: Privacy | None = None) -> None:
        self._privacy = privacy
        self.workers = {name: ScriptedWorker(name) for name in ("a", "b")}
        self.conductor = ScriptedConductor(lists_of(TWO, ("a", "b")))
        pool = pool_of(*self.workers.values())
        monkeypatch.setattr("conductor_core.engine.host.open_pool", lambda *_, **__: pool)
        monkeypatch.setattr("conductor_core.engine.host.reopen_pool", lambda *_, **__: pool)
        monkeypatch.setattr("conductor_core.conductors.catalogue.open_conductor", lambda *_, **__: self.conductor)
        self.url = url
        self.open()

    def open(self) -> None:
        self.store = open_store(self.url, self._privacy)
        self.host = EngineHost(self.store.log, FAST, self.store, carries_on_all=True)
        self.turns = Turns(self.host, self.store, FAST, ServedModels(FAST))

    def close(self) -> None:
        self.host.close()
        self.store.close()

    async def begin(
        self,
        *turns: Message | str,
        caller: Caller = ADA,
        cap: CostCap | None = None,
        excluded: tuple[str, ...] = (),
        **fields: Any,
    ) -> Turn:
        said = tuple(Message(role="user", content=each) if isinstance(each, str) else each for each in turns)
        results: list[ToolResultPart] = []
        for turn in said:
            parts = () if isinstance(turn.content, str) else turn.content
            found = [part for part in parts if isinstance(part, ToolResultPart)]
            results = [] if turn.role == "assistant" else [*results, *found]
        given: dict[str, Any] = {"api": "chat", "model": "fugu", "results": tuple(results), "workflow": ONE} | fields
        return await self.turns.begin(Asked(turns=said, **given), caller, excluded, cap)

    async def ask(self, *turns: Message | str, **fields: Any) -> Outcome:
        return await (await self.begin(*turns, **fields)).outcome()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(f"sqlite:///{tmp_path / 'runs.sqlite3'}", monkeypatch)
    yield world
    world.close()


def calling(*names: str, text: str = "") -> Reply:
    calls = tuple(ToolCall(name=name, arguments='{"place": "Oslo"}') for name in names)
    return Reply(text, finish_reason="tool_calls", tool_calls=calls)


def answered(outcome: Outcome, text: str = "rain", said: str = "") -> tuple[Message, Message]:
    """The turns that a client sends back: the calls, then what its tools brought."""
    calls = tuple(ToolCallPart(call_id=c.call_id, name=c.name, arguments=c.arguments) for c in outcome.calls)
    results = tuple(ToolResultPart(call_id=c.call_id, text=text) for c in outcome.calls)
    beside = (TextPart(text=said),) if said else ()
    return Message(role="assistant", content=calls), Message(role="user", content=(*results, *beside))


async def test_the_worked_example(world: World) -> None:
    world.conductor.cost_usd = 0.0
    draft = Usage(input_tokens=34, cached_input_tokens=10, output_tokens=76)
    answer = Usage(input_tokens=150, cached_input_tokens=20, output_tokens=60, reasoning_tokens=15)
    world.workers["b"].then(Reply("a draft", usage=draft))
    world.workers["a"].then(Reply("the answer", usage=answer))
    outcome = await world.ask("What is it?", workflow=None)
    spent, trace = outcome.spending, world.store.read(outcome.run_id)
    plan = trace.root.usage
    assert (outcome.status, outcome.finish, outcome.text) == ("completed", "stop", "the answer")
    assert (spent.input_tokens, spent.output_tokens, spent.cached_tokens, spent.reasoning_tokens) == (150, 60, 20, 15)
    assert spent.orchestration_input_tokens == plan.input_tokens + 34
    assert spent.orchestration_output_tokens == plan.output_tokens + 76
    assert spent.orchestration_cached_tokens == 10
    assert spent.total_tokens == trace.usage.total_tokens
    assert [(row.name, row.agent) for row in outcome.rows] == [("plan", "conductor"), ("step 0", "b"), ("step 1", "a")]
    assert sum(row.input_tokens for row in outcome.rows) == spent.all_input_tokens
    assert outcome == world.turns.recorded(outcome.run_id, 0)


async def test_a_stream_is_what_the_record_says(world: World) -> None:
    world.workers["b"].then("a draft")
    world.workers["a"].then("the answer")
    turn = await world.begin("What?", workflow=None, stream=True)
    parts = [part async for group in turn.parts() for part in group]
    assert isinstance(parts[0], Began)
    assert isinstance(parts[-1], Ended)
    outcome = parts[-1].outcome
    assert "".join(part.text for part in parts if isinstance(part, Text)) == outcome.text == "the answer"
    summaries = [part for part in parts if isinstance(part, Summary)]
    assert [part.text for part in summaries] == list(outcome.summaries)
    assert [part.number for part in summaries] == [0, 1]
    assert "a draft" in outcome.summaries[1]
    assert "Draft" not in (outcome.text or "")


async def test_the_task_and_what_is_around_it(world: World) -> None:
    history = Message(role="user", content="Hello"), Message(role="assistant", content="Hi.")
    outcome = await world.ask(*history, "And now?", system="Be kind.", effort="low")
    trace = world.store.read(outcome.run_id)
    assert (trace.task, trace.turns_before, trace.system) == ("And now?", history, "Be kind.")
    assert trace.limits.max_steps == 1
    assert [turn.role for turn in world.workers["a"].calls[0]] == ["system", "user", "assistant", "user"]
    assert trace.actor == ADA.actor


async def test_a_conversation_by_its_last_response(world: World) -> None:
    first = await world.ask("One?", api="responses")
    second = await world.ask("Two?", api="responses", previous_response_id=_id(first), system="New.")
    trace = world.store.read(second.run_id)
    assert [turn.text for turn in trace.turns_before] == ["One?", first.text]
    assert trace.conversation_id == first.run_id
    third = await world.ask("Three?", api="responses", previous_response_id=_id(second))
    assert world.store.read(third.run_id).conversation_id == first.run_id
    assert len(world.store.read(third.run_id).turns_before) == 4
    for caller, previous in ((BOB, _id(first)), (ADA, "resp_0_0"), (ADA, _id(first)[:-1] + "7")):
        with pytest.raises(ApiError, match="not found") as caught:
            await world.ask("Four?", caller=caller, previous_response_id=previous)
        assert (caught.value.status, caught.value.param) == (400, "previous_response_id")


async def test_a_conversation_by_its_texts(world: World) -> None:
    first = await world.ask("One?")
    history = Message(role="user", content="One?"), Message(role="assistant", content=first.text or "")
    second = await world.ask(*history, "Two?")
    assert world.store.read(second.run_id).conversation_id == first.run_id
    other = await world.ask(*history, "Two?", caller=BOB)
    assert world.store.read(other.run_id).conversation_id is None


def _id(outcome: Outcome) -> str:
    return f"resp_{outcome.run_id.replace('-', '')}_{outcome.number}"


async def test_results_take_up_the_same_run(world: World) -> None:
    world.workers["a"].then(calling("weather"), "Take a coat.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    assert (first.finish, first.text, [call.name for call in first.calls]) == ("tool_calls", None, ["weather"])
    assert first.spending.total_tokens == 15
    second = await world.ask("Coat?", *answered(first, said="Quick."), tools=(WEATHER,))
    assert (second.run_id, second.number, second.text) == (first.run_id, 1, "Take a coat.")
    trace = world.store.read(first.run_id)
    assert second.spending.total_tokens == 15, "not counted from the start"
    assert first.spending.total_tokens + second.spending.total_tokens == trace.usage.total_tokens
    assert [outcome.number for outcome in world.turns.outcomes(first.run_id)] == [0, 1]
    assert world.turns.outcomes(first.run_id) == [first, second]
    assert world.workers["a"].calls[1][-1].text.endswith("Quick.")


async def test_a_custom_tool_is_given_its_text_alone(world: World) -> None:
    patch = ToolSpec(name="apply_patch", custom=True)
    called = ToolCall(name="apply_patch", arguments='{"input": "*** Begin Patch"}')
    world.workers["a"].then(Reply(finish_reason="tool_calls", tool_calls=(called,)))
    (call,) = (await world.ask("Mend it.", tools=(patch,))).calls
    assert (call.name, call.arguments, call.custom) == ("apply_patch", "*** Begin Patch", True)


async def test_the_same_results_again_ask_nobody(world: World) -> None:
    world.workers["a"].then(calling("weather"), "Take a coat.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    second = await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    again = await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    assert again == second
    assert len(world.workers["a"].calls) == 2


async def test_the_same_results_at_once_are_paid_once(world: World) -> None:
    world.workers["a"].then(calling("weather"), Reply("Take a coat.", wait_s=0.2))
    first = await world.ask("Coat?", tools=(WEATHER,))
    asks = [world.ask("Coat?", *answered(first), tools=(WEATHER,)) for _ in range(4)]
    outcomes = await asyncio.gather(*asks)
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert len(world.workers["a"].calls) == 2


async def test_other_results_begin_a_run_with_the_first_as_parent(world: World) -> None:
    world.workers["a"].then(calling("weather"), "Take a coat.", "Take a hat.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    other = await world.ask("Coat?", *answered(first, "sun"), tools=(WEATHER,))
    trace = world.store.read(other.run_id)
    assert (other.text, other.number, trace.parent_run_id) == ("Take a hat.", 0, first.run_id)
    assert len(world.workers["a"].calls) == 3, "the first turn is not asked again"


async def test_a_handoff_tells_the_run_anew(world: World) -> None:
    world.workers["b"].then("a draft")
    world.workers["a"].then(calling("weather"), calling("clock"), "It is noon.")
    clock = ToolSpec(name="clock", parameters={"type": "object"})
    first = await world.ask("What?", tools=(WEATHER,), system="You are A.", workflow=TWO)
    handed = {"tools": (clock,), "system": "You are B.", "tool_choice": "required"}
    second = await world.ask("What?", *answered(first), **handed)
    assert (second.run_id, [call.name for call in second.calls]) == (first.run_id, ["clock"])
    told, terms = world.workers["a"].calls[1], world.workers["a"].terms[1]
    assert (told[0].text, terms.tools, terms.choice) == ("You are B.", (clock,), "required")
    turns = (*answered(first), *answered(second))
    third = await world.ask("What?", *turns, tools=(clock,), system="You are B.")
    trace = world.store.read(first.run_id)
    assert (third.text, trace.system, len(world.workers["b"].calls)) == ("It is noon.", "You are B.", 1)
    assert trace.steps[1].messages[0].text == "You are A."
    assert [turn.anew is not None for turn in trace.steps[1].turns] == [True, True]
    assert world.store.unproven(first.run_id) == []
    assert world.turns.outcomes(first.run_id) == [first, second, third]


async def test_the_same_results_told_otherwise_begin_a_run(world: World) -> None:
    world.workers["a"].then(calling("weather"), "Take a coat.", "Nimm einen Mantel.")
    first = await world.ask("Coat?", tools=(WEATHER,), system="Be kind.")
    await world.ask("Coat?", *answered(first), tools=(WEATHER,), system="Be kind.")
    other = await world.ask("Coat?", *answered(first), tools=(WEATHER,), system="In German.")
    trace = world.store.read(other.run_id)
    assert (other.text, trace.parent_run_id, trace.system) == ("Nimm einen Mantel.", first.run_id, "In German.")
    assert world.workers["a"].calls[2][0].text == "In German."
    assert len(world.workers["a"].calls) == 3


async def test_what_is_hidden_from_records_does_not_make_results_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(f"sqlite:///{tmp_path / 'hidden.sqlite3'}", monkeypatch, Privacy(redact=frozenset({"mail"})))
    world.workers["a"].then(calling("weather"), "Take a coat.", "Take a hat.")
    asked: dict[str, Any] = {"tools": (WEATHER,), "system": "Ask ada@example.org."}
    first = await world.ask("Coat?", **asked)
    second = await world.ask("Coat?", *answered(first, "rain, says bob@example.org"), **asked)
    assert second == await world.ask("Coat?", *answered(first, "rain, says bob@example.org"), **asked)
    returned = [stored.event for stored in world.store.events(first.run_id) if isinstance(stored.event, ToolReturned)]
    assert [event.anew for event in returned] == [None]
    others = [await world.ask("Coat?", *answered(first, "sun, says bob@example.org"), **asked) for _ in range(2)]
    assert others[0] == others[1]
    assert len(world.workers["a"].calls) == 3
    await asyncio.to_thread(world.close)


async def test_results_for_a_run_that_cannot_go_on_begin_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.workers["a"].then(calling("weather"))
    first = await world.ask("Coat?", tools=(WEATHER,))

    def gone(*_: object, **__: object) -> None:
        raise BadInput("the pool is not there any more")

    monkeypatch.setattr(world.host._opened, "pool", gone)
    with pytest.raises(ApiError) as refused:
        await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    assert (refused.value.status, refused.value.code) == (409, "run_not_taken_up")
    assert (world.store.read(first.run_id).status, len(world.workers["a"].calls)) == ("waiting", 1)


async def test_half_of_the_results_is_refused(world: World) -> None:
    world.workers["a"].then(calling("weather", "weather"))
    first = await world.ask("Coat?", tools=(WEATHER,))
    calls, brought = answered(first)
    half = brought.model_copy(update={"content": brought.content[:1]})
    with pytest.raises(ApiError, match="No tool output") as caught:
        await world.ask("Coat?", calls, half, tools=(WEATHER,))
    assert caught.value.status == 400
    assert world.store.read(first.run_id).status == "waiting"


async def test_results_after_a_restart(world: World) -> None:
    world.workers["a"].then(calling("weather"), "Take a coat.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    await asyncio.to_thread(world.close)
    world.open()
    second = await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    assert (second.run_id, second.text) == (first.run_id, "Take a coat.")


async def test_results_of_a_foreign_run_are_history(world: World) -> None:
    world.workers["a"].then(calling("weather"), "It will be fine.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    theirs = await world.ask("Coat?", *answered(first), caller=BOB)
    assert (theirs.run_id != first.run_id, theirs.status) == (True, "completed")
    assert world.store.read(theirs.run_id).task == "Coat?"
    assert world.store.read(first.run_id).status == "waiting"


async def test_a_client_that_leaves_cancels_its_run(world: World) -> None:
    world.workers["b"].then("a draft")
    world.workers["a"].then(Reply("half", hang=True))
    turn = await world.begin("What?", workflow=TWO, stream=True)
    async with aclosing(turn.parts()) as groups:
        async for group in groups:
            if any(isinstance(part, Text) for part in group):
                break
    await asyncio.to_thread(eventually, lambda: world.store.read(turn.run_id).status == "cancelled")
    world.workers["a"].then("the answer")
    again = await world.ask("What?", workflow=TWO, stream=True)
    trace = world.store.read(again.run_id)
    assert (again.text, trace.parent_run_id) == ("the answer", turn.run_id)
    assert [step.status for step in trace.steps] == ["reused", "completed"]
    assert len(world.workers["b"].calls) == 1, "what was finished is not paid twice"
    assert again.spending.total_tokens == trace.usage.total_tokens


async def test_a_withdrawn_answer_fails_a_stream_alone(world: World) -> None:
    from conductor_core.errors import WorkerStreamCut

    for stream, status in ((True, "failed"), (False, "completed")):
        world.workers["a"].then(Reply("the beginn", error=WorkerStreamCut("cut")), "another answer")
        outcome = await world.ask("What?", stream=stream)
        assert outcome.status == status
        assert outcome == world.turns.recorded(outcome.run_id, 0)
    assert outcome.text == "another answer"


async def test_a_failed_run_says_so(world: World) -> None:
    from conductor_core.errors import WorkerRefused

    world.workers["a"].then(WorkerRefused("no such model"))
    outcome = await world.ask("What?")
    assert (outcome.status, outcome.error and outcome.error.status) == ("failed", 500)
    assert outcome.error is not None
    assert "no such model" in outcome.error.message


async def test_a_text_that_no_worker_can_hold_is_the_clients_to_shorten(world: World) -> None:
    from conductor_core.errors import WorkerContextOverflow

    world.workers["a"].then(WorkerContextOverflow("longer than the model's context"))
    error = (await world.ask("What?")).error
    assert error is not None
    assert (error.status, error.code, error.may_retry) == (400, "context_length_exceeded", False)


async def test_an_answer_in_a_form_comes_whole(world: World) -> None:
    rules = AnswerRules(form="schema", json_schema={"type": "object", "required": ["n"]})
    world.workers["a"].then('```json\n{"n": 1}\n```')
    turn = await world.begin("n?", rules=rules, stream=True)
    parts = [part async for group in turn.parts() for part in group]
    assert [part.text for part in parts if isinstance(part, Text)] == ['{"n": 1}']
    world.workers["a"].then("no", "no")
    failed = await world.ask("n?", rules=rules)
    assert failed.error is not None
    assert (failed.error.status, failed.error.code) == (422, "schema_mismatch")


async def test_usage_of_random_runs_adds_up(world: World) -> None:
    rng = random.Random(7)

    def usage() -> Usage:
        read, wrote = rng.randint(1, 500), rng.randint(1, 300)
        return Usage(
            input_tokens=read, output_tokens=wrote, cached_input_tokens=rng.randint(0, read),
            reasoning_tokens=rng.randint(0, wrote),
        )  # fmt: skip

    def reply(_: Sequence[Message]) -> Reply:
        return Reply(f"text {rng.random()}", usage=usage())

    for name in world.workers:
        world.workers[name] = ScriptedWorker(name, reply)
    world.turns._host._opened._pools.clear()
    for number in range(40):
        steps = rng.randint(1, 4)
        plan = workflow_of(*((rng.choice("ab"), f"do {i}", tuple(range(i))) for i in range(steps)))
        outcome = await world.ask(f"task {number}", workflow=plan, stream=rng.random() < 0.5)
        spent, trace = outcome.spending, world.store.read(outcome.run_id)
        assert spent.all_input_tokens == trace.usage.input_tokens
        assert spent.all_output_tokens == trace.usage.output_tokens
        assert spent.cached_tokens + spent.orchestration_cached_tokens == (trace.usage.cached_input_tokens or 0)
        assert sum(row.output_tokens for row in outcome.rows) == trace.usage.output_tokens
        assert spent.cached_tokens <= spent.input_tokens
        assert spent.reasoning_tokens <= spent.output_tokens


async def test_results_after_a_stop_in_the_middle_go_on_in_a_new_run(world: World) -> None:
    world.workers["a"].then(calling("weather"), Reply("", hang=True), "Take a coat.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    turn = await world.begin("Coat?", *answered(first), tools=(WEATHER,))
    waiting = asyncio.create_task(turn.outcome())
    await asyncio.to_thread(eventually, lambda: len(world.workers["a"].calls) == 2)
    await asyncio.to_thread(world.host.cancel, first.run_id, ADA)
    assert (await waiting).status == "cancelled"
    again = await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    trace = world.store.read(again.run_id)
    assert (again.text, trace.parent_run_id) == ("Take a coat.", first.run_id)
    assert len(world.workers["a"].calls) == 3, "the turn before the tool is not asked again"
    assert again.spending.total_tokens == trace.usage.total_tokens == 15


async def test_a_run_that_another_process_interrupted_goes_on(world: World) -> None:
    world.workers["a"].then(calling("weather"), "Take a coat.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    result = ToolResults(
        run_id=first.run_id,
        results=tuple(ToolResultPart(call_id=call.call_id, text="rain") for call in first.calls),
        actor=ADA.actor,
        door="api",
    )
    await asyncio.to_thread(world.host.close)  # nobody hears the command
    world.store.send(result)
    world.store.close()
    world.open()
    again = await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    assert (again.status, again.run_id, again.number) == ("completed", first.run_id, 1)
    assert len(world.workers["a"].calls) == 2


async def test_two_results_of_one_call_are_refused_and_one_sent_twice_is_one(world: World) -> None:
    world.workers["a"].then(calling("weather"), "Take a coat.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    call, brought = answered(first)
    _, other = answered(first, "sun")
    with pytest.raises(ApiError, match="Two different outputs"):
        await world.ask("Coat?", call, brought, other, tools=(WEATHER,))
    again = await world.ask("Coat?", call, brought, brought, tools=(WEATHER,))
    assert (again.run_id, again.text) == (first.run_id, "Take a coat.")
    assert not world.store.read(first.run_id).refused


async def test_of_a_run_whose_key_is_revoked_nobody_says_that_its_client_cancelled_it(world: World) -> None:
    world.workers["a"].then(Reply("the beginn", hang=True))
    turn = await world.begin("What?")
    waiting = asyncio.create_task(turn.outcome())
    await asyncio.to_thread(eventually, lambda: world.workers["a"].calls)
    turn.revoke()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.to_thread(eventually, lambda: world.store.read(turn.run_id).ended_by is not None)
    ended_by = world.store.read(turn.run_id).ended_by
    assert ended_by is not None
    assert ended_by.actor == THE_PROGRAM


async def test_a_client_that_leaves_does_not_end_what_another_request_waits_for(world: World) -> None:
    world.workers["a"].then(calling("weather"), Reply("", hang=True))
    first = await world.ask("Coat?", tools=(WEATHER,))
    both = [await world.begin("Coat?", *answered(first), tools=(WEATHER,)) for _ in range(2)]
    waiting = [asyncio.create_task(turn.outcome()) for turn in both]
    await asyncio.to_thread(eventually, lambda: world.turns.listeners[first.run_id] == 2)
    await asyncio.to_thread(eventually, lambda: len(world.workers["a"].calls) == 2)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    assert world.store.read(first.run_id).status == "running"
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    await asyncio.to_thread(eventually, lambda: world.store.read(first.run_id).status == "cancelled")


async def test_what_goes_on_from_other_results_is_not_paid_twice(world: World) -> None:
    world.workers["a"].then(calling("weather"), "Take a coat.", "Take a hat.", "In French.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    other = [await world.ask("Coat?", *answered(first, "sun"), tools=(WEATHER,)) for _ in range(2)]
    world.close()
    world.open()
    other.append(await world.ask("Coat?", *answered(first, "sun"), tools=(WEATHER,)))
    assert {each.text for each in other} == {"Take a hat."}
    assert len({each.run_id for each in other}) == 1
    assert len(world.workers["a"].calls) == 3
    said = await world.ask("Coat?", *answered(first, said="In French!"), tools=(WEATHER,))
    assert (said.text, said.run_id == first.run_id) == ("In French.", False), "what is said beside them counts, too"


async def test_results_are_answered_once_after_the_run_was_interrupted(world: World) -> None:
    world.workers["a"].then(calling("weather"), Reply("", hang=True), "Take a coat.")
    first = await world.ask("Coat?", tools=(WEATHER,))
    turn = await world.begin("Coat?", *answered(first), tools=(WEATHER,))
    waiting = asyncio.create_task(turn.outcome())
    await asyncio.to_thread(eventually, lambda: len(world.workers["a"].calls) == 2)
    await asyncio.to_thread(world.host.cancel, first.run_id, ADA)
    await waiting
    both = [await world.ask("Coat?", *answered(first), tools=(WEATHER,)) for _ in range(2)]
    assert both[0].run_id == both[1].run_id != first.run_id
    assert len(world.workers["a"].calls) == 3


async def test_a_run_that_waited_spends_within_what_its_key_may(world: World) -> None:
    spent = SimpleNamespace(usd=0.0, tokens=0)
    caps = [CostCap(spent, max_tokens=100_000), CostCap(spent, max_tokens=20)]
    world.workers["a"].then(calling("weather"), "Take a coat.")
    first = await world.ask("Coat?", tools=(WEATHER,), cap=caps[0])
    again = await world.ask("Coat?", *answered(first), tools=(WEATHER,), cap=caps[1])
    assert again.error is not None
    assert (again.run_id, again.error.code) == (first.run_id, "insufficient_quota")
    assert "0 of 20 tokens are used and the next call may need " in again.error.message
    assert len(world.workers["a"].calls) == 1
    tomorrow = await world.ask("Coat?", *answered(first), tools=(WEATHER,))
    assert tomorrow.text == "Take a coat."


async def test_a_conductor_at_a_provider_that_a_key_excludes_is_not_asked(world: World) -> None:
    with pytest.raises(ApiError) as refused:
        await world.ask("What?", workflow=None, excluded=("openai",))
    assert (refused.value.status, refused.value.code) == (403, "providers_excluded")
    assert not world.conductor.requests
    assert (await world.ask("What?", excluded=("openai",))).status == "completed", "a given plan asks none"


async def test_the_process_that_brings_results_takes_the_run_up_within_what_the_key_may_spend(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = CostCap(SimpleNamespace(usd=0.0, tokens=0), max_tokens=20)
    hears, loop = world.host._notify, world.host._loop
    monkeypatch.setattr(world.host, "_notify", lambda sent: loop.call_later(0.2, hears, sent))
    store = open_store(world.url)
    other = EngineHost(store.log, FAST, store, carries_on_all=True)
    try:
        world.workers["a"].then(calling("weather"))
        first = await world.ask("Coat?", tools=(WEATHER,))
        again = await world.ask("Coat?", *answered(first), tools=(WEATHER,), cap=cap)
        assert again.error is not None
        assert again.error.code == "insufficient_quota"
    finally:
        await asyncio.to_thread(other.close)
        store.close()
    assert len(world.workers["a"].calls) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_whatever_a_request_says_is_refused_or_answered_by_a_run(world: World, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(_READ)))
    read, whole = _READ[path]
    body = data.draw(
        changed(*({"model": "fugu", "conductor": {"workflow": WORKFLOW}, **each} for each in BODIES[path]))
    )
    try:
        turn = await world.turns.begin(read(body), ADA, (), None)
    except (ApiError, BadInput):
        return
    outcome = await turn.outcome()
    json.dumps(whole(outcome), allow_nan=False)
    assert outcome == world.turns.recorded(outcome.run_id, 0)
    assert outcome.spending.total_tokens == world.store.read(outcome.run_id).usage.total_tokens
