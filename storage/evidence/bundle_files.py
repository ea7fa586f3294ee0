"""Opens an exported bundle (docs/audit.md), a folder or a zip file, and reads its files line by line, within bounds."""

import hashlib
import json
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from storage.merkle.formats import Invalid

MOST_FILES = 60_000
"""A zip file without the fields of large ones names no more than 65,534."""
MOST_UNPACKED_BYTES = 1 << 32
"""Of all files together."""
STORED, DEFLATED = 0, 8
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END_SIGN = b"PK\x05\x06"
_AS_UTF8, _HOW_DEFLATED = 0x800, 0x006
_MOST_COMMENT = 0xFFFF
_CHUNK_BYTES = 1 << 16
_PART = r"(?!(?:con|prn|aux|nul|com\d|lpt\d)(?:[./]|$))[a-z0-9_][a-z0-9._-]{0,150}(?<!\.)"
"""Windows has no files of the names that are left out."""
_PLAIN_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,7}}", re.IGNORECASE | re.ASCII)
_MOST_NAME = 2048


@dataclass(frozen=True)
class Packed:
    """A file in a zip file, as the directory describes it. ``at``: the offset of its own head. Sizes are in bytes."""

    name: str
    needs: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int
    size: int
    at: int


def is_plain_name(name: str) -> bool:
    """Whether every system unpacks a file of this name as it is."""
    return _PLAIN_NAME.fullmatch(name) is not None


def check_names(names: Iterable[str]) -> None:
    """Raises Invalid unless every system unpacks these names as they are, and each to a file of its own."""
    seen: dict[str, str] = {}
    for name in names:
        if not is_plain_name(name):
            raise Invalid(f"{name!a} is not a plain name of a file")
        other = seen.get(name.casefold())
        if other is not None:
            raise Invalid(f"{name} is there twice" if other == name else f"{other} and {name} differ in case alone")
        seen[name.casefold()] = name
    for name in seen:
        parent, _, _ = name.rpartition("/")
        while parent:
            if parent in seen:
                raise Invalid(f"{seen[parent]} is a file and a folder")
            parent, _, _ = parent.rpartition("/")


def check_archive(file: IO[bytes]) -> list[Packed]:
    """Returns the files of a zip file, none of which is unpacked yet. Raises: Invalid, OSError."""
    size = file.seek(0, 2)
    begin = max(0, size - _END.size - _MOST_COMMENT)
    file.seek(begin)
    tail = file.read()
    if len(tail) < _END.size or tail[-_END.size :][:4] != _END_SIGN:
        raise Invalid("the zip file does not end with the end of its directory")
    _, disk, first_disk, here, count, length, start, comment = _END.unpack(tail[-_END.size :])
    if disk or first_disk or here != count or comment or count > MOST_FILES:
        raise Invalid(f"the zip file has a comment, other parts, or more files than the {MOST_FILES:,} that are read")
    if start + length != size - _END.size or length > count * _MOST_NAME:
        raise Invalid("the zip file has something before, after or inside it that does not belong to it")
    _refuse_other_ends(tail, begin, start)
    file.seek(start)
    entries = _directory(file.read(length), count)
    check_names(entry.name for entry in entries)
    end = 0
    for entry in sorted(entries, key=lambda each: each.at):
        if entry.at != end:
            raise Invalid(f"the zip file has something before {entry.name} that does not belong to it")
        _check_head(file, entry)
        end += _LOCAL.size + len(entry.name) + entry.packed
    if end != start:
        raise Invalid("the zip file has something before its directory that does not belong to it")
    if sum(entry.size for entry in entries) > MOST_UNPACKED_BYTES:
        raise Invalid(f"the zip file says that it holds more than the {MOST_UNPACKED_BYTES:,} bytes that are read")
    return entries


def _refuse_other_ends(tail: bytes, begin: int, start: int) -> None:
    """Refuses a second end of the directory: any beside the directory, and one elsewhere that fits the file."""
    at = tail.find(_END_SIGN)
    while 0 <= at < len(tail) - _END.size:
        comment = _END.unpack_from(tail, at)[-1]
        if begin + at >= start or at + _END.size + comment == len(tail):
            raise Invalid("the zip file has several ends of its directory")
        at = tail.find(_END_SIGN, at + 1)
    of_large = tail[-_END.size - 20 :][:4] == b"PK\x06\x07"
    if of_large or tail.find(_END_SIGN, len(tail) - _END.size + 1) >= 0:
        raise Invalid("the zip file has several ends of its directory")


def _directory(raw: bytes, count: int) -> list[Packed]:
    entries, at = [], 0
    for _ in range(count):
        if len(raw) - at < _CENTRAL.size or raw[at : at + 4] != b"PK\x01\x02":
            raise Invalid("the directory of the zip file is damaged")
        _, made_by, *said, named, extra, comment, disk, _, mode, head = _CENTRAL.unpack_from(raw, at)
        needs, flags, method, time, date, crc, packed, size = said
        name = raw[at + _CENTRAL.size : at + _CENTRAL.size + named].decode("latin-1")
        at += _CENTRAL.size + named
        if extra or comment or disk:
            raise Invalid(f"{name!a} has an extra field or a comment in the zip file")
        if flags & ~(_AS_UTF8 | _HOW_DEFLATED):
            raise Invalid(f"{name!a} is encrypted, or has a descriptor behind it, in the zip file")
        if method not in (STORED, DEFLATED) or needs > 20 or made_by >> 8 not in (0, 3):
            raise Invalid(f"{name!a} is packed in a way that is not read: unpack the zip file, and check the folder")
        if method == STORED and packed != size:
            raise Invalid(f"{name!a} has two sizes in the zip file")
        kind = stat.S_IFMT(mode >> 16)
        if kind not in (0, stat.S_IFREG) or mode >> 16 & 0o7000 or mode & 0xFFFF & ~0x20:
            raise Invalid(f"{name!a} is not a plain file in the zip file")
        entries.append(Packed(name, needs, flags, method, time, date, crc, packed, size, head))
    if at != len(raw):
        raise Invalid("the directory of the zip file holds more than its files")
    return entries


def _check_head(file: IO[bytes], entry: Packed) -> None:
    file.seek(entry.at)
    raw = file.read(_LOCAL.size + len(entry.name))
    named = len(entry.name)
    same = (b"PK\x03\x04", entry.needs, entry.flags, entry.method, entry.time, entry.date)
    wanted = (*same, entry.crc, entry.packed, entry.size, named, 0)
    if raw != _LOCAL.pack(*wanted) + entry.name.encode("latin-1"):
        raise Invalid(f"{entry.name} is described in two ways in the zip file")


def digest_of_packed(file: IO[bytes], entry: Packed) -> str:
    """Returns the SHA-256 of a file that ``check_archive`` found. Raises: Invalid if it is another one; OSError."""
    size, crc, digest = 0, 0, hashlib.sha256()
    for piece in _pieces(file, entry):
        size += len(piece)
        if size > entry.size:
            break
        crc = zlib.crc32(piece, crc)
        digest.update(piece)
    if size != entry.size or crc != entry.crc:
        raise Invalid(f"{entry.name} is not as long, or not the same, as the zip file says")
    return digest.hexdigest()


def _pieces(file: IO[bytes], entry: Packed) -> Iterator[bytes]:
    """Yields what is packed, in pieces. Raises: Invalid if it does not end where the directory says; OSError."""
    file.seek(entry.at + _LOCAL.size + len(entry.name))
    left = entry.packed
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        while left and not inflate.eof:
            raw = file.read(min(left, _CHUNK_BYTES))
            left -= len(raw)
            if not raw:
                break
            if entry.method == STORED:
                yield raw
                continue
            while raw and not inflate.eof:
                yield inflate.decompress(raw, _CHUNK_BYTES)
                raw = inflate.unconsumed_tail
        if entry.method == DEFLATED and not inflate.eof:
            yield inflate.flush()
    except zlib.error as error:
        raise Invalid(f"{entry.name} cannot be unpacked: {error}") from None
    if left or (entry.method == DEFLATED and (not inflate.eof or inflate.unused_data)):
        raise Invalid(f"{entry.name} does not end where the zip file says")


FILES = ("bundle.json", "events.jsonl", "records.jsonl", "proofs.jsonl", "checkpoint")
"""What the proofs are about, or are made of."""
MANIFEST = "manifest.sha256"
"""The digests of the other files, of ``bundle.json`` and of ``events.jsonl``; in bundles of format 2."""
MOST_BYTES = 1 << 30
"""Of ``FILES`` together, unpacked."""
MOST_LINE_BYTES = 1 << 26
_MOST_FOLDERS = 7
_ZIP = b"PK\x03\x04"


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
    """The files of a bundle. Raises, here and where files are read: Invalid, OSError.

    Attributes:
        digests: SHA-256 of each file, by name.
    """

    def __init__(self, path: Path, archive: IO[bytes] | None) -> None:
        """``archive``: the zip file at ``path``, which stays open while files are read; None: a folder is there."""
        self._path, self._archive = path, archive
        self._packed = {} if archive is None else {entry.name: entry for entry in check_archive(archive)}
        sizes = {name: entry.size for name, entry in self._packed.items()}
        if archive is None:
            sizes = dict(islice(_files_below(path, ""), MOST_FILES + 1))
            check_names(sizes)
        missing = [name for name in FILES if name not in sizes]
        if missing:
            raise Invalid(f"{missing[0]} is missing")
        if len(sizes) > MOST_FILES:
            raise Invalid(f"it has more files than the {MOST_FILES:,} that are read")
        checked = sum(sizes[name] for name in FILES)
        if checked > MOST_BYTES or sum(sizes.values()) > MOST_UNPACKED_BYTES:
            raise Invalid(f"its files say that they hold {checked:,} bytes, and at most {MOST_BYTES:,} are read")
        self.digests = {name: self._digest(name) for name in sizes}
        self._left = MOST_BYTES

    def _digest(self, name: str) -> str:
        if self._archive is not None:
            return digest_of_packed(self._archive, self._packed[name])
        with (self._path / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _read(self, name: str) -> Iterator[bytes]:
        """Yields a file in pieces. Of a zip file, one file is read after the other."""
        if self._archive is not None:
            yield from _pieces(self._archive, self._packed[name])
            return
        with (self._path / name).open("rb") as file:
            while piece := file.read(_CHUNK_BYTES):
                yield piece

    def lines(self, name: str) -> Iterator[str]:
        """Yields the lines of a file, without their line feeds."""
        begun: list[bytes] = []
        length = 0
        for piece in self._read(name):
            self._left -= len(piece)
            for number, part in enumerate(piece.split(b"\n")):
                if number:
                    yield _decoded(begun, name)
                    begun, length = [], 0
                begun.append(part)
                length += len(part)
                if length >= MOST_LINE_BYTES or self._left < 0:
                    bound = f"lines of {MOST_LINE_BYTES:,} bytes, and {MOST_BYTES:,} bytes in all"
                    raise Invalid(f"{name} is too long: at most {bound}, are read")
        if length:
            raise Invalid(f"{name} does not end with a line feed")

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


def _decoded(parts: Iterable[bytes], name: str) -> str:
    try:
        return b"".join(parts).decode()
    except UnicodeDecodeError:
        raise Invalid(f"{name} is not UTF-8") from None


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
