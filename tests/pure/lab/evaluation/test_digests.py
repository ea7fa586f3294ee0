"""What changes a digest, and what does not."""

from dataclasses import replace
from pathlib import Path

from conductor_core.engine.pools import open_pool
from conductor_core.lab.evaluation.runner import (
    grading_digest,
    model_digest,
    pool_digest,
    simulated_digest,
    tasks_digest,
)
from conductor_core.lab.evaluation.suites import load_suite
from tests.support.evaluations import task
from tests.support.fakes import ScriptedWorker, pool_of, quick_settings


def test_tasks_by_question_answer_and_order() -> None:
    one, two = task(1), task(2)
    digests = {tasks_digest([one, two]), tasks_digest([two, one]), tasks_digest([one, replace(two, reference="3")])}
    assert len(digests) == 3
    assert tasks_digest([one, two]) in digests


def test_marking_by_grader_and_what_it_goes_by() -> None:
    one = task(1)
    others = [replace(one, grader="numeric"), *(replace(one, extra={"tolerance": each}) for each in (0.1, 0.2))]
    assert len({grading_digest([each]) for each in (one, *others)}) == 4
    two_ways = ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
    assert len({grading_digest([replace(one, extra=each)]) for each in two_ways}) == 1


def test_a_pool_by_all_that_its_file_says() -> None:
    cold, warm = (pool_of(ScriptedWorker("alpha", params={"temperature": each})) for each in (0.0, 1.0))
    assert pool_digest(cold.specs) != pool_digest(warm.specs)


def test_simulated_workers_by_what_they_say() -> None:
    tasks = load_suite("rehearsal", "train", limit=20, seed=0).tasks
    before, again, other_seed = (
        simulated_digest(open_pool("rehearsal", quick_settings(), seed=seed), tasks) for seed in (0, 0, 1)
    )
    assert before == again
    assert before != other_seed
    assert simulated_digest(pool_of(ScriptedWorker("alpha")), tasks) is None


def test_a_model_by_its_weights(tmp_path: Path) -> None:
    assert model_digest("http://127.0.0.1:9/v1#m", tmp_path) is None
    assert model_digest("owner/name", tmp_path) is None
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = model_digest(str(tmp_path), tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert model_digest(str(tmp_path), tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"others")
    assert model_digest(str(tmp_path), tmp_path) != before
    assert model_digest("tiny", tmp_path) is not None
