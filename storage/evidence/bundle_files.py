"""Opens an exported bundle (docs/audit.md), a folder or a zip file, and reads its files line by line, within bounds."""

import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from storage.merkle.formats import Invalid

FILES = ("bundle.json", "events.jsonl", "records.jsonl", "proofs.jsonl", "checkpoint")
"""What of a bundle is checked. Other files in it are for reading, and prove nothing."""
MOST_BYTES = 1 << 30
"""Of the checked files together, unpacked."""
MOST_LINE_BYTES = 1 << 26
MOST_FILES = 100_000
_ZIP = b"PK\x03\x04"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How files may be packed. Python unpacks these piece by piece; others it may unpack to any size at once."""
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
        return file.read(len(_ZIP)) == _ZIP and zipfile.is_zipfile(file)


class BundleFiles:
    """The checked files of a bundle. ``others``: the names of those that are for reading. Close it.

    Raises, here and where files are read: Invalid, OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._archive: zipfile.ZipFile | None = None
        self._packed: dict[str, zipfile.ZipInfo] = {}
        if path.is_dir():
            names, sizes = self._of_folder()
        else:
            names, sizes = self._of_archive()
        missing = [name for name in FILES if names.count(name) != 1]
        if missing:
            raise Invalid(f"{missing[0]} is missing, or is there twice")
        if sum(sizes) > MOST_BYTES:
            raise Invalid(f"its files say that they hold {sum(sizes):,} bytes, and at most {MOST_BYTES:,} are read")
        self.others = [name for name in names if name not in FILES]
        self._left = MOST_BYTES

    def _of_folder(self) -> tuple[list[str], list[int]]:
        found = list(islice((each for each in self._path.rglob("*") if each.is_file()), MOST_FILES + 1))
        self._bound(len(found))
        names = sorted(each.relative_to(self._path).as_posix() for each in found)
        return names, [(self._path / name).stat().st_size for name in FILES if name in names]

    def _of_archive(self) -> tuple[list[str], list[int]]:
        with _unpacking():
            self._archive = zipfile.ZipFile(self._path)
        entries = self._archive.infolist()
        self._bound(len(entries))
        self._packed = {entry.filename: entry for entry in entries if entry.filename in FILES}
        odd = [name for name, entry in self._packed.items() if entry.compress_type not in _METHODS]
        if odd:
            raise Invalid(f"{odd[0]} is packed in a way that is not read: unpack the zip file, and check the folder")
        return [entry.filename for entry in entries], [entry.file_size for entry in self._packed.values()]

    def _bound(self, files: int) -> None:
        if files > MOST_FILES:
            raise Invalid(f"it has more files than the {MOST_FILES:,} that are read")

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()

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
            packed = self._archive.open(self._packed[name])
        with packed:
            yield packed


@contextmanager
def _unpacking() -> Iterator[None]:
    """Says what is wrong with a zip file. Put nothing but calls of the library in here."""
    try:
        yield
    except _FAULTS as error:
        raise Invalid(f"the zip file cannot be read: {error}") from None


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
