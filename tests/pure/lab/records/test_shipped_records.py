"""The shipped records are those of the shipped weights, and their figures those of their outcomes.

That the model card names these weights is in ``tests/pure/conductors/test_tiny.py``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from conductor_core.conductors.catalogue import TINY_FOLDER
from conductor_core.lab.evaluation.report import summarise
from conductor_core.lab.evaluation.runner import model_digest
from conductor_core.lab.records import SHIPPED
from conductor_core.lab.records.evaluation import read_record as read_evaluation
from conductor_core.lab.records.training import read_record as read_training
from conductor_core.settings import TINY

EVALUATIONS = sorted((SHIPPED / "evaluation").iterdir())
OF_ANOTHER_CONDUCTOR = {"untrained"}
HALF_A_DIGIT = 0.5e-5
"""A shipped summary has five decimals."""
HALF_A_DURATION_MS = 0.05
"""A shipped outcome's duration has one: the mean of such may be this far from the mean of the measured ones."""


def test_the_training_s_record_ends_with_the_shipped_weights() -> None:
    ended = read_training(SHIPPED / "training" / "tiny").ended
    assert ended is not None
    assert ended.sha256 == model_digest(TINY, Path())
    assert Path(ended.model).parts[-3:] == TINY_FOLDER.parts[-3:]


@pytest.mark.parametrize("folder", EVALUATIONS, ids=lambda folder: folder.name)
def test_what_was_evaluated_is_the_shipped_weights(folder: Path) -> None:
    settings = read_evaluation(folder).plan.settings
    conductors, sha256 = settings["conductors"], settings["models_sha256"]
    assert {"conductor", "recursion"} <= set(conductors)
    evaluated = {name: sha256[ref] for name, ref in conductors.items() if name not in OF_ANOTHER_CONDUCTOR}
    assert evaluated == dict.fromkeys(evaluated, model_digest(TINY, Path()))


@pytest.mark.parametrize("folder", EVALUATIONS, ids=lambda folder: folder.name)
def test_the_figures_are_those_of_the_outcomes(folder: Path) -> None:
    record = read_evaluation(folder)
    assert record.summary is not None
    again = summarise(record.plan, record.outcomes)
    assert again.n == record.plan.tasks
    assert len(record.outcomes) == record.plan.tasks * len(record.plan.orchestrators)
    shipped, computed = dict(_figures(record.summary.model_dump())), dict(_figures(again.model_dump()))
    assert shipped.keys() == computed.keys()
    wrong = {name: (shipped[name], value) for name, value in computed.items() if not _same(name, shipped[name], value)}
    assert not wrong


def _figures(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value of nested tables and lists, by its place in them."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _figures(part, f"{name}/{key}")
    elif isinstance(value, list | tuple):
        for at, part in enumerate(value):
            yield from _figures(part, f"{name}/{at}")
    else:
        yield name, value


def _same(name: str, shipped: Any, computed: Any) -> bool:
    if not isinstance(computed, float) or shipped is None:
        return bool(shipped == computed)
    rounding = HALF_A_DIGIT + HALF_A_DURATION_MS * name.endswith("/latency_ms_per_task")
    return bool(shipped == pytest.approx(computed, rel=0, abs=rounding + 1e-9))
