"""Deletes what the hub's cache has of a model, whole or in part. It touches nothing else."""

import glob
import os
import shutil
from pathlib import Path

from conductor_core.inference.found import parts_of
from conductor_core.inference.generation import ModelUnavailable
from conductor_core.inference.hub import is_downloaded_elsewhere
from conductor_core.inference.llama import end_all_of
from conductor_core.inference.shared import is_held, release
from conductor_core.inference.source import HUB_ID, cache_folder, holds_a_model


class ModelInUse(ModelUnavailable):
    """A model that somebody uses or downloads at this moment."""


def remove(hub_id: str) -> int:
    """Deletes all that the cache has of a model. Returns the bytes freed.

    Raises: ModelInUse; ModelUnavailable if there is nothing of it, or the system refuses.
    """
    folder = _folder(hub_id)
    if not release(hub_id):
        raise ModelInUse(f"{hub_id} is writing at this moment: wait until it is done, or cancel the run")
    if any(map(is_held, (folder / "snapshots").glob("*"))):
        raise ModelInUse(f"another program on this machine has {hub_id} in memory: end it, or wait until it is idle")
    return _delete(hub_id, folder)


def remove_file(path: Path) -> int:
    """Deletes a GGUF file, all its parts, and of the hub's cache what they link to. Returns the bytes freed.

    Raises: ModelInUse; ModelUnavailable if the system refuses. Another program that has it in memory keeps it.
    """
    if not end_all_of(path):
        raise ModelInUse(f"{path.name} is writing at this moment: wait until it is done, or cancel the run")
    freed = 0
    try:
        for part in parts_of(path):
            snapshots = next((each for each in part.parents if each.name == "snapshots"), part.parent)
            blob, is_link = part.resolve(), part.is_symlink()
            size = blob.stat().st_size
            part.unlink()
            if is_link:
                # Another revision may link to the same bytes. What lies elsewhere is a person's own.
                shared = any(each.resolve() == blob for each in snapshots.rglob(glob.escape(part.name)))
                if shared or blob.parent != snapshots.with_name("blobs").resolve():
                    continue
                blob.unlink()
            freed += size
    except OSError as error:
        raise ModelUnavailable(f"{path} cannot be deleted: {error.strerror or error}") from error
    return freed


def discard_part(hub_id: str) -> int:
    """Deletes what a stopped download has left. Returns the bytes freed. Raises: ModelInUse, ModelUnavailable."""
    folder = _folder(hub_id)
    if not holds_a_model(hub_id):
        return _delete(hub_id, folder)
    _require_idle(hub_id)
    freed = 0
    for part in (folder / "blobs").glob("*.part"):
        freed += part.stat().st_size
        part.unlink(missing_ok=True)
    return freed


def _folder(hub_id: str) -> Path:
    folder = cache_folder(hub_id)
    if not HUB_ID.fullmatch(hub_id) or not folder.is_dir():
        raise ModelUnavailable(f"the hub's cache has nothing of {hub_id[:200]!r}")
    if folder.is_symlink():
        raise ModelUnavailable(f"{folder} is a link to {folder.resolve()}: delete that folder and the link yourself")
    return folder


def _require_idle(hub_id: str) -> None:
    if is_downloaded_elsewhere(hub_id):
        raise ModelInUse(f"{hub_id} is being downloaded by another program on this machine: stop that first")


def _delete(hub_id: str, folder: Path) -> int:
    """Renames the folder first: whoever is killed in between leaves no half of a model under its name."""
    _require_idle(hub_id)
    files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    freed = sum(each.stat().st_size for each in files)
    gone = folder.with_name(f".deleted-{os.getpid()}-{folder.name}")
    try:
        for left in folder.parent.glob(f".deleted-*-{folder.name}"):
            shutil.rmtree(left)
        folder.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        raise ModelUnavailable(f"{folder} cannot be deleted: {error.strerror or error}") from error
    return freed
