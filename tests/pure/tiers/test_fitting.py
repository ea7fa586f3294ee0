"""The fit: it learns what the text tells, promises nothing where it tells nothing, and refuses too little."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from conductor_core.errors import BadInput
from conductor_core.tiers.features import features
from conductor_core.tiers.fitting import fit
from tests.support.tiers import EASY, HARD, fitted, row, rows, written


def test_what_the_text_tells_is_learnt_and_the_probabilities_are_calibrated() -> None:
    found = fitted()
    easy, hard = (found.probability(features(text.format(77))) for text in (EASY, HARD))
    assert easy > 0.8
    assert hard < 0.2
    assert found.fit.auc > 0.8
    mean = np.mean([each.probability for each in found.outcomes])
    assert mean == pytest.approx(np.mean([each.easy for each in found.outcomes]), abs=0.08)
    assert found.fit.left_out == {"only one of the two answers has a verdict": 3}
    assert fit(rows(), "a").weights == found.weights, "the same rows give the same classifier"


def test_labels_by_chance_promise_nothing_even_if_texts_come_again() -> None:
    rng = Random(3)
    texts = [f"Question {n} about {rng.choice('abcdefgh')}" for n in range(30)] * 4
    labels = {text: rng.random() < 0.5 for text in texts}
    given = [
        replace(row(n, text, easy=labels[text]), text_sha256=f"{texts.index(text):064x}")
        for n, text in enumerate(texts)
    ]
    assert fit(given, "a").fit.auc < 0.75, "a text is never judged by a classifier that has seen it"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "0 recorded outcomes, 0 of them easy for a: too few to fit on; at least 50 are needed"),
        (rows(49), "too few to fit on"),
        ([row(n, f"text {n}", easy=True) for n in range(60)], "all are easy"),
        ([row(n, f"text {n}", easy=False) for n in range(60)], "all are not easy"),
        ([row(n, f"text {n}", easy=n < 9) for n in range(60)], "at least 10 easy ones and 10 others"),
        ([replace(row(n, "one", easy=n % 2 == 0), text_sha256="0" * 64) for n in range(60)], "the same text"),
    ],
)
def test_too_little_is_refused_with_the_reason(given: list[object], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        fit(given, "a")  # type: ignore[arg-type]


def test_serving_reads_a_classifier_without_scikit_learn(tmp_path: Path) -> None:
    program = (
        "import sys; from conductor_core.serving import served_models, turns\n"
        "from conductor_core.tiers.features import features\n"
        "classifier, _ = served_models.read_classifier(sys.argv[1]); classifier.probability(features('What is it?'))\n"
        "print([name for name in ('sklearn', 'scipy', 'torch', 'transformers') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(written(tmp_path))], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
