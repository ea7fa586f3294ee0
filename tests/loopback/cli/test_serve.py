"""The endpoint as users start it: ready, answering, refusing to be open to all, and ending."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conductor_core.cli.main import main

ROOT = Path(__file__).parents[3]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    return found


@contextmanager
def serving(
    port: int, *options: str, listens_on: str = "127.0.0.1", **environment: str
) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-m", "conductor_core", "serve", "--port", str(port), *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"Listening on http://{listens_on}:{port}/v1\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(port: int, path: str, document: dict[str, Any] | None = None, key: str = "") -> tuple[int, Any, Any]:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    data = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response), response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), error.headers


QUESTION = {"model": "quick", "messages": [{"role": "user", "content": "What is the capital of Australia?"}]}


def test_it_answers_by_runs_which_the_inspector_shows_and_ends_when_it_is_told(port: int, tmp_path: Path) -> None:
    models = tmp_path / "models.toml"
    models.write_text('[[model]]\nid = "quick"\nmax_steps = 1\n')
    db = str(tmp_path / "runs.sqlite3")
    shown_at = "http://inspector.lan:1"
    with serving(port, "--db", db, "--models", str(models), CONDUCTOR_INSPECTOR_URL=f"{shown_at}/") as process:
        status, listed, _ = ask(port, "/v1/models")
        assert (status, [each["id"] for each in listed["data"]]) == (200, ["fugu", "fugu-ultra", "quick"])
        status, answer, headers = ask(port, "/v1/chat/completions", QUESTION)
        run_id = answer["conductor"]["trace_id"]
        assert (status, answer["model"], len(answer["conductor"]["steps"])) == (200, "quick", 2)
        assert headers["x-conductor-trace-url"] == f"{shown_at}/run?run={run_id}"
        assert ask(port, "/")[0] == 404
        call = {"name": "read_run", "arguments": {"run_id": run_id}}
        status, told, _ = ask(port, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        assert (status, told["result"]["structuredContent"]["run_id"]) == (200, run_id)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert err == "No key exists: only programs of this machine are answered.\n"
    assert main(["show", run_id, "--db", db]) == 0


def test_ctrl_c_ends_it_with_what_it_streams_and_the_run_has_its_end(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = str(tmp_path / "runs.sqlite3")
    with serving(port, "--db", db, CONDUCTOR_REHEARSAL_TOKENS_PER_S="0.1") as process:
        body = json.dumps({**QUESTION, "model": "fugu", "stream": True}).encode()
        address = f"http://127.0.0.1:{port}/v1/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(address, body), timeout=60) as response:
            run_id = response.headers["x-conductor-trace-id"]
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in err
    capsys.readouterr()
    main(["show", run_id, "--db", db, "--json"])
    assert json.loads(capsys.readouterr().out)["status"] == "cancelled"


def test_a_key_that_is_made_and_revoked_meanwhile_counts_at_once(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = str(tmp_path / "runs.sqlite3")
    with serving(port, "--db", db):
        assert ask(port, "/v1/models", key="DUMMY_KEY")[0] == 200
        assert main(["keys", "create", "ada", "--db", db, "--json"]) == 0
        key = json.loads(capsys.readouterr().out)["key"]
        assert (ask(port, "/v1/models")[0], ask(port, "/v1/models", key=key)[0]) == (401, 200)
        status, refused, _ = ask(port, f"/v1/models?x={key}")
        assert (status, refused["error"]["code"]) == (400, "key_in_url")
        assert main(["keys", "revoke", "ada", "--db", db]) == 0
        assert ask(port, "/v1/models", key=key)[0] == 401


@pytest.mark.parametrize("host", ["0.0.0.0", *(["::"] if socket.has_ipv6 else [])])
def test_it_does_not_listen_for_other_machines_without_a_key(
    host: str, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = str(tmp_path / "runs.sqlite3")
    assert main(["serve", "--host", host, "--port", str(port), "--db", db]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "conductor keys create NAME" in line
    assert main(["keys", "create", "ada", "--db", db]) == 0
    with serving(port, "--host", host, "--db", db, listens_on=f"[{host}]" if ":" in host else host) as process:
        assert process.poll() is None


def test_a_file_of_models_with_faults_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = tmp_path / "models.toml"
    models.write_text('[[model]]\nid = "a"\nsteps = 1\n')
    assert main(["serve", "--models", str(models)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "line 3, model[0].steps: unknown key" in line


@pytest.mark.parametrize("by_file", [True, False])
def test_a_pool_that_is_not_there_is_said_before_it_listens(
    by_file: bool, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models.toml"
    models.write_text(f'[[model]]\nid = "team"\npool = "{"nosuch" if by_file else "rehearsal"}"\n')
    named = ["--models", str(models)] if by_file else ["--pool", "nosuch"]
    assert main(["serve", "--port", str(port), "--db", str(tmp_path / "runs.sqlite3"), *named]) == 2
    who = "team" if by_file else "fugu"
    assert f"served model {who}: no pool 'nosuch'" in capsys.readouterr().err


THEIRS = ["--pass-through", "http://127.0.0.1:9/v1#m"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--pass-through", "nobody"], "unknown worker 'nobody'; the pool has"),
        (["--pass-through", "reasoner"], "worker reasoner is not behind a server"),
        (["--pass-through", "http://127.0.0.1:9/v1"], "--pass-through is URL#MODEL"),
        (["--pass-through", "http://u:p@127.0.0.1:9/v1#m"], "--pass-through is URL#MODEL"),
        (
            [*THEIRS, "--pass-through-key-env", "NO_SUCH_KEY"],
            "NO_SUCH_KEY is not set",
        ),
        (["--pass-through-key-env", "SOME_KEY"], "give that, too"),
        (["--shadow", "0.5"], "give --pass-through MODEL, too"),
        (["--judge", "critic"], "--judge is for --shadow SHARE"),
        (
            [*THEIRS, "--shadow", "1", "--shadow-model", "x"],
            "unknown served model 'x'",
        ),
        ([*THEIRS, "--shadow", "1", "--judge", "x"], "unknown judge 'x'"),
        (
            [*THEIRS, "--shadow", "1", "--grader", "no.jsonl"],
            "no.jsonl cannot be read",
        ),
    ],
)
def test_what_cannot_be_forwarded_or_shadowed_is_said_before_it_listens(
    options: list[str], why: str, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", str(port), "--db", str(tmp_path / "runs.sqlite3"), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_workers_that_a_budget_cannot_bound_are_named_once(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = '[[worker]]\nname = "critic"\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
    pool = tmp_path / "team.toml"
    pool.write_text(f"{worker}usd_per_mtok = {{ input = 1.0, output = 2.0 }}\n")
    shadow = ["--shadow", "1", "--shadow-usd-a-day", "1", "--judge", "critic"]
    where = ["--port", str(port), "--db", str(tmp_path / "runs.sqlite3"), "--pool", str(pool)]
    assert main(["serve", *where, *THEIRS, *shadow]) == 2
    assert "the answers of critic; give" in capsys.readouterr().err
