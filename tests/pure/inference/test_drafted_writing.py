"""With drafts a model writes what it writes without, token for token, in fewer passes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Message, PlanRequest, Sampling, WorkerSpec
from conductor_core.conductors.catalogue import TINY_FOLDER, open_conductor
from conductor_core.conductors.grammar import PlanBudget, PlanShape, plan_grammar
from conductor_core.conductors.local import LocalConductor
from conductor_core.inference import speculative
from conductor_core.inference.drafts import LONGEST_WITH_DRAFT, PassTimes
from conductor_core.inference.generation import Generation, Written
from conductor_core.inference.model import LoadedModel
from conductor_core.inference.source import inspect_folder
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.settings import Settings
from tests.support.tiny_models import random_model

PLAN = {"grammar": plan_grammar(PlanShape(choices=(0, 1, 2), max_steps=3)), "forcing": PlanBudget(3)}
KINDS: dict[str, dict[str, object]] = {
    "free": {},
    "plan": PLAN,
    "digits": {"grammar": 'root ::= "[" [0-9]+ ", " [0-9] "]"\n'},
    "repeats": {"grammar": 'root ::= ("Solve {question}. " | "größer 😀 als zuvor, ")+ [a-z] "."\n'},
}
WORDS = ("Solve {question}", "model_id = [0, 1, 2]", "größer als zuvor", "7 7 7 7 7 7", "the task", "[0-9, 1, 0-9, 1]")
SAMPLINGS = st.one_of(
    st.just(Sampling()),
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.3, 1.0, 2.0]),
        top_p=st.sampled_from([0.7, 1.0]),
        top_k=st.sampled_from([0, 5]),
    ),
)


ROW_PASS = speculative.row_pass


class EverySize(PassTimes):
    """Passes that always take the same: every guess is worth reading."""

    def __init__(self, longest: int = LONGEST_WITH_DRAFT) -> None:
        super().__init__([1.0] * longest)

    def took(self, tokens: int, seconds: float) -> None:
        """Learns nothing."""


def eager(folder: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """A model that reads every guess. Where no pass of several tokens is even, a pass reads them one by one."""
    model = LoadedModel(inspect_folder(folder))
    model.model.to(dtype)
    with torch.inference_mode():
        even = speculative.try_passes(model.model)
    if even is None:
        pytest.MonkeyPatch().setattr(speculative, "row_pass", one_by_one)
        even = speculative.Evenness(1, 16, EverySize())
    model.drafting.even, model.drafting.tried = even._replace(times=EverySize()), True
    return model


def one_by_one(model: object, cache: object, tokens: list[int], wanted: int, _: int) -> torch.Tensor:
    rows = [ROW_PASS(model, cache, [token], 1, 1) for token in tokens]  # type: ignore[arg-type]
    return torch.cat(rows)[-wanted:]


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return eager(random_model(tmp_path_factory.mktemp("model")), request.param)


@pytest.fixture(scope="module")
def shipped() -> LoadedModel:
    return eager(TINY_FOLDER)


def write(model: LoadedModel, generation: Generation) -> tuple[list[str], Written | None]:
    pieces: list[str] = []
    return pieces, model.generate(generation, pieces.append, lambda: False)


def with_and_without(model: LoadedModel, generation: Generation) -> tuple[list[str], Written | None]:
    """Returns what is written with drafts, which is what is written without: pieces, choices and counts."""
    drafted = write(model, generation)
    assert drafted == write(model, replace(generation, drafts=False))
    return drafted


def counting(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list to which each pass by rows adds its number of tokens."""
    passes: list[int] = []
    original = speculative.row_pass

    def counted(model: object, cache: object, tokens: list[int], *others: int) -> torch.Tensor:
        passes.append(len(tokens))
        return original(model, cache, tokens, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(speculative, "row_pass", counted)
    return passes


@settings(max_examples=12, deadline=None)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
    kind=st.sampled_from(sorted(KINDS)),
    sampling=SAMPLINGS,
    seed=st.integers(0, 2**31),
    max_tokens=st.integers(1, 48),
)
def test_any_completion_is_the_same_with_drafts(
    model: LoadedModel, words: list[str], kind: str, sampling: Sampling, seed: int, max_tokens: int
) -> None:
    generation = Generation(
        "\n".join(words), max_tokens, sampling, seed, keep_choices=True, **KINDS[kind]  # type: ignore[arg-type]
    )  # fmt: skip
    with_and_without(model, generation)


def plan_of(task: str) -> Generation:
    conductor = open_conductor("tiny", Settings())
    assert isinstance(conductor, LocalConductor)
    request = PlanRequest(task=task, agents=rehearsal_specs(), max_steps=5, allow_recursion=True)
    return conductor._generation(request)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9)], ids=["greedy", "sampled"])
def test_a_plan_of_the_shipped_conductor_is_the_same(shipped: LoadedModel, sampling: Sampling) -> None:
    for task in ("What is 17 * 24?", "Compare two offers. Get several opinions."):
        with_and_without(shipped, replace(plan_of(task), sampling=sampling, seed=4))


def test_a_plan_like_an_earlier_one_takes_few_passes(shipped: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("How many legs have seven spiders?")
    passes = counting(shipped, monkeypatch)
    without = write(shipped, replace(plan, drafts=False))
    undrafted = len(passes)
    assert write(shipped, plan) == without
    passes.clear()
    assert write(shipped, plan) == without
    assert len(passes) < 0.6 * undrafted


def test_a_repeating_model_needs_a_pass_for_several_tokens(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = counting(model, monkeypatch)
    _, written = write(model, Generation("7 7 7", max_tokens=60, grammar='root ::= ("ab" | "ac")+ "d"\n'))
    assert written is not None
    assert written.completion_tokens == 60
    assert len(passes) < 40


def test_no_pass_has_more_tokens_than_are_even(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with packed weights. What the grammar forces is then read in several passes."""
    assert model.drafting.even is not None
    monkeypatch.setattr(model.drafting, "even", model.drafting.even._replace(most=5, times=EverySize(5)))
    passes = counting(model, monkeypatch)
    with_and_without(model, Generation("7 7 7", max_tokens=60, **PLAN))  # type: ignore[arg-type]
    assert max(passes) == 5


def test_a_draft_ends_where_the_text_may_end(model: LoadedModel) -> None:
    """The prompt says twice what the grammar allows once."""
    generation = Generation('abc"abc"', max_tokens=30, grammar='root ::= "ab" [a-z] | "ab" [a-z] "x"\n')
    pieces, written = with_and_without(model, generation)
    assert written is not None
    assert len("".join(pieces)) in (3, 4)


def test_drafts_stay_within_the_context(tmp_path: Path) -> None:
    model = eager(random_model(tmp_path, context=64))
    _, written = with_and_without(model, Generation("7 7 7 7", max_tokens=500))
    assert written is not None
    assert sum(written[1:3]) <= 64


def test_cancelling_stops_at_the_next_token(model: LoadedModel) -> None:
    pieces: list[str] = []
    cancelled: Callable[[], bool] = lambda: len(pieces) >= 3  # noqa: E731
    assert model.generate(Generation("7 7 7 7 7 7", max_tokens=50), pieces.append, cancelled) is None
    assert len(pieces) == 3


def test_a_model_whose_passes_are_not_even_writes_without_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LoadedModel(inspect_folder(random_model(tmp_path)))
    original = speculative.row_pass

    def uneven(model: object, cache: object, tokens: list[int], *others: int) -> torch.Tensor:
        return original(model, cache, tokens, *others) + len(tokens) * 1e-6  # type: ignore[arg-type]

    monkeypatch.setattr(speculative, "row_pass", uneven)
    with torch.inference_mode():
        assert speculative.try_passes(model.model) is None
    passes = counting(model, monkeypatch)
    assert write(model, Generation("7 7 7", max_tokens=9))[1] is not None
    passes.clear()
    assert write(model, Generation("7 7 7", max_tokens=9))[1] is not None
    assert not passes


def test_a_model_with_an_attention_of_its_own_writes_without_drafts(tmp_path: Path) -> None:
    model = LoadedModel(inspect_folder(random_model(tmp_path)))
    model.model.set_attn_implementation("eager")
    assert speculative.try_passes(model.model) is None


def test_a_model_that_sees_a_window_of_the_text_writes_without_drafts(tmp_path: Path) -> None:
    folder = random_model(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    windows = {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["sliding_attention"] * 2}
    (folder / "config.json").write_text(json.dumps(config | windows))
    model = LoadedModel(inspect_folder(folder))
    with torch.inference_mode():
        assert speculative.try_passes(model.model) is None
    _, written = write(model, Generation("7 7 7 7 7 7 7 7 7 7 7 7", max_tokens=30))
    assert written is not None


def test_the_setting_turns_drafts_off() -> None:
    worker = WorkerSpec(name="a", provider="rehearsal", model="a", description="")
    request = PlanRequest(task="Plan it.", agents=(worker,), max_steps=2)
    for chosen in (True, False):
        conductor = open_conductor("tiny", Settings(drafts=chosen))
        assert isinstance(conductor, LocalConductor)
        assert conductor._generation(request).drafts is chosen


def test_a_prompt_of_messages_is_a_place_to_look(model: LoadedModel) -> None:
    prompt = (Message(role="system", content="You plan. " * 30), Message(role="user", content="Plan. Plan. Plan."))
    with_and_without(model, Generation(prompt, max_tokens=30, static_messages=1))
