import json
from pathlib import Path

import pytest

from conductor_core.chat.messages import Conductor, ParentPlan, PlanFinished, PlanRequest, TextDelta, WorkerSpec
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.conductors.prompts import short_prompt
from conductor_core.conductors.roles import numbering
from conductor_core.errors import PromptOverflows, UnknownConductor
from conductor_core.settings import Settings
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import validate
from tests.support.tiny_models import random_model

AGENTS = tuple(WorkerSpec(name=f"w{i}", provider="rehearsal", model="m", description=f"kind {i}") for i in range(4))


LONGEST = 3_800
"""More tokens than the grammar allows a random model to write in three steps."""


async def write(conductor: Conductor, request: PlanRequest) -> tuple[str, PlanFinished]:
    pieces = [piece async for piece in conductor.write(request)]
    assert isinstance(pieces[-1], PlanFinished)
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)), pieces[-1]


def style(folder: Path, **config: object) -> Path:
    (folder / "conductor.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [
        style(random_model(tmp_path_factory.mktemp("model"), seed=seed), prompt="short", temperature=float(seed))
        for seed in range(2)
    ]


@pytest.mark.parametrize("which", [0, 1])
async def test_random_weights_write_valid_plans(models: list[Path], which: int) -> None:
    conductor = open_conductor(str(models[which]), Settings(plan_max_tokens=LONGEST))
    request = PlanRequest(task="Task: größer?", agents=AGENTS[: which + 1], max_steps=3)
    text, finished = await write(conductor, request)
    assert finished.finish_reason == "stop"
    parsed = parse_completion(text)
    checked = validate(parsed, numbering(request.agents), max_steps=3)
    assert not checked.faults
    assert checked.workflow is not None
    assert 1 <= len(checked.workflow.steps) <= 3


async def test_the_full_prompt_and_its_kept_prefix(tmp_path: Path) -> None:
    conductor = open_conductor(str(random_model(tmp_path, context=8192)), Settings(plan_max_tokens=LONGEST))
    request = PlanRequest(task="What is 17 * 24?", agents=AGENTS, max_steps=1)
    first, again = await write(conductor, request), await write(conductor, request)
    assert first == again
    assert first[1].usage.input_tokens > 1000
    assert not parse_completion(first[0]).faults


async def test_unconstrained_writing_is_the_models_own(models: list[Path]) -> None:
    conductor = open_conductor(str(models[0]), Settings(constrained=False, plan_max_tokens=40))
    text, finished = await write(conductor, PlanRequest(task="t", agents=AGENTS))
    assert not conductor.info.constrained
    assert parse_completion(text).faults
    assert finished.finish_reason in ("stop", "length")


async def test_a_second_attempt_differs_from_the_first(models: list[Path]) -> None:
    conductor = open_conductor(str(models[0]), Settings(plan_max_tokens=200))
    request = PlanRequest(task="t", agents=AGENTS)
    first, _ = await write(conductor, request)
    second, _ = await write(conductor, request.model_copy(update={"rejected": ("No.",)}))
    assert first != second


async def test_a_recursion_may_name_the_conductor_or_stop(models: list[Path]) -> None:
    conductor = open_conductor(str(models[1]), Settings(plan_max_tokens=LONGEST))
    parent = ParentPlan(plan="model_id = [0]", last_response="408")
    seen: set[int | str | None] = set()
    for seed in range(12):
        request = PlanRequest(task="t", agents=AGENTS[:1], allow_recursion=True, parent=parent, max_steps=1, seed=seed)
        parsed = parse_completion((await write(conductor, request))[0])
        assert parsed.is_stop or not validate(parsed, numbering(AGENTS[:1]), max_steps=1, allow_recursion=True).faults
        seen |= {"stop"} if parsed.is_stop else {step.agent for step in parsed.steps or ()}
        if len(seen) > 1:
            break
    assert len(seen) > 1


def test_the_recorded_prompt_is_the_one_sent(models: list[Path]) -> None:
    request = PlanRequest(task="t", agents=AGENTS)
    (message,) = open_conductor(str(models[0]), Settings()).messages(request)
    assert message.content == short_prompt(request)


def test_says_where_it_runs_before_it_is_loaded(models: list[Path]) -> None:
    info = open_conductor(str(models[0]), Settings()).info
    assert (info.kind, info.model, info.device, info.dtype) == ("local", models[0].name, "cpu", "float32")


async def test_a_prompt_beyond_the_context_is_one_clear_line(tmp_path: Path) -> None:
    conductor = open_conductor(str(random_model(tmp_path, context=256)), Settings())
    with pytest.raises(PromptOverflows, match="reads 256 at most"):
        await write(conductor, PlanRequest(task="t", agents=AGENTS))


@pytest.mark.parametrize("text", ['{"prompt": "long"}', '{"colour": 1}', "[]", "{", '{"temperature": -1}'])
def test_a_conductor_json_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    folder = random_model(tmp_path)
    (folder / "conductor.json").write_text(text)
    with pytest.raises(UnknownConductor, match=r"conductor\.json cannot be"):
        open_conductor(str(folder), Settings())


def test_a_phrase_book_of_another_version_is_refused_by_its_missing_rules(tmp_path: Path) -> None:
    folder = random_model(tmp_path)
    (folder / "conductor.json").write_text("{}")
    rules = ["usual1", "opening1", "again", "done"]
    (folder / "phrases.gbnf").write_text("".join(f'{rule} ::= "Solve it"\n' for rule in rules))
    with pytest.raises(
        UnknownConductor, match=r"lacks the rules task_head1, usual_opening1, .*, stop_thought: .* train it again"
    ):
        open_conductor(str(folder), Settings())
