"""A tiered model: easy requests go to one cheap worker, the rest to the Conductor, and each run says why."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import AnswerRules, Message, ToolSpec, WorkerSpec
from conductor_core.errors import ModelsInvalid
from conductor_core.run.request import TierChoice
from conductor_core.run.trace import RunTrace
from conductor_core.serving import served_models
from conductor_core.serving.outcome import Outcome
from conductor_core.serving.served_models import ServedModels
from conductor_core.serving.turns import Turns
from tests.loopback.serving.test_turns import World
from tests.support.fakes import Reply
from tests.support.gated_runs import FAST
from tests.support.tiers import EASY, HARD, fitted, written

TOML = '[[model]]\nid = "tiered"\n[model.tiers]\nfile = "easy.json"\nworker = "{}"\nthreshold = {}\n'
EASY_ONE, HARD_ONE = EASY.format(4321), HARD.format(4321)


class Tiered(World):
    folder: Path

    def serve(self, folder: Path, threshold: float = 0.7) -> None:
        (folder / "models.toml").write_text(TOML.format("a", threshold))
        self.turns = Turns(self.host, self.store, FAST, ServedModels.read(FAST, folder / "models.toml"))

    async def asked(self, text: str, *before: Message, **fields: Any) -> tuple[Outcome, RunTrace]:
        self.workers["a"].then(Reply("from a"))
        self.workers["b"].then(Reply("a draft"))
        outcome = await self.ask(*before, text, **{"model": "tiered", "workflow": None} | fields)
        return outcome, self.store.read(outcome.run_id)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiered]:
    specs = tuple(WorkerSpec(name=name, provider="rehearsal", model="rehearsal/writer") for name in ("a", "b"))
    monkeypatch.setattr("conductor_core.serving.served_models.read_specs", lambda *_: specs)
    world = Tiered(f"sqlite:///{tmp_path / 'runs.sqlite3'}", monkeypatch)
    written(tmp_path)
    world.serve(tmp_path)
    yield world
    world.close()


def tier_of(trace: RunTrace) -> TierChoice:
    assert trace.tier is not None
    return trace.tier


async def test_an_easy_request_is_one_step_of_the_cheap_worker_and_says_so(world: Tiered) -> None:
    outcome, trace = await world.asked(EASY_ONE)
    tier = tier_of(trace)
    assert (outcome.text, trace.conductor, [step.agent for step in trace.walk()]) == ("from a", None, ["a"])
    assert trace.step_at((0,)).messages[-1].text == EASY_ONE, "the worker is told the request itself"
    assert (tier.easy, tier.worker, tier.threshold, tier.reason) == (True, "a", 0.7, "")
    assert tier.probability >= 0.7
    assert len(tier.classifier_sha256) == 64
    assert outcome.conductor["tier"] == tier.model_dump()
    assert world.turns.recorded(outcome.run_id, 0) == outcome


async def test_any_other_request_is_planned_by_the_conductor(world: Tiered) -> None:
    _, trace = await world.asked(HARD_ONE)
    assert [step.agent for step in trace.walk()] == ["b", "a"]
    assert (tier_of(trace).easy, tier_of(trace).reason) == (False, "")
    assert tier_of(trace).probability < 0.7


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": (ToolSpec(name="weather", parameters={"type": "object"}),)}, "tools"),
        ({"rules": AnswerRules(form="json")}, "format"),
        ({"effort": "high"}, "effort"),
        ({"excluded": ()}, ""),
    ],
)
async def test_what_text_cannot_tell_goes_to_the_conductor(
    world: Tiered, fields: dict[str, object], reason: str
) -> None:
    if reason == "format":
        world.workers["b"].then(Reply("{}"))
        world.workers["a"].then(Reply("{}"))
    _, trace = await world.asked(EASY_ONE, **fields)
    assert (tier_of(trace).reason, tier_of(trace).easy) == (reason, not reason)


async def test_a_long_conversation_goes_to_the_conductor(world: Tiered) -> None:
    turns = [Message(role=role, content="hm") for role in ("user", "assistant") * 3]
    _, trace = await world.asked(EASY_ONE, *turns)
    assert tier_of(trace).reason == "conversation"


async def test_a_plan_of_the_client_and_a_model_without_tiers_are_no_choice(world: Tiered) -> None:
    outcome, trace = await world.asked(EASY_ONE, model="fugu")
    assert trace.tier is None
    assert "tier" not in outcome.conductor


@pytest.mark.parametrize("text", ["\x00" * 50, "🙂" * 3000, "a" * 1_000_000, "[[model]] {question} <b>", "؟" * 40])
async def test_hostile_texts_are_decided_like_others(world: Tiered, text: str) -> None:
    outcome, trace = await world.asked(text)
    assert outcome.status == "completed"
    assert 0 <= tier_of(trace).probability <= 1


async def test_a_replaced_file_decides_the_next_request_and_a_damaged_one_is_said(
    world: Tiered, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, before = await world.asked(EASY_ONE)
    file = tmp_path / "easy.json"
    other = fitted().model_copy(update={"bias": -50.0})
    file.write_bytes(other.write())
    _, after = await world.asked(EASY_ONE)
    assert (tier_of(before).easy, tier_of(after).easy) == (True, False)
    assert tier_of(before).classifier_sha256 != tier_of(after).classifier_sha256
    with caplog.at_level(logging.WARNING, served_models.__name__):
        file.write_text("{}")
        _, damaged = await world.asked(EASY_ONE)
        os.unlink(file)
        _, gone = await world.asked(EASY_ONE)
        await world.asked(EASY_ONE)
    assert tier_of(damaged) == tier_of(gone) == tier_of(after)
    said = [record.getMessage() for record in caplog.records if record.name == served_models.__name__]
    assert len(said) == 2, "each fault is said once"
    assert "it is not what conductor tiers fit writes" in said[0]
    assert "no such file" in said[1]


@pytest.mark.parametrize(
    ("tiers", "place", "told"),
    [
        ('file = "gone.json"\nworker = "a"\nthreshold = 0.5', "line 3, model[0].tiers.file", "no such file"),
        ('file = "models.toml"\nworker = "a"\nthreshold = 0.5', "line 3, model[0].tiers.file", "not JSON"),
        ('file = "easy.json"\nworker = "b"\nthreshold = 0.5', "line 3, model[0].tiers.worker", 'for the worker "a"'),
        ('file = "easy.json"\nworker = "a"\nthreshold = 1.5', "line 3, model[0].tiers.threshold", "from 0 to 1"),
        ('file = "easy.json"\nworker = "a"\nthreshold = nan', "line 3, model[0].tiers.threshold", "from 0 to 1"),
        ('file = "easy.json"\nworker = "a"', "line 3, model[0].tiers.threshold", "missing"),
        ('file = "easy.json"\nworker = "a"\nthreshold = 1\nwhat = 1', "line 3, model[0].tiers.what", "unknown key"),
        ("file = 3", "line 3, model[0].tiers.file", "the path of a file"),
    ],
)
def test_a_fault_of_the_tiers_keeps_the_server_from_starting(tmp_path: Path, tiers: str, place: str, told: str) -> None:
    written(tmp_path)
    file = tmp_path / "models.toml"
    file.write_text(f'[[model]]\nid = "tiered"\n[model.tiers]\n{tiers}\n')
    with pytest.raises(ModelsInvalid) as caught:
        ServedModels.read(FAST, file)
    fault = next(each for each in caught.value.faults if each.startswith(place))
    assert told in fault


def test_a_worker_that_the_pool_lacks_keeps_the_server_from_starting(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "models.toml").write_text(TOML.format("a", 0.5))
    with pytest.raises(ModelsInvalid, match=r'model "tiered": tiers.worker: the pool rehearsal has planner'):
        ServedModels.read(FAST, tmp_path / "models.toml")
