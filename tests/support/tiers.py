"""Recorded outcomes and fitted classifiers, made up: questions about capitals are easy, proofs are not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random

from conductor_core.tiers.classifier import Classifier, Outcome
from conductor_core.tiers.features import features
from conductor_core.tiers.fitting import fit
from conductor_core.tiers.outcomes import Row

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
EASY, HARD = "What is the capital of country {}?", "Prove the theorem {} about manifolds in full."


def run_id(number: int) -> str:
    return f"{number:012x}-{number:016x}"


def row(number: int, text: str, *, easy: bool, good: bool = True, usd: float | None = 0.01) -> Row:
    outcome = Outcome(
        cheap_run_id=run_id(2 * number),
        conductor_run_id=run_id(2 * number + 1),
        easy=easy,
        conductor_good=good,
        cheap_usd=usd,
        conductor_usd=None if usd is None else 10 * usd,
        cheap_tokens=100,
        conductor_tokens=1000,
    )
    return Row(outcome, features(text), f"{number:064x}", BEGAN + timedelta(minutes=number))


def rows(count: int = 120, seed: int = 1) -> list[Row]:
    """Half of them easy by their text; one in ten came out the other way."""
    rng = Random(seed)
    texts = [(EASY if number % 2 else HARD).format(rng.randrange(10_000)) for number in range(count)]
    return [row(n, text, easy=(n % 2 == 1) != (rng.random() < 0.1)) for n, text in enumerate(texts)]


@cache
def _fitted(worker: str) -> Classifier:
    return fit(rows(), worker, {"only one of the two answers has a verdict": 3})


def fitted(worker: str = "a") -> Classifier:
    return _fitted(worker)


def written(folder: Path, worker: str = "a", name: str = "easy.json") -> Path:
    file = folder / name
    file.write_bytes(fitted(worker).write())
    return file


def outcomes_of(chances: Sequence[tuple[float, bool, bool]]) -> list[Outcome]:
    """``chances``: probability, whether it is easy, whether the Conductor's answer is good."""
    return [
        row(number, "", easy=easy, good=good).outcome.model_copy(update={"probability": probability})
        for number, (probability, easy, good) in enumerate(chances)
    ]
