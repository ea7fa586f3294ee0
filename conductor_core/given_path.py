"""Asks about paths from people, records and kept choices, which may be any text. These functions never raise.

``Path`` raises if a name is too long, a folder may not be entered, or ``~NAME`` is no user.
"""

import os
from pathlib import Path


def given_path(text: str) -> Path:
    """Returns ``text`` as a path. ``~`` and ``~NAME`` become home folders if there are such."""
    return Path(os.path.expanduser(text))


def is_folder(path: str | Path) -> bool:
    return os.path.isdir(path)


def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)


def is_there(path: str | Path) -> bool:
    return os.path.exists(path)
