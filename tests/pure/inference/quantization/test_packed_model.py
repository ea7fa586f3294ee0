import errno
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conductor_core.chat.progress import Progress
from conductor_core.files import FileLock
from conductor_core.inference import hardware
from conductor_core.inference import model as model_module
from conductor_core.inference.generation import Generation, InferenceError, Interrupted, ModelUnavailable, Packing
from conductor_core.inference.hardware import Memory
from conductor_core.inference.model import LoadedModel
from conductor_core.inference.quantization import choice as trial
from conductor_core.inference.quantization import packed_model
from conductor_core.inference.quantization.linear import Int4Linear, Int8Linear
from conductor_core.inference.quantization.packed_model import load
from conductor_core.inference.quantization.places import delete_packed, packed_path, packed_weights
from conductor_core.inference.shared import is_held, release, shared_model
from conductor_core.inference.source import inspect_folder
from conductor_core.precision import Packed, PrecisionChoice
from tests.support.tiny_models import random_model

GIB = 2**30
IDS = torch.tensor([[5, 17, 101, 33, 200, 8]])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("source"), hidden=128)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "model"))


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return tmp_path / "packed"


@pytest.fixture
def never_packed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes packing from now on a failure."""

    def refuse() -> None:
        def fail(*_: object) -> None:
            pytest.fail("the weights were packed again")

        monkeypatch.setattr(packed_model, "packed_tensors", fail)

    return refuse


def loaded(folder: Path, packed: Path, choice: PrecisionChoice, **options: object) -> LoadedModel:
    return LoadedModel(inspect_folder(folder), packing=Packing(choice, packed), **options)  # type: ignore[arg-type]


def logits(model: LoadedModel) -> torch.Tensor:
    with torch.inference_mode():
        output: torch.Tensor = model.model(input_ids=IDS).logits
    return output


@pytest.mark.parametrize(("precision", "close"), [("int8", 0.05), ("int4", 0.6)])
def test_packed_weights_are_made_once_and_found_by_the_next_start(
    folder: Path, packed: Path, precision: Packed, close: float, never_packed: Callable[[], None]
) -> None:
    exact = logits(LoadedModel(inspect_folder(folder)))
    told: list[Progress] = []
    first = loaded(folder, packed, precision, notify=told.append)
    assert first.placement.precision == precision
    assert (logits(first) - exact).abs().mean() < close * exact.std()
    converting = [each for each in told if each.phase == "converting"]
    assert converting[-1].done == converting[-1].total > 0
    never_packed()
    again = loaded(folder, packed, precision)
    assert torch.equal(logits(again), logits(first))
    assert os.stat(packed_path(packed, folder, precision)).st_mode & 0o077 == 0


def test_int4_keeps_the_output_layer_in_int8_and_the_embedding_as_it_is(folder: Path, packed: Path) -> None:
    model = loaded(folder, packed, "int4").model
    assert isinstance(model.lm_head, Int8Linear)
    assert isinstance(model.model.layers[0].mlp.up_proj, Int4Linear)
    exact = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(model.get_input_embeddings().weight, exact)


def test_a_layer_whose_shape_no_kernel_takes_is_kept_in_int8_or_as_it_is(tmp_path: Path, packed: Path) -> None:
    model = loaded(random_model(tmp_path / "narrow", hidden=160), packed, "int4").model
    assert isinstance(model.model.layers[0].mlp.up_proj, Int4Linear)
    assert isinstance(model.model.layers[0].self_attn.k_proj, Int8Linear), "its 80 rows make no whole blocks"
    with pytest.raises(ModelUnavailable, match="most weights of a qwen2 model cannot be kept in int8"):
        loaded(random_model(tmp_path / "odd", hidden=40), packed, "int8")


def _rewrite(path: Path) -> None:
    tensors = load_file(path)
    tensors["model.layers.0.mlp.up_proj.weight"] *= 2
    save_file(tensors, path, {"format": "pt"})


def test_a_checkpoint_that_was_changed_in_place_is_packed_anew(
    folder: Path, packed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = logits(loaded(folder, packed, "int8"))
    _rewrite(folder / "model.safetensors")
    exact = logits(LoadedModel(inspect_folder(folder)))
    after = logits(loaded(folder, packed, "int8"))
    assert (after - exact).abs().mean() < (before - exact).abs().mean() / 4
    assert "made again: it was made with another model" in caplog.text


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _nonsense(path: Path) -> None:
    path.write_bytes(b"\xff" * 1000)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [_cut, _flip, _nonsense, _emptied])
def test_a_damaged_file_is_dropped_with_a_line_in_the_log(
    folder: Path, packed: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    exact = logits(loaded(folder, packed, "int8"))
    damage(packed_path(packed, folder, "int8"))
    assert torch.equal(logits(loaded(folder, packed, "int8")), exact)
    (line,) = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert "int8.safetensors is not used and made again: " in line


def test_a_file_that_another_process_has_just_made_is_not_made_again(
    folder: Path, packed: Path, monkeypatch: pytest.MonkeyPatch, never_packed: Callable[[], None]
) -> None:
    exact = logits(loaded(folder, packed, "int8"))
    path = packed_path(packed, folder, "int8")
    aside = path.with_suffix(".aside")
    path.rename(aside)
    never_packed()

    class FreeAgain(FileLock):
        def acquire(self, timeout_s: float) -> bool:
            aside.rename(path)
            return super().acquire(timeout_s)

    monkeypatch.setattr(packed_model, "FileLock", FreeAgain)
    assert torch.equal(logits(loaded(folder, packed, "int8")), exact)


def test_a_file_of_another_model_is_not_used(folder: Path, packed: Path, tmp_path: Path) -> None:
    other = random_model(tmp_path / "other", seed=1, hidden=128)
    loaded(other, packed, "int8")
    path = packed_path(packed, folder, "int8")
    path.parent.mkdir()
    shutil.copy(packed_path(packed, other, "int8"), path)
    exact = logits(LoadedModel(inspect_folder(folder)))
    assert (logits(loaded(folder, packed, "int8")) - exact).abs().mean() < 0.05 * exact.std()


def test_a_cancelled_conversion_leaves_nothing(folder: Path, packed: Path) -> None:
    told: list[str] = []

    def cancelled() -> bool:
        return told.count("converting") > 3

    with pytest.raises(Interrupted):
        loaded(folder, packed, "int8", notify=lambda made: told.append(made.phase), cancelled=cancelled)
    assert told.count("converting") == 4
    assert [path.suffix for path in packed.glob("*/*")] == [".lock"]


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from conductor_core.inference.quantization.packed_file import Form, write

def tensors():
    yield "one", torch.ones(64, dtype=torch.int8)
    os.kill(os.getpid(), signal.SIGKILL)

forms = {name: Form(torch.int8, (64,)) for name in ("one", "two")}
write(Path(sys.argv[1]), forms, {}, tensors())
"""


def test_a_conversion_that_was_killed_left_nothing_that_is_loaded(folder: Path, packed: Path) -> None:
    path = packed_path(packed, folder, "int8")
    path.parent.mkdir(parents=True)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=Path(__file__).parents[4], timeout=60)
    assert killed.returncode == -9
    assert [each.name for each in path.parent.iterdir()] == ["int8.unfinished"]
    exact = logits(LoadedModel(inspect_folder(folder)))
    assert (logits(loaded(folder, packed, "int8")) - exact).abs().mean() < 0.05 * exact.std()
    assert not path.with_suffix(".unfinished").exists()


def test_a_full_disk_is_one_clear_message_and_auto_goes_on_without(
    folder: Path, packed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(ModelUnavailable, match=r"No space left on device: make room there, or .*--precision bf16"):
            loaded(folder, packed, "int8")
    assert not list(packed.glob("*/int8.*s"))
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**6))
    with pytest.raises(ModelUnavailable, match=r"need 0\.0 GB in .*, where 0\.0 GB are free: make room, or"):
        loaded(folder, packed, "int4")
    files = inspect_folder(folder)
    packed_for_speed = hardware.place(files.parameters, "int8")
    model, placement = load(files, packed_for_speed, Packing("auto", packed), lambda _: None, lambda: False)
    assert placement.precision is None
    assert isinstance(model.lm_head, torch.nn.Linear)
    assert "keeps its weights as they are" in caplog.text


def test_too_little_memory_names_need_and_memory_of_each_precision(
    folder: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "ram_bytes", lambda: GIB // 4)
    monkeypatch.setattr(hardware, "SMALL_PARAMETERS", 0)
    with pytest.raises(ModelUnavailable, match=r"needs .* in bf16 or .* in int8 or .* in int4, this machine has 0\.3"):
        loaded(folder, packed, "auto")


def test_a_weight_that_is_no_number_is_one_clear_message(folder: Path, packed: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.down_proj.weight"][3, 3] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelUnavailable, match=r"layers\.1\.mlp\.down_proj cannot be kept in int8: a weight is not"):
        loaded(folder, packed, "int8")


def test_a_small_model_stays_as_it_is_unless_it_is_asked_for(
    folder: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loaded(folder, packed, "auto").placement.precision is None
    assert not packed.exists()


@pytest.mark.parametrize(("int8_ms", "precision"), [(0.5, "int8"), (0.9, None)])
def test_auto_packs_a_large_model_where_a_trial_finds_that_quicker_and_the_choice_stays(
    folder: Path, packed: Path, monkeypatch: pytest.MonkeyPatch, int8_ms: float, precision: Packed | None
) -> None:
    trials: list[tuple[int, int]] = []

    def measured(rows: int, columns: int) -> trial.Trial:
        trials.append((rows, columns))
        token_ms = {"bfloat16": 1.0, "float32": 1.0, "int8": int8_ms, "int4": 0.1}
        return trial.Trial(token_ms=token_ms, few={"int8": 8, "int4": 32}, read="bfloat16")

    monkeypatch.setattr(trial, "measured", measured)
    monkeypatch.setattr(packed_model, "SMALL_PARAMETERS", 0)
    monkeypatch.setattr(hardware, "SMALL_PARAMETERS", 0)
    monkeypatch.setattr(model_module, "choose_threads", lambda _: 1)
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: None)
    for _ in range(2):
        assert loaded(folder, packed, "auto").placement.precision == precision
    assert trials == [(256, 128)]
    (kept,) = packed.glob("trial-*.json")
    kept.write_text("{")
    loaded(folder, packed, "auto")
    assert len(trials) == 2


def test_a_trial_measures_every_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_COLD_BYTES", 2**16)
    monkeypatch.setattr(trial, "_READ_ROWS", 64)
    found = trial.measured(256, 128)
    assert set(found.token_ms) == {"bfloat16", "float32", "int8", "int4"}
    assert all(ms > 0 for ms in found.token_ms.values())
    assert min(found.few.values()) >= 4


async def test_another_choice_loads_the_shared_model_anew(folder: Path, packed: Path) -> None:
    shared = shared_model(str(folder))
    for choice, precision in (("bf16", None), ("int8", "int8"), ("auto", None)):
        shared.packing = Packing(choice, packed)  # type: ignore[arg-type]
        async for _ in shared.stream(Generation("model_id", max_tokens=2)):
            pass
        assert shared.placement is not None
        assert shared.placement.precision == precision
        assert is_held(folder)
    shared._thread.shutdown()  # the last call has ended then
    assert release(str(folder))
    assert not is_held(folder), "each loading before the last has let go of it, too"


async def test_a_model_that_cannot_be_loaded_is_not_in_use(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("no tokenizer")
    shared = shared_model(str(folder))
    with pytest.raises(InferenceError):
        async for _ in shared.stream(Generation("model_id", max_tokens=2)):
            pass
    assert not is_held(folder)


def test_packed_weights_are_deleted_with_their_model(folder: Path, packed: Path) -> None:
    loaded(folder, packed, "int8")
    weights = packed_weights(packed, folder)
    assert delete_packed(weights) > 50_000
    assert delete_packed(weights) == 0
    assert not weights.exists()


def test_packed_weights_run_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: Memory("cuda", 80 * GIB, "a card"))
    assert hardware.place(10**9, "int8").device == "cpu"
