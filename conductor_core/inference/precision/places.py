"""Where packed weights are kept: a folder for each model folder. It imports no torch.

They are in the user's data folder and not beside the model, whose folder may be read-only or the hub's shared cache.
"""

import hashlib
import re
import shutil
from pathlib import Path

from conductor_core.precisions import Packed

_OTHERS = re.compile(r"[^\w.-]+", re.ASCII)


def packed_path(folder: Path, model_folder: Path, precision: Packed) -> Path:
    """Returns the file of a model's weights in ``precision``, whether or not it exists."""
    return _folder_of(folder, model_folder) / f"{precision}.safetensors"


def packed_bytes(folder: Path, model_folder: Path) -> int:
    """Returns what a model's packed weights take on the disk, in bytes."""
    return sum(path.stat().st_size for path in _folder_of(folder, model_folder).glob("*"))


def remove_packed(folder: Path, model_folder: Path) -> None:
    """Deletes a model's packed weights. Raises: OSError."""
    if (found := _folder_of(folder, model_folder)).is_dir():
        shutil.rmtree(found)


def _folder_of(folder: Path, model_folder: Path) -> Path:
    """Returns the model's folder in ``folder``: its name is for people, the digest of its path for the program."""
    resolved = model_folder.resolve()
    digest = hashlib.sha256(str(resolved).encode(errors="surrogateescape")).hexdigest()[:16]
    return folder / f"{_OTHERS.sub('_', resolved.name)[:40]}-{digest}"
