"""A pool from a record starts and reaches only what a pool file of this machine named."""

import stat
from pathlib import Path

from conductor_core.chat.messages import ToolSpec, WorkerSpec
from conductor_core.chat.tools import OfferedTool, ToolServerSpec
from conductor_core.engine.pools import open_pool, pool_info, reopen_pool
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from conductor_core.tools.servers import FILE, allow, refusal

POOL = """
[[worker]]
name = "coder"
provider = "openai"
model = "m"
tools = ["git"]

[[tools]]
name = "git"
command = ["no-such-program-here"]
effects = ["push"]
"""
WORKERS = (WorkerSpec(name="coder", provider="openai", model="m", tools=("evil",)),)


def settings_in(folder: Path) -> Settings:
    return Settings(data_folder=folder / "data")


async def test_a_program_of_a_hostile_record_is_never_started(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    spec = ToolServerSpec(name="evil", command=("/bin/sh", "-c", f"touch {seen}"))
    pool = reopen_pool(PoolInfo(name="x", workers=WORKERS, tools=(spec,)), settings_in(tmp_path))
    listing = await pool.tool_servers["evil"].list()
    tool = OfferedTool(server="evil", tool="t", spec=ToolSpec(name="evil__t"))
    told = await pool.tool_servers["evil"].call(tool, {})
    await pool.aclose()
    assert "this machine has no pool file that starts sh like this; open the pool file once" in listing.fault
    assert listing.tools == ()
    assert told.outcome == "unreachable"
    assert not seen.exists()
    assert not (tmp_path / "data" / FILE).exists()


async def test_a_pool_file_that_was_opened_is_reopened_from_its_record(tmp_path: Path) -> None:
    file, settings = tmp_path / "pool.toml", settings_in(tmp_path)
    file.write_text(POOL)
    recorded = open_pool(str(file), settings).info
    listing = await reopen_pool(recorded, settings).tool_servers["git"].list()
    assert "is not on this machine" in listing.fault, "it was tried"
    assert stat.S_IMODE((tmp_path / "data" / FILE).stat().st_mode) == 0o600


async def test_a_record_that_calls_a_tool_harmless_is_another_server(tmp_path: Path) -> None:
    file, settings = tmp_path / "pool.toml", settings_in(tmp_path)
    file.write_text(POOL)
    recorded = pool_info(str(file), settings)
    assert [spec.name for spec in recorded.tools] == ["git"]
    bent = recorded.tools[0].model_copy(update={"effects": "none"})
    assert refusal(recorded.tools[0], settings.data_folder) == ""
    listing = await reopen_pool(recorded.model_copy(update={"tools": (bent,)}), settings).tool_servers["git"].list()
    assert "open the pool file once" in listing.fault


def test_an_address_is_reached_only_if_a_file_named_it_with_its_token(tmp_path: Path) -> None:
    named = ToolServerSpec(name="web", url="https://tools.example/mcp", token_env="WEB_TOKEN")
    allow([named], tmp_path)
    assert refusal(named, tmp_path) == ""
    assert refusal(named.model_copy(update={"url": "https://evil.example/mcp"}), tmp_path)
    assert refusal(named.model_copy(update={"token_env": "OPENAI_API_KEY"}), tmp_path)


def test_the_sandbox_needs_no_file(tmp_path: Path) -> None:
    assert refusal(ToolServerSpec(name="python"), tmp_path) == ""


def test_a_data_folder_that_cannot_be_written_keeps_nothing_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    spec = ToolServerSpec(name="git", command=("git",))
    allow([spec], tmp_path)
    assert refusal(spec, tmp_path)


def test_tool_servers_stay_with_a_pool_that_is_changed(tmp_path: Path) -> None:
    file, settings = tmp_path / "pool.toml", settings_in(tmp_path)
    file.write_text(POOL + '\n[[worker]]\nname = "other"\nprovider = "openai"\nmodel = "m"\n')
    pool = open_pool(str(file), settings)
    for changed in (
        pool.without(("other",)),
        pool.with_params({"coder": {"max_tokens": 1}}, settings),
        pool.with_keys(None, settings),
    ):
        assert changed.tool_servers == pool.tool_servers
        assert changed.info.tools == pool.info.tools
