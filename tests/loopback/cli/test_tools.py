"""``conductor tools``: what is listed, and a call from the terminal."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.tool_pools import write_tool_pool


@pytest.fixture
def pool(tmp_path: Path) -> str:
    return str(write_tool_pool(tmp_path))


def test_tools_are_listed_with_effects_callers_and_faults(cli: CommandLine, pool: str) -> None:
    listed = cli("tools", pool)
    assert listed.code == 1, "one of the servers cannot be asked"
    rows = {line.split()[0]: line for line in listed.out.splitlines()}
    assert rows["plain.echo"].split(maxsplit=1)[1].split("  ")[0] == "no"
    assert "coder, critic" in rows["plain.echo"]
    assert rows["plain.die"].split()[1:3] == ["yes", "coder"]
    assert "coder" in rows["python.run"]
    assert "its program no-such-program is not on this machine" in rows["gone:"]


def test_the_list_as_json(cli: CommandLine, pool: str) -> None:
    document = cli("tools", pool, "--json", "--quiet").document
    servers = {each["server"]: each for each in document["servers"]}
    assert servers["gone"]["fault"].endswith("is not on this machine")
    assert servers["plain"]["title"] == "plain 1.2"
    [echo] = [tool for tool in servers["plain"]["tools"] if tool["tool"] == "echo"]
    assert echo == {
        "tool": "echo",
        "name": "plain__echo",
        "description": "Does echo.",
        "effects": False,
        "parameters": {"type": "object", "properties": {}},
        "callers": ["coder", "critic"],
    }


def test_a_tool_is_called_and_one_with_effects_only_when_somebody_agrees(cli: CommandLine, pool: str) -> None:
    called = cli("tools", pool, "call", "plain.echo", "--arguments", '{"a": "ö"}')
    assert (called.code, called.out.strip()) == (0, '{"a": "\\u00f6"}')
    asked = cli("tools", pool, "call", "plain.image")
    assert asked.code == 2
    assert "may change something? Nobody can answer here: give --yes" in asked.err
    agreed = cli("tools", pool, "call", "plain.image", "--yes", "--json")
    assert agreed.document == {
        "tool": "plain.image",
        "outcome": "returned",
        "text": "[an image: image/png, 1,000 bytes]",
        "size_bytes": 1000,
    }


def test_a_call_that_brings_no_result_says_so(cli: CommandLine, pool: str) -> None:
    died = cli("tools", pool, "call", "plain.die", "--yes")
    assert died.code == 1
    assert "the disk is full" in died.out
    assert "the call of plain.die: broke_off" in died.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("call",), "give POOL_FILE, or POOL_FILE call SERVER.TOOL"),
        (("run", "plain.echo"), "give POOL_FILE, or POOL_FILE call SERVER.TOOL"),
        (("call", "nobody.echo"), "the pool's servers are plain, gone, python"),
        (("call", "plain"), "give SERVER.TOOL"),
        (("call", "plain.hang"), "plain offers echo, die, "),
        (("call", "gone.x"), "is not on this machine"),
        (("call", "plain.echo", "--arguments", "[1]"), "must be a JSON object"),
        (("call", "plain.echo", "--arguments", "{"), "--arguments is not JSON"),
    ],
)
def test_bad_input_is_one_clear_line(cli: CommandLine, pool: str, arguments: tuple[str, ...], message: str) -> None:
    refused = cli("tools", pool, *arguments)
    assert refused.code == 2
    assert message in refused.err


def test_a_pool_without_tools_says_how_to_add_one(cli: CommandLine) -> None:
    said = cli("tools", "rehearsal")
    assert said.code == 0
    assert "add a [[tools]] table to the pool file" in said.out
