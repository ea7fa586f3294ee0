"""Completions of one batch are those that the model writes one by one."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from conductor_core.chat.messages import Sampling
from conductor_core.conductors.grammar import PlanBudget, PlanShape, plan_grammar
from conductor_core.inference import model as batching
from conductor_core.inference.generation import Call, Done, Generation, InferenceError, PromptTooLong
from conductor_core.inference.model import LoadedModel, generate_together
from conductor_core.inference.shared import MOST_TOGETHER, shared_model
from conductor_core.inference.source import inspect_folder
from tests.support.tiny_models import random_model

SHAPE = PlanShape(choices=(0, 1, 2), max_steps=3)
PROMPTS = (
    "Plan it.",
    "x",
    "How long does it take to walk from here to there and back again?",
    "17 * 24 = ",
    "Ein Wort",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return LoadedModel(inspect_folder(random_model(tmp_path_factory.mktemp("model"))))


Ending = Done | Exception | None


def call_of(generation: Generation, text: list[str], endings: list[Ending], cancelled: threading.Event) -> Call:
    def notify(item: str | Done | Exception) -> None:
        text.append(item) if isinstance(item, str) else endings.append(item)

    return Call(generation, notify, cancelled, lambda _: None)


def write_together(model: LoadedModel, generations: Sequence[Generation]) -> list[tuple[str, Ending]]:
    texts: list[list[str]] = [[] for _ in generations]
    endings: list[list[Ending]] = [[] for _ in generations]
    calls = zip(generations, texts, endings, strict=True)
    generate_together(model, [call_of(*each, threading.Event()) for each in calls])
    return [("".join(text), ending) for text, (ending,) in zip(texts, endings, strict=True)]


def write_alone(model: LoadedModel, generation: Generation) -> tuple[str, Ending]:
    text: list[str] = []
    ending = model.generate(generation, text.append, lambda: False)
    return "".join(text), ending


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 24},
        {"max_tokens": 200, "grammar": plan_grammar(SHAPE), "forcing": PlanBudget(3)},
        {"max_tokens": 30, "sampling": Sampling(temperature=1.0, top_p=0.9), "seed": 3},
        {"max_tokens": 40, "grammar": 'root ::= "[" [0-9]+ ", " [0-9] "]"\n'},
    ],
    ids=["free", "plan", "sampled", "digits"],
)
def test_a_batch_writes_what_each_would_write_alone(model: LoadedModel, options: dict[str, object]) -> None:
    generations = [Generation(prompt, **options) for prompt in PROMPTS]  # type: ignore[arg-type]
    assert write_together(model, generations) == [write_alone(model, each) for each in generations]


def test_rows_may_be_of_different_kinds_and_lengths(model: LoadedModel) -> None:
    generations = [
        Generation("one", max_tokens=3),
        Generation("two", max_tokens=60, grammar=plan_grammar(SHAPE), forcing=PlanBudget(3)),
        Generation("three", max_tokens=17),
    ]
    assert write_together(model, generations) == [write_alone(model, each) for each in generations]


def test_what_fails_in_one_row_leaves_the_others_alone(tmp_path: Path) -> None:
    model = LoadedModel(inspect_folder(random_model(tmp_path, context=64)))
    good = Generation("model_id", max_tokens=5)
    bad, too_long, again = write_together(
        model,
        [Generation("x", max_tokens=5, grammar="root ::= nonsense"), Generation("word " * 200, max_tokens=5), good],
    )
    assert isinstance(bad[1], Exception)
    assert isinstance(too_long[1], PromptTooLong)
    assert again == write_alone(model, good)


def test_a_cancelled_row_ends_and_the_others_go_on(model: LoadedModel) -> None:
    heard: list[Ending] = []
    other = call_of(Generation("two", max_tokens=9), [], heard, threading.Event())
    stop, seen = threading.Event(), list[str]()

    def notify(item: str | Done | Exception) -> None:
        assert isinstance(item, str)
        seen.append(item)
        if len(seen) == 3:
            stop.set()

    generate_together(model, [Call(Generation("one", max_tokens=3000), notify, stop, lambda _: None), other])
    assert 3 <= len(seen) < 10
    (ending,) = heard
    assert isinstance(ending, Done)
    assert (ending.finish_reason, ending.usage.output_tokens) == ("length", 9)


async def test_calls_that_wait_for_a_small_model_are_answered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = str(random_model(tmp_path))
    sizes: list[int] = []
    original = batching.generate_together

    def counting(model: LoadedModel, wanted: Sequence[Call]) -> None:
        sizes.append(len(wanted))
        original(model, wanted)

    monkeypatch.setattr(batching, "generate_together", counting)

    async def ask(generation: Generation) -> tuple[str, Done]:
        *pieces, done = [piece async for piece in shared_model(ref).stream(generation)]
        assert isinstance(done, Done)
        return "".join(map(str, pieces)), done

    first = await ask(Generation("model_id", max_tokens=8))
    assert sizes == []
    answers = await asyncio.gather(*(ask(Generation("model_id", max_tokens=8)) for _ in range(MOST_TOGETHER + 5)))
    assert set(answers) == {first}
    assert sizes
    assert max(sizes) <= MOST_TOGETHER

    outcomes = await asyncio.gather(
        *(ask(Generation("x", max_tokens=4, grammar="root ::= nonsense" if n == 3 else None)) for n in range(6)),
        return_exceptions=True,
    )
    assert [isinstance(each, InferenceError) for each in outcomes] == [n == 3 for n in range(6)]
