"""A training of real size, rehearsed: TRL, real workers over HTTP, stops and resumes. The model is a stand-in."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conductor_core.cli.main import main
from conductor_core.conductors.local import read_config as read_conductor
from conductor_core.lab.records import LOCK
from conductor_core.lab.records.training import RECORD, Iteration, read_record
from conductor_core.lab.training.config import CONFIGS, read_config
from conductor_core.lab.training.folder import rewrite
from conductor_core.lab.training.scale import MODEL, rehearsed, write_model
from conductor_core.lab.training.worker_reward import AnswerCache
from conductor_core.workflow.model import CONDUCTOR_AGENT
from tests.support.holding import another_process
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, deterministic_answer, error

pytestmark = pytest.mark.timeout(300)  # trainings, and processes that load torch, on a machine that may be busy

CONFIG, RECURSION = "qwen2.5-7b-grpo", "qwen2.5-7b-recursion"
AGENTS = ("alpha", "beta", "gamma")
WORKER = """
[[worker]]
name = "{name}"
provider = "openai"
model = "{name}"
base_url = "{url}"
usd_per_mtok = {{ input = 10.0, output = 3310.0 }}
params = {{ max_tokens = 3 }}
"""
CALL_USD = (7 * 10.0 + 3 * 3310.0) / 1e6
"""Of one answer: 7 tokens in and 3 out."""


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(AGENTS) as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: ScriptedProvider) -> ScriptedProvider:
    shared_provider.reset()
    return shared_provider


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("model")
    write_model(rehearsed(read_config(CONFIG), out))
    return out / MODEL


@pytest.fixture
def train(provider: ScriptedProvider, model: Path, tmp_path: Path) -> Callable[..., int]:
    """The command, with workers at the provider; each output folder finds the model there already."""
    pool = tmp_path / "pool.toml"
    pool.write_text("".join(WORKER.format(name=name, url=provider.url) for name in AGENTS))

    def run(out: Path, *more: str, config: str = CONFIG) -> int:
        if not (out / MODEL).exists():
            shutil.copytree(model, out / MODEL)
        return main(["train", config, "--dry-run", "--out", str(out), "--pool", str(pool), *more])

    return run


def iterations(out: Path) -> list[Iteration]:
    """Without what depends on the clock."""
    timed = {"seconds": 0.0, "rollout_s": None, "reward_s": None, "update_s": None}
    return [row.model_copy(update=timed) for row in read_record(out).iterations()]


def took_longer(out: Path, more_s: float) -> None:
    """Changes the record of a training that was stopped."""
    rows = list(read_record(out).rows)
    for at, row in enumerate(rows):
        if isinstance(row, Iteration):
            rows[at] = row.model_copy(update={"seconds": row.seconds + more_s})
    rewrite(out, rows)


def questions(provider: ScriptedProvider) -> list[str]:
    return [f"{call.model} {call.messages}" for call in provider.completions]


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder of a dry run that came to its end, and what it said."""
    out, said = tmp_path_factory.mktemp("whole"), io.StringIO()
    shutil.copytree(model, out / MODEL)
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stderr(said):
        patched.setenv("CONDUCTOR_DATA_FOLDER", str(out / "data"))
        assert main(["train", CONFIG, "--dry-run", "--out", str(out)]) == 0
    return out, said.getvalue()


def test_a_dry_run_trains_with_the_rehearsal_pool_and_leaves_a_conductor(whole: tuple[Path, str]) -> None:
    out, said = whole
    assert said.startswith("DRY RUN")
    assert "NOT EXERCISED: vLLM" in said
    record = read_record(out)
    assert record.started is not None
    assert record.started.simulated
    assert record.ended is not None
    assert [row.iteration for row in record.iterations()] == [1, 2]
    assert any(row.format_rate for row in record.iterations())
    assert any(row.grad_norm for row in record.iterations())
    assert record.samples()
    assert read_conductor(out).prompt == "full"
    assert not list((out / "stages").glob("*.checkpoints"))


def test_a_folder_that_another_process_trains_in_is_refused_untouched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "held"
    out.mkdir()
    with another_process(out) as pid:
        assert main(["train", CONFIG, "--dry-run", "--out", str(out)]) == 2
    assert f"is in use by another process ({pid} on " in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == [LOCK]


def test_a_training_whose_workers_fail_goes_on_to_the_same_curve(
    provider: ScriptedProvider,
    train: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CONDUCTOR_RETRY_INITIAL_S", "0")
    assert train(tmp_path / "whole") == 0
    asked = questions(provider)
    assert len(asked) == len(set(asked))
    assert len(asked) >= 3
    provider.reset()
    answered: set[str] = set()

    def fails(call: Call) -> Answer | Reply:
        key = f"{call.model} {call.messages}"
        if key not in answered and len(answered) >= len(asked) - 1:
            return error(500)
        answered.add(key)
        return deterministic_answer(call)

    provider.always(fails)
    out = tmp_path / "stopped"
    capsys.readouterr()
    assert train(out) == 1
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: the worker pool is failing")
    provider.always(deterministic_answer)
    provider.calls.clear()
    took_longer(out, 1000.0)
    assert train(out, "--resume") == 0
    assert iterations(out) == iterations(tmp_path / "whole")
    ended = read_record(out).ended
    assert ended is not None
    assert ended.seconds > 1000, "what came before the stop is part of it"
    # What was finished is not asked again, and nothing else is asked than in a training without a break.
    assert sorted(questions(provider)) == sorted(set(asked) - answered)


def test_the_cost_cap_stops_a_training_and_a_higher_one_lets_it_go_on(
    provider: ScriptedProvider, train: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The most that a call may cost is for its question, a token for each byte, and an answer of 3.
    assert train(tmp_path, "--max-usd", "0.03") == 1
    assert "raise max_usd and start the same command with --resume" in capsys.readouterr().err
    cache = AnswerCache(tmp_path / "answers.sqlite3")
    spent = cache.spent()
    cache.close()
    assert 0 < spent.usd <= 0.03
    assert spent.usd == pytest.approx(CALL_USD * len(provider.completions))
    assert train(tmp_path, "--resume", "--max-usd", "100") == 0
    assert len(questions(provider)) == len(set(questions(provider)))


def test_a_recursion_stage_plans_on_from_finished_rollouts(
    train: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, config=RECURSION) == 0
    said = capsys.readouterr().err
    assert "NOT EXERCISED: outer rounds of the recursion stage" in said
    assert "\nleft out: outer rounds of the recursion stage. It has inner rounds only, despite inner_share" in said
    record = read_record(tmp_path)
    grpo, recursion = record.iterations("grpo"), record.iterations("recursion")
    assert [row.iteration for row in grpo] == [row.iteration for row in recursion] == [1, 2]
    assert (tmp_path / "parents.json").stat().st_size > 10
    assert record.ended is not None
    assert record.ended.seconds == round(grpo[-1].seconds + recursion[-1].seconds, 1)


def test_with_an_inner_conductor_outer_rounds_recurse(
    train: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = (CONFIGS / f"{RECURSION}.toml").read_text()
    with_inner = re.sub(r'# (inner_conductor = ".*")', r"\1", written)
    assert with_inner != written
    config, out = tmp_path / "recursion.toml", tmp_path / "out"
    config.write_text(with_inner.replace("inner_share = 0.6", "inner_share = 0.0"))
    write_model(rehearsed(read_config(str(config)), out, pool=str(tmp_path / "pool.toml")))
    assert train(out, config=str(config)) == 0
    said = capsys.readouterr().err
    assert "in place of the inner Conductor http://127.0.0.1:8000#Qwen/Qwen2.5-7B-Instruct: tiny" in said
    assert "outer rounds" not in said
    record = read_record(out)
    assert not any(CONDUCTOR_AGENT in row.agent_share for row in record.iterations("grpo"))
    assert any(CONDUCTOR_AGENT in row.agent_share for row in record.iterations("recursion"))


def test_a_finished_folder_or_another_config_is_not_gone_on_with(
    train: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, "--max-usd", "0") == 1
    assert train(tmp_path) == 2
    assert "continue it (--resume)" in capsys.readouterr().err
    assert train(tmp_path, "--resume", "--seed", "9") == 2
    assert "another config or seed" in capsys.readouterr().err


def test_a_training_is_gone_on_with_only_from_what_it_began_with(
    train: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = str((tmp_path / MODEL).resolve())
    assert train(tmp_path, "--max-usd", "0") == 1
    started = read_record(tmp_path).started
    assert started is not None
    assert started.started_from == began
    capsys.readouterr()
    # A dry run takes no --from: the record says another instead.
    record = tmp_path / RECORD
    record.write_text(record.read_text().replace(f'"started_from":"{began}"', '"started_from":"another/model"'))
    assert train(tmp_path, "--resume", "--max-usd", "0") == 2
    assert f"began with another/model, not with {began}: add --from another/model" in capsys.readouterr().err


def test_a_killed_training_goes_on_to_the_same_curve_under_accelerate(
    model: Path, whole: tuple[Path, str], tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / MODEL)
    command = ["-m", "conductor_core", "train", CONFIG, "--dry-run", "--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL, env=environment) as process:
        second_iteration = tmp_path / "stages" / "grpo.checkpoints" / "rollouts" / "000001-0-of-1.json"
        while not second_iteration.exists() and process.poll() is None:
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -9
    launch = "accelerate.commands.launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no"
    ended = subprocess.run(
        [sys.executable, "-m", *launch.split(), "--dynamo_backend", "no", *command, "--resume"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert iterations(tmp_path) == iterations(whole[0])
