"""The prefix of a prompt is read once per machine: it is kept as a file that is only used if it is whole and fits."""

import copy
import json
import logging
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import DynamicCache

from conductor_core.chat.messages import Message
from conductor_core.chat.progress import Progress
from conductor_core.files import write_whole
from conductor_core.inference import prefix_cache, source
from conductor_core.inference.generation import Generation, PrefixFolder
from conductor_core.inference.model import LoadedModel
from conductor_core.inference.prefix_cache import PrefixFiles
from conductor_core.inference.source import inspect_folder
from tests.support.tiny_models import random_model

SYSTEM = Message(role="system", content="You plan the steps. " * 20)
BYTES = 10**9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return random_model(tmp_path / "model")


@pytest.fixture
def kept(tmp_path: Path) -> PrefixFolder:
    return PrefixFolder(tmp_path / "prefixes", BYTES)


class Read:
    """What a model loaded anew wrote, and how many tokens of the prompt it read for that."""

    def __init__(self, folder: Path, kept: PrefixFolder | None, task: str = "17 * 24", system: Message = SYSTEM):
        told: list[Progress] = []
        pieces: list[str] = []
        self.model = LoadedModel(inspect_folder(folder), kept=kept)
        generation = Generation((system, Message(role="user", content=task)), 12, static_messages=1, keep_choices=True)
        result = self.model.generate(generation, pieces.append, lambda: False, told.append)
        assert result is not None
        reading = [each for each in told if each.phase == "reading"]
        self.tokens = reading[-1].done - reading[0].done
        self.written = "".join(pieces), result.choices

    @property
    def ids(self) -> tuple[int, ...]:
        """Those of the prefix."""
        (ids,) = self.model._prefixes._caches
        return ids


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """A model with files, which has written none."""
    folder = tmp_path_factory.mktemp("once")
    return Read(random_model(folder / "model"), PrefixFolder(folder / "prefixes", 10))


def saving_to(read: Read, kept: PrefixFolder) -> PrefixFiles:
    """The files of the model of ``read``, but in ``kept``."""
    files = copy.copy(read.model._prefixes._files)
    assert files is not None
    files._folder = kept
    return files


def cache_of(read: Read) -> DynamicCache:
    cache = read.model._prefixes.copy(read.ids)
    assert cache is not None
    return cache


def files(kept: PrefixFolder) -> list[Path]:
    return sorted(kept.path.glob("*.safetensors"))


def test_a_restart_reads_the_task_alone_and_writes_the_same(folder: Path, kept: PrefixFolder) -> None:
    first = Read(folder, kept)
    again = Read(folder, kept)
    assert (first.tokens > 100, again.tokens < 20) == (True, True)
    assert again.written == first.written == Read(folder, None).written
    other = Read(folder, kept, task="Which gas?")
    assert other.tokens < 20
    assert other.written == Read(folder, None, task="Which gas?").written
    assert len(files(kept)) == 1


def test_what_is_loaded_is_bit_for_bit_what_reading_gives(folder: Path, kept: PrefixFolder) -> None:
    read, loaded = ((each := Read(folder, kept), cache_of(each)) for _ in range(2))
    tensors = [saving_to(each, kept)._tensors(cache, each.ids) for each, cache in (read, loaded)]
    assert tensors[0] is not None
    assert tensors[1] is not None
    assert len(tensors[0]) == 4
    assert all(torch.equal(each, tensors[1][name]) for name, each in tensors[0].items())


def test_the_files_are_the_users_alone_and_do_not_hold_the_task(folder: Path, kept: PrefixFolder) -> None:
    ours = Read(folder, kept, task="my secret task")
    (path,) = files(kept)
    assert (kept.path.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert "secret" not in ours.model.tokenizer.decode(ours.ids)
    assert load_file(path)["0.keys"].shape[2] == len(ours.ids), "tokens of the static messages alone"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def other_layers(path: Path) -> None:
    tensors = {name: each for name, each in load_file(path).items() if not name.startswith("1.")}
    save_file(tensors, path, {"key": path.stem, "sha256": prefix_cache._digest(tensors)})


def other_numbers(path: Path) -> None:
    tensors = {name: each.to(torch.bfloat16) for name, each in load_file(path).items()}
    save_file(tensors, path, {"key": path.stem, "sha256": prefix_cache._digest(tensors)})


def of_another(path: Path) -> None:
    tensors = load_file(path)
    save_file(tensors, path, {"key": "0" * 64, "sha256": prefix_cache._digest(tensors)})


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    "damage",
    [
        flip, cut, other_layers, other_numbers, of_another, linked,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff" * 4000),
        lambda path: path.write_bytes((2).to_bytes(8, "little") + b"[]"),
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_file_is_dropped_with_one_line(
    once: Read, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object]
) -> None:
    kept, ids = saving_to(once, PrefixFolder(tmp_path, BYTES)), once.ids
    kept.save(ids, cache_of(once))
    assert kept.load(ids, torch.float32, "cpu") is not None
    (path,) = tmp_path.glob("*.safetensors")
    damage(path)
    assert kept.load(ids, torch.float32, "cpu") is None
    assert [each.message.count("is dropped") for each in caplog.records] == [1]
    assert not path.exists()
    assert not path.is_symlink()


def test_the_prompt_is_then_read_again_and_kept_again(folder: Path, kept: PrefixFolder) -> None:
    first = Read(folder, kept)
    flip(files(kept)[0])
    again = Read(folder, kept)
    assert (again.tokens, again.written) == (first.tokens, first.written)
    assert Read(folder, kept).tokens < 20


def test_a_checkpoint_changed_in_place_is_noticed(folder: Path, kept: PrefixFolder) -> None:
    before = Read(folder, kept)
    weights = folder / "model.safetensors"
    status = weights.stat()
    data = bytearray(weights.read_bytes())
    data[-1000:] = bytes(1000)
    with weights.open("r+b") as file:
        file.write(data)
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (weights.stat().st_size, weights.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    after = Read(folder, kept)
    assert after.tokens == before.tokens
    assert after.written == Read(folder, None).written


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja"])
def test_so_is_a_change_of_the_other_files(folder: Path, kept: PrefixFolder, name: str) -> None:
    before = Read(folder, kept)
    path = folder / name
    text = path.read_text()
    path.write_text(text + "\n")
    assert Read(folder, kept).tokens >= before.tokens


def test_a_checkpoint_changed_while_it_is_loaded_is_kept_under_no_name(
    folder: Path, kept: PrefixFolder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = LoadedModel.__init__

    def changed_after(self: LoadedModel, *args: object, **options: object) -> None:
        init(self, *args, **options)  # type: ignore[arg-type]
        random_model(folder, seed=9)

    monkeypatch.setattr(LoadedModel, "__init__", changed_after)
    Read(folder, kept)
    assert files(kept) == []
    assert sum("was changed after it was loaded" in each.message for each in caplog.records) == 1


def test_the_files_not_used_for_longest_leave(folder: Path, kept: PrefixFolder) -> None:
    systems = [Message(role="system", content=f"{SYSTEM.text} {number}") for number in range(3)]
    Read(folder, kept, system=systems[0])
    size = files(kept)[0].stat().st_size
    two = PrefixFolder(kept.path, int(2.5 * size))
    Read(folder, two, system=systems[1])
    for path, age in zip(sorted(files(kept), key=lambda each: each.stat().st_mtime_ns), (200, 100), strict=True):
        os.utime(path, (1_700_000_000 - age,) * 2)
    assert Read(folder, two, system=systems[0]).tokens < 20, "the older one is used"
    Read(folder, two, system=systems[2])
    assert len(files(kept)) == 2
    assert [Read(folder, PrefixFolder(kept.path, 10), system=each).tokens < 20 for each in systems] == [
        True,
        False,
        True,
    ]
    assert len(files(kept)) == 2, "one that is larger than all may be pushes none out"


def test_a_full_disk_costs_a_line_and_not_the_plan(
    folder: Path, kept: PrefixFolder, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        first = Read(folder, kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == [
        f"a prefix of 0 MB is not kept in {kept.path}: File too large"
    ]
    assert first.written == Read(folder, None).written
    assert [each.name for each in kept.path.iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_made_costs_a_line(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    Read(folder, PrefixFolder(tmp_path / "file" / "prefixes", BYTES))
    assert sum("is not kept in" in each.message for each in caplog.records) == 1


def in_children(count: int, act: Callable[[], object]) -> list[int]:
    """Runs ``act`` in ``count`` processes at once; returns how each ended."""
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            try:
                act()
            finally:
                os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_a_kill_while_it_is_written_leaves_nothing_that_is_loaded(
    folder: Path, kept: PrefixFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Read(folder, kept)
    data = files(kept)[0].read_bytes()
    path = files(kept)[0]
    path.unlink()

    def killed_before_the_name() -> None:
        monkeypatch.setattr(os, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        write_whole(path, data[: len(data) // 2])

    assert in_children(1, killed_before_the_name) == [-signal.SIGKILL]
    assert files(kept) == []
    assert len(list(kept.path.glob("*.unfinished"))) == 1
    again = Read(folder, kept)
    assert (again.tokens, again.written) == (first.tokens, first.written)
    assert list(kept.path.glob("*.unfinished")) == [], "the next who writes clears it away"


def test_processes_that_write_at_once(once: Read, kept: PrefixFolder) -> None:
    saver, cache = saving_to(once, kept), cache_of(once)
    assert in_children(4, lambda: saver.save(once.ids, cache)) == [0] * 4
    assert len(files(kept)) == 1
    assert saver.load(once.ids, torch.float32, "cpu") is not None


def test_a_model_with_a_sliding_window_is_kept_in_memory_alone(tmp_path: Path, kept: PrefixFolder) -> None:
    folder = random_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"]}
    (folder / "config.json").write_text(json.dumps(config))
    read = Read(folder, kept)
    assert read.tokens > 100
    assert not kept.path.exists()


def test_a_large_file_that_changes_in_place_has_another_stamp(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(source, "SAMPLE_BYTES", 8)
    assert source.model_stamp(folder) is None, "it was changed just now, and may change again unnoticed"
    monkeypatch.setattr(source, "SETTLED_S", 0.0)
    before = source.model_stamp(folder)
    assert before is not None
    assert source.model_stamp(folder) == before
    weights = folder / "model.safetensors"
    status = weights.stat()
    with weights.open("r+b") as file:
        file.seek(50_001)
        file.write(b"\x7f")
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.model_stamp(folder) not in (None, before)
    assert source.model_stamp(folder / "away") is None


def test_another_precision_other_tokens_and_other_libraries_have_other_files(
    once: Read, kept: PrefixFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver, ids = saving_to(once, kept), once.ids
    saver.save(ids, cache_of(once))
    packed = copy.copy(saver)
    packed._how = "cpu float32 int8"
    assert packed.load(ids, torch.float32, "cpu") is None
    assert saver.load(ids[:-1], torch.float32, "cpu") is None
    with monkeypatch.context() as patched:
        patched.setattr(torch, "__version__", "2.99.0")
        assert saver.load(ids, torch.float32, "cpu") is None
    assert saver.load(ids, torch.float32, "cpu") is not None
    assert len(files(kept)) == 1, "none of them is damage"
