"""Paths that somebody typed, or that a record or a kept choice holds: any text at all. Asking about it never raises.

``Path`` raises for a name that is too long, for a folder that may not be entered, and for ``~NAME`` of nobody.
"""

import os
from pathlib import Path


def given_path(text: str) -> Path:
    """``text`` as a path: ``~`` and ``~NAME`` are the home folders, as far as there are such."""
    return Path(os.path.expanduser(text))


def is_folder(path: str | Path) -> bool:
    return os.path.isdir(path)


def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)


def is_there(path: str | Path) -> bool:
    return os.path.exists(path)
