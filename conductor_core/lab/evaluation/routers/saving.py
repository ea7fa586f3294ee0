"""Saves a fitted router as ``router.json`` (its kind, settings and words) and ``router.safetensors`` (its numbers).

It uses no pickle, so that reading a folder runs no code from it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from conductor_core.errors import BadInput
from conductor_core.lab.records import write_whole

Arrays = dict[str, NDArray[Any]]

JSON, NUMBERS = "router.json", "router.safetensors"
FORMAT = 1


def write(folder: Path, kind: str, document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Makes the folder and writes both files. The JSON comes last, so that an incomplete folder is not taken for whole.

    Raises: OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / NUMBERS)
    text = json.dumps({"format": FORMAT, "kind": kind, **document}, ensure_ascii=False)
    write_whole(folder / JSON, text)


def is_written(folder: Path) -> bool:
    """Says whether a router was saved in ``folder``, readable or not."""
    return (folder / JSON).is_file()


def read(folder: Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Reads both files. Raises: BadInput naming the folder and its fault."""
    try:
        document = json.loads((folder / JSON).read_text(encoding="utf-8"))
        arrays = load_file(folder / NUMBERS)
    except (OSError, ValueError, SafetensorError) as error:
        raise BadInput(f"{folder} holds no fitted router that can be read: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("kind") != kind:
        raise BadInput(f"{folder} holds no fitted router of kind {kind}, format {FORMAT}")
    return document, arrays
