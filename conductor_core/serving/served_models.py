"""The models that the endpoint serves: two that are always there, and those of a file with one ``[[model]]`` each.

A served model is a name for how a run is carried out: by which Conductor, with which workers, within which limits.
For each request of a tiered model a classifier decides whether it goes to one cheap worker or to the Conductor.
Its file may be replaced while the server runs: the next request reads the new one. If that cannot be used, the log says
so, and the classifier that was read before decides.
"""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator

from conductor_core.chat.messages import Prices
from conductor_core.engine.pools import read_specs
from conductor_core.engine.request import limits_from
from conductor_core.errors import BadInput, ModelsInvalid
from conductor_core.files import expand_path, is_file
from conductor_core.privacy.masking import one_line
from conductor_core.providers.model_files import Line, ModelFile, Reading, pasted_keys, read_model_file, without_fault
from conductor_core.run.request import RunRequest, TierChoice
from conductor_core.run.values import Limits
from conductor_core.serving.reading import Effort
from conductor_core.settings import Settings
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


# Models.


OWNED_BY = "conductor-inspector"
USUAL_FILE = "served-models.toml"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
"""The date of all served models: clients demand one."""
_USUAL, _ULTRA = "fugu", "fugu-ultra"


class ServedModel(Frozen):
    """One model, as clients see it, and how its runs are carried out.

    Attributes:
        aliases: further ids of the same model. Claude Code lists only ids that begin with claude or anthropic.
        conductor, pool: as the command line names them; None: the settings'.
        max_steps, max_depth, max_tokens, max_usd, max_seconds: limits of each run; None: the settings'.
        summaries: whether clients are told of plan and steps as summaries of reasoning, unless they ask for none.
        price: USD per million tokens that is shown to clients. Nothing is charged by it.
        tiers: how easy requests are found, which go to one cheap worker; None: all go to the Conductor.
    """

    id: Line
    aliases: tuple[Line, ...] = Field((), description='a list of ids, such as ["claude-fugu"]')
    conductor: Line | None = None
    pool: Line | None = None
    max_steps: int | None = Field(None, ge=1, le=32, description="a whole number of steps, 1 to 32")
    max_depth: int | None = Field(None, ge=0, le=8, description="a whole number of rounds below the first, 0 to 8")
    max_tokens: int | None = Field(None, ge=1, le=10**12, description="a whole number of tokens")
    max_usd: float | None = Field(None, ge=0, le=1e9, description="a number of USD")
    max_seconds: float | None = Field(None, gt=0, le=1e9, description="a number of seconds above 0")
    summaries: bool = True
    description: Line = ""
    owned_by: Line = OWNED_BY
    price: Prices = None
    tiers: Tiers | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.id, *self.aliases)


PRESETS = (
    ServedModel(id=_USUAL, max_steps=2, max_depth=0, description="A short plan: at most two steps"),
    ServedModel(
        id=_ULTRA, max_steps=5, max_depth=1, description="Plans of up to five steps, one round below the first"
    ),
)


class _Table(ServedModel):
    """A ``[[model]]`` of a file."""

    @field_validator("aliases", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("*", mode="before")
    @classmethod
    def _without_keys(cls, value: object, info: ValidationInfo[Reading]) -> object:
        faults = pasted_keys({info.field_name or "": value}, info.context.known, info.context.file)
        return without_fault(value, "; ".join(fault for _, fault in faults))

    @property
    def given(self) -> dict[str, Any]:
        """The fields that the file gives, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class _File(ModelFile):
    """A file of served models."""

    file: ClassVar = "file of served models"
    table: ClassVar = "model"
    key: ClassVar = "id"
    needs: ClassVar = "each gives an id and what differs from the settings"
    invalid: ClassVar = ModelsInvalid

    model: list[_Table]

    @field_validator("model")
    @classmethod
    def _one_for_each_id(cls, given: list[_Table]) -> list[_Table]:
        if twice := next(_twice(each.ids for each in given), None):
            raise ValueError(f'"{twice}" is an id, or an alias, of two models; ids are unique')
        return given


def _twice(ids: Iterable[Sequence[str]]) -> Iterator[str]:
    seen: set[str] = set()
    for each in (one for several in ids for one in several):
        if each in seen:
            yield each
        seen.add(each)


class ServedModels:
    """Finds served models by their ids.

    Attributes:
        all: in the order of the file; before them the presets that the file does not define anew.
    """

    def __init__(self, settings: Settings, given: Sequence[ServedModel] = ()) -> None:
        self._settings = settings
        self.classifiers = Classifiers()
        taken = {each for model in given for each in model.ids}
        self.all = (*(preset for preset in PRESETS if preset.id not in taken), *given)

    @classmethod
    def read(cls, settings: Settings, file: str | Path | None) -> "ServedModels":
        """Reads a file; None: ``served-models.toml`` of the data folder, if it is there.

        Raises: ModelsInvalid with every fault and its place; BadInput if the pool of a tiered model cannot be read.
        """
        if file is None:
            file = settings.data_folder / USUAL_FILE
            if not is_file(file):
                return cls(settings)
        tables = read_model_file(file, _File, settings.key_variables).model
        models = [ServedModel(**table.given) for table in tables]
        if faults := [fault for model in models if (fault := _tiers_fault(model, settings))]:
            raise ModelsInvalid(f"{_File.file} {one_line(str(file), limit=120)}: {'; '.join(faults)}", faults)
        return cls(settings, models)

    @cached_property
    def by_id(self) -> Mapping[str, ServedModel]:
        return {each: model for model in self.all for each in model.ids}

    def get(self, model_id: str) -> ServedModel | None:
        return self.by_id.get(model_id)

    def limits(self, model: ServedModel, effort: Effort | None = None) -> Limits:
        """Returns what a run of ``model`` may spend.

        Little effort is one step without recursion, and the most has the steps of ``fugu-ultra``. Tokens, USD and
        seconds are always the model's own.
        """
        given: dict[str, Any] = {name: getattr(model, name) for name in Limits.model_fields}
        if effort in ("minimal", "low"):
            given |= {"max_steps": 1, "max_depth": 0}
        elif effort in ("xhigh", "max"):
            ultra = self.by_id[_ULTRA]
            given |= {"max_steps": ultra.max_steps, "max_depth": ultra.max_depth}
        known = {name: value for name, value in given.items() if value is not None}
        return limits_from(self._settings).model_copy(update=known)


def _tiers_fault(model: ServedModel, settings: Settings) -> str | None:
    """Says why the cheap worker of a tiered model cannot be asked; None: it can, or the model has none."""
    if model.tiers is None:
        return None
    pool = model.pool or settings.pool
    names = [spec.name for spec in read_specs(pool, settings)]
    if model.tiers.worker in names:
        return None
    return f'model "{model.id}": tiers.worker: the pool {one_line(pool, limit=80)} has {", ".join(names)}'


# As clients list them.


def listed(model_id: str, model: ServedModel, *, anthropic: bool) -> dict[str, Any]:
    """Returns a model in Anthropic's shape, or in OpenAI's."""
    if anthropic:
        return {
            "type": "model",
            "id": model_id,
            "display_name": model_id,
            "created_at": CREATED.isoformat().replace("+00:00", "Z"),
            "lifecycle": "active",
        }
    price = None if model.price is None else {"input": model.price.input, "output": model.price.output}
    return {
        "id": model_id,
        "object": "model",
        "created": int(CREATED.timestamp()),
        "owned_by": model.owned_by,
        "conductor": {"description": model.description, "usd_per_mtok": price},
    }
