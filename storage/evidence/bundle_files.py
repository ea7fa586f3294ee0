"""Opens an exported bundle (docs/audit.md), a folder or a zip file, and reads its files line by line, within bounds."""

import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from storage.evidence.archive import (
    MOST_FILES,
    MOST_UNPACKED_BYTES,
    check_archive,
    check_names,
    digest_of_file,
    digest_of_packed,
)
from storage.merkle.formats import Invalid

FILES = ("bundle.json", "events.jsonl", "records.jsonl", "proofs.jsonl", "checkpoint")
"""What the proofs are about, or are made of."""
MANIFEST = "manifest.sha256"
"""The digests of the other files, of ``bundle.json`` and of ``events.jsonl``; in bundles of format 2."""
MOST_BYTES = 1 << 30
"""Of ``FILES`` together, unpacked."""
MOST_LINE_BYTES = 1 << 26
_MOST_FOLDERS = 7
_ZIP = b"PK\x03\x04"
_FAULTS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OverflowError)
"""How the library says that a zip file is damaged."""


def is_bundle(path: Path) -> bool:
    """Whether ``path`` is a folder with a bundle, or a zip file from its first byte on. Raises: OSError.

    A database with a zip file at its end is none: its tables must be checked.
    """
    if path.is_dir():
        return (path / "bundle.json").is_file()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_ZIP)) == _ZIP


class BundleFiles:
    """The files of a bundle. Close it.

    Raises, here and where files are read: Invalid, OSError.

    Attributes:
        digests: SHA-256 of each file, by name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._archive: zipfile.ZipFile | None = None
        self._file: IO[bytes] | None = None
        self.digests: dict[str, str] = {}
        try:
            if path.is_dir():
                self._read_folder()
            else:
                self._read_archive()
        except BaseException:
            self.close()
            raise
        self._left = MOST_BYTES

    def _read_folder(self) -> None:
        sizes = dict(islice(_files_below(self._path, ""), MOST_FILES + 1))
        check_names(sizes)
        self._bound(sizes)
        for name in sizes:
            with (self._path / name).open("rb") as file:
                self.digests[name] = digest_of_file(file)

    def _read_archive(self) -> None:
        self._file = self._path.open("rb")
        entries = check_archive(self._file)
        self._bound({entry.name: entry.size for entry in entries})
        self.digests = {entry.name: digest_of_packed(self._file, entry) for entry in entries}
        with _unpacking():
            self._archive = zipfile.ZipFile(self._file)
        if set(self._archive.namelist()) != self.digests.keys():
            raise Invalid("the zip file is read in two ways")

    def _bound(self, sizes: dict[str, int]) -> None:
        missing = [name for name in FILES if name not in sizes]
        if missing:
            raise Invalid(f"{missing[0]} is missing")
        if len(sizes) > MOST_FILES:
            raise Invalid(f"it has more files than the {MOST_FILES:,} that are read")
        checked = sum(sizes[name] for name in FILES)
        if checked > MOST_BYTES or sum(sizes.values()) > MOST_UNPACKED_BYTES:
            raise Invalid(f"its files say that they hold {checked:,} bytes, and at most {MOST_BYTES:,} are read")

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> "BundleFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lines(self, name: str) -> Iterator[str]:
        """Yields the lines of a file, without their line feeds."""
        with self._opened(name) as file:
            while True:
                try:
                    raw = file.readline(MOST_LINE_BYTES + 1)
                except _FAULTS as error:
                    raise Invalid(f"the zip file cannot be read: {error}") from None
                if not raw:
                    return
                self._left -= len(raw)
                if len(raw) > MOST_LINE_BYTES or self._left < 0:
                    bound = f"lines of {MOST_LINE_BYTES:,} bytes, and {MOST_BYTES:,} bytes in all"
                    raise Invalid(f"{name} is too long: at most {bound}, are read")
                if not raw.endswith(b"\n"):
                    raise Invalid(f"{name} does not end with a line feed")
                try:
                    yield raw[:-1].decode()
                except UnicodeDecodeError:
                    raise Invalid(f"{name} is not UTF-8") from None

    def documents(self, name: str) -> Iterator[dict[str, Any]]:
        """Yields the JSON objects of a file, each of which must be in the one form of ``json_line``."""
        for line in self.lines(name):
            found = json_object(line)
            try:
                same = json_line(found) == line
            except RecursionError:  # it was just not too deep to be read
                same = False
            if not same:
                raise Invalid(f"a line of {name} is not in the form in which bundles are written")
            yield found

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        if self._archive is None:
            with (self._path / name).open("rb") as file:
                yield file
            return
        with _unpacking():
            packed = self._archive.open(name)
        with packed:
            yield packed


@contextmanager
def _unpacking() -> Iterator[None]:
    """Says what is wrong with a zip file. Put nothing but calls of the library in here."""
    try:
        yield
    except _FAULTS as error:
        raise Invalid(f"the zip file cannot be read: {error}") from None


def _files_below(folder: Path, prefix: str) -> Iterator[tuple[str, int]]:
    """Yields the files of a folder with their sizes in bytes. Raises: Invalid for anything but files and folders."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name, about = f"{prefix}{entry.name}", entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(about.st_mode):
            if name.count("/") > _MOST_FOLDERS:
                raise Invalid(f"{name!a} is too deep")
            yield from _files_below(folder / entry.name, f"{name}/")
        elif stat.S_ISREG(about.st_mode):
            yield name, about.st_size
        else:
            raise Invalid(f"{name!a} is not a plain file")


def json_line(value: object) -> str:
    """Returns the one form of a JSON document in a bundle. Anything else there is refused."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def json_object(text: str) -> dict[str, Any]:
    """Raises: Invalid."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Invalid("a line of the bundle is not JSON") from None
    if not isinstance(found, dict):
        raise Invalid("a line of the bundle is not a JSON object")
    return found
