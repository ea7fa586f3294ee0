"""Fifty keys, each echoed by its provider in eight forms: none is in a file, a log, an output or a page's message."""

import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.chat.messages import PlanRequest
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.models import check_worker
from conductor_core.engine.pools import open_pool
from conductor_core.grading.tasks import Task
from conductor_core.lab.training.config import WorkersConfig
from conductor_core.lab.training.worker_reward import AnswerCache, PromptedTask, WorkerReward
from conductor_core.run.trace import begin
from conductor_core.settings import Settings
from pages.components.live_workflow.messages import LiveView
from storage import Store
from tests.support.canaries import CANARIES, EVERY, PLANNERS, forms, found, hostile, variable
from tests.support.command_line import CommandLine
from tests.support.provider import Call, Reply, ScriptedProvider, error

NAMES = tuple(CANARIES)


@pytest.fixture(scope="module")
def running() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(NAMES) as provider:
        yield provider.always(hostile)


@pytest.fixture
def provider(running: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> ScriptedProvider:
    for name, key in CANARIES.items():
        monkeypatch.setenv(variable(name), key)
    monkeypatch.setenv("CONDUCTOR_API_KEY", PLANNERS)
    monkeypatch.setenv("CONDUCTOR_STEP_ATTEMPTS", "2")
    monkeypatch.setenv("CONDUCTOR_RETRY_INITIAL_S", "0")
    running.reset()
    return running.always(hostile)


@pytest.fixture
def pool(provider: ScriptedProvider, tmp_path: Path) -> Path:
    file = tmp_path / "pool.toml"
    file.write_text(
        "\n".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = "{provider.url}"\n'
            f'api_key_env = "{variable(name)}"\nusd_per_mtok = {{ input = 1, output = 9 }}\nparams.max_tokens = 9\n'
            for name in NAMES
        )
    )
    return file


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def workflow(tmp_path: Path, names: tuple[str, ...], instruction: str) -> Path:
    """Each worker in a step of its own, and a last one that reads them all."""
    steps: list[dict[str, object]] = [{"agent": name, "instruction": instruction, "access_list": []} for name in names]
    steps.append({"agent": names[0], "instruction": "Join them.", "access_list": list(range(len(names)))})
    file = tmp_path / f"{names[0]}-{instruction.split()[0]}.json"
    file.write_text(json.dumps({"task": "Which?", "steps": steps}))
    return file


def nothing_in(*texts: str) -> None:
    assert all(texts)
    leaked = found("\n".join(texts))
    assert not leaked, f"{len(leaked)} keys leaked"


def nothing_in_files(folder: Path) -> set[str]:
    """The names of the files below ``folder``, none of which has a key in it."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    for file in files:
        assert not found(file.read_bytes()), f"a key is in {file.name}"
    return {file.name for file in files if file.stat().st_size}


def test_the_search_finds_every_key_in_every_form() -> None:
    for key in EVERY:
        for form in forms(key).split("; "):
            assert key in found(f"xx {form} yy".encode())
            assert key in found(json.dumps({"text": form}))
    assert not found(Path(__file__).read_bytes())


@pytest.mark.parametrize("instruction", ["answer {question}", "fail {question}"])
def test_runs_of_fifty_workers(
    cli: CommandLine, provider: ScriptedProvider, pool: Path, store: Store, tmp_path: Path, instruction: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    where = ["--pool", pool, "--db", tmp_path / "runs.sqlite3", "--max-steps", "32"]
    for names, further in ((NAMES[:25], []), (NAMES[25:], ["--json"])):
        told = cli("-v", "run", "--workflow", workflow(tmp_path, names, instruction), *where, *further)
        assert told.code == (0 if instruction.startswith("answer") else 1), told.err
        nothing_in(told.out + told.err)
    assert len({call.headers["authorization"] for call in provider.completions}) == 50
    runs = [run.run_id for run in store.runs()]
    assert len(runs) == 2
    for run_id in runs:
        told = cli("show", run_id, "--db", where[3])
        nothing_in(told.out, cli("show", run_id, "--json", "--db", where[3]).out)
        assert instruction.startswith("fail") or told.out.count("After.") >= 25, "what is no key is shown"
        first, *rest = store.events(run_id)
        view = LiveView(begin(first.event), first.sequence)
        messages = [view.snapshot(), *(message for event in rest for message in view.messages([event]))]
        whole = LiveView(*store.trace(run_id)).snapshot()
        nothing_in(json.dumps(messages, ensure_ascii=False), json.dumps(whole, ensure_ascii=False))
    nothing_in(cli("runs", "--json", "--db", where[3]).out, caplog.text)
    assert {"runs.sqlite3", "runs.sqlite3-wal"} <= nothing_in_files(tmp_path)


def test_a_conductor_that_echoes(
    cli: CommandLine, provider: ScriptedProvider, pool: Path, store: Store, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    where = ["--pool", pool, "--conductor", f"{provider.url}#planner", "--db", tmp_path / "runs.sqlite3"]
    for further in ([], ["--json"]):
        told = cli("-v", "run", "Which?", *where, *further)
        assert told.code == 0, told.err
        nothing_in(told.out, told.err)
    planned = cli("plan", "Which?", *where, "--json").document["plans"][0]
    assert planned["steps"][0]["instruction"].startswith("Ask ")
    nothing_in(json.dumps(planned))
    sent = f"{forms(PLANNERS)} {PLANNERS}"
    for script in (
        error(500, {"error": {"message": sent}}),
        error(422, sent, content_type="text/plain"),
        error(404, {"detail": sent}, content_type=f"application/{PLANNERS}+json"),
        error(401, sent),
    ):
        provider.always(script)
        told = cli("-v", "run", "Which?", *where)
        assert told.code == 1
        nothing_in(told.err)
    nothing_in(caplog.text)
    assert {"runs.sqlite3", "runs.sqlite3-wal"} <= nothing_in_files(tmp_path)


def test_an_evaluation_and_its_record(
    cli: CommandLine, provider: ScriptedProvider, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("CONDUCTOR_DATA_FOLDER", str(tmp_path / "data"))
    suite = tmp_path / "suite.jsonl"
    suite.write_text('{"question": "Which is it?", "reference": "7", "grader": "exact", "family": "one"}\n')
    told = cli("evaluate", "--suite", suite, "--orchestrators", "single", "--pool", pool, "--name", "trial", "--json")
    assert told.code == 0, told.err
    assert len(told.document["results"]) == 50
    nothing_in(told.out, caplog.text)
    assert {"outcomes.jsonl", "conductor-inspector.sqlite3"} <= nothing_in_files(tmp_path)


def test_a_training_by_real_workers_and_its_answers(
    provider: ScriptedProvider, pool: Path, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = Settings()
    cache = AnswerCache(tmp_path / "answers.sqlite3")
    config, workers = WorkersConfig(concurrency=16, pauses=0), open_pool(str(pool), settings)
    reward = WorkerReward(workers, cache, CostCap(cache.spent(), max_usd=10), settings, config, sink=store.log)
    task = Task("t/1", "What is 6 times 7?", "arithmetic", "easy", "42", "numeric")
    plans = [
        f'model_id = [{number}, 0]\nsubtasks = ["answer {{question}}", "join"]\naccess_list = [[], [0]]'
        for number in range(50)
    ]
    try:
        asked = PromptedTask(PlanRequest(task=task.question, agents=workers.specs, max_steps=5), task)
        scored = reward.score([(asked, plan) for plan in plans])
        nothing_in(repr(scored))
        assert {"answers.sqlite3", "runs.sqlite3"} <= nothing_in_files(tmp_path)
    finally:
        reward.close()
        cache.close()
    assert nothing_in_files(tmp_path)


def test_checks_of_health(provider: ScriptedProvider, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = itertools.count()

    def listed(call: Call) -> Reply:
        key = call.headers["authorization"].removeprefix("Bearer ")
        models = [{"id": key}, {"id": f"x-{key.swapcase()}", "owned_by": key}, {"id": forms(key)[:190]}]
        replies = error(401, {"error": forms(key)}), error(500, forms(key), content_type="text/plain")
        return (*replies, error(200, {"data": models}))[next(asked) % 3]

    monkeypatch.setattr(provider, "_script", listed)
    for worker in open_pool(str(pool), Settings()).specs:
        health = check_worker(worker, Settings())
        assert not health.ok
        nothing_in(health.detail)
