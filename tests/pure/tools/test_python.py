"""The sandbox as a tool server."""

import asyncio

import pytest

from conductor_core.chat.tools import ToolServerSpec
from conductor_core.tools import python
from conductor_core.tools.servers import open_server

SPEC = ToolServerSpec(name="python", timeout_s=5)


async def called(code: object, spec: ToolServerSpec = SPEC) -> tuple[str, str]:
    server = open_server(spec)
    [tool] = (await server.list()).tools
    told = await server.call(tool, {"code": code})
    return told.outcome, told.text


async def test_a_program_returns_what_it_prints_and_has_no_effects() -> None:
    server = open_server(SPEC)
    [tool] = (await server.list()).tools
    assert (tool.spec.name, tool.effects) == ("python__run", False)
    assert await called("print(6 * 7)") == ("returned", "42\n")
    assert await called("x = 1") == ("returned", "The program printed nothing.")


async def test_a_failing_program_says_why_and_what_it_printed_before() -> None:
    outcome, text = await called("print('before')\n1 / 0")
    assert outcome == "error"
    assert "ZeroDivisionError" in text
    assert text.endswith("Until then it printed:\nbefore\n")


async def test_a_program_that_takes_too_long_is_ended() -> None:
    outcome, text = await called("while True: pass", SPEC.model_copy(update={"timeout_s": 1}))
    assert outcome == "timed_out"
    assert text.startswith("The program was ended: ")


async def test_programs_that_never_end_keep_nobody_waiting_and_end_with_their_calls() -> None:
    server = open_server(SPEC.model_copy(update={"timeout_s": 600}))
    [tool] = (await server.list()).tools
    endless = [asyncio.create_task(server.call(tool, {"code": "while True: pass"})) for _ in range(40)]
    for _ in range(40):
        await asyncio.to_thread(lambda: None)
    assert not any(each.done() for each in endless), "nothing else in the program waited for them"
    for each in endless:
        each.cancel()
    await asyncio.wait(endless)
    assert (await server.call(tool, {"code": "print(1)"})).text == "1\n"


async def test_code_that_is_no_text_is_an_error_of_the_call() -> None:
    assert (await called(3))[0] == "error"


async def test_nothing_runs_where_the_sandbox_lacks_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    server = open_server(SPEC)
    [tool] = (await server.list()).tools
    monkeypatch.setattr(python, "active_layers", lambda: ("own session", "audit hook"))
    python._fault.cache_clear()
    try:
        listing = await server.list()
        told = await server.call(tool, {"code": "print(1)"})
    finally:
        python._fault.cache_clear()
    assert listing.fault == "this system has no Landlock and no seccomp, so programs of models are not run here"
    assert listing.tools == ()
    assert told.outcome == "unreachable"
