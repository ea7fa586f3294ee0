"""Tool servers that no one here wrote: two that are started, and LiteLLM's gateway over streamable HTTP."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conductor_core.chat.tools import ToolServerSpec
from conductor_core.tools.servers import open_server
from tests.loopback.real_servers.conftest import KEY, LITELLM, start
from tests.support.served import free_port, until_served

pytestmark = pytest.mark.timeout(300)  # on a busy machine the gateway takes a minute to start

TIME, GIT = LITELLM.with_name("mcp-server-time"), LITELLM.with_name("mcp-server-git")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("gateway")
    config, log, port = folder / "litellm.yaml", folder / "log", free_port()
    server = {"transport": "stdio", "command": str(TIME), "args": [], "allow_all_keys": True}
    config.write_text(json.dumps({"model_list": [], "mcp_servers": {"clock": server}}))  # YAML takes JSON
    environment = {
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_ENABLE_MCP_STDIO": "true",
        "LITELLM_MCP_STDIO_EXTRA_COMMANDS": TIME.name,
    }
    with ExitStack() as stack:
        command = [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        process = start(stack, command, log, environment)
        until_served(process, f"http://127.0.0.1:{port}/health/liveliness", log)
        yield f"http://127.0.0.1:{port}/mcp"


async def test_a_started_server_answers_and_says_which_tools_have_effects(tmp_path: Path) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True)
    server = open_server(ToolServerSpec(name="git", command=(str(GIT), "--repository", str(tmp_path))))
    try:
        listing = await server.list()
        tools = {tool.tool: tool for tool in listing.tools}
        assert listing.fault == ""
        assert tools["git_commit"].effects
        assert not tools["git_status"].effects
        told = await server.call(tools["git_status"], {"repo_path": str(tmp_path)})
        assert (told.outcome, "No commits yet" in told.text) == ("returned", True)
        refused = await server.call(tools["git_status"], {"repo_path": "/"})
        assert refused.outcome == "error"
    finally:
        await server.aclose()


async def test_a_server_of_the_same_tools_started_and_behind_a_gateway(
    gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_TOKEN", KEY)
    started = ToolServerSpec(name="clock", command=(str(TIME),))
    reached = ToolServerSpec(name="gateway", url=gateway, token_env="GATEWAY_TOKEN")
    for spec in (started, reached):
        server = open_server(spec)
        try:
            listing = await server.list()
            assert listing.fault == ""
            tool = next(tool for tool in listing.tools if tool.tool.endswith("convert_time"))
            given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
            told = await server.call(tool, given)
            assert (told.outcome, "T21:00:00" in told.text) == ("returned", True)
        finally:
            await server.aclose()


async def test_a_gateway_refuses_who_brings_no_token(gateway: str) -> None:
    server = open_server(ToolServerSpec(name="gateway", url=gateway))
    listing = await server.list()
    await server.aclose()
    assert "answered with HTTP" in listing.fault
    assert listing.tools == ()
