"""Pool files: what is read, and every fault with its place, without repeating a secret."""

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import Price, WorkerSpec
from conductor_core.engine.pools import open_pool
from conductor_core.errors import PoolInvalid
from conductor_core.settings import Settings
from conductor_core.workers.pool_file import POOL_FILES, read_pool_file
from tests.support.model_files import parse_pool

GOOD = """\
[[worker]]
name = "gpt-5"
provider = "openai"
model = "gpt-5"
description = "Hard maths"
base_url = "http://127.0.0.1:9100/v1"
api_key_env = "OPENAI_API_KEY"
usd_per_mtok = { input = 1.25, output = 10.0 }
params = { temperature = 0.2, max_tokens = 4096 }
timeout_s = 120
max_concurrency = 8
max_output_bytes = 1000

[[worker]]
name = "here"
provider = "local"
model = "some/folder"
"""


def faults_of(text: str) -> list[str]:
    specs, faults = parse_pool(text)
    assert bool(specs) != bool(faults)
    return faults


def with_line(line: str) -> str:
    """One good worker whose key is replaced by ``line``, or with ``line`` added; the line is number 5 or its own."""
    key = line.split("=")[0].strip()
    base = {"name": '"a"', "provider": '"openai"', "model": '"m"'}
    kept = [f"{name} = {value}" for name, value in base.items() if name != key]
    return "\n".join(["[[worker]]", *kept, line, ""])


def test_a_good_file_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert read_pool_file(path).workers == (
        WorkerSpec(
            name="gpt-5",
            provider="openai",
            model="gpt-5",
            description="Hard maths",
            base_url="http://127.0.0.1:9100/v1",
            api_key_env="OPENAI_API_KEY",
            usd_per_mtok=Price(input=1.25, output=10.0),
            params={"temperature": 0.2, "max_tokens": 4096},
            timeout_s=120,
            max_concurrency=8,
            max_output_bytes=1000,
        ),
        WorkerSpec(name="here", provider="local", model="some/folder"),
    )


def test_the_papers_pool_is_ready() -> None:
    specs = read_pool_file(POOL_FILES["paper"]).workers
    assert [spec.name for spec in specs] == [
        "gemini-2.5-pro",
        "claude-sonnet-4",
        "gpt-5",
        "deepseek-r1-distill-qwen-32b",
        "gemma3-27b-it",
        "qwen3-32b-direct",
        "qwen3-32b-thinking",
    ]
    assert all(10 < len(spec.description) <= 80 and spec.api_key_env for spec in specs)
    assert len({spec.description for spec in specs}) == 7


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("colour = 1", "worker[0].colour: unknown key; known are name, provider, model"),
        ("name = 3", "worker[0].name: must be text in quotes, not a number"),
        ("name = 3.5", "worker[0].name: must be text in quotes, not a number"),
        ('name = ""', "worker[0].name: must not be empty"),
        ('name = "  "', "worker[0].name: must not be empty"),
        ('name = " a"', "worker[0].name: must be plain text"),
        ('name = "a\\u001b[31m"', "worker[0].name: must be plain text"),
        ('name = "a\\nb"', "worker[0].name: must be plain text"),
        (f'name = "{"x" * 81}"', "worker[0].name: must have at most 80 characters, not 81"),
        ('name = "conductor"', 'worker[0].name: "conductor" is reserved'),
        ('name = "Conductor"', 'worker[0].name: "conductor" is reserved'),
        ('name = "3"', "worker[0].name: would be taken for a number"),
        ('name = "Model 3"', "worker[0].name: would be taken for a number"),
        (
            'provider = "opnai"',
            'worker[0].provider: "opnai" is not allowed; use "openai", "anthropic", "local", "gguf" or "reh',
        ),
        ("provider = []", 'worker[0].provider: a list is not allowed; use "openai"'),
        ("model = 5", "worker[0].model: must be text"),
        ('model = ""', "worker[0].model: must not be empty"),
        ("description = 5", "worker[0].description: must be text"),
        ('description = "a\\nb"', "worker[0].description: must be plain text"),
        (f'description = "{"x" * 401}"', "worker[0].description: must have at most 400 characters, not 401"),
        ("base_url = 80", "worker[0].base_url: must be text in quotes, not a number"),
        ('base_url = "localhost:8000"', "worker[0].base_url: must be a URL that begins with http"),
        ('base_url = "ftp://a/v1"', "worker[0].base_url: must be a URL that begins with http"),
        ('base_url = "http://"', "worker[0].base_url: must be a URL that begins with http"),
        ('base_url = "http://a:b/v1"', "worker[0].base_url: is not a URL"),
        ('base_url = "http://a:99999/v1"', "worker[0].base_url: is not a URL"),
        ('base_url = "http://[::1/v1"', "worker[0].base_url: is not a URL"),
        ('base_url = "http://me:hunter2@a/v1"', "worker[0].base_url: must not hold a user or password"),
        ('base_url = "http://hunter2@a/v1"', "worker[0].base_url: must not hold a user or password"),
        ('base_url = "http://a/v1?key=hunter2"', "worker[0].base_url: must not have anything after ?"),
        ('base_url = "http://a/v1/chat/completions"', "worker[0].base_url: must end before the path of the call"),
        ('base_url = "http://a b/v1"', "worker[0].base_url:"),
        ("api_key_env = 5", "worker[0].api_key_env: must be the name of an environment variable"),
        ('api_key_env = ""', "worker[0].api_key_env: must be the name of an environment variable"),
        ('api_key_env = "my_hunter2_a1b2c3_key"', "worker[0].api_key_env: must be the name of an environment variable"),
        ('api_key = "hunter2"', "worker[0].api_key: a key does not belong in a pool file"),
        ("usd_per_mtok = 3", "worker[0].usd_per_mtok: must be a table"),
        ("usd_per_mtok = { input = 1 }", "worker[0].usd_per_mtok.output: missing; every usd_per_mtok needs it"),
        ("usd_per_mtok = { input = 1, output = -1 }", "worker[0].usd_per_mtok.output: must be a number of USD"),
        ("usd_per_mtok = { input = true, output = 1 }", "worker[0].usd_per_mtok.input: must be a number of USD"),
        ("usd_per_mtok = { input = nan, output = 1 }", "worker[0].usd_per_mtok.input: must be a number of USD"),
        ("params = 3", "worker[0].params: must be a table"),
        ("params = { stream = false }", "worker[0].params: stream is set by the program"),
        ("params = { messages = [] }", "worker[0].params: messages is set by the program"),
        ("params = { n = 2 }", "worker[0].params: n is set by the program"),
        ('params = { api_key = "hunter2" }', "worker[0].params: api_key: a key does not belong"),
        ("params = { day = 2026-11-20 }", "worker[0].params: must hold only text, finite numbers"),
        ("params = { x = [inf] }", "worker[0].params: must hold only text, finite numbers"),
        ("timeout_s = -1", "worker[0].timeout_s: must be a number of seconds above 0"),
        ("timeout_s = 0", "worker[0].timeout_s: must be a number of seconds above 0"),
        ('timeout_s = "120"', "worker[0].timeout_s: must be a number of seconds above 0"),
        ("timeout_s = true", "worker[0].timeout_s: must be a number of seconds above 0"),
        ("max_concurrency = 0", "worker[0].max_concurrency: must be a whole number above 0"),
        ("max_concurrency = 1.5", "worker[0].max_concurrency: must be a whole number above 0"),
        ("max_output_bytes = -4", "worker[0].max_output_bytes: must be a whole number above 0"),
    ],
)
def test_a_wrong_field_is_named_with_its_line(line: str, told: str) -> None:
    text = with_line(line)
    (fault,) = faults_of(text)
    number = text.split("\n").index(line) + 1
    assert fault.startswith(f"line {number}, {told}")
    assert "hunter2" not in fault


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ("{ beams = 4 }", "beams: unknown key; known are temperature, top_p, top_k, seed, max_tokens, thinking"),
        ("{ top_p = 2 }", "top_p: must be a number above 0, and at most 1"),
        ('{ max_tokens = "many" }', "max_tokens: must be a whole number above 0, not text"),
        ("3", "must be a table"),
    ],
)
def test_wrong_params_of_a_local_worker_are_named(params: str, told: str) -> None:
    (fault,) = faults_of(f'[[worker]]\nname = "a"\nprovider = "local"\nmodel = "m"\nparams = {params}\n')
    assert fault.startswith(f"line 5, worker[0].params: {told}")


@pytest.mark.parametrize("provider", ["local", "rehearsal"])
def test_a_worker_of_this_machine_accepts_text_alone(provider: str) -> None:
    head = f'[[worker]]\nname = "a"\nprovider = "{provider}"\nmodel = "m"\naccepts = '
    assert faults_of(f'{head}["text"]\n') == []
    (fault,) = faults_of(f'{head}["text", "image"]\n')
    assert fault == f"line 5, worker[0].accepts: a {provider} worker accepts text alone; remove it"


LONG = "9" * 400
DEEP = ".".join("a" * 3000)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"timeout_s = {LONG}", "line 5, column 13: not TOML: a number of more than 300 digits"),
        (f"params = {{ n1 = -{LONG} }}", "line 5, column 17: not TOML: a number of more than 300 digits"),
        ("params = { n1 = 0x" + "f" * 5000 + " }", "line 5, column 17: not TOML: a number of more than 300 digits"),
        (
            f"timeout_s = {LONG[:40]}",
            "line 5, worker[0].timeout_s: must be a number of seconds above 0, and at most 604,800",
        ),
        (
            "timeout_s = 1e300",
            "line 5, worker[0].timeout_s: must be a number of seconds above 0, and at most 604,800, a week",
        ),
        (f"max_concurrency = {LONG[:40]}", "line 5, worker[0].max_concurrency: must be a whole number above 0"),
        (
            f"usd_per_mtok = {{ input = 1, output = {LONG[:40]} }}",
            "line 5, worker[0].usd_per_mtok.output: must be a number of USD per million tokens, 0 to 1,000,000",
        ),
        (
            "usd_per_mtok = { input = 1e308, output = 1 }",
            "line 5, worker[0].usd_per_mtok.input: must be a number of USD per million tokens, 0 to 1,000,000",
        ),
        (
            f"params = {{ n1 = {LONG[:40]} }}",
            "line 5, worker[0].params: must hold only text, finite numbers of at most 64",
        ),
        (f"params.{DEEP} = 1", "line 5, column 37: not TOML: a key has more than 16 parts"),
        (f"[worker.params.{DEEP}]", "line 5, column 43: not TOML: a key has more than 16 parts"),
        (f"params.'a'.\"b\".{DEEP} = 1", "line 5, column 41: not TOML: a key has more than 16 parts"),
        (
            "params = { a = " + "[" * 300 + "]" * 300 + " }",
            "line 5, column 31: not TOML: brackets are nested more than 16",
        ),
        (
            "params = " + "{a=" * 300 + "1" + "}" * 300,
            "line 5, column 58: not TOML: brackets are nested more than 16 de",
        ),
        (
            "params.a.a.a.a.a.a.a.a = {a.a.a.a.a.a.a.a.a.a = 1}",
            "line 5, worker[0].params: lists and tables are nested more",
        ),
    ],
)
def test_what_is_too_long_or_too_deep_is_told_with_its_place(line: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text("\n".join(["[[worker]]", 'name = "a"', 'provider = "openai"', 'model = "m"', line, ""]))
    with pytest.raises(PoolInvalid) as caught:
        read_pool_file(path)
    (fault,) = caught.value.faults
    assert fault.startswith(told)
    assert str(caught.value).startswith(f"pool file {path}: {told}")
    assert len(fault) < 300


@pytest.mark.parametrize(
    "line",
    [
        f'description = "{"[" * 60} {".a" * 60} {"9" * 90}"',
        f"params = {{ a = '{'[' * 60}', b = [[[[[[[[1]]]]]]]], c = 0.{'3' * 40}, d = -9223372036854775808 }}",
        'params.a = """\n[[[[[[[[[[[[[[[[[[[[\n"quoted" \\"""\n"""  # [[[[[[[[[[[[[[[[[[[[[',
        "params.a = '''[[[[[[[[[[[[[[[[[[[[\n'''",
        "timeout_s = 604800  # a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a",
    ],
)
def test_bounds_do_not_count_what_is_text(line: str) -> None:
    assert parse_pool(with_line(line))[1] == []


def test_the_faults_beyond_a_hundred_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text(with_line("") + "".join(f"key{number} = 1\n" for number in range(5000)))
    with pytest.raises(PoolInvalid, match=r"pool file .*: 5,000 faults: line 6, worker\[0\].key0: unknown") as caught:
        read_pool_file(path)
    assert len(caught.value.faults) == 101
    assert caught.value.faults[-1] == "and 4,900 more"


@pytest.mark.parametrize("key", ["name", "provider", "model"])
def test_a_missing_field_is_named_with_its_workers_line(key: str) -> None:
    lines = ["", "# first", "[[worker]]", 'name = "a"', 'provider = "openai"', 'model = "m"']
    text = "\n".join(line for line in lines if not line.startswith(key))
    assert faults_of(text) == [f"line 3, worker[0].{key}: missing; every worker needs it"]


@pytest.mark.parametrize(
    "pasted",
    [
        "sk-proj-abcdefghijklmnop0123456789",
        "sk_live_51abcdefghijk",
        "gsk_abcDEF0123456789abcDEF",
        "AIzaSyA1b2C3d4E5f6G7h8I9j0",
        "hf_abcdefghijklmnopqrstuv",
        "0123456789abcdef0123456789abcdef",
        "a0123456789bcdef0123456789abcdef",
        "ABCDEF0123456789ABCDEF0123456789",
        "Bearer abc",
        "two words here",
        "$MY_KEY_VARIABLE",
    ],
)
def test_a_key_in_place_of_a_variables_name_is_refused_and_not_repeated(pasted: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text(with_line(f'api_key_env = "{pasted}"'))
    with pytest.raises(PoolInvalid, match="never the key itself") as caught:
        read_pool_file(path)
    assert pasted not in str(caught.value)
    assert pasted[3:] not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "KEY2", "my_key", "GROQ_APIKEY", "client_secret", "HUB_TOKEN_FOR_INFERENCE_2"],
)
def test_the_names_of_variables_are_accepted(name: str) -> None:
    specs, faults = parse_pool(with_line(f'api_key_env = "{name}"'))
    assert (faults, specs[0].api_key_env) == ([], name)


@pytest.mark.parametrize(
    "line",
    [
        'base_url = "https://openrouter.ai/api/v1/"',
        'base_url = "http://[::1]:8000/v1"',
        'description = ""',
        "params = {}",
    ],
)
def test_unusual_but_right_values_are_accepted(line: str) -> None:
    assert parse_pool(with_line(line))[1] == []


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text(
        "\n".join(
            [
                'title = "mine"',
                "[[worker]]",
                'name = "a"',
                'provider = "opnai"',
                "timeout_s = -3",
                "[[worker]]",
                'name = "A"',
                'provider = "local"',
                'model = "x"',
                'api_key_env = "A_KEY"',
                "[worker.usd_per_mtok]",
                "input = 1",
            ]
        )
    )
    with pytest.raises(PoolInvalid) as caught:
        read_pool_file(path)
    assert caught.value.faults == (
        "line 1, title: unknown key; a pool file holds [[worker]] and [[tools]] tables, and before them "
        "on_incomplete and give_question",
        "line 2, worker[0].model: missing; every worker needs it",
        'line 4, worker[0].provider: "opnai" is not allowed; use "openai", "anthropic", "local", "gguf" or "rehearsal"',
        "line 5, worker[0].timeout_s: must be a number of seconds above 0, and at most 604,800, a week",
        'line 7, worker[1].name: "A" is already the name of worker[0]; names are unique',
        "line 10, worker[1].api_key_env: a local worker needs none; remove it",
        "line 11, worker[1].usd_per_mtok.output: missing; every usd_per_mtok needs it",
    )
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"pool file {path}: 7 faults: line 1")
    assert all(fault in message for fault in caught.value.faults)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no [[worker]]: a pool needs at least one worker"),
        ("worker = []", "no [[worker]]"),
        ('[worker]\nname = "a"', "line 1, worker: must be [[worker]] tables, with double brackets"),
        ("worker = 3", "line 1, worker: must be [[worker]] tables"),
        ("[[worker]]\nname = gpt", "line 2, column 8: not TOML:"),
        ("[[worker]]\nname = 'a'\nname = 'b'", "line 3, column 11: not TOML: a key is given twice"),
        ('[[worker]]\nname = "a', "not TOML:"),
        ("x = " + "[" * 100_000, "not TOML"),
        ("x = " + "9" * 5000, "not TOML"),
    ],
)
def test_a_file_that_is_no_pool(text: str, told: str) -> None:
    (fault,) = faults_of(text)
    assert told in fault


def test_lines_are_not_confused_by_long_strings_or_inline_tables() -> None:
    text = '[[worker]]\ndescription = """\n[[worker]]\nmodel = 1\n"""\nmodel = 2\nname = "a"\nprovider = "openai"\n'
    assert [fault.split(":")[0] for fault in faults_of(text)] == [
        "line 2, worker[0].description",
        "line 6, worker[0].model",
    ]
    assert faults_of('worker = [{ name = "a", provider = "openai", model = 3 }]') == [
        "worker[0].model: must be text in quotes, not a number"
    ]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "it is a folder"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.write_bytes(b"[[worker]]\nname = '\xff'"), "line 2, byte 9: it is not UTF-8 text"),
        (lambda path: path.write_bytes(b"#" * 1_000_001), "more than 1,000,000 bytes"),
    ],
)
def test_a_file_that_cannot_be_read(make: object, told: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    assert callable(make)
    make(path)
    with pytest.raises(PoolInvalid, match=told) as caught:
        read_pool_file(path)
    assert len(caught.value.faults) == 1


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(PoolInvalid, match="cannot be read"):
        read_pool_file("a\0b")


_values = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.dates()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=5,
)


@given(st.text() | st.text(alphabet='[]worker=".\n {}12', max_size=80))
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    specs, faults = parse_pool(text)
    assert bool(specs) != bool(faults)
    assert all("\n" not in fault for fault in faults)


@given(
    st.dictionaries(
        st.sampled_from([*WorkerSpec.model_fields, "other"]), _values | st.sampled_from(["openai", "a", "http://h/v1"])
    )
)
def test_any_values_are_read_or_refused_with_a_reason(table: dict[str, object]) -> None:
    text = "[[worker]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
    tomllib.loads(text)
    specs, faults = parse_pool(text)
    assert bool(specs) != bool(faults)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(char):08x}" for char in value if not 0xD800 <= ord(char) < 0xE000) + '"'
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(f'k{i}')} = {_toml(item)}" for i, item in enumerate(value.values())) + "}"
    return str(value)


# What a pool file says beside its workers, and which workers answer in the place of others.

TWO = """
[[worker]]
name = "a"
provider = "openai"
model = "m"
fallback = "b"

[[worker]]
name = "b"
provider = "openai"
model = "m"
"""


def test_a_pool_file_says_how_its_runs_go(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(f'on_incomplete = "fallback"\ngive_question = true\n{TWO}')
    read = read_pool_file(file)
    assert (read.on_incomplete, read.give_question) == ("fallback", True)
    assert [spec.fallback for spec in read.workers] == ["b", None]
    pool = open_pool(str(file), Settings(on_incomplete="stop"))
    assert (pool.on_incomplete, pool.give_question) == ("fallback", True)


def test_what_it_does_not_say_is_as_the_settings_have_it(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(TWO)
    pool = open_pool(str(file), Settings(on_incomplete="stop", give_question=True))
    assert (pool.on_incomplete, pool.give_question) == ("stop", True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            f'on_incomplete = "retry"\n{TWO}',
            'line 1, on_incomplete: "retry" is not allowed; use "allow", "stop", "more_',
        ),
        (f"on_incomplete = true\n{TWO}", 'line 1, on_incomplete: true or false is not allowed; use "allow"'),
        (f"on_incomplete = []\n{TWO}", 'line 1, on_incomplete: a list is not allowed; use "allow"'),
        (f"give_question = 1\n{TWO}", "line 1, give_question: must be true or false"),
        (
            TWO.replace('"b"\n\n', '"c"\n\n'),
            "line 6, worker[0].fallback: the file has no worker of that name; it has b",
        ),
        (TWO.replace('"b"\n\n', '"a"\n\n'), "line 6, worker[0].fallback: is this worker itself"),
        (TWO.replace('fallback = "b"', "fallback = 3"), "line 6, worker[0].fallback: must be text in quotes"),
    ],
)
def test_each_fault_is_named_with_its_place(text: str, fault: str) -> None:
    specs, faults = parse_pool(text)
    assert specs == ()
    (only,) = faults
    assert only.startswith(fault)
