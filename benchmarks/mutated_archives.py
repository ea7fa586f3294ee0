"""Zip files that two programs read differently: what somebody who sends a bundle could make of a good one."""

import random
import shutil
import struct
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

_END = b"PK\x05\x06"


@dataclass
class Entry:
    """A file in a zip file, with its own head and its line in the directory, which may differ."""

    name: bytes
    data: bytes
    local_name: bytes = b""
    flags: int = 0
    method: int = 8
    mode: int = 0o100600
    extra: bytes = b""
    local_extra: bytes = b""
    comment: bytes = b""
    packed: bytes = b""
    size: int = 0
    crc: int = 0
    local: dict[str, int] = field(default_factory=dict)
    gap: bytes = b""
    after: bytes = b""
    listed: bool = True

    def __post_init__(self) -> None:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        self.packed = self.packed or deflate.compress(self.data) + deflate.flush()
        self.size, self.crc = len(self.data), zlib.crc32(self.data)
        self.local_name = self.local_name or self.name

    def renamed(self, name: bytes) -> None:
        self.name = self.local_name = name


@dataclass
class Archive:
    entries: list[Entry]
    before: bytes = b""
    between: bytes = b""
    comment: bytes = b""
    after: bytes = b""

    def pack(self) -> bytes:
        out, lines, count = bytearray(self.before), bytearray(), 0
        for entry in self.entries:
            out += entry.gap
            at = len(out) - len(self.before)
            said = {"flags": entry.flags, "method": entry.method, "crc": entry.crc, "size": entry.size}
            said |= {"packed": len(entry.packed), **entry.local}
            fields = (said["flags"], said["method"], 0, 33, said["crc"], said["packed"], said["size"])
            out += struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, *fields, len(entry.local_name), len(entry.local_extra))
            out += entry.local_name + entry.local_extra + entry.packed + entry.after
            if not entry.listed:
                continue
            count += 1
            sizes = (entry.flags, entry.method, 0, 33, entry.crc, len(entry.packed), entry.size)
            tails = (len(entry.name), len(entry.extra), len(entry.comment), 0, 0, entry.mode << 16, at)
            lines += struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 0x314, 20, *sizes, *tails)
            lines += entry.name + entry.extra + entry.comment
        start = len(out) - len(self.before)
        end = struct.pack(
            "<4s4H2LH", _END, 0, 0, count, count, len(lines), start + len(self.between), len(self.comment)
        )
        return bytes(out + self.between + lines + end + self.comment + self.after)


def archive_of(files: dict[str, bytes]) -> Archive:
    return Archive([Entry(name.encode(), data) for name, data in files.items()])


def _second(archive: Archive, rng: random.Random, data: bytes | None = None) -> Entry:
    """Adds a file with other contents, at a place drawn by chance."""
    one = rng.choice(archive.entries)
    other = Entry(one.name, one.data.replace(b"a", b"e", 3) + b"\n" if data is None else data)
    archive.entries.insert(rng.randrange(len(archive.entries) + 1), other)
    return other


def _extra(kind: int, data: bytes) -> bytes:
    return struct.pack("<2H", kind, len(data)) + data


def _name(change: Callable[[bytes], bytes], *, alone: bool = True) -> "Mutation":
    """A name that another program makes the plain one of, beside that or, with ``alone``, instead of it."""

    def mutate(archive: Archive, rng: random.Random) -> None:
        entry = _second(archive, rng) if not alone or rng.random() < 0.5 else rng.choice(archive.entries)
        entry.renamed(change(entry.name))

    return mutate


def _local(name: str) -> "Mutation":
    def mutate(archive: Archive, rng: random.Random) -> None:
        entry = rng.choice(archive.entries)
        now = {"flags": entry.flags, "method": entry.method, "crc": entry.crc, "size": entry.size}
        entry.local[name] = (now | {"packed": len(entry.packed)})[name] ^ (1 << rng.randrange(1, 12))

    return mutate


def _set(name: str, value: object) -> "Mutation":
    def mutate(archive: Archive, rng: random.Random) -> None:
        setattr(rng.choice(archive.entries), name, value)

    return mutate


def _around(name: str, value: bytes | None = None) -> "Mutation":
    """Something beside the files; by default a whole zip file with other contents."""

    def mutate(archive: Archive, rng: random.Random) -> None:
        other = Archive([Entry(each.name, each.data + b"\n") for each in archive.entries]).pack()
        target = rng.choice(archive.entries) if name in ("gap", "after_file") else archive
        setattr(target, name.removesuffix("_file"), other if value is None else value)

    return mutate


def _unicode_path(archive: Archive, rng: random.Random) -> None:
    entry = _second(archive, rng)
    wanted = entry.name
    entry.renamed(b"other.txt")
    path = _extra(0x7075, b"\x01" + struct.pack("<L", zlib.crc32(entry.name)) + wanted)
    entry.extra, entry.local_extra = rng.choice(((path, b""), (b"", path), (path, path)))


def _zip64(archive: Archive, rng: random.Random) -> None:
    entry = rng.choice(archive.entries)
    entry.extra = _extra(1, struct.pack("<2Q", entry.size + 1, len(entry.packed)))


def _local_name(archive: Archive, rng: random.Random) -> None:
    entry = _second(archive, rng)
    entry.name, entry.local_name = b"other.txt", entry.name


def _duplicate(archive: Archive, rng: random.Random) -> None:
    _second(archive, rng)


def _hidden(archive: Archive, rng: random.Random) -> None:
    _second(archive, rng).listed = False


def _link(archive: Archive, rng: random.Random) -> None:
    entry = rng.choice(archive.entries)
    entry.mode = rng.choice((0o120777, 0o060600, 0o020600, 0o010600, 0o140600, 0o104755, 0o040755))


def _descriptor(archive: Archive, rng: random.Random) -> None:
    entry = rng.choice(archive.entries)
    entry.flags = 8
    entry.after = struct.pack("<4s3L", b"PK\x07\x08", entry.crc, len(entry.packed), entry.size)
    if rng.random() < 0.5:
        entry.local = {"crc": 0, "packed": 0, "size": 0}


def _longer(archive: Archive, rng: random.Random) -> None:
    """The packed bytes go on behind what the sizes say."""
    entry = rng.choice(archive.entries)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    entry.packed = deflate.compress(entry.data + b"more") + deflate.flush()


def _tail(archive: Archive, rng: random.Random) -> None:
    rng.choice(archive.entries).packed += b"behind the end"


def _two_ends(archive: Archive, rng: random.Random) -> None:
    whole = archive.pack()
    archive.after = whole[whole.rindex(_END) :]


def _end_in_comment(archive: Archive, rng: random.Random) -> None:
    archive.comment = struct.pack("<4s4H2LH", _END, 0, 0, 0, 0, 0, 0, 0)


Mutation = Callable[[Archive, random.Random], None]
MUTATIONS: dict[str, Mutation] = {
    "dot": _name(lambda name: b"./" + name),
    "absolute": _name(lambda name: b"/" + name),
    "parent": _name(lambda name: b"x/../" + name),
    "twice a slash": _name(lambda name: b".//" + name),
    "backslash": _name(lambda name: b".\\" + name),
    "drive": _name(lambda name: b"C:" + name),
    "NUL": _name(lambda name: name + b"\0.txt"),
    "control character": _name(lambda name: name + b"\x1b"),
    "dot at the end": _name(lambda name: name + b"."),
    "space at the end": _name(lambda name: name + b" "),
    "case": _name(bytes.swapcase, alone=False),
    "full width": _name(lambda name: name[:-1] + chr(name[-1] + 0xFEE0).encode()),
    "device": _name(lambda name: b"nul.txt"),
    "folder": _name(lambda name: name + b"/x", alone=False),
    "duplicate": _duplicate,
    "not in the directory": _hidden,
    "other name in its own head": _local_name,
    "unicode path": _unicode_path,
    "fields of large files": _zip64,
    "other method in its own head": _local("method"),
    "other flags in its own head": _local("flags"),
    "other checksum in its own head": _local("crc"),
    "other size in its own head": _local("size"),
    "other packed size in its own head": _local("packed"),
    "encrypted": _set("flags", 1),
    "descriptor": _descriptor,
    "link or device": _link,
    "comment of a file": _set("comment", b"x"),
    "longer than it says": _longer,
    "behind the end of the packed": _tail,
    "before": _around("before"),
    "between files": _around("gap"),
    "after a file": _around("after_file"),
    "between files and directory": _around("between"),
    "behind": _around("after"),
    "comment": _around("comment", b"a comment"),
    "end in the comment": _end_in_comment,
    "two ends": _two_ends,
}


def read_by_zipfile(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def read_by_programs(file: Path) -> Iterable[tuple[str, dict[str, bytes]]]:
    """Yields what each program of this machine unpacks."""
    for name, command in (("unzip", ["unzip", "-qq", "-o"]), ("bsdtar", ["bsdtar", "-x", "-f"])):
        if shutil.which(name) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([*command, str(file.absolute())], cwd=folder, check=False, capture_output=True)
            found = [each for each in Path(folder).rglob("*") if each.is_file()]
            yield name, {each.relative_to(folder).as_posix(): each.read_bytes() for each in found}
