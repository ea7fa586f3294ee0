"""``[[tools]]`` tables of a pool file: what they become, and every fault with its place."""

from pathlib import Path

import pytest

from conductor_core.chat.tools import ToolServerSpec
from conductor_core.errors import PoolInvalid
from conductor_core.providers.model_files import parse_model_file
from conductor_core.workers.pool_file import PoolForm, read_pool_file

WORKER = """
[[worker]]
name = "coder"
provider = "openai"
model = "m"
tools = {tools}
"""
GIT = """
[[tools]]
name = "git"
command = ["uvx", "mcp-server-git"]
"""


def faults_of(tools: str, granted: str = "[]") -> list[str]:
    return parse_model_file(WORKER.format(tools=granted) + tools, PoolForm)[1]


def test_servers_and_who_may_call_them_are_read(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    web = """
[[tools]]
name = "web"
url = "https://tools.example/mcp"
token_env = "WEB_TOKEN"
effects = ["post"]
only = ["search", "post"]
timeout_s = 5
"""
    file.write_text(WORKER.format(tools='["git", "web.search", "python"]') + GIT + web)
    read = read_pool_file(file)
    assert read.workers[0].tools == ("git", "web.search", "python")
    assert read.tools == (
        ToolServerSpec(name="git", command=("uvx", "mcp-server-git")),
        ToolServerSpec(
            name="web",
            url="https://tools.example/mcp",
            token_env="WEB_TOKEN",
            effects=("post",),
            only=("search", "post"),
            timeout_s=5,
        ),
        ToolServerSpec(name="python"),
    )


def test_a_program_named_by_a_path_lies_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(WORKER.format(tools="[]") + '[[tools]]\nname = "own"\ncommand = ["./serve.py", "./data"]\n')
    assert read_pool_file(file).tools[0].command == (str(tmp_path / "serve.py"), "./data")


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ('name = "git"', "line 8, tools[0]: needs command, to start it, or url, to reach it"),
        ('name = "g"\ncommand = ["a"]\nurl = "https://x.example"', "line 11, tools[0].url: goes without command"),
        ('name = "g"\nurl = "ftp://x.example"', "line 10, tools[0].url: must be a URL that begins with http"),
        ('name = "g"\nurl = "https://me:pw@x.example"', "must not hold a user or password"),
        ('name = "g"\ncommand = "uvx git"', "line 10, tools[0].command: must be a list of texts, the program first"),
        ('name = "a_b"\ncommand = ["a"]', "line 9, tools[0].name: must be of letters, digits and -"),
        ('name = "python"\ncommand = ["a"]', '"python" is the name of the built-in sandbox'),
        ('name = "python"\neffects = "all"', "python needs none; remove it"),
        ('name = "g"\ncommand = ["a"]\nenv = ["CONDUCTOR_MASTER_KEY"]', "is a variable of this program"),
        ('name = "g"\ncommand = ["a"]\nenv = ["A_B", "A_B"]', '"A_B" is named twice'),
        ('name = "g"\ncommand = ["a"]\ntoken_env = "A_TOKEN"', "goes with url alone"),
        ('name = "g"\nurl = "https://x.example"\nenv = ["HOME"]', "goes with command alone"),
        ('name = "g"\nurl = "https://x.example"\ntoken_env = "EDITOR"', "does not look like the variable of a key"),
        ('name = "g"\ncommand = ["a"]\neffects = ["x", "x"]', '"x" is named twice'),
        ('name = "g"\ncommand = ["a"]\neffects = "some"', 'must be "all", "none", or a list of the tools'),
        ('name = "g"\ncommand = ["a"]\nonly = ["x", "x"]', '"x" is named twice'),
        ('name = "g"\ncommand = ["a"]\neffects = ["y"]\nonly = ["x"]', 'effects names "y", which is not in it'),
        ('name = "g"\ncommand = ["a"]\ntimeout_s = 0', "must be a number of seconds above 0"),
        ('name = "g"\ncommand = ["a"]\ncwd = "/"', "line 11, tools[0].cwd: unknown key; known are name, command, url"),
        ('command = ["a"]', "tools[0].name: missing; every tools needs it"),
        ('name = "g"\ncommand = ["a", "--api-key", "hunter2hunter2"]', "holds a key, which every run would record"),
        ('name = "g"\ncommand = ["a", "--token=hunter2hunter2"]', "holds a key, which every run would record"),
        ('name = "g"\ncommand = ["a"]\nenv = ["sk-abcdefgh12345678"]', "never the key itself"),
    ],
)
def test_a_fault_names_its_place_and_what_is_allowed(table: str, fault: str) -> None:
    faults = faults_of(f"\n[[tools]]\n{table}\n")
    assert any(fault in each for each in faults), faults
    assert not any("hunter2" in each or "abcdefgh12345678" in each for each in faults)


@pytest.mark.parametrize(
    ("granted", "fault"),
    [
        ('["gti"]', 'line 6, worker[0].tools: the file has no tool server "gti"; it has git, python'),
        ('["git", "git"]', '"git" is named twice'),
        ('["git."]', '"git" offers no tool ""'),
        ('["python.walk"]', '"python" offers no tool "walk"; it offers run'),
        ('"git"', "must be a list of tool servers"),
    ],
)
def test_a_worker_may_call_only_what_the_file_has(granted: str, fault: str) -> None:
    [said] = faults_of(GIT, granted)
    assert fault in said


def test_a_model_folder_is_offered_no_tools() -> None:
    text = WORKER.format(tools='["git"]').replace("openai", "local") + GIT
    [fault] = parse_model_file(text, PoolForm)[1]
    assert "worker[0].tools: a local worker is offered no tools" in fault


def test_faults_of_both_kinds_have_the_lines_of_their_own_tables() -> None:
    text = GIT + 'env = ["CONDUCTOR_X"]\n' + WORKER.format(tools='["no"]') + GIT.replace("git", "Git")
    faults = parse_model_file(text + "timeout_s = true\n", PoolForm)[1]
    assert [fault.split(":")[0] for fault in faults] == [
        "line 5, tools[0].env",
        "line 11, worker[0].tools",
        "line 14, tools[1].name",
        "line 16, tools[1].timeout_s",
    ]


def test_a_key_that_this_process_knows_is_refused_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hidden-value-4711")
    file = tmp_path / "pool.toml"
    file.write_text(WORKER.format(tools="[]") + '[[tools]]\nname = "g"\nurl = "https://x.example/hidden-value-4711"\n')
    with pytest.raises(PoolInvalid, match="holds a key") as raised:
        read_pool_file(file)
    assert "4711" not in str(raised.value)
