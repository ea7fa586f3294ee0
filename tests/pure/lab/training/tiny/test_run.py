"""A whole training: its folder and record, by seed, killed and resumed, and what stops it in one clear line."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from conductor_core.cli.main import main
from conductor_core.errors import BadInput
from conductor_core.lab.records import in_use, weights_sha256
from conductor_core.lab.records.training import HeldOut, Iteration, Sample, read_record
from conductor_core.lab.training.config import TrainingConfig
from conductor_core.lab.training.corpus import plans
from conductor_core.lab.training.tiny.run import train
from conductor_core.rehearsal.families import RehearsalTask
from conductor_core.workflow.model import Workflow
from tests.support.holding import another_process
from tests.support.trainings import toy_config

ROOT = Path(__file__).parents[5]
TIMINGS = {"seconds", "rollout_s", "reward_s", "update_s", "at"}


def figures(folder: Path) -> list[dict[str, Any]]:
    """The record's rows without clocks; the first and last name folder and time."""
    rows = [row.model_dump(exclude=TIMINGS) for row in read_record(folder).rows]
    return [row for row in rows if row["kind"] not in ("started", "ended")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted training of both stages."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    train(toy_config(), folder)
    return folder


@pytest.fixture(scope="module")
def cold_started(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A training that was told to stop after its cold start, and the digest that it said."""
    folder = tmp_path_factory.mktemp("cold") / "model"
    done = train(toy_config(), folder, stop_after="cold_start")
    assert done.stage == "cold_start"
    return folder, done.sha256


@pytest.fixture
def after_cold_start(cold_started: tuple[Path, str], tmp_path: Path) -> Path:
    return shutil.copytree(cold_started[0], tmp_path / "model")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted") / "model"
    with pytest.raises(KeyboardInterrupt):
        train(toy_config(), folder, show=Interrupt(after=3))
    return folder


@pytest.fixture
def in_the_midst_of_grpo(interrupted: Path, tmp_path: Path) -> Path:
    return shutil.copytree(interrupted, tmp_path / "model")


class Interrupt:
    """Stops a training after GRPO iteration ``after``, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self._line = f"grpo {after} of"

    def __call__(self, line: str) -> None:
        if line.startswith(self._line):
            raise KeyboardInterrupt


def test_a_training_leaves_a_model_folder_and_a_record_with_all_figures(whole: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(whole)
    model = AutoModelForCausalLM.from_pretrained(whole)
    assert model.config.vocab_size == len(tokenizer)
    assert json.loads((whole / "conductor.json").read_text())["prompt"] == "short"
    record = read_record(whole)
    assert record.started is not None
    assert record.started.planned == {"cold_start": 6, "grpo": 4}
    assert record.started.agents[0] == "planner"
    assert [row.iteration for row in record.iterations("grpo")] == [1, 2, 3, 4]
    last = record.iterations("grpo")[-1]
    for name in ("loss", "supervised_loss", "reward", "format_rate", "entropy", "completion_tokens", "rollout_s"):
        assert getattr(last, name) is not None, name
    assert [row.iteration for row in record.held_out()] == [0, 2, 4]
    assert {row.iteration for row in record.samples()} == {0, 1, 2, 4}
    again = [row.iteration for row in record.samples() if row.task == record.samples()[0].task]
    assert again == [0, 2, 4], "the same held-out task before, in the middle and at the end"
    assert record.ended is not None
    assert record.ended.sha256 == weights_sha256(whole)
    assert not list((whole / "stages").glob("*.checkpoints"))


def config_file(config: TrainingConfig, folder: Path) -> Path:
    """As TOML, which knows no null."""
    lines: list[str] = []

    def write(table: dict[str, Any], name: str) -> None:
        lines.extend([f"[{name}]"] if name else [])
        nested = {key: value for key, value in table.items() if isinstance(value, dict)}
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in table.items() if key not in nested)
        for key, value in nested.items():
            write(value, f"{name}.{key}" if name else key)

    write(config.model_dump(mode="json", exclude_none=True), "")
    path = folder / "toy.toml"
    path.write_text("\n".join(lines))
    return path


def killed_after(rows: int, config: Path, out: Path) -> None:
    """Starts a training as a process of its own, and kills it once its record has ``rows`` lines."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "conductor_core", "train", str(config), "--out", str(out), "--quiet"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    record = out / "record.jsonl"
    try:
        while process.poll() is None:
            if record.is_file() and len(record.read_text().splitlines()) >= rows:
                break
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said.decode()


def test_a_training_killed_and_resumed_has_the_same_curve(whole: Path, tmp_path: Path) -> None:
    """Killed in the midst of GRPO. A full disk ends one in the cold start, below."""
    config, out = config_file(toy_config(), tmp_path), tmp_path / "model"
    killed_after(14, config, out)
    assert len(read_record(out).rows) >= 14
    train(toy_config(), out, resume=True)
    assert figures(out) == figures(whole)
    assert weights_sha256(out) == weights_sha256(whole)


def test_a_checkpoint_that_was_being_written_is_passed_over(whole: Path, in_the_midst_of_grpo: Path) -> None:
    out = in_the_midst_of_grpo
    work = out / "stages" / "grpo.checkpoints"
    assert (work / "checkpoint-2" / "complete").is_file()
    torn = work / "checkpoint-3"
    torn.mkdir()
    (torn / "model.safetensors").write_bytes(b"half")
    train(toy_config(), out, resume=True)
    assert figures(out) == figures(whole)


def test_stages_can_be_run_one_after_the_other(
    whole: Path, cold_started: tuple[Path, str], after_cold_start: Path
) -> None:
    out = after_cold_start
    assert weights_sha256(out) == cold_started[1]
    assert read_record(out).iterations("grpo") == ()
    train(toy_config(), out, resume=True)
    assert figures(out) == figures(whole)


def test_a_training_can_begin_with_a_model_that_is_there(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    done = train(toy_config(), out, start_from=str(whole / "stages" / "cold_start"))
    rows = read_record(out).rows
    assert {row.stage for row in rows if isinstance(row, Iteration | HeldOut | Sample)} == {"grpo"}
    assert done.sha256 == weights_sha256(whole)  # the same start, seed and prompts


def test_a_stage_that_follows_later_is_planned_and_no_end_is_on_record_until_it_comes(after_cold_start: Path) -> None:
    out = after_cold_start
    stopped = read_record(out)
    assert stopped.started is not None
    assert stopped.started.planned == {"cold_start": 6}
    with pytest.raises(KeyboardInterrupt):
        train(toy_config(), out, resume=True, show=Interrupt(after=1))
    going = read_record(out)
    assert going.started is not None
    assert going.started.planned == {"cold_start": 6, "grpo": 4}
    assert going.ended is None
    assert going.iterations("cold_start") == stopped.iterations("cold_start")


def test_a_training_is_gone_on_with_only_from_what_it_began_with(whole: Path, tmp_path: Path) -> None:
    start, out = whole / "stages" / "cold_start", tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        train(toy_config(), out, start_from=str(start), show=Interrupt(after=3))
    kept = (out / "record.jsonl").read_bytes()
    with pytest.raises(BadInput, match=f"began with {start}, not with a cold start: add --from"):
        train(toy_config(), out, resume=True)
    with pytest.raises(BadInput, match=f"began with {start}, not with {whole}"):
        train(toy_config(), out, resume=True, start_from=str(whole))
    assert (out / "record.jsonl").read_bytes() == kept
    train(toy_config(), out, resume=True, start_from=os.path.relpath(start))
    assert weights_sha256(out) == weights_sha256(whole)
    with pytest.raises(BadInput, match=f"began with a cold start, not with {start}: leave out --from"):
        train(toy_config(), whole, resume=True, start_from=str(start))


def test_two_processes_do_not_train_in_one_folder(whole: Path, in_the_midst_of_grpo: Path) -> None:
    out = in_the_midst_of_grpo
    torn = out / "stages" / "grpo.checkpoints" / "checkpoint-3"  # as another process is writing it
    torn.mkdir()
    kept = (out / "record.jsonl").read_bytes()
    with another_process(out):
        for resume in (True, False):
            with pytest.raises(BadInput, match="is in use by another process"):
                train(toy_config(), out, resume=resume)
        assert torn.is_dir()
        assert (out / "record.jsonl").read_bytes() == kept
    train(toy_config(), out, resume=True)
    assert figures(out) == figures(whole)


def test_a_training_holds_its_folder_as_long_as_it_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "model"
    seen: set[bool | None] = set()
    train(toy_config(grpo=False), out, show=lambda _: seen.add(in_use(out)))
    assert seen == {True}
    assert in_use(out) is False


def test_another_seed_is_another_training(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    train(toy_config(seed=4), out, start_from=str(whole / "stages" / "cold_start"))
    assert weights_sha256(out) != weights_sha256(whole)


@pytest.mark.parametrize("best_of", [1, 2])
def test_the_guard_prefers_no_plan_where_the_cold_start_does_not(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, best_of: int
) -> None:
    weighed: list[Workflow] = []

    def chance(task: RehearsalTask, workflow: Workflow) -> float:
        weighed.append(workflow)
        return 0.5

    monkeypatch.setattr(plans, "success_chance", chance)
    toy = toy_config()
    assert toy.cold_start is not None
    config = toy.model_copy(update={"cold_start": toy.cold_start.model_copy(update={"best_of": best_of})})
    train(config, tmp_path / "model", start_from=str(whole / "stages" / "cold_start"))
    assert bool(weighed) == (best_of > 1)


def test_a_record_is_neither_mixed_up_nor_lost(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--resume"):
        train(toy_config(), whole)
    with pytest.raises(BadInput, match="holds no training"):
        train(toy_config(), tmp_path / "nothing", resume=True)
    with pytest.raises(BadInput, match="another config or seed"):
        train(toy_config(seed=9), whole, resume=True)
    with pytest.raises(BadInput, match="no stage recursion"):
        train(toy_config(), tmp_path / "nothing", stop_after="recursion")
    with pytest.raises(BadInput, match="cannot be loaded"):
        train(toy_config(), tmp_path / "bad", start_from=str(tmp_path))


def test_the_command_prints_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = config_file(toy_config(grpo=False), tmp_path), tmp_path / "model"
    assert main(["train", str(config), "--out", str(out), "--json", "--seed", "5"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["sha256"] == weights_sha256(out)
    assert document["stage"] == "cold_start"
    assert document["iteration"]["iteration"] == 6
    assert "cold_start 6 of 6" in printed.err
    assert "left" in printed.err
    started = read_record(out).started
    assert started is not None
    assert started.seed == 5


def test_each_seed_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONDUCTOR_DATA_FOLDER", str(tmp_path / "data"))
    command = ["train", str(config_file(toy_config(grpo=False, seed=3), tmp_path))]
    own, other = tmp_path / "data" / "training" / "toy", tmp_path / "data" / "training" / "toy-seed1"
    assert main(command) == 0
    assert main([*command, "--seed", "3"]) == 2
    assert f"{own} holds a training" in capsys.readouterr().err
    assert main([*command, "--seed", "1"]) == 0
    assert f"go into {other}\n" in capsys.readouterr().err
    assert main([*command, "--seed", "1", "--resume"]) == 0
    seeds = {folder: started.seed for folder in (own, other) if (started := read_record(folder).started)}
    assert seeds == {own: 3, other: 1}


@pytest.mark.parametrize("arguments", [["no-such"], ["tiny", "--stop-after", "dinner"], ["tiny", "--max-usd", "1"]])
def test_what_cannot_be_trained_is_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments, "--out", str(tmp_path / "model")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    config = config_file(toy_config(grpo=False), tmp_path)
    assert main(["train", str(config), "--out", str(tmp_path / "file" / "model")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "cannot be written" in said[0]


def test_a_disk_that_takes_no_more_is_one_line_and_the_training_goes_on_later(whole: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: a checkpoint meets it while it is written."""
    config, out = config_file(toy_config(), tmp_path), tmp_path / "model"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    done = subprocess.run(
        [sys.executable, "-m", "conductor_core", "train", str(config), "--out", str(out), "--quiet"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        preexec_fn=limit,
        check=False,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert str(out) in line
    train(toy_config(), out, resume=True)
    assert figures(out) == figures(whole)
