from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import Chunk, Finished, Message, TextDelta, WorkerSpec
from conductor_core.errors import (
    BadInput,
    PoolInvalid,
    WorkerModelUnknown,
    WorkerModelUnusable,
    WorkerOutputTooLarge,
    WorkerRefused,
)
from conductor_core.settings import Settings
from conductor_core.workers.pool import LocalWorker, open_worker
from tests.support.tiny_models import random_model

MESSAGES = (Message(role="user", content="What is 17 * 24?"),)


def spec(folder: Path, **options: Any) -> WorkerSpec:
    return WorkerSpec(name="here", provider="local", model=str(folder), **options)


async def answer(worker: LocalWorker) -> list[Chunk]:
    return [chunk async for chunk in worker.answer(MESSAGES)]


async def test_streams_an_answer_and_its_usage(tmp_path: Path) -> None:
    *texts, last = await answer(LocalWorker(spec(random_model(tmp_path), params={"max_tokens": 12})))
    assert texts
    assert all(isinstance(chunk, TextDelta) for chunk in texts)
    assert isinstance(last, Finished)
    assert last.finish_reason == "length"
    assert last.usage is not None
    assert last.usage.output_tokens == 12
    assert last.usage.input_tokens > 10


async def test_can_be_left_in_the_middle(tmp_path: Path) -> None:
    worker = LocalWorker(spec(random_model(tmp_path), params={"max_tokens": 3900}))
    async with aclosing(worker.answer(MESSAGES)) as chunks:
        async for chunk in chunks:
            assert isinstance(chunk, TextDelta)
            break


async def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkerRefused, match=r"worker here: .* no config\.json") as caught:
        await answer(LocalWorker(spec(tmp_path)))
    assert type(caught.value) is WorkerModelUnusable, "it says nothing about the length of the question"


async def test_a_model_that_is_on_no_machine_of_ours_is_told_apart_from_one_that_is_broken() -> None:
    with pytest.raises(WorkerModelUnknown, match="nobody/nothing is not on this machine"):
        await answer(LocalWorker(spec(Path("nobody/nothing"))))


def test_a_simulated_worker_has_no_provider_to_open() -> None:
    simulated = WorkerSpec(name="solver", provider="rehearsal", model="solver")
    with pytest.raises(BadInput, match="worker solver: a rehearsal worker is simulated and has no provider to open"):
        open_worker(simulated, Settings())


async def test_output_is_bounded(tmp_path: Path) -> None:
    worker = LocalWorker(spec(random_model(tmp_path), params={"max_tokens": 100}, max_output_bytes=20))
    with pytest.raises(WorkerOutputTooLarge, match="20 bytes"):
        await answer(worker)


def test_an_unknown_parameter_is_named(tmp_path: Path) -> None:
    with pytest.raises(PoolInvalid, match=r"params: beams: unknown key; known are temperature, top_p"):
        LocalWorker(spec(tmp_path, params={"beams": 4}))
