"""Where packed weights are kept: a folder for each model folder. It imports no torch.

They are in the user's data folder and not beside the model, whose folder may be read-only or the hub's shared cache.
"""

import hashlib
import logging
import re
import shutil
from pathlib import Path

from conductor_core.precision import Packed

log = logging.getLogger(__name__)

_OTHERS = re.compile(r"[^\w.-]+", re.ASCII)


def packed_path(folder: Path, model_folder: Path, precision: Packed) -> Path:
    """Returns the file of a model's weights in ``precision``, whether or not it exists."""
    return packed_weights(folder, model_folder) / f"{precision}.safetensors"


def packed_weights(folder: Path, model_folder: Path) -> Path:
    """Returns a model's folder in ``folder``: its name is for people, the digest of its path for the program."""
    resolved = model_folder.resolve()
    digest = hashlib.sha256(str(resolved).encode(errors="surrogateescape")).hexdigest()[:16]
    return folder / f"{_OTHERS.sub('_', resolved.name)[:40]}-{digest}"


def delete_packed(weights: Path) -> int:
    """Deletes such a folder, if it is there. Returns the bytes freed. A system that refuses costs a line in the log."""
    try:
        freed = sum(path.stat().st_size for path in weights.glob("*"))
        if weights.is_dir():
            shutil.rmtree(weights)
    except OSError as error:
        log.warning("%s cannot be deleted: %s", weights, error.strerror or error)
        return 0
    return freed
