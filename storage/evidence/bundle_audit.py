"""Opens an exported bundle (docs/audit.md), a folder or a zip file, within bounds, and checks what it holds.

That is events, records, proofs and a checkpoint, and in bundles of format 2 files for reading.
"""

import base64
import hashlib
import json
import os
import re
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from storage.evidence.history import History, Report
from storage.merkle.formats import (
    NO_LEAF,
    Checkpoint,
    Invalid,
    PublicKey,
    event_leaf,
    included,
    open_note,
    record_leaf,
    unpacked,
)

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


class Packed(NamedTuple):
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
        needs, flags, method, *_, packed, size = said
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
        entries.append(Packed._make((name, *said, head)))
    if at != len(raw):
        raise Invalid("the directory of the zip file holds more than its files")
    return entries


def _check_head(file: IO[bytes], entry: Packed) -> None:
    file.seek(entry.at)
    name, *said, _ = entry
    wanted = _LOCAL.pack(b"PK\x03\x04", *said, len(name), 0) + name.encode("latin-1")
    if file.read(len(wanted)) != wanted:
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


# What a bundle holds.

FORMAT = "conductor-inspector bundle 2"
FORMAT_1 = "conductor-inspector bundle 1"
"""Of bundles whose export is not in the log with the digest of their manifest: no signature covers the other files."""
OUTSIDE_MANIFEST = ("records.jsonl", "proofs.jsonl", "checkpoint", MANIFEST)
"""What comes after the manifest: it proves that the log holds the manifest."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
Verified = Callable[[str, dict[str, Any]], None]
_EVENT_KEYS = {"at_utc", "kind", "payload", "payload_base64", "place", "position", "run_id", "sequence"}


@dataclass
class Bundle:
    """A bundle that is open.

    Attributes:
        head: what ``bundle.json`` says.
        events: are read while they are asked for, once, which raises Invalid and OSError.
        proofs: the path of each position, 32 bytes a node.
        listed: the digest of each file that the manifest names; empty in format 1.
        digests: of each file that is there.
    """

    head: dict[str, Any]
    events: Iterator[dict[str, Any]]
    records: list[dict[str, Any]]
    proofs: dict[int, bytes]
    note: str
    listed: dict[str, str]
    digests: dict[str, str]


@contextmanager
def open_bundle(path: Path) -> Iterator[Bundle]:
    """Raises: Invalid, OSError."""
    opened: AbstractContextManager[IO[bytes] | None] = nullcontext() if path.is_dir() else path.open("rb")
    with opened as archive:
        files = BundleFiles(path, archive)
        head = _head(list(files.documents("bundle.json")))
        listed = _listed(files) if head["format"] == FORMAT else {}
        records = list(files.documents("records.jsonl"))
        of_record = {"position": int, "record": str}
        if any({name: type(value) for name, value in each.items()} != of_record for each in records):
            raise Invalid("records.jsonl has a line that is not a record")
        if records != sorted(records, key=lambda line: int(line["position"])):
            raise Invalid("the lines of records.jsonl are not in order of position")
        note = "".join(f"{line}\n" for line in files.lines("checkpoint"))
        events = _events(files, head["runs"])
        yield Bundle(head, events, records, _proofs(files), note, listed, files.digests)


def _head(lines: list[dict[str, Any]]) -> dict[str, Any]:
    if len(lines) != 1 or lines[0].get("format") not in (FORMAT, FORMAT_1):
        raise Invalid("bundle.json is not of a format that is known here")
    head = lines[0]
    types = {"covered_from": int, "format": str, "key": str, "origin": str, "runs": list}
    right = {name: type(value) for name, value in head.items()} == types
    runs = head.get("runs", ())
    if not right or not all(isinstance(run, str) for run in runs) or len(set(runs)) < len(runs):
        raise Invalid("bundle.json has other fields than this format")
    return head


def _listed(files: BundleFiles) -> dict[str, str]:
    if MANIFEST not in files.digests:
        raise Invalid(f"{MANIFEST} is missing")
    listed: dict[str, str] = {}
    last = ""
    for line in files.lines(MANIFEST):
        digest, between, name = line[:64], line[64:66], line[66:]
        if not _DIGEST.fullmatch(digest) or between != "  " or not is_plain_name(name) or name in OUTSIDE_MANIFEST:
            raise Invalid(f"{MANIFEST} has a line that is not a digest and a name")
        if name <= last:
            raise Invalid(f"the lines of {MANIFEST} are not in the order of the names")
        listed[name], last = digest, name
    return listed


def _proofs(files: BundleFiles) -> dict[int, bytes]:
    proofs: dict[int, bytes] = {}
    last = -1
    for proof in files.documents("proofs.jsonl"):
        right = set(proof) == {"path", "position"} and type(proof["position"]) is int and type(proof["path"]) is list
        if not right or proof["position"] <= last:
            raise Invalid("proofs.jsonl has a line that is not a proof or is out of order")
        last = proof["position"]
        proofs[last] = b"".join(unpacked(each, 32) for each in proof["path"])
    return proofs


def _events(files: BundleFiles, run_ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the events of the runs, which must stand one run after another in this order."""
    runs = iter(run_ids)
    run_id = None
    for event in files.documents("events.jsonl"):
        if not _is_event(event):
            raise Invalid("events.jsonl has a line that is not an event")
        if event["run_id"] != run_id:
            run_id = next(runs, None)
        if event["run_id"] != run_id:
            break
        yield event
    else:
        if next(runs, None) is None:
            return
    raise Invalid("events.jsonl does not hold the runs of bundle.json, one after another")


def _is_event(event: dict[str, Any]) -> bool:
    texts = all(isinstance(event.get(name), str) for name in ("at_utc", "kind", "run_id"))
    numbers = all(type(event.get(name)) is int for name in ("sequence", "place", "position"))
    payload = isinstance(event.get("payload"), str) != isinstance(event.get("payload_base64"), str)
    return texts and numbers and payload and set(event) <= _EVENT_KEYS and len(event) == len(_EVENT_KEYS) - 1


def payload_of(event: dict[str, Any]) -> bytes:
    """Returns the exact bytes that were stored. Raises: Invalid."""
    if "payload_base64" in event:
        payload = unpacked(event["payload_base64"])
        if "payload" in payload_fields(payload):
            raise Invalid("a payload that is text is not written as text")
        return payload
    try:
        return str(event["payload"]).encode()
    except UnicodeEncodeError:
        raise Invalid("an event is not UTF-8") from None


def payload_fields(payload: bytes) -> dict[str, str]:
    """Returns the field of a line of events.jsonl that holds these bytes."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def audit_bundle(
    bundle: Bundle,
    keys: Sequence[PublicKey],
    anchors: History,
    report: Report,
    progress: Callable[[str, int], None],
    verified: Verified = lambda run_id, event: None,
) -> None:
    """Adds what it finds to ``report``.

    Args:
        anchors: what was published outside of the database.
        verified: is given each event that is as it was written, until the first of its run that is not.

    Raises: Invalid, OSError.
    """
    try:
        checkpoint = open_note(bundle.note, keys)
    except Invalid as error:
        advice = "if another log wrote the bundle, give its public key with --public-key"
        report.add("unsigned", f"the checkpoint of the bundle cannot be trusted: {error}; {advice}")
        return
    if bundle.head["origin"] != checkpoint.origin or bundle.head["key"] not in {key.line for key in keys}:
        report.add("evidence", "bundle.json names another log or key than the checkpoint's")
    if checkpoint.size <= len(anchors) and anchors.root(checkpoint.size) != checkpoint.root:
        report.add("fork", "the checkpoint of the bundle is signed for another history than the anchor's")
    for other in anchors.checkpoints:
        if other.size == checkpoint.size and other.root != checkpoint.root:
            report.add("fork", "two checkpoints of one size are signed for different histories")
    check = _Check(checkpoint, bundle, anchors, report, verified)
    seals = check.records()
    for run_id, events in groupby(_counted(bundle.events, progress), key=lambda event: str(event["run_id"])):
        check.run(run_id, events, seals.get(run_id))
    unused = len(bundle.proofs.keys() - check.proved)
    if unused:
        report.add("evidence", f"proofs.jsonl has {unused} proofs of entries that the bundle does not hold")
    report.verified_size = checkpoint.size
    if bundle.head["format"] == FORMAT:
        _check_files(bundle, check.manifests, report)
    else:
        for name in sorted(bundle.digests.keys() - set(FILES)):
            # Else whoever takes the manifest out of a bundle could change all that is there for reading.
            report.add("evidence", f"no signature covers {name}: a bundle of format 1 has no such file")


def _check_files(bundle: Bundle, recorded: dict[str, set[str]], report: Report) -> None:
    """Compares the files with the manifest, and that with those that the log has of exports. ``recorded``: by run."""
    digest = bundle.digests[MANIFEST]
    for run_id in bundle.head["runs"]:
        if digest not in recorded.get(run_id, ()):
            report.add("evidence", f"{MANIFEST} is not one that the log has of an export of this run", run_id)
    for name, wanted in bundle.listed.items():
        if name not in bundle.digests:
            report.add("evidence", f"{name} was removed from the bundle")
        elif bundle.digests[name] != wanted:
            report.add("evidence", f"{name} is not as it was exported")
    for name in bundle.digests.keys() - bundle.listed.keys() - set(OUTSIDE_MANIFEST):
        report.add("evidence", f"{name} was added to the bundle")
    for name in FILES[:2]:
        if name not in bundle.listed:
            report.add("evidence", f"{MANIFEST} does not name {name}")


def _counted(events: Iterable[dict[str, Any]], progress: Callable[[str, int], None]) -> Iterator[dict[str, Any]]:
    for count, event in enumerate(events):
        progress("events", count)
        yield event


class _Check:
    """Checks records and runs. ``manifests``: by run, the digests of manifests that the log has of exports of it."""

    def __init__(
        self, checkpoint: Checkpoint, bundle: Bundle, anchors: History, report: Report, verified: Verified
    ) -> None:
        self._checkpoint, self._bundle, self._anchors, self._report = checkpoint, bundle, anchors, report
        self._origin = checkpoint.origin.encode()
        self.proved: set[int] = set()
        self.manifests: dict[str, set[str]] = {}
        self._verified = verified
        self._stopped: set[str] = set()
        self._anchored = Counter(anchors.run(at) for at in range(min(len(anchors), checkpoint.size)))

    def _proved(self, leaf: bytes, position: int) -> bool:
        self.proved.add(position)
        packed = self._bundle.proofs.get(position)
        if packed is None:
            return False
        path = [packed[at : at + 32] for at in range(0, len(packed), 32)]
        return included(leaf, position, self._checkpoint.size, path, self._checkpoint.root)

    def records(self) -> dict[str, dict[str, Any]]:
        seals: dict[str, dict[str, Any]] = {}
        seen: set[int] = set()
        for line in self._bundle.records:
            position, text = line["position"], str(line["record"])
            try:
                raw = text.encode()
                record = json_object(text)
            except (Invalid, UnicodeEncodeError):
                raw, record = b"", {}
            if position in seen or not self._proved(record_leaf(self._origin, raw), position):
                self._report.add("evidence", f"the record at entry {position} is not as it was written")
            elif record.get("kind") == "run.sealed":
                seals[str(record.get("run"))] = record
            elif record.get("kind") == "log.began" and record.get("covered_from") != self._bundle.head["covered_from"]:
                self._report.add("evidence", "bundle.json and the log differ in where the evidence begins")
            elif record.get("kind") == "content.exported" and record.get("what") == "bundle":
                self.manifests.setdefault(str(record.get("run")), set()).add(str(record.get("manifest")))
            seen.add(position)
        if 0 not in seen:
            self._report.add("evidence", "the record with which the log begins is missing")
        return seals

    def run(self, run_id: str, events: Iterable[dict[str, Any]], seal: dict[str, Any] | None) -> None:
        report = self._report
        head, place, last = NO_LEAF, 0, 0
        good = in_order = True
        for event in events:
            in_order = self._is_placed(run_id, event, last, in_order)
            last = event["sequence"]
            if not good:
                continue  # it cannot be checked without what stands before it
            if event["place"] == place:
                head, good = self._event(run_id, event, head)
                place += 1
            else:
                good = False
                kind = "deleted" if event["place"] > place else "reordered"
                report.add(kind, f"event {place} of the run should come before this one", run_id, last)
        if not good:
            return
        if seal is None:
            report.notes.append(f"run {run_id} had not ended: later events may exist")
        elif (seal.get("events"), seal.get("head")) != (place, head.hex()):
            report.add("truncated", "the seal of the run names later events", run_id, last)
        wanted = self._anchored[run_id]
        if wanted > place:
            report.add("truncated", f"the anchor knows {wanted} events of this run", run_id, last)

    def _is_placed(self, run_id: str, event: dict[str, Any], last: int, in_order: bool) -> bool:
        """Checks where an event claims to stand. Returns whether the events of the run were in order so far."""
        sequence = event["sequence"]
        if sequence < 1:
            self._report.add("inserted", "the event has no place in the log", run_id, sequence)
        if in_order and last and sequence <= last:
            self._report.add("reordered", "the events of the run are not in their order", run_id, sequence)
            return False
        return in_order

    def _event(self, run_id: str, event: dict[str, Any], previous: bytes) -> tuple[bytes, bool]:
        """Checks one event. Returns its leaf, and whether it is as it was written."""
        place, sequence, position = event["place"], event["sequence"], event["position"]
        try:
            digest = hashlib.sha256(payload_of(event)).hexdigest().encode()
            at_utc, kind, run = (event[name].encode() for name in ("at_utc", "kind", "run_id"))
        except (Invalid, UnicodeEncodeError):
            digest = at_utc = kind = run = b"\n"
        leaf = event_leaf(self._origin, place, sequence, digest, previous, at_utc, kind, run)
        good = b"\n" not in at_utc + kind and self._proved(leaf, position)
        if not good:
            self._report.add("edited", "the event, or its place, is not as it was written", run_id, sequence)
        elif position < len(self._anchors) and self._anchors.leaf(position) != leaf:
            self._report.add("fork", "the anchor has another entry here", run_id, sequence)
        else:
            self._report.verified_events += 1
            self._report.unanchored_events += position >= self._anchors.anchored
            if run_id not in self._stopped:
                self._verified(run_id, event)
            return leaf, True
        self._stopped.add(run_id)
        return leaf, good
