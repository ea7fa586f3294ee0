"""Fits the classifier: logistic regression over the features, calibrated, by cross-validation. Imports scikit-learn.

Equal texts stay in one fold, so that no probability out of fold comes from having seen the answer.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict

from conductor_core import __version__
from conductor_core.errors import BadInput
from conductor_core.tiers.classifier import MOST_OUTCOMES, Classifier, Fit, shortened
from conductor_core.tiers.features import COUNT, Features
from conductor_core.tiers.outcomes import LEAST_OF_A_CLASS, LEAST_OUTCOMES, Row

_FOLDS = 5
_STRENGTHS = (0.1, 1.0, 3.0, 10.0)

Scores = NDArray[np.float64]


def fit(rows: Sequence[Row], worker: str, left_out: Mapping[str, int] | None = None) -> Classifier:
    """Fits on the newest ``MOST_OUTCOMES`` rows.

    Raises: BadInput if there are too few of them, or too few that are easy, or not.
    """
    rows = sorted(rows, key=lambda row: (row.at_utc, row.outcome.cheap_run_id))
    left = dict(left_out or {})
    if len(rows) > MOST_OUTCOMES:
        left["older than the newest"] = len(rows) - MOST_OUTCOMES
        rows = rows[-MOST_OUTCOMES:]
    easy = np.array([row.outcome.easy for row in rows], dtype=np.int64)
    check_enough(len(rows), int(easy.sum()), worker)
    matrix = _matrix([row.features for row in rows])
    groups = np.unique([row.text_sha256 for row in rows], return_inverse=True)[1]
    folds = _folds(easy, groups)
    strength, scores = min(
        (
            (strength, cross_val_predict(_regression(strength), matrix, easy, cv=folds, method="decision_function"))
            for strength in _STRENGTHS
        ),
        key=lambda each: log_loss(easy, _calibrated(each[1], easy, folds)),
    )
    probabilities = _calibrated(scores, easy, folds)
    model = _regression(strength).fit(matrix, easy)
    slope, offset = _platt(scores, easy)
    outcomes = tuple(
        row.outcome.model_copy(update={"probability": shortened(float(probability))})
        for row, probability in zip(rows, probabilities, strict=True)
    )
    return Classifier(
        worker=worker,
        weights=tuple(shortened(float(weight)) for weight in model.coef_[0]),
        bias=shortened(float(model.intercept_[0])),
        slope=shortened(slope),
        offset=shortened(offset),
        outcomes=outcomes,
        fit=Fit(
            at_utc=datetime.now(UTC),
            program=f"conductor-inspector {__version__}",
            left_out=left,
            first_utc=rows[0].at_utc,
            last_utc=rows[-1].at_utc,
            rows_sha256=_digest(rows),
            folds=len(folds),
            log_loss=shortened(float(log_loss(easy, probabilities))),
            auc=shortened(float(roc_auc_score(easy, probabilities))),
            strength=strength,
        ),
    )


def check_enough(count: int, easy: int, worker: str) -> None:
    """Raises: BadInput that says what is missing."""
    shown = f"{count:,} recorded outcomes, {easy:,} of them easy for {worker}"
    if count < LEAST_OUTCOMES:
        raise BadInput(f"{shown}: too few to fit on; at least {LEAST_OUTCOMES} are needed")
    if easy in (0, count):
        only = "easy" if easy else "not easy"
        raise BadInput(f"{shown}: all are {only}, so there is nothing to tell apart")
    if min(easy, count - easy) < LEAST_OF_A_CLASS:
        raise BadInput(f"{shown}: at least {LEAST_OF_A_CLASS} easy ones and {LEAST_OF_A_CLASS} others are needed")


def _matrix(read: Sequence[Features]) -> csr_matrix:
    ends = np.cumsum([0, *(len(each.columns) for each in read)])
    columns, values = np.concatenate([each.columns for each in read]), np.concatenate([each.values for each in read])
    return csr_matrix((values, columns, ends), shape=(len(read), COUNT))


def _folds(easy: NDArray[np.int64], groups: NDArray[Any]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Returns what is fitted on and what is left out, by fold. Raises: BadInput if equal texts leave too few groups."""
    if len(np.unique(groups)) < _FOLDS:
        raise BadInput("almost all recorded requests have the same text: there is nothing to tell apart")
    parts = StratifiedGroupKFold(_FOLDS, shuffle=True, random_state=0).split(np.zeros(len(easy)), easy, groups)
    folds = [(inside, outside) for inside, outside in parts if len(outside)]
    if any(len(np.unique(easy[inside])) < 2 for inside, _ in folds):
        raise BadInput("the easy requests, or the others, have hardly more than one text: there is nothing to learn")
    return folds


def _regression(strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=2000, solver="liblinear", random_state=0)


def _platt(scores: Scores, easy: NDArray[np.int64]) -> tuple[float, float]:
    model = LogisticRegression(C=1e6, max_iter=1000).fit(scores[:, None], easy)
    slope = float(model.coef_[0, 0])
    # Scores that say nothing, or the contrary, are worth no more than the share of easy requests.
    share = float(easy.mean())
    return (slope, float(model.intercept_[0])) if slope > 0 else (0.0, float(np.log(share / (1 - share))))


def _calibrated(scores: Scores, easy: NDArray[np.int64], folds: Sequence[Any]) -> Scores:
    """Returns probabilities; those of a fold are calibrated on the others."""
    found = np.zeros(len(scores))
    for inside, outside in folds:
        slope, offset = _platt(scores[inside], easy[inside])
        found[outside] = 1 / (1 + np.exp(-np.clip(slope * scores[outside] + offset, -30, 30)))
    return found


def _digest(rows: Sequence[Row]) -> str:
    kept = [[row.text_sha256, row.outcome.model_dump(exclude={"probability"})] for row in rows]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()
