"""A fitted classifier as one JSON file of plain numbers, which may come from anybody: read bounded, and checked.

Beside its weights the file holds each recorded outcome it was fitted on, by the ids of its runs and without any text,
with the probability that a classifier gave it that had not seen it. The curve of cost against quality follows from
them.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from math import exp
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime, Field, NonNegativeInt, ValidationError, model_validator
from pydantic_core import from_json

from conductor_core.errors import BadInput
from conductor_core.files import Unread, read_named, text_of
from conductor_core.privacy.masking import one_line
from conductor_core.tiers.features import COUNT, FORM, Features
from conductor_core.workflow.model import Frozen

KIND: Literal["conductor-tiers"] = "conductor-tiers"
VERSION: Literal[1] = 1
MOST_OUTCOMES = 20_000
MOST_BYTES = 16 << 20
_MOST_DIGITS = 6

Number = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Usd = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, le=10**12)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{12}-[0-9a-f]{16}$")]


class Outcome(Frozen):
    """What both ways brought for one recorded request.

    Attributes:
        easy: whether the cheap worker's answer was good enough. conductor_good: whether the Conductor's was.
        cheap_usd, conductor_usd: None if a price is unknown.
        probability: that it is easy, by a classifier that was fitted without it and without equal texts.
    """

    cheap_run_id: RunId
    conductor_run_id: RunId
    easy: bool
    conductor_good: bool
    cheap_usd: Usd | None
    conductor_usd: Usd | None
    cheap_tokens: Tokens
    conductor_tokens: Tokens
    probability: Share = 0.0


class Fit(Frozen):
    """What a classifier was fitted on.

    Attributes:
        left_out: how many recorded outcomes were not used, by the reason.
        first_utc, last_utc: when the first and the last of the requests came.
        rows_sha256: of the rows: runs, labels and costs.
        folds: of the cross-validation. auc: the chance that of an easy and another request the easy one has the higher
            probability, out of fold.
        strength: the inverse regularisation that cross-validation chose.
    """

    at_utc: AwareDatetime
    program: Annotated[str, Field(max_length=100)]
    left_out: Mapping[Annotated[str, Field(max_length=200)], NonNegativeInt]
    first_utc: AwareDatetime
    last_utc: AwareDatetime
    rows_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    folds: Annotated[int, Field(ge=2, le=100)]
    log_loss: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    auc: Share
    strength: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class Classifier(Frozen):
    """Says how probable it is that the cheap ``worker`` answers a request well enough.

    Attributes:
        form: of the features (``features.FORM``).
        weights: one for each feature. slope, offset: make the weighed sum a probability (Platt's calibration).
        outcomes: what it was fitted on, oldest first.
    """

    kind: Literal["conductor-tiers"] = KIND
    version: Literal[1] = VERSION
    form: Literal[1] = FORM
    worker: Annotated[str, Field(min_length=1, max_length=200)]
    weights: Annotated[tuple[Number, ...], Field(min_length=COUNT, max_length=COUNT)]
    bias: Number
    slope: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    offset: Number
    fit: Fit
    outcomes: Annotated[tuple[Outcome, ...], Field(min_length=2, max_length=MOST_OUTCOMES)]

    @model_validator(mode="after")
    def _two_classes(self) -> Self:
        if len({outcome.easy for outcome in self.outcomes}) < 2:
            raise ValueError("its outcomes are all of one class")
        return self

    def probability(self, read: Features) -> float:
        """Returns the chance that a request is easy. Opens no file, and asks nobody."""
        return sigmoid(self.slope * (float(self._array[read.columns] @ read.values) + self.bias) + self.offset)

    @cached_property
    def _array(self) -> NDArray[np.float64]:
        return np.array(self.weights, dtype=np.float64)

    def write(self) -> bytes:
        """Returns the file. Numbers have six digits, so that it is small; ``read`` gives the same classifier."""
        return self.model_dump_json(indent=None).encode() + b"\n"


def shortened(value: float) -> float:
    return float(f"{value:.{_MOST_DIGITS}g}")


def sigmoid(score: float) -> float:
    return 1 / (1 + exp(-score)) if score > -700 else 0.0


def read_classifier(path: str | Path) -> tuple[Classifier, str]:
    """Returns a fitted classifier and the SHA-256 of its file. Raises: BadInput that names the file and its fault."""
    what = f"classifier of tiers {one_line(str(path), limit=120)}"
    try:
        raw = read_named(path, MOST_BYTES)
        text = text_of(raw)
    except Unread as error:
        raise BadInput(f"{what}: {error}") from error
    try:
        return parse(text), hashlib.sha256(raw).hexdigest()
    except BadInput as error:
        raise BadInput(f"{what}: {error}") from None


def parse(text: str) -> Classifier:
    """Raises: BadInput with the first fault and its place."""
    try:
        document = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise BadInput(f"not JSON: {one_line(str(error), limit=120)}") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise BadInput("it is not what conductor tiers fit writes")
    for name, ours in (("version", VERSION), ("form", FORM)):
        if document.get(name) != ours or isinstance(document[name], bool):
            given = one_line(str(document.get(name)), limit=40)
            raise BadInput(f"its {name} is {given}, and this program reads {name} {ours}: fit it again")
    try:
        return Classifier.model_validate_json(text, strict=True)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        place = ".".join(str(part) for part in faults[0]["loc"]) or "it"
        more = f" (and {len(faults) - 1:,} more faults)" if len(faults) > 1 else ""
        raise BadInput(one_line(f"{place}: {faults[0]['msg']}{more}", limit=200)) from None
