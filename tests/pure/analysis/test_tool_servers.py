"""Calls of the pool's tool servers, as terminal, JSON, decision record, context, traces and previews tell them."""

import json
from typing import Any

import pytest

from conductor_core.analysis.decision_record import decision_record, record_page, record_text
from conductor_core.analysis.documents import run_document, waiting_document
from conductor_core.cli import live
from conductor_core.cli.show import context_lines, run_lines
from conductor_core.engine.estimates import edit_step, preview
from conductor_core.engine.request import resume_of
from conductor_core.export.otel import CONTENTS, spans_of
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.trace import fold
from tests.support.tool_runs import (
    TOOL_POOL,
    WRITE_AND_READ,
    asked_for_a_call,
    begun,
    run_with_tools,
    tool_call,
    tool_ran,
    tool_sent,
    tools_called,
)

WRITE = tool_call("r", 0, "files__write", '{"text": "Paris"}')
CLOCK = tool_call("r", 1, "clock")


def shown(events: list[Event]) -> str:
    return "\n".join(run_lines(fold(events)))


def turn_of(events: list[Event]) -> dict[str, Any]:
    turn: dict[str, Any] = run_document(fold(events))["steps"][0]["turns"][-1]
    return turn


def test_show_tells_server_effects_outcome_time_and_size() -> None:
    said = shown(run_with_tools("r"))
    assert "called web.search, no effects (call_r_0)" in said
    assert "called files.write, has effects (call_r_1)" in said
    assert "✓ returned after 0.3 s, of 16 bytes" in said
    assert "client" not in said


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ([], "calls tools", "not called yet"),
        ([asked_for_a_call("r", WRITE)], "calls tools", "waits for an approval"),
        ([tool_sent("r", WRITE, effects=True)], "calls tools", "being called since"),
        ([tool_ran("r", WRITE, "x", "denied", effects=True)], "waits for tools", "⊖ denied, nothing was sent"),
    ],
)
def test_show_tells_a_call_that_has_not_ended_apart_from_the_clients(
    more: list[Event], status: str, words: str
) -> None:
    said = shown([*begun("r"), tools_called("r", [WRITE], clients=[CLOCK]), *more])
    assert f"step 0 · writer · {status}" in said
    assert words in said
    assert said.count("waits for the client") == 1


def test_a_cut_result_says_of_how_much_it_is_the_beginning() -> None:
    ran = tool_ran("r", WRITE, "x", "error", effects=True, size_bytes=1_200_000)
    said = shown([*begun("r"), tools_called("r", [WRITE]), tool_sent("r", WRITE), ran])
    assert "✕ failed, of 1.2 MB, of which this is the beginning" in said


def test_each_call_in_json_has_its_server_tool_effects_outcome_time_and_result() -> None:
    calls = turn_of(run_with_tools("r"))["calls"]
    assert calls[0] | {"arguments": ""} == {
        "name": "files__write",
        "call_id": "call_r_1",
        "arguments": "",
        "server": "files",
        "tool": "write",
        "effects": True,
        "outcome": "returned",
        "duration_ms": 290,
        "size_bytes": 16,
        "result": "12 bytes written",
    }


def test_a_call_of_the_client_in_json_has_no_server() -> None:
    events = [*begun("r"), tools_called("r", [WRITE], clients=[CLOCK])]
    ours, clients = turn_of(events)["calls"]
    assert (ours["server"], ours["effects"], ours["outcome"], ours["result"]) == ("files", True, None, None)
    assert "server" not in clients
    assert clients["result"] is None


def test_a_request_for_a_call_says_what_would_be_called_with_what() -> None:
    trace = fold([*begun("r"), tools_called("r", [WRITE]), asked_for_a_call("r", WRITE)])
    assert live.asked(trace.approvals[0]) == ('step 0 wants to call files.write (has effects) with {"text": "Paris"}')
    assert live.waits(trace).startswith("run r waits for an approval of the call of files.write by step 0: conductor")
    told = waiting_document(trace)
    assert (told["step"], told["requests"][0]["arguments"], told["calls"]) == ("0", '{"text": "Paris"}', [])


def test_the_decision_record_has_each_call_its_server_and_who_approved_it() -> None:
    whole = run_with_tools("r")
    call = tool_call("r", 1, "files__write", '{"path": "capital.txt", "text": "Paris\\nFrance"}')
    at = next(place for place, event in enumerate(whole) if isinstance(event, ev.ToolSent) and event.effects)
    granted = ev.ApprovalGranted(run_id="r", at_ms=605, numbers=(1,))
    told = decision_record([*whole[:at], asked_for_a_call("r", call, at_ms=602), granted, *whole[at:]])
    text, page = record_text(told), record_page(told, {})
    for written in (text, page):
        assert "web.search (no effects), call_r_0: returned after 0.3 s, 31 bytes" in written
        assert "step 0 wants to call files.write (has effects), call_r_1" in written
        assert "mcp at this machine: mcp-files" in written
        assert "the arguments of 1 call" in written
    assert "step 0 wants to call files.write (has effects), call_r_1, asked" in text


def test_the_context_names_tool_servers_that_got_arguments() -> None:
    said = "\n".join(context_lines(fold(run_with_tools("r"))))
    assert "tool server mcp at tools.example:82: it got the arguments of 1 call of web.search" in said
    assert "tool server mcp at this machine: mcp-files: it got the arguments of 1 call of files.write" in said


def test_traces_have_a_span_for_each_call_that_left_without_what_it_said() -> None:
    spans = [span for span in spans_of(run_with_tools("r"), contents=True) if span.name.startswith("execute_tool")]
    assert [(each.name, each.error, not CONTENTS & each.attributes.keys()) for each in spans] == [
        ("execute_tool search", None, True),
        ("execute_tool write", None, True),
    ]
    assert spans[1].attributes["conductor.tool.effects"] is True
    calls = [span for span in spans_of(run_with_tools("r")) if span.name == "chat m"]
    assert len(calls) == 4, "three of the writer, one of the reader"


def test_a_preview_says_that_a_tool_with_effects_may_be_called_again() -> None:
    source = fold(run_with_tools("r"))
    again = preview(source, edit_step(WRITE_AND_READ, 0, instruction="Write more."), TOOL_POOL.workers)
    assert again.effects_again == "runs again: step 0 called files.write, which has effects: that may happen again"
    other = edit_step(WRITE_AND_READ, 0, agent="reader")
    assert preview(source, other, TOOL_POOL.workers).effects_again == "", "the reader may call none"
    denied = fold([*begun("r"), tools_called("r", [WRITE]), tool_ran("r", WRITE, "x", "denied", effects=True)])
    assert preview(denied, WRITE_AND_READ, TOOL_POOL.workers).effects_again == "", "nothing was sent"


def test_documents_are_json() -> None:
    assert json.dumps(run_document(fold(run_with_tools("r")), whole=True))


def test_a_step_that_goes_on_from_its_turns_calls_nothing_again() -> None:
    call = tool_call("r", 0, "files__write", '{"path": "a"}')
    dead = fold(
        [*begun("r"), tools_called("r", [call]), tool_sent("r", call, effects=True), ev.RunInterrupted(run_id="r")]
    )
    resumed = resume_of(dead, door="cli")
    assert preview(dead, WRITE_AND_READ, TOOL_POOL.workers, overrides=resumed.overrides).effects_again == ""
    assert "that may happen again" in preview(dead, WRITE_AND_READ, TOOL_POOL.workers).effects_again
