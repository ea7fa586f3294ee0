"""Tool servers that this machine starts: each way to fail has one clear outcome, and nothing is left running."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.tools import MOST_RESULT_CHARACTERS, ToolAnswer, ToolServer, ToolServerSpec
from conductor_core.tools import connection
from conductor_core.tools.servers import open_server
from tests.support.eventually import eventually, eventually_async

SUPPORT = Path(__file__).parents[2] / "support"
PLAIN, REAL = SUPPORT / "plain_tool_server.py", SUPPORT / "tool_server.py"
Open = Callable[..., ToolServer]


@pytest.fixture
async def opened() -> AsyncGenerator[Open]:
    servers: list[ToolServer] = []

    def open_one(*arguments: str, program: Path = PLAIN, **fields: Any) -> ToolServer:
        command = (sys.executable, str(program), *arguments)
        servers.append(open_server(ToolServerSpec(**({"name": "plain", "command": command} | fields))))
        return servers[-1]

    yield open_one
    for server in servers:
        await server.aclose()


async def called(server: ToolServer, name: str, **arguments: Any) -> ToolAnswer:
    listing = await server.list()
    assert not listing.fault
    return await server.call(next(tool for tool in listing.tools if tool.tool == name), arguments)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_a_server_of_the_library_lists_its_tools_and_answers(opened: Open) -> None:
    server = opened(program=REAL, name="desk")
    listing = await server.list()
    assert (listing.title, listing.kind, listing.where, listing.fault) == ("Desk 3.1", "stdio", "python", "")
    tools = {tool.tool: tool for tool in listing.tools}
    assert tools["add"].spec.name == "desk__add"
    assert tools["add"].spec.parameters["required"] == ["a", "b"]
    assert [name for name, tool in tools.items() if not tool.effects] == ["add"]
    answers = {name: await server.call(tools[name], {}) for name in ("fail", "weather", "picture", "nothing")}
    answers["add"] = await server.call(tools["add"], {"a": 2, "b": 3})
    answers["wrong"] = await server.call(tools["add"], {"a": "two"})
    assert {name: answer.outcome for name, answer in answers.items()} == {
        "fail": "error", "weather": "returned", "picture": "returned", "nothing": "returned", "add": "returned",
        "wrong": "error",
    }  # fmt: skip
    assert answers["add"].text == "5"
    assert "the desk is locked" in answers["fail"].text
    assert json.loads(answers["weather"].text) == {"degrees": 7}
    assert answers["picture"].text == "[an image: image/png, 321 bytes]"
    assert answers["nothing"].text == "The tool returned nothing."
    await server.call(tools["loses_a_tool"], {})
    lost = await server.call(tools["write"], {"path": "a"})
    assert (lost.outcome, lost.text) == (
        "changed",
        "Nothing was sent: the server desk no longer offers its tool write.",
    )


async def test_a_program_that_is_missing_is_named() -> None:
    listing = await open_server(ToolServerSpec(name="x", command=("no-such-program",))).list()
    assert listing.fault == "the tool server x: its program no-such-program is not on this machine"


async def test_a_file_that_is_no_program_says_so(tmp_path: Path, opened: Open) -> None:
    file = tmp_path / "serve"
    file.write_bytes(b"\x00\x01")
    file.chmod(0o700)
    listing = await opened(command=(str(file),)).list()
    assert "ended at its start; it last wrote: it cannot be started: Exec format error" in listing.fault


async def test_a_server_that_dies_at_its_start_says_its_last_line_without_keys(opened: Open) -> None:
    listing = await opened("dies").list()
    assert listing.fault == (
        "the tool server plain ended at its start; it last wrote: cannot open the database with key ***"
    )


async def test_a_server_that_never_speaks_is_given_up_and_ended(opened: Open) -> None:
    listing = await opened("hangs", timeout_s=0.5).list()
    assert "did not answer within 0.5 s" in listing.fault


async def test_a_server_that_dies_in_a_call_is_started_again_for_the_next(opened: Open) -> None:
    server = opened()
    told = await called(server, "die")
    assert told.outcome == "broke_off"
    assert "ended before it gave a result; it last wrote: ValueError: the disk is full" in told.text
    assert (await called(server, "echo", a=1)).text == '{"a": 1}'


@pytest.mark.parametrize(
    ("tool", "outcome", "said"),
    [
        ("broken", "broke_off", "a message that is broken JSON"),
        ("huge", "broke_off", "a message of more than 16 MB"),
        ("objects", "broke_off", "a message of more than 100,000 values"),
        ("floods", "broke_off", "more than 20,000 lines"),
        ("no_result", "broke_off", "a reply that is not of its protocol"),
        ("protocol_error", "error", "path must be absolute"),
        ("image", "returned", "[an image: image/png, 1,000 bytes]"),
        ("asks", "returned", "refused, refused, refused"),
    ],
)
async def test_each_way_to_misbehave_has_one_outcome(opened: Open, tool: str, outcome: str, said: str) -> None:
    told = await called(opened(), tool)
    assert told.outcome == outcome
    assert said in told.text


@pytest.mark.parametrize("arguments", ['{"a": "\\ud800"}', '{"a": ' * 400 + "1" + "}" * 400])
async def test_arguments_that_cannot_be_written_are_not_sent_and_harm_no_other_call(
    opened: Open, arguments: str
) -> None:
    server = opened()
    told = await called(server, "echo", **json.loads(arguments))
    assert (told.outcome, told.text) == (
        "unreachable", "Nothing was sent: the arguments cannot be written as JSON.",
    )  # fmt: skip
    assert (await called(server, "echo", a=1)).text == '{"a": 1}'


async def test_ten_megabytes_are_cut(opened: Open) -> None:
    told = await called(opened(), "big")
    assert (told.outcome, told.size_bytes) == ("returned", 10_000_000)
    assert len(told.text) <= MOST_RESULT_CHARACTERS
    assert "it has 10,000,000 characters" in told.text


async def test_a_call_that_hangs_is_given_up_and_its_process_ended(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_ANSWERS_IN_S", 0.2)
    server = opened(timeout_s=3)
    pid = int((await called(server, "child")).text.split()[0])
    told = await called(server, "hang")
    assert (told.outcome, told.text) == ("timed_out", "The tool server plain gave no result in 3 s.")
    await eventually_async(lambda: not is_running(pid))
    assert (await called(server, "echo", a=2)).text == '{"a": 2}'


async def test_a_cancelled_call_ends_a_process_that_does_not_stop(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_ANSWERS_IN_S", 0.2)
    server = opened()
    pid = int((await called(server, "child")).text.split()[0])
    [hang] = [tool for tool in (await server.list()).tools if tool.tool == "hang"]
    call = asyncio.create_task(server.call(hang, {}))
    held = connection._shared[asyncio.get_running_loop()]
    await eventually_async(lambda: any(b"hanging" in each._open.notes._stderr for each in held.values() if each._open))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually_async(lambda: not is_running(pid))


async def test_a_tool_that_changed_since_it_was_offered_is_not_called(opened: Open) -> None:
    server = opened()
    listing = await server.list()
    tools = {tool.tool: tool for tool in listing.tools}
    assert not tools["echo"].effects
    await server.call(tools["changes"], {})
    told = await server.call(tools["echo"], {"a": 1})
    assert told.outcome == "changed"
    assert told.text == "Nothing was sent: the server plain has changed its tool echo since it was offered."


async def test_a_server_gets_no_variable_but_those_it_needs_and_those_named(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-servers-0123456789")
    monkeypatch.setenv("DESK_TOKEN", "for-the-desk-0123456789")
    monkeypatch.setenv("LC_TIME", "C")
    told = await called(opened(env=("DESK_TOKEN",)), "variables")
    variables = json.loads(told.text)
    assert set(variables) <= {"PATH", "HOME", "LANG", "TMPDIR", "LC_TIME", "LC_CTYPE", "LC_ALL", "DESK_TOKEN"}
    assert {"PATH", "LC_TIME", "DESK_TOKEN"} <= set(variables)
    assert "for-the-desk" not in told.text, "the token is hidden where it comes back"


async def test_a_named_variable_that_is_not_set_is_a_fault(opened: Open) -> None:
    assert "NO_SUCH_TOKEN is not set" in (await opened(env=("NO_SUCH_TOKEN",)).list()).fault


async def test_lines_for_people_among_the_messages_do_no_harm(opened: Open) -> None:
    assert (await called(opened("chatty"), "echo")).outcome == "returned"


async def test_a_server_that_ends_at_a_question_it_does_not_know_is_asked_as_before(opened: Open) -> None:
    assert (await called(opened("strict"), "echo")).outcome == "returned"


async def test_many_and_odd_tools_are_bounded(opened: Open) -> None:
    many = await opened("many").list()
    assert len(many.tools) == 128
    assert many.left_out[-1] == "and 852 more"
    odd = await opened("odd").list()
    [tool] = odd.tools
    assert tool.spec.name.startswith("plain__na_ve_tool_1_")
    assert "10,000,000 characters" in odd.left_out[0]
    assert "a number that JSON does not have" in odd.left_out[1]
    assert (await called(opened("odd"), "naïve tool/1", a=1)).text == '{"a": 1}'


async def test_a_closed_server_leaves_nothing_running(opened: Open) -> None:
    server = opened()
    pids = [int(pid) for pid in (await called(server, "child")).text.split()]
    assert all(map(is_running, pids))
    await server.aclose()
    await eventually_async(lambda: not any(map(is_running, pids)))


async def test_a_server_that_nobody_calls_is_ended_and_started_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 0.1)
    server = opened()
    pids = [int(pid) for pid in (await called(server, "child")).text.split()]
    await eventually_async(lambda: not any(map(is_running, pids)))
    assert (await called(server, "echo")).outcome == "returned"


async def test_pools_of_one_loop_share_a_server(opened: Open) -> None:
    one, other = opened(), opened()
    first, second = await asyncio.gather(called(one, "child"), called(other, "child"))
    assert first.text.split()[0] == second.text.split()[0]
    await one.aclose()
    assert (await called(other, "child")).text.split()[0] == first.text.split()[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_our_process_however_that_ends(number: signal.Signals, tmp_path: Path) -> None:
    import subprocess

    program = f"""
import asyncio, sys
from conductor_core.chat.tools import ToolServerSpec
from conductor_core.tools.servers import open_server

async def main():
    server = open_server(ToolServerSpec(name="x", command=({sys.executable!r}, {str(PLAIN)!r})))
    tools = {{tool.tool: tool for tool in (await server.list()).tools}}
    print((await server.call(tools["child"], {{}})).text, flush=True)
    await server.call(tools["hang"], {{}})

asyncio.run(main())
"""
    root = Path(__file__).parents[3]
    ours = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root)
    assert ours.stdout is not None
    pids = [int(pid) for pid in ours.stdout.readline().split()]
    os.kill(ours.pid, number)
    ours.wait()
    ours.stdout.close()
    assert len(pids) == 2
    eventually(lambda: not any(map(is_running, pids)))


async def test_the_loop_goes_on_while_a_server_is_called(opened: Open) -> None:
    server, other = opened(timeout_s=60), opened(name="other")
    await server.list()
    hanging = asyncio.create_task(called(server, "hang"))
    assert (await called(other, "echo", a=1)).text == '{"a": 1}'
    assert not hanging.done()
    hanging.cancel()
    await asyncio.wait({hanging})
