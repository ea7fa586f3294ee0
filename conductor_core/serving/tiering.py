"""Decides for each request of a tiered model whether it goes to one cheap worker or to the Conductor.

The classifier's file may be replaced while the server runs: the next request reads the new one. If that cannot be used,
the log says so, and the classifier that was read before decides.
"""

import logging
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from pydantic import Field, ValidationInfo, field_validator

from conductor_core.errors import BadInput
from conductor_core.files import expand_path
from conductor_core.providers.model_files import Line, Reading
from conductor_core.run.request import RunRequest, TierChoice
from conductor_core.serving.asked import Effort
from conductor_core.tiers.classifier import Classifier, read_classifier
from conductor_core.tiers.features import features, reason_for_conductor
from conductor_core.workflow.model import QUESTION, Frozen, Step, Workflow

log = logging.getLogger(__name__)


class Tiers(Frozen):
    """The table ``[model.tiers]`` of a served model.

    Attributes:
        file: what ``conductor tiers fit`` wrote. In a file of served models it is relative to that file's folder.
        worker: the cheap one, for which the file was fitted. threshold: from this probability on a request is easy.
    """

    file: Line = Field(description="the path of a file that conductor tiers fit wrote")
    worker: Line
    threshold: float = Field(ge=0, le=1, allow_inf_nan=False, description="a number from 0 to 1")

    @field_validator("file")
    @classmethod
    def _readable(cls, value: str, info: ValidationInfo[Reading | None]) -> str:
        if info.context is None:
            return value
        file = info.context.beside / expand_path(value)
        _read(file, None)
        return str(file.absolute())

    @field_validator("worker")
    @classmethod
    def _fitted_for_it(cls, value: str, info: ValidationInfo[Reading | None]) -> str:
        if info.context is not None and "file" in info.data:
            _read(info.data["file"], value)
        return value


@dataclass(frozen=True, slots=True)
class _Read:
    mark: object
    classifier: Classifier
    sha256: str


class Classifiers:
    """The classifiers of the served models. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[Tiers, _Read] = {}

    def get(self, tiers: Tiers) -> tuple[Classifier, str]:
        """Returns the classifier and the SHA-256 of its file. Raises: BadInput if none could ever be read."""
        with self._lock:
            known, mark = self._known.get(tiers), _mark(tiers.file)
            if known is None or known.mark != mark:
                known = self._known[tiers] = self._again(tiers, known, mark)
            return known.classifier, known.sha256

    def _again(self, tiers: Tiers, known: _Read | None, mark: object) -> _Read:
        try:
            return _Read(mark, *_read(tiers.file, tiers.worker))
        except ValueError as fault:
            if known is None:
                raise BadInput(str(fault)) from fault
            log.warning("%s; the classifier that was read before goes on deciding", fault)
            return _Read(mark, known.classifier, known.sha256)


def _read(file: str | Path, worker: str | None) -> tuple[Classifier, str]:
    """Raises: ValueError if the file cannot be used for this worker; None: for any."""
    try:
        classifier, sha256 = read_classifier(file)
    except BadInput as error:
        raise ValueError(str(error)) from error
    if worker not in (None, classifier.worker):
        raise ValueError(f'the classifier was fitted for the worker "{classifier.worker[:80]}": name this one')
    return classifier, sha256


def _mark(file: str) -> object:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# The choice.


def tiered(
    request: RunRequest, tiers: Tiers, classifiers: Classifiers, effort: Effort | None, excluded: Collection[str]
) -> RunRequest:
    """Returns a request for the Conductor with the choice, as one for the cheap worker if it is easy. Blocks.

    Args:
        excluded: workers that must not be used. effort: more than the usual one wants the Conductor.

    Raises: BadInput if the classifier could never be read.
    """
    classifier, sha256 = classifiers.get(tiers)
    reason = reason_for_conductor(request)
    if not reason and effort in ("high", "xhigh", "max"):
        reason = "effort"
    if not reason and tiers.worker in excluded:
        reason = "excluded"
    probability = classifier.probability(features(request.task, request.turns_before))
    easy = not reason and probability >= tiers.threshold
    choice = TierChoice(
        easy=easy,
        worker=tiers.worker,
        probability=probability,
        threshold=tiers.threshold,
        classifier_sha256=sha256,
        reason=reason,
    )
    if not easy:
        return request.model_copy(update={"tier": choice})
    alone = Workflow(steps=(Step(instruction=QUESTION, agent=tiers.worker),))
    return request.model_copy(update={"tier": choice, "workflow": alone, "conductor": None})
