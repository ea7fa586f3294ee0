import asyncio
import subprocess
import sys
from contextlib import aclosing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.progress import Notify, Progress, watching
from conductor_core.inference import generation as generation_module
from conductor_core.inference import model as model_module
from conductor_core.inference import shared as shared_module
from conductor_core.inference.generation import Done, Generation, InferenceError, ModelUnavailable
from conductor_core.inference.shared import shared_model
from conductor_core.inference.source import ModelFiles, inspect_folder
from tests.support.eventually import eventually_async
from tests.support.tiny_models import random_model


async def collect(ref: str, generation: Generation) -> tuple[str, Done]:
    *pieces, done = [piece async for piece in shared_model(ref).stream(generation)]
    assert isinstance(done, Done)
    return "".join(str(piece) for piece in pieces), done


async def test_one_model_for_all_who_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = random_model(tmp_path / "model")
    (tmp_path / "alias").symlink_to(folder)
    loads: list[Path] = []
    original = model_module.LoadedModel.__init__

    def counting(self: model_module.LoadedModel, files: ModelFiles, notify: Notify, **options: Any) -> None:
        loads.append(files.folder)
        original(self, files, notify, **options)

    monkeypatch.setattr(model_module.LoadedModel, "__init__", counting)
    generation = Generation("model_id", max_tokens=8)
    answers = await asyncio.gather(*(collect(str(tmp_path / name), generation) for name in ("model", "alias") * 3))
    assert len(loads) == 1
    assert len(set(answers)) == 1


async def test_streams_piece_by_piece(tmp_path: Path) -> None:
    text, done = await collect(str(random_model(tmp_path)), Generation("model_id", max_tokens=8))
    assert text
    assert done.usage.output_tokens == 8
    assert done.finish_reason == "length"


def passes_of(ref: str) -> list[None]:
    """Gets an entry for each pass of the loaded model: a token takes one."""
    loaded = shared_model(ref).loaded
    assert loaded is not None
    passes: list[None] = []
    loaded.model.register_forward_hook(lambda *_: passes.append(None))
    return passes


async def test_closing_the_stream_stops_the_model(tmp_path: Path) -> None:
    ref = str(random_model(tmp_path))
    await collect(ref, Generation("model_id", max_tokens=2))
    passes = passes_of(ref)
    async with aclosing(shared_model(ref).stream(Generation("model_id", max_tokens=3900))) as pieces:
        async for _ in pieces:
            break
    _, done = await collect(ref, Generation("model_id", max_tokens=2))
    assert done.usage.output_tokens == 2
    assert len(passes) < 3900


async def test_a_call_cancelled_while_waiting_never_runs(tmp_path: Path) -> None:
    ref = str(random_model(tmp_path))
    await collect(ref, Generation("model_id", max_tokens=2))
    passes = passes_of(ref)
    first = asyncio.create_task(collect(ref, Generation("model_id", max_tokens=100)))
    second = asyncio.create_task(collect(ref, Generation("x" * 10, max_tokens=3900)))
    await asyncio.sleep(0)
    second.cancel()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    await collect(ref, Generation("model_id", max_tokens=2))
    assert len(passes) < 200


async def test_a_model_that_cannot_be_loaded_says_so_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match=r"no config\.json"):
            await collect(str(tmp_path), Generation("x", max_tokens=2))


async def test_an_unforeseen_failure_reaches_the_caller(tmp_path: Path) -> None:
    ref = str(random_model(tmp_path))
    with pytest.raises(InferenceError, match="failed while writing"):
        await collect(ref, Generation("x", max_tokens=2, grammar="root ::= nonsense"))
    await collect(ref, Generation("x", max_tokens=2))


def test_naming_a_model_loads_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from conductor_core.inference.shared import shared_model; "
        f"shared_model({str(tmp_path)!r}).placement; "
        "import conductor_core.conductors.catalogue, conductor_core.workers.pool; "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


async def watched(ref: str, generation: Generation) -> list[Progress]:
    told: list[Progress] = []
    with watching(told.append):
        await collect(ref, generation)
    return told


async def test_it_says_how_far_it_is_with_loading_reading_and_writing(tmp_path: Path) -> None:
    ref = str(random_model(tmp_path))
    weights = inspect_folder(tmp_path).size_bytes
    told = await watched(ref, Generation("model_id " * 700, max_tokens=8))
    assert [phase for phase, _ in groupby(each.phase for each in told)] == ["loading", "reading", "writing"]
    loading = [each for each in told if each.phase == "loading"]
    assert (loading[0].done, loading[-1].done) == (0, loading[-1].total)
    assert 0.5 * weights < loading[-1].total <= weights
    reading = [each for each in told if each.phase == "reading"]
    assert reading[0].done == 0
    assert reading[-1].done == reading[-1].total > 512
    assert told[-1].total == 8
    writing = [each for each in told if each.phase == "writing"]
    assert (writing[0].done, writing[0].per_s) == (1, None), "the first token comes with the reading"
    assert all(each.per_s for each in writing[1:])
    again = await watched(ref, Generation("model_id", max_tokens=8))
    assert "loading" not in {each.phase for each in again}, "it is there"


async def test_nobody_has_to_watch_and_what_is_told_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = str(random_model(tmp_path))
    await collect(ref, Generation("model_id", max_tokens=2))
    monkeypatch.setattr(generation_module, "REPORT_EVERY_S", 3600.0)
    told = await watched(ref, Generation("model_id", max_tokens=300))
    assert len([each for each in told if each.phase == "writing"]) == 1


async def test_a_model_that_nobody_asks_leaves_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = str(random_model(tmp_path))
    model = shared_model(ref)
    model.idle_s = 0.05
    await collect(ref, Generation("model_id", max_tokens=2))
    await asyncio.sleep(0.2)
    assert model.loaded is not None, "a small one stays"
    monkeypatch.setattr(shared_module, "SMALL_PARAMETERS", 0)
    await collect(ref, Generation("model_id", max_tokens=2))
    await eventually_async(lambda: model.loaded is None)
    assert "loading" in {each.phase for each in await watched(ref, Generation("model_id", max_tokens=2))}


async def test_another_model_makes_one_leave_that_was_not_used_of_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_module, "SMALL_PARAMETERS", 0)
    refs = [str(random_model(tmp_path / name, seed=seed)) for seed, name in enumerate(("one", "two", "three"))]
    for ref in refs[:2]:
        await collect(ref, Generation("model_id", max_tokens=2))
    assert shared_model(refs[0]).loaded is not None, "a run's models follow each other"
    monkeypatch.setattr(shared_module, "OF_LATE_S", 0.0)
    await eventually_async(lambda: not any(shared_model(ref).busy for ref in refs))
    await collect(refs[2], Generation("model_id", max_tokens=2))
    assert [shared_model(ref).loaded is not None for ref in refs] == [False, False, True]
