"""Completions of one batch are those that the model writes one by one."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from conductor_core.chat.messages import Sampling
from conductor_core.conductors.grammar import PlanBudget, PlanShape, plan_grammar
from conductor_core.inference import model as batching
from conductor_core.inference.generation import Done, Generation, InferenceError, PromptTooLong
from conductor_core.inference.model import Ending, LoadedModel, Wanted, generate_together
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


def write_together(model: LoadedModel, generations: Sequence[Generation]) -> list[tuple[str, Ending | None]]:
    texts: list[list[str]] = [[] for _ in generations]
    endings: list[Ending | None] = [None] * len(generations)

    def wanted(place: int, generation: Generation) -> Wanted:
        return Wanted(generation, texts[place].append, lambda: False, lambda ending: endings.__setitem__(place, ending))

    generate_together(model, [wanted(place, each) for place, each in enumerate(generations)])
    return [("".join(text), ending) for text, ending in zip(texts, endings, strict=True)]


def write_alone(model: LoadedModel, generation: Generation) -> tuple[str, Ending | None]:
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
    seen: list[str] = []
    heard: list[Ending] = []
    generate_together(
        model,
        [
            Wanted(Generation("one", max_tokens=3000), seen.append, lambda: len(seen) >= 3, heard.append),
            Wanted(Generation("two", max_tokens=9), lambda piece: None, lambda: False, heard.append),
        ],
    )
    assert 3 <= len(seen) < 10
    (ending,) = heard
    assert isinstance(ending, tuple)
    assert (ending[0], ending[2]) == ("length", 9)


async def test_calls_that_wait_for_a_small_model_are_answered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = str(random_model(tmp_path))
    sizes: list[int] = []
    original = batching.generate_together

    def counting(model: LoadedModel, wanted: Sequence[Wanted]) -> None:
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
