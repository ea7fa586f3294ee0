"""A model stops within a part of a pass, and between two tensors while it is loaded; then it works as before."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conductor_core.chat.messages import Message
from conductor_core.chat.progress import Progress, watching
from conductor_core.inference import model as model_module
from conductor_core.inference.generation import Generation, Interrupted, Meter
from conductor_core.inference.hardware import place
from conductor_core.inference.model import LoadedModel
from conductor_core.inference.shared import shared_model
from conductor_core.inference.source import inspect_folder
from tests.support.tiny_models import random_model

SYSTEM = Message(role="system", content="You plan the steps. " * 20)
PART_S = 0.02
PROMPT = Generation((SYSTEM, Message(role="user", content="17 * 24")), max_tokens=5, static_messages=1)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """A model whose passes are watched as those of a large one are."""
    monkeypatch.setattr(model_module, "SMALL_PARAMETERS", 0)
    monkeypatch.setattr(model_module, "idle_threads", lambda: 1)
    return LoadedModel(inspect_folder(random_model(tmp_path / "model")))


def after_each_product(model: LoadedModel, act: Callable[[], object]) -> None:
    for part in model.model.modules():
        if isinstance(part, torch.nn.Linear):
            part.register_forward_hook(lambda *_: act() and None)


def stop_after(count: int) -> Callable[[], bool]:
    looks: list[None] = []

    def cancelled() -> bool:
        looks.append(None)
        return len(looks) > count

    return cancelled


def write(model: LoadedModel, cancelled: Callable[[], bool] = lambda: False) -> str:
    pieces: list[str] = []
    model.generate(PROMPT, pieces.append, cancelled)
    return "".join(pieces)


@pytest.mark.parametrize("looks", [1, 30, 90])
def test_a_pass_is_left_between_two_of_its_parts_and_leaves_nothing_broken(watched: LoadedModel, looks: int) -> None:
    """The looks fall into the reading of the prefix, of the task, and into the writing."""
    products: list[None] = []
    after_each_product(watched, lambda: products.append(None))
    with pytest.raises(Interrupted):
        write(watched, stop_after(looks))
    assert len(products) <= looks, "it looked before each product"
    other = LoadedModel(watched.files)
    assert write(watched) == write(other)


def test_reading_tells_how_far_a_single_pass_is_how_quick_and_how_long(watched: LoadedModel) -> None:
    after_each_product(watched, lambda: time.sleep(PART_S))
    told: list[Progress] = []
    watched.generate(PROMPT, lambda _: None, lambda: False, told.append)
    reading = [each for each in told if each.phase == "reading"]
    done = [each.done for each in reading]
    assert done == sorted(done)
    assert len(set(done)) > 10
    assert reading[-1].done == reading[-1].total
    half = next(each for each in reading if each.per_s and each.done > each.total / 2)
    assert half.per_s is not None
    assert half.left_s == pytest.approx((half.total - half.done) / half.per_s, rel=0.1, abs=2 / half.per_s)


def test_a_later_reading_has_an_estimate_from_its_beginning(
    watched: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_module, "PREFILL_CHUNK", 64)
    after_each_product(watched, lambda: time.sleep(PART_S))
    plan = Generation(PROMPT.prompt, max_tokens=5, static_messages=1, usual_tokens=4)
    watched.generate(plan, lambda _: None, lambda: False)
    told: list[Progress] = []
    watched.generate(plan, lambda _: None, lambda: False, told.append)
    assert told[0].phase == "reading"
    assert told[0].left_s is not None
    assert told[0].left_s > 0


def test_loading_ends_between_two_tensors(tmp_path: Path) -> None:
    told: list[Progress] = []
    with pytest.raises(Interrupted):
        LoadedModel(inspect_folder(random_model(tmp_path)), told.append, cancelled=stop_after(3))
    assert len(told) == 3


def test_a_graphics_card_computes_without_cudnn_whose_attention_does_not_repeat_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[bool] = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", chosen.append)
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, _device: module)
    files = inspect_folder(random_model(tmp_path))
    card = replace(place(files.parameters), device="cuda")
    model_module.load_weights(files, card, lambda _: None, lambda: False)
    assert chosen == [False]


@pytest.fixture
def slow_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Meter.at

    def slowly(self: Meter, done: float) -> None:
        time.sleep(PART_S)
        at(self, done)

    monkeypatch.setattr(Meter, "at", slowly)


@pytest.mark.usefixtures("slow_loading")
async def test_a_model_that_nobody_waits_for_is_loaded_no_further(tmp_path: Path) -> None:
    model = shared_model(str(random_model(tmp_path)))
    begun = asyncio.Event()

    async def ask() -> str:
        with watching(lambda _: begun.set()):
            async with aclosing(model.stream(PROMPT)) as pieces:
                return "".join([str(piece) async for piece in pieces if isinstance(piece, str)])

    first = asyncio.create_task(ask())
    await asyncio.wait_for(begun.wait(), 20)
    first.cancel()
    async with asyncio.timeout(20):
        while model.busy:  # noqa: ASYNC110 - its thread brings it about
            await asyncio.sleep(0.005)
    assert model.loaded is None
    begun.clear()
    first, second = asyncio.create_task(ask()), asyncio.create_task(ask())
    await asyncio.wait_for(begun.wait(), 20)
    first.cancel()
    assert await asyncio.wait_for(second, 20), "somebody still waits, so the loading goes on"
    assert first.cancelled()
