"""Runs of the endpoint's clients in the terminal: what they wait for, their turns with tools, how they came."""

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import ToolCall, ToolResultPart, ToolSpec
from conductor_core.cli.main import main
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor
from conductor_core.run.request import ClientRequest
from storage import open_store
from tests.support.run_events import created, planned, step_completed, step_started

CLIENT = ClientRequest(api="messages", model="fugu-ultra")


@pytest.fixture
def db(tmp_path: Path) -> str:
    file = tmp_path / "runs.sqlite3"
    tool = ToolSpec(name="weather")
    more: dict[str, Any] = {
        "tools": (tool,),
        "system": "Be brief.",
        "client": CLIENT,
        "conversation_id": "r0",
        "door": "api",
    }
    calls = (ToolCall(call_id="call_0", name="weather", arguments='{"place": "\\u001b[31mOslo"}'),)
    wrong = ev.StepRetried(
        run_id="r1", path=(0,), attempt=1, error_code="AnswerNotInForm", error="not JSON", wait_ms=0, partial="7",
        correction="Write JSON.",
    )  # fmt: skip
    events = [
        created("r1", actor=Actor(kind="service", id="key-1", name="my app"), **more),
        *planned("r1"),
        step_started("r1", 0, 30),
        wrong,
        ev.ToolCalled(run_id="r1", path=(0,), calls=calls, text="I look.", cost_usd=0.25),
        ev.RunWaiting(run_id="r1", waits_for="tool_results"),
    ]
    store = open_store(f"sqlite:///{file}")
    store.log.append_and_wait(*events)
    store.close()
    return str(file)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    main(list(arguments))
    said = capsys.readouterr()
    return said.out + said.err


def test_a_run_that_waits_for_tools_is_listed_with_its_reason(capsys: pytest.CaptureFixture[str], db: str) -> None:
    said = shown(capsys, "waiting", "--db", db)
    assert said.startswith("r1  since ")
    assert "  its client's tools: weather · asked by my app, api" in said
    (listed,) = json.loads(shown(capsys, "waiting", "--db", db, "--json"))["waiting"]
    assert (listed["for"], [call["name"] for call in listed["calls"]]) == ("tool_results", ["weather"])
    assert "r1" in shown(capsys, "runs", "--status", "waiting", "--db", db)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["approve", "r1"], "does not wait for an approval: it waits for its client's tools"),
        (["rerun", "r1"], "waits for its client's tools: cancel it first"),
    ],
)
def test_it_can_be_neither_approved_nor_rerun(
    capsys: pytest.CaptureFixture[str], db: str, command: list[str], says: str
) -> None:
    assert says in shown(capsys, *command, "--db", db)


def test_its_turns_are_shown_while_it_waits_and_after(capsys: pytest.CaptureFixture[str], db: str) -> None:
    said = shown(capsys, "show", "r1", "--db", db)
    for line in (
        "asked through the endpoint: Messages, model fugu-ultra, in the conversation that began with run r0",
        "tools of the client: weather",
        "step 0 · solver (simulated) · waits for tools",
        "attempt 1: not JSON; told so, and asked again",
        "    > Write JSON.",
        "    | I look.",
        "    called weather (call_0)",
        "    waits for the client since ",
    ):
        assert line in said
    assert "\x1b" not in said
    store = open_store(f"sqlite:///{db}")
    results = (ToolResultPart(call_id="call_0", text="no such place", is_error=True),)
    taken = ev.RunTaken(run_id="r1")
    returned = ev.ToolReturned(run_id="r1", results=results, said="Only today.")
    store.log.append_and_wait(taken, returned, step_completed("r1", 0, "7", 60))
    store.close()
    said = shown(capsys, "show", "r1", "--db", db)
    assert "    error after " in said
    assert "      > no such place" in said
    assert "    the client added\n      > Only today." in said
    assert "waits for" not in said.partition("step 1")[0]
