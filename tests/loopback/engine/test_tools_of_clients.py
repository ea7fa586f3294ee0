"""Workers call the client's tools: the run waits, from its record alone, and goes on with what they bring."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conductor_core.chat.messages import (
    AnswerRules,
    Message,
    ToolCall,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import rerun_of
from conductor_core.errors import WorkerStreamCut
from conductor_core.run import egress
from conductor_core.run.commands import ToolResults
from conductor_core.run.events import CommandRefused, RunWaiting, ToolReturned
from conductor_core.run.request import GivenTurns, Overrides, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from storage import Store, open_store
from tests.support.fakes import MemorySink, Reply, ScriptedWorker, pool_of, run, workflow_of
from tests.support.gated_runs import ADA, FAST, at_rest, said

WEATHER = ToolSpec(name="weather", description="Tells it.", parameters={"type": "object"})
ASKS = ("a", "Use the tool: {question}", ())
TWO = workflow_of(("a", "Ask: {question}", ()), ("b", "Ask, too: {question}", ()), ("a", "Combine.", (0, 1)))


def calling(*names: str, text: str = "") -> Reply:
    calls = tuple(ToolCall(name=name, arguments=f'{{"place": "{name}"}}') for name in names)
    return Reply(text, finish_reason="tool_calls", tool_calls=calls)


def answers_with_results(messages: Sequence[Message]) -> str | Reply:
    """Calls the tool where it may, and repeats what came back."""
    brought = [
        part.text
        for m in messages
        if not isinstance(m.content, str)
        for part in m.content
        if part.kind == "tool_result"
    ]
    return f"so: {', '.join(brought)}" if brought else calling("weather")


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScriptedWorker]:
    made = {name: ScriptedWorker(name, answers_with_results) for name in ("a", "b")}
    pool = pool_of(*made.values())
    monkeypatch.setattr("conductor_core.engine.host.open_pool", lambda *_, **__: pool)
    monkeypatch.setattr("conductor_core.engine.host.reopen_pool", lambda *_, **__: pool)
    return made


def begun(host: EngineHost, workflow: object = None, **fields: object) -> str:
    asked = {"task": "Rain?", "workflow": workflow or workflow_of(ASKS), "tools": (WEATHER,), "pool": "rehearsal"}
    run_id = host.start(RunRequest.model_validate(asked | fields))
    host.wait(run_id, 30)
    return run_id


def results(trace: RunTrace, text: Callable[[str], str] = str.upper) -> tuple[ToolResultPart, ...]:
    return tuple(ToolResultPart(call_id=call.call_id, text=text(call.name)) for call in trace.open_calls)


def test_the_run_waits_and_goes_on(host: EngineHost, store: Store, workers: dict[str, ScriptedWorker]) -> None:
    run_id = begun(host)
    trace = store.read(run_id)
    assert (trace.status, trace.waits_for, [call.name for call in trace.open_calls]) == (
        "waiting", "tool_results", ["weather"],
    )  # fmt: skip
    assert workers["a"].terms[0].tools == (WEATHER,)
    kinds = [stored.event.kind for stored in store.events(run_id)]
    assert kinds.index("tool.called") < kinds.index("run.waiting")
    trace = at_rest(store, run_id, said(store, run_id, kind=ToolResults, results=results(trace), said="Be brief."))
    assert (trace.status, trace.answer) == ("completed", "so: WEATHER")
    assert len(workers["a"].calls) == 2
    call, back = workers["a"].calls[1][-2:]
    assert isinstance(call.content, tuple)
    assert isinstance(call.content[0], ToolCallPart)
    assert back.text.endswith("Be brief.")
    assert trace.usage.total_tokens == 2 * 15, "both turns are paid, once"


def test_each_result_reaches_the_step_that_called(
    host: EngineHost, store: Store, workers: dict[str, ScriptedWorker]
) -> None:
    run_id = begun(host, TWO)
    trace = store.read(run_id)
    first, second = trace.open_calls
    both = (ToolResultPart(call_id=second.call_id, text="two"), ToolResultPart(call_id=first.call_id, text="one"))
    trace = at_rest(store, run_id, said(store, run_id, kind=ToolResults, results=both))
    assert [step.output for step in trace.steps[:2]] == ["so: one", "so: two"]
    assert (trace.status, next(call.call_id for call in trace.open_calls)) == (
        "waiting",
        trace.steps[2].open_calls[0].call_id,
    )
    assert first.call_id != trace.open_calls[0].call_id, "ids are unique in the run"
    trace = at_rest(store, run_id, said(store, run_id, kind=ToolResults, results=results(trace)))
    assert trace.status == "completed"
    assert (len(workers["a"].calls), len(workers["b"].calls)) == (4, 2), "nobody is asked again"


@pytest.mark.parametrize("wrong", ["none", "half", "twice", "other"])
def test_other_results_are_refused(
    host: EngineHost, store: Store, workers: dict[str, ScriptedWorker], wrong: str
) -> None:
    run_id = begun(host, TWO)
    right = results(store.read(run_id))
    brought = {
        "none": (), "half": right[:1], "twice": (right[0], right[0]),
        "other": (right[0], ToolResultPart(call_id="call_x_9", text="x")),
    }[wrong]  # fmt: skip
    trace = at_rest(store, run_id, said(store, run_id, kind=ToolResults, results=brought))
    assert trace.status == "waiting"
    refused = [stored.event for stored in store.events(run_id) if isinstance(stored.event, CommandRefused)]
    assert refused
    assert refused[0].asked == "tool_results"
    assert len(workers["a"].calls) == 1


def test_the_wait_survives_a_restart(store: Store, url: str, workers: dict[str, ScriptedWorker]) -> None:
    host = EngineHost(store.log, FAST, store)
    run_id = begun(host)
    host.close()
    store.close()
    with_results = open_store(url)
    other = EngineHost(with_results.log, FAST, with_results, carries_on_all=True)
    trace = with_results.read(run_id)
    trace = at_rest(with_results, run_id, said(with_results, run_id, kind=ToolResults, results=results(trace)))
    assert (trace.status, trace.answer, len(workers["a"].calls)) == ("completed", "so: WEATHER", 2)
    other.close()
    with_results.close()


def test_results_are_proven(host: EngineHost, store: Store, workers: dict[str, ScriptedWorker]) -> None:
    run_id = begun(host)
    at_rest(store, run_id, said(store, run_id, kind=ToolResults, results=results(store.read(run_id))))
    assert store.unproven(run_id) == []
    returned = next(s.event for s in store.events(run_id) if isinstance(s.event, ToolReturned))
    assert returned.caller == ADA


def test_a_rerun_reuses_a_step_with_its_turns(
    host: EngineHost, store: Store, workers: dict[str, ScriptedWorker]
) -> None:
    run_id = begun(host)
    at_rest(store, run_id, said(store, run_id, kind=ToolResults, results=results(store.read(run_id))))
    again = host.start(rerun_of(store.read(run_id), door="page"))
    trace = host.wait(again, 30)
    assert (trace.status, trace.steps[0].status, len(workers["a"].calls)) == ("completed", "reused", 2)
    assert [turn.calls[0].name for turn in trace.steps[0].turns] == ["weather"]


def test_a_step_can_begin_with_turns_of_another_run(
    host: EngineHost, store: Store, workers: dict[str, ScriptedWorker]
) -> None:
    run_id = begun(host)
    trace = store.read(run_id)
    turn = trace.steps[0].turns[0].model_copy(update={"results": results(trace, str.title)})
    overrides = Overrides(turns=(GivenTurns(step=0, turns=(turn,)),))
    other = host.wait(host.start(rerun_of(trace, door="api", overrides=overrides)), 30)
    assert (other.status, other.answer) == ("completed", "so: Weather")
    assert len(workers["a"].calls) == 2
    assert other.steps[0].identity != trace.steps[0].identity


def test_what_a_tool_received_left_the_machine(
    host: EngineHost, store: Store, workers: dict[str, ScriptedWorker]
) -> None:
    run_id = begun(host)
    at_rest(store, run_id, said(store, run_id, kind=ToolResults, results=results(store.read(run_id))))
    calls = egress.calls(stored.event for stored in store.events(run_id))
    assert [(call.of, call.provider, call.ended) for call in calls] == [
        ("step", "openai", "called tools"), ("tool", "client", "completed"), ("step", "openai", "completed"),
    ]  # fmt: skip
    assert "WEATHER" in calls[2].texts[-2] or any("WEATHER" in text for text in calls[2].texts)


def test_a_cancelled_wait_ends(host: EngineHost, store: Store, workers: dict[str, ScriptedWorker]) -> None:
    run_id = begun(host)
    assert host.cancel(run_id, ADA)
    assert store.read(run_id).status == "cancelled"


def once(*replies: str | Reply, workflow: object = None, **fields: object) -> tuple[RunTrace, ScriptedWorker]:
    worker = ScriptedWorker("a").then(*replies)
    asked = {"workflow": workflow or workflow_of(ASKS)} | fields
    trace, _ = asyncio.run(run(worker, sink=MemorySink(), settings=Settings(retry_initial_s=0), **asked))  # type: ignore[arg-type]
    return trace, worker


def test_arguments_that_are_no_object_are_asked_for_again() -> None:
    broken = Reply("", finish_reason="tool_calls", tool_calls=(ToolCall(name="weather", arguments='{"a'),))
    trace, worker = once(broken, calling("weather"), tools=(WEATHER,))
    assert (trace.status, len(worker.calls)) == ("waiting", 2)
    assert trace.steps[0].attempts[0].error_code == "WorkerFailed"


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "weather", "arguments": {"place": "Oslo"}}',
        '```json\n{"name": "weather", "parameters": {"place": "Oslo"}}\n```',
        '<tool_call>\n{"name": "weather", "arguments": {"place": "Oslo"}}\n</tool_call>',
    ],
)
def test_a_small_model_of_this_machine_may_write_a_call_as_text(text: str) -> None:
    spec: dict[str, Any] = {"provider": "gguf", "model": "m.gguf", "base_url": None}
    worker = ScriptedWorker("a", **spec).then(text)
    sink = MemorySink()
    trace, _ = asyncio.run(run(worker, sink=sink, workflow=workflow_of(ASKS), tools=(WEATHER,)))
    assert [call.arguments for call in trace.open_calls] == ['{"place": "Oslo"}']
    assert (trace.steps[0].turns[0].text, [e for e in sink.events if e.kind == "step.delta"]) == ("", [])


@pytest.mark.parametrize("text", ['{"n": 1}', '{"name": "rm", "arguments": {}}', "{ no JSON", "Plain.", "<b>x</b>"])
def test_what_is_no_call_is_the_answer(text: str) -> None:
    worker = ScriptedWorker("a", provider="gguf", model="m.gguf", base_url=None).then(text)
    trace, _ = asyncio.run(run(worker, sink=MemorySink(), workflow=workflow_of(ASKS), tools=(WEATHER,)))
    assert (trace.status, trace.answer) == ("completed", text)


def test_a_tool_that_nobody_offered_is_not_called() -> None:
    trace, _ = once(calling("weather", "rm", text="Then I do it."), tools=(WEATHER,))
    assert (trace.status, [call.name for call in trace.open_calls]) == ("waiting", ["weather"])
    (told,) = trace.steps[0].turns[0].partial
    assert (told.is_error, told.text) == (
        True,
        "There is no tool of this name, so nothing was called. There are: weather.",
    )
    trace, _ = once(calling("rm", text="Then I do it."), tools=(WEATHER,))
    assert (trace.status, trace.open_calls) == ("cut", ())


def test_a_tool_is_demanded_once() -> None:
    trace, worker = once(calling("weather"), tools=(WEATHER,), tool_choice="required")
    assert worker.terms[0].choice == "required"
    plan = workflow_of(("a", "First.", ()), ("a", "Last.", (0,)))
    trace, worker = once("x", calling("weather"), workflow=plan, tools=(WEATHER,), tool_choice="required")
    assert [terms.choice for terms in worker.terms] == ["auto", "required"]
    assert trace.status == "waiting"


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
AS_SCHEMA = AnswerRules(form="schema", json_schema=SCHEMA)


def test_an_answer_in_another_form_is_corrected_once() -> None:
    trace, worker = once("It is 7.", '```json\n{"n": 7}\n```', rules=AS_SCHEMA)
    assert (trace.status, len(worker.calls)) == ("completed", 2)
    assert "not JSON" in worker.calls[1][-1].text
    assert trace.steps[0].attempts[0].correction == worker.calls[1][-1].text
    assert "JSON Schema" in trace.steps[0].messages[0].text
    trace, worker = once("It is 7.", '{"n": "7"}', rules=AS_SCHEMA)
    assert (trace.status, trace.error_code, len(worker.calls)) == ("failed", "AnswerNotInForm", 2)
    assert "$.n" in (trace.error or "")
    assert trace.usage.total_tokens == 30


def test_the_rules_bind_the_answer_alone() -> None:
    plan = workflow_of(("a", "First: {question}", ()), ("a", "Last.", (0,)))
    trace, worker = once("no JSON", '{"n": 1}', workflow=plan, rules=AS_SCHEMA, system="Be kind.")
    assert trace.status == "completed"
    assert [messages[0].role for messages in worker.calls] == ["system", "system"]
    assert "JSON" not in worker.calls[0][0].text
    assert worker.calls[1][0].text.startswith("Be kind.")


def test_the_answer_ends_before_a_text() -> None:
    trace, _ = once(Reply("One.\nEND of it"), rules=AnswerRules(stop=("END",)))
    assert (trace.answer, trace.steps[0].stop_text, trace.steps[0].finish_reason) == ("One.\n", "END", "stop")
    trace, _ = once(Reply("One. E"), rules=AnswerRules(stop=("END",)))
    assert (trace.answer, trace.steps[0].stop_text) == ("One. E", None)


def test_a_gate_and_a_tool_wait_for_different_things(
    host: EngineHost, store: Store, workers: dict[str, ScriptedWorker]
) -> None:
    run_id = begun(host)
    waiting = [stored.event for stored in store.events(run_id) if isinstance(stored.event, RunWaiting)]
    assert [event.waits_for for event in waiting] == ["tool_results"]


def test_a_pattern_that_takes_for_ever_is_a_fault() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string", "pattern": "^(a+)+$"}}}
    told = '{"n": "' + "a" * 60 + 'b"}'
    trace, _ = once(told, told, rules=AnswerRules(form="schema", json_schema=schema))
    assert (trace.status, trace.error_code) == ("failed", "AnswerNotInForm")


def test_what_may_be_a_call_is_kept_when_the_call_breaks_off() -> None:
    half = Reply('{"name": "weat', error=WorkerStreamCut("cut"))
    worker = ScriptedWorker("a", provider="gguf", model="m.gguf", base_url=None).then(half, half, half)
    settings = Settings(retry_initial_s=0)
    asked = run(worker, sink=MemorySink(), settings=settings, workflow=workflow_of(ASKS), tools=(WEATHER,))
    trace, _ = asyncio.run(asked)
    assert (trace.status, trace.steps[0].output) == ("failed", '{"name": "weat')
    assert trace.steps[0].usage.output_tokens > 0
