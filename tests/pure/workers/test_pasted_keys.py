"""Keys that stand where none belongs, and variables that hold no key: refused with their place, never repeated."""

from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput, PoolInvalid
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from conductor_core.workers.pool_file import read_pool_file
from tests.support.model_files import parse_pool


def with_line(line: str) -> str:
    """One good worker, with ``line`` in place of its own."""
    key = line.split("=")[0].strip()
    base = {"name": '"a"', "provider": '"openai"', "model": '"m"'}
    return "\n".join(["[[worker]]", *(f"{name} = {value}" for name, value in base.items() if name != key), line, ""])


def faults_of(text: str) -> list[str]:
    return parse_pool(text)[1]


@pytest.mark.parametrize("name", ["PATH", "HOME", "DATABASE_URL", "SSH_AUTH_SOCK", "MONKEY", "TOKENIZERS_X", "_k"])
def test_a_variable_that_does_not_look_like_a_keys_is_refused_unless_allowed_by_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text(with_line(f'api_key_env = "{name}"'))
    with pytest.raises(PoolInvalid, match=rf"line \d+, worker\[0\].api_key_env: {name} does not look like") as caught:
        read_pool_file(path)
    assert f"CONDUCTOR_KEY_VARIABLES={name}" in str(caught.value)
    assert read_pool_file(path, ("OTHER", name)).workers[0].api_key_env == name


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ('{ extra_body = { api_key = "hunter2" } }', "extra_body.api_key"),
        ('{ extra_body = { auth = { bearer = "hunter2" } } }', "extra_body.auth.bearer"),
        ('{ bearer = "hunter2" }', "bearer"),
        ('{ extra_headers = { "X-Api-Key" = "hunter2" } }', "extra_headers.X-Api-Key"),
        ('{ extra_headers = { Authorization = "hunter2" } }', "extra_headers.Authorization"),
        ('{ servers = [{ url = "http://a" }, { accessToken = "hunter2" }] }', "servers[1].accessToken"),
        ('{ tools = [{ client_secret = ["hunter2"] }] }', "tools[0].client_secret"),
        ("{ password = 1234 }", "password"),
        ('{ note = "sk-hunter2hunter2hunter2" }', "note"),
        ('{ headers = ["x: Bearer hunter2-hunter2"] }', "headers[0]"),
        ('{ "sk-hunter2hunter2hunter2" = 1 }', "a name"),
        ('{ deep = [[[{ a = { b = "hunter2-of-the-environment" } }]]] }', "deep[0][0][0].a.b"),
        ('{ url = "http://a/?key=hunter2-of-the-environment" }', "url"),
    ],
)
def test_a_key_anywhere_in_params_is_refused_with_its_place(
    params: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "hunter2-of-the-environment")
    (fault,) = faults_of(with_line(f"params = {params}"))
    assert f"worker[0].params: {place}: a key does not belong in a pool file" in fault
    assert "hunter2" not in fault


@pytest.mark.parametrize(
    "line",
    [
        'base_url = "https://gateway.example/hunter2-of-the-environment/v1"',
        'base_url = "https://gateway.example/sk-hunter2hunter2hunter2/v1"',
        'model = "hunter2-of-the-environment"',
        'name = "hunter2-of-the-environment"',
        'description = "use hunter2-of-the-environment"',
        'description = "exact answers, key sk-hunter2hunter2hunter2"',
    ],
)
def test_a_key_in_another_field_is_refused(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "hunter2-of-the-environment")
    (fault,) = faults_of(with_line(line))
    assert "holds a key, which every run would record" in fault
    assert "hunter2" not in fault


@pytest.mark.parametrize(
    "params",
    [
        "{ max_tokens = 1, max_completion_tokens = 2, thinking = { budget_tokens = 3 }, stop_token_ids = [4] }",
        '{ prompt_cache_key = "team-a", safety_identifier = "u1", metadata = { author = "me" } }',
        '{ skip_special_tokens = true, top_k = 3, logit_bias = { "50256" = -100 } }',
        '{ response_format = { json_schema = { schema = { properties = { password = { type = "string" } } } } } }',
        '{ extra_body = { repetition_penalty = 1.1, note = "Bearer tokens and sk-learn-something-long are words" } }',
    ],
)
def test_params_that_hold_no_key_are_accepted(params: str) -> None:
    assert faults_of(with_line(f"params = {params}")) == []


@pytest.mark.parametrize("said", ["A basic Qwen2.5-0.5B-Instruct", "scikit: sk-learn, sk-image", "bearer of bad news"])
def test_a_description_that_holds_no_key_is_accepted(said: str) -> None:
    assert faults_of(with_line(f'description = "{said}"')) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"api_key_env": "PATH"}, "api_key_env: PATH does not look like the variable of a key"),
        ({"params": {"extra_body": {"api_key": "hunter2"}}}, "params: extra_body.api_key: a key does not belong"),
        ({"base_url": "http://a/sk-hunter2hunter2hunter2/v1"}, "base_url: holds a key"),
        ({"description": "its key: sk-hunter2hunter2hunter2"}, "description: holds a key"),
    ],
)
def test_a_recorded_worker_with_a_key_in_it_is_not_opened(fields: dict[str, Any], told: str) -> None:
    spec = WorkerSpec(name="a", provider="openai", model="m").model_copy(update=fields)
    with pytest.raises(BadInput, match=told) as caught:
        open_worker(spec, Settings())
    assert "hunter2" not in str(caught.value)


def test_a_variable_that_is_allowed_by_its_name_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_KEY_VARIABLES", "A_LOGIN, ANOTHER_LOGIN")
    spec = WorkerSpec(name="a", provider="openai", model="m", api_key_env="ANOTHER_LOGIN")
    assert open_worker(spec, Settings()).spec == spec
