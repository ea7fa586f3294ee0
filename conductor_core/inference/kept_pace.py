"""Keeps how quick each local Conductor was of late in one small file, for estimates after a restart. No torch.

The file is a hint and no record: one that is damaged is written anew.
"""

import logging
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from conductor_core.inference.meter import Pace
from conductor_core.inference.private_files import write_whole, writing_to

log = logging.getLogger(__name__)

FILE = "paces.json"
MOST_MODELS = 100
_PACES = TypeAdapter(dict[str, Pace])


def kept_pace(folder: Path, model: str) -> Pace:
    """Returns the pace of ``model`` that ``keep_pace`` last wrote into ``folder``; an empty one if there is none."""
    return _read(folder).get(model, Pace())


def keep_pace(folder: Path, model: str, pace: Pace) -> None:
    """Writes the pace of ``model``, for the user alone. A disk that is full or read-only costs a line in the log."""
    try:
        with writing_to(folder) as may_write:
            if may_write:
                paces = _read(folder)
                paces.pop(model, None)
                newest_last = [*paces.items(), (model, pace)][-MOST_MODELS:]
                write_whole(folder / FILE, _PACES.dump_json(dict(newest_last), exclude_none=True))
    except OSError as error:
        log.warning("how quick %s was is not kept in %s: %s", model, folder, error.strerror or error)


def _read(folder: Path) -> dict[str, Pace]:
    try:
        return _PACES.validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return {}
