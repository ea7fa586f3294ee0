"""Names, effects and bounds of what a server offers."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.chat.tools import ToolListing, ToolServerSpec, allowed
from conductor_core.privacy import masking
from conductor_core.tools.servers import MOST_DESCRIPTION, MOST_TOOLS, Definition, fit_name, offered

SPEC = ToolServerSpec(name="files", command=("serve",))


def defined(name: str, description: str = "", *, read_only: bool = False, **schema: Any) -> Definition:
    return Definition(name, description, {"type": "object", **schema}, read_only)


def test_tools_are_offered_by_the_name_of_their_server() -> None:
    [tool], left_out = offered(SPEC, [defined("read", "Reads a file.", properties={"path": {"type": "string"}})])
    assert (tool.server, tool.tool, tool.spec.name, tool.effects) == ("files", "read", "files__read", True)
    assert tool.spec.parameters == {"type": "object", "properties": {"path": {"type": "string"}}}
    assert left_out == ()


@given(st.lists(st.text(min_size=1, max_size=100), max_size=20), st.sampled_from(["a", "a-b", "files" * 8]))
def test_names_of_any_tools_are_what_every_provider_takes_and_never_meet(names: list[str], server: str) -> None:
    tools, left_out = offered(ToolServerSpec(name=server, command=("x",)), [defined(name) for name in names])
    found = [tool.spec.name for tool in tools]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) and name.startswith(f"{server}__") for name in found)
    assert len(set(found)) == len(found)
    assert len(tools) + len(left_out) == len(names)


def test_a_long_name_keeps_apart_from_one_that_begins_alike() -> None:
    one, other = fit_name("files", "x" * 100 + "a"), fit_name("files", "x" * 100 + "b")
    assert len(one) == len(other) == 64
    assert one != other


@pytest.mark.parametrize(
    ("effects", "expected"),
    [(None, {"look": False, "write": True}), ("all", {"look": True, "write": True}),
     ("none", {"look": False, "write": False}), (("look",), {"look": True, "write": False})],
)  # fmt: skip
def test_the_file_says_what_has_effects_before_the_server_does(effects: Any, expected: dict[str, bool]) -> None:
    spec = SPEC.model_copy(update={"effects": effects})
    tools, _ = offered(spec, [defined("look", read_only=True), defined("write")])
    assert {tool.tool: tool.effects for tool in tools} == expected


def test_what_cannot_be_offered_is_named_with_its_reason() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    tools, left_out = offered(
        SPEC.model_copy(update={"only": ("long", "deep", "big", "list", "twice", "bad\x1bname", "", "gone")}),
        [
            defined("other"),
            defined("long", "x" * 10_000_000),
            defined("deep", properties=deep),
            defined("big", properties={"x" * 100_000: {}}),
            Definition("list", "", {"type": "array"}, False),
            defined("twice"),
            defined("twice", "another"),
            defined("bad\x1bname"),
            defined(""),
        ],
    )
    assert [tool.tool for tool in tools] == ["twice"]
    assert len(left_out) == 8
    assert f"its description has 10,000,000 characters, more than {MOST_DESCRIPTION:,}" in left_out[0]
    assert left_out[-1] == "gone: the server has no such tool"
    assert not any("\x1b" in each for each in left_out)


def test_a_thousand_tools_are_bounded_and_the_rest_is_counted() -> None:
    tools, left_out = offered(SPEC, [defined(f"t{number}") for number in range(1000)])
    assert len(tools) == MOST_TOOLS
    assert "more than 128: name those to offer in only" in left_out[0]
    assert left_out[-1] == "and 852 more"


def test_a_definition_steers_no_terminal_and_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    masking.remember("zq7-very-hidden-value-91")
    words = "zq7-very-hidden-value-91 \x1b[2J\u202e"
    [tool], _ = offered(SPEC, [defined("t", words, properties={"a": {"description": words}})])
    told = tool.spec.model_dump_json()
    assert "very-hidden" not in told
    assert tool.spec.description.endswith(r"\x1b[2J\u202e")


def test_a_worker_may_call_a_whole_server_or_one_tool() -> None:
    tools, _ = offered(ToolServerSpec(name="git", command=("x",)), [defined("log"), defined("push")])
    listing = ToolListing(server="git", kind="stdio", tools=tools)

    def may(*granted: str) -> list[str]:
        spec = WorkerSpec(name="a", provider="openai", model="m", tools=granted)
        return [tool.tool for tool in allowed(spec, [listing])]

    assert may("git") == ["log", "push"]
    assert may("git.push") == ["push"]
    assert may("git.push", "git") == ["push", "log"]
    assert may("files", "git.gone") == []
