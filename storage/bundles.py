"""``conductor log export``: a bundle of runs that anybody can check without us, as one zip file.

Beside the files that prove themselves (docs/audit.md) it holds what a person needs: a decision record of each run, the
images of the tasks, the verifier, and a page of plain text that says how to check all this.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from conductor_core import __version__
from conductor_core.analysis.decision_record import DecisionRecord, decision_record, record_page
from conductor_core.chat.messages import IMAGE_TYPES, ImagePart
from conductor_core.errors import BadInput, ContentMissing, InspectorError, StoreDamaged, UnknownRun
from conductor_core.run.actor import Caller
from conductor_core.run.judgement import Judgement
from conductor_core.run.redaction import Redactor
from conductor_core.run.trace import ENDED_STATUSES, RunTrace, RunUnreadable, fold
from storage import errors
from storage.evidence import bundle_audit as audit
from storage.evidence.database_audit import NoEvidence, open_database
from storage.evidence.keys import load_key
from storage.evidence.verifier import printable
from storage.merkle.formats import Invalid, PublicKey, node
from storage.privacy import SEALED
from storage.records import ERASED
from storage.store import Store

# The part that proves itself (docs/audit.md): events, manifest, records, proofs, checkpoint.

_EVENTS = (
    "SELECT sequence, position, CAST(kind AS BLOB), CAST(at_utc AS BLOB), CAST(payload AS BLOB) FROM events "
    "WHERE run_id = ? ORDER BY sequence"
)
_RECORDS = "SELECT position, run_id, CAST(record AS BLOB) FROM leaves WHERE record IS NOT NULL ORDER BY position"
_OF_RUNS = ("run.sealed", "run.held", "run.released", "content.viewed", "content.exported")
_NOTE = "SELECT size, note FROM checkpoints ORDER BY size DESC LIMIT 1"
_MANIFESTS = "SELECT run_id FROM leaves WHERE record LIKE ?"
_HASHES = "SELECT hash FROM leaves WHERE position < ? ORDER BY position"


class Proofs:
    """Inclusion proofs of the tree with these leaves, 32 bytes each."""

    def __init__(self, leaves: bytes) -> None:
        self._levels = [leaves]  # nodes, 32 bytes each; an odd last one rises
        while len(self._levels[-1]) > 32:
            level, above = self._levels[-1], bytearray()
            for at in range(0, len(level) - 32, 64):
                above += node(level[at : at + 32], level[at + 32 : at + 64])
            if len(level) % 64:
                above += level[-32:]
            self._levels.append(bytes(above))

    def path(self, position: int) -> list[bytes]:
        """Returns the proof of the leaf at ``position``, from the leaf up (RFC 9162, 2.1.3)."""
        path = []
        for level in self._levels[:-1]:
            sibling = position ^ 1
            if 32 * sibling < len(level):
                path.append(bytes(level[32 * sibling : 32 * sibling + 32]))
            position >>= 1
        return path


class BundleWriter:
    """Writes a bundle of runs into ``folder``, which exists: first their events, and at last what proves them.

    All methods raise OSError and sqlite3.Error, and BadInput as they say.
    """

    def __init__(self, connection: sqlite3.Connection, run_ids: Sequence[str], key: PublicKey, folder: Path) -> None:
        self._connection, self._run_ids, self._key, self._folder = connection, run_ids, key, folder
        self._positions: list[int] = []

    def write_head(self, form: str) -> None:
        """Writes ``bundle.json``. ``form``: ``FORMAT``, or ``FORMAT_1`` if the log cannot take the manifest."""
        ((origin, covered_from),) = self._connection.execute("SELECT origin, covered_from FROM evidence_log")
        fields = {"covered_from": covered_from, "format": form, "key": self._key.line, "origin": origin}
        self._write("bundle.json", [{**fields, "runs": list(self._run_ids)}])

    def write_events(self) -> None:
        """Writes the events as they are now. Raises: BadInput for a run without events, or too much to be read."""
        self._write("events.jsonl", (line for run_id in self._run_ids for line in self._events(run_id)))

    def write_manifest(self) -> str:
        """Writes the digests of all files that are in the folder now. Returns the digest of that."""
        files = [each for each in self._folder.rglob("*") if each.is_file()]
        lines = []
        for name, file in sorted((each.relative_to(self._folder).as_posix(), each) for each in files):
            with file.open("rb") as opened:
                lines.append(f"{hashlib.file_digest(opened, 'sha256').hexdigest()}  {name}\n")
        if len(lines) > audit.MOST_FILES - len(audit.OUTSIDE_MANIFEST):
            raise BadInput(
                f"the bundle has more than the {audit.MOST_FILES:,} files that are read: export fewer runs at once"
            )
        manifest = "".join(lines).encode()
        (self._folder / audit.MANIFEST).write_bytes(manifest)
        return hashlib.sha256(manifest).hexdigest()

    def is_recorded(self, manifest: str) -> bool:
        """Whether the log has an export of each run with this digest of its manifest."""
        exports = self._connection.execute(_MANIFESTS, (f'%"manifest":"{manifest}"%',))
        return {run_id for (run_id,) in exports} == set(self._run_ids)

    def write_proofs(self) -> None:
        """Writes the records, the last checkpoint and all proofs. Raises: BadInput for what was not published yet."""
        size, note = self._connection.execute(_NOTE).fetchone() or (0, "")
        if any(at >= size for at in self._positions):
            raise BadInput("the runs have events that were not published yet: try again in a second")
        records = list(_records(self._connection, set(self._run_ids), size))
        proofs = Proofs(b"".join(leaf for (leaf,) in self._connection.execute(_HASHES, (size,))))
        self._write("records.jsonl", records)
        positions = sorted([*self._positions, *(int(line["position"]) for line in records)])
        paths = (
            {"path": [base64.b64encode(each).decode() for each in proofs.path(at)], "position": at} for at in positions
        )
        self._write("proofs.jsonl", paths)
        (self._folder / "checkpoint").write_text(note, encoding="utf-8", newline="\n")
        size_bytes = sum((self._folder / name).stat().st_size for name in audit.FILES)
        if size_bytes > audit.MOST_BYTES:
            raise BadInput(
                f"the bundle has {size_bytes:,} bytes, and {audit.MOST_BYTES:,} are read: export fewer runs at once"
            )

    def _write(self, name: str, lines: Iterable[dict[str, Any]]) -> None:
        with (self._folder / name).open("wb") as file:
            for each in lines:
                line = f"{audit.json_line(each)}\n".encode()
                if len(line) > audit.MOST_LINE_BYTES:
                    raise BadInput(
                        f"an event has more than the {audit.MOST_LINE_BYTES:,} bytes that are read in one line of a "
                        "bundle"
                    )
                file.write(line)

    def _events(self, run_id: str) -> Iterator[dict[str, Any]]:
        place, rows = -1, self._connection.execute(_EVENTS, (run_id,))
        for place, (sequence, position, kind, at_utc, payload) in enumerate(rows):
            if position is None:
                raise BadInput(f"an event of run {run_id} has no leaf: verify the log, which says more")
            self._positions.append(position)
            yield {
                "at_utc": at_utc.decode(errors="replace"),
                "kind": kind.decode(errors="replace"),
                **audit.payload_fields(payload),
                "place": place,
                "position": position,
                "run_id": run_id,
                "sequence": sequence,
            }
        if place < 0:
            raise BadInput(f"unknown run {run_id}")


def _records(connection: sqlite3.Connection, run_ids: set[str], size: int) -> Iterator[dict[str, Any]]:
    """Yields the log's first record, rotations of its key, machines that may act, and the runs' seals and looks."""
    for position, run_id, record in connection.execute(_RECORDS):
        if position >= size:
            return
        try:
            text = record.decode()
            found = json.loads(text)
        except (ValueError, RecursionError):  # damaged: whoever verifies the database is told
            continue
        kind = found.get("kind") if isinstance(found, dict) else None
        if kind in ("log.began", "key.rotated", "machine.registered") or (kind in _OF_RUNS and run_id in run_ids):
            yield {"position": position, "record": text}


MODULES = (
    "merkle.formats",
    *(f"evidence.{name}" for name in ("history", "database_audit")),
    *(f"evidence.{name}" for name in ("bundle_audit", "verifier")),
)
_OWN_IMPORT = re.compile(r"^from storage\.(?:evidence|merkle)\.\w+ import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE)
_IMPORT = re.compile(r"^(?:from [\w.]+ import (?:\([^)]*\)|[^(\n]*)|import [^\n]*)\n", re.MULTILINE)
_HEAD = '''#!/usr/bin/env python3
"""Checks a database or an exported bundle of Conductor Inspector. It needs Python 3.11 and cryptography, nothing else.

    python verify.py DATABASE|BUNDLE --public-key KEY --anchor FILE [--record]

Version {version}, joined from the modules {modules} of storage.
"""

'''


def verifier_source() -> str:
    imports: dict[str, None] = {}
    bodies = []
    for name in MODULES:
        file = Path(__file__).parent / f"{name.replace('.', '/')}.py"
        text = _OWN_IMPORT.sub("", file.read_text(encoding="utf-8"))
        imports |= dict.fromkeys(each.rstrip("\n") for each in _IMPORT.findall(text))
        doc, body = re.match(r'"""(.*?)"""\n', text, re.DOTALL), _IMPORT.sub("", text)
        if doc is not None:
            said = "\n".join(f"# {line}".rstrip() for line in doc[1].strip().split("\n"))
            body = f"# --- {name}\n{said}\n{body[doc.end() :]}"
        bodies.append(body.strip("\n"))
    ordered = sorted(imports, key=lambda line: (line.startswith("from"), line))
    head = _HEAD.format(version=__version__, modules=", ".join(MODULES)) + "\n".join(ordered)
    return "\n\n\n".join([head, *bodies]) + "\n"


def verifier_digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


# What a person reads.


def record_of(store: Store, run_id: str, redactor: Redactor) -> DecisionRecord:
    """Returns the decision record of a run, which may go on, wait, or be damaged: then as far as it can be read.

    ``redactor`` hides passages in the copy that it is read from; keys in any case.

    Raises: UnknownRun; RunUnreadable if nothing of the run can be read; StoreError; BadInput for a pattern that hides
        what the record needs.
    """
    damage: str | None = None
    try:
        trace, _ = store.trace(run_id)
    except RunUnreadable as error:
        if error.trace is None:
            raise
        trace, damage = error.trace, str(error)
    stored, _ = store.readable_events(run_id)
    return decision_record(
        redactor.events([each.event for each in stored]),
        parent=_parent(store, trace, redactor),
        first=stored[0].sequence,
        last=stored[-1].sequence,
        damage=damage,
    )


def record_page_of(store: Store, run_id: str, redactor: Redactor) -> str:
    """Returns the decision record of a run as an HTML page. Raises: as ``record_of``."""
    record = record_of(store, run_id, redactor)
    return record_page(record, images_of(store, record.images), hidden=redactor.count)


def images_of(store: Store, images: Sequence[ImagePart]) -> dict[str, tuple[str, bytes]]:
    """Returns media type and bytes of those images that are kept, by digest."""
    found = {}
    for image in images:
        with suppress(ContentMissing):
            found[image.sha256] = store.content(image.sha256)
    return found


def _parent(store: Store, trace: RunTrace, redactor: Redactor) -> RunTrace | None:
    """Returns the run that ``trace`` re-runs or resumes; None if there is none, or if it cannot be read whole."""
    if trace.parent_run_id is None:
        return None
    with suppress(UnknownRun, RunUnreadable):
        store.trace(trace.parent_run_id)
        return fold(redactor.events([each.event for each in store.events(trace.parent_run_id)]))
    return None


Notify = Callable[[int, int], None]
_ENCRYPTED = "SELECT 1 FROM events WHERE run_id = ? AND substr(CAST(payload AS BLOB), 1, 1) = ? LIMIT 1"
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
SEALED_WORDS = "the bundle proves their stored bytes, and nobody can read them without their keys"
UNFINISHED_WORDS = "the bundle holds what was there when it was made, without a seal that says it is all"
UNBOUND_WORDS = (
    "the log could not record this export, so the bundle holds no files for reading, which nothing would cover"
)
_READ_ME = """Runs of Conductor Inspector, exported {when} UTC by version {version}.

Do not trust the verify.py in here, nor this page: whoever made the bundle wrote both. Take along, from elsewhere:

1. The verifier: verify.py of version {version}, from the project's release, or made from its sources with
   "conductor log verifier verify.py". Its SHA-256 should be the one that the project names for this version
   (this bundle claims {verifier}).
2. The fingerprint of the log's public key, as it was noted when the log began. This bundle claims
       {key}
       fingerprint: {fingerprint}
3. The file of published checkpoints (the anchor), from a place that the owner of the log cannot rewrite.

Then check, in this order, with Python 3.11 or newer and the package cryptography:

    sha256sum verify.py          (is it the project's?)
    python -m venv check && check/bin/pip install cryptography
    check/bin/python verify.py {name} --public-key KEY --anchor FILE
    check/bin/python verify.py {name} --public-key KEY --anchor FILE --record

The first run of verify.py says whether anything was changed, added or removed, and names it. The second one prints what
happened in each run, read from the proven events alone. KEY is the line above once its fingerprint is the one that you
noted; verify.py prints the fingerprint of the key that you give it. Unpack the zip file only when nothing was found.

{count} runs:

{runs}

Of a run that is encrypted the bundle holds the stored bytes, without a record and images. Proofs cover these bytes.
Nobody can read them without the key of the run, which is not here.

records/         each run as a decision record, one page to read
contents/        the images that came with the tasks, named by the SHA-256 of their bytes
judgements.jsonl what people, graders and judges held of the runs until then; it is there if anything was
manifest.sha256  the digests of all files but records.jsonl, proofs.jsonl and the checkpoint, which prove that the log
                 holds the digest of this manifest, as part of the record of this export

The pages in records/ are as the program wrote them when it made the bundle, which the manifest shows. That they say
what the events say is for "--record" to show. docs/expert.md and docs/audit.md of the program say more.
"""


@dataclass(frozen=True)
class Exported:
    """A bundle that was written. ``size`` is in bytes.

    ``encrypted``, ``unfinished``: how many of its runs are. Those that had not ended have no seal.
    ``bound``: whether the log has the export with the digest of all files. Else the bundle is of format 1.
    """

    path: Path
    runs: int
    encrypted: int
    unfinished: int
    size: int
    key: PublicKey
    bound: bool


def export_runs(
    store: Store, run_ids: Sequence[str], target: Path, notify: Notify, caller: Caller, browser: str | None = None
) -> Exported:
    """Writes a bundle of these runs of an open store into a new file.

    Args:
        notify: is told how many records are written, and of how many. Events and proofs follow.
        caller: who asks for it, which goes on record as a look. browser: theirs.

    Raises: BadInput, for one if a run was erased, or writes events faster than they are published; StoreError.
    """
    folder = tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-")

    def record_export(manifest: str) -> None:
        store.access_log.exported(run_ids, "bundle", caller, browser, manifest)
        store.access_log.settle()

    with errors.translated(target), folder as at:
        return _written(store, run_ids, Path(at), target, notify, record_export)


def _written(
    store: Store, run_ids: Sequence[str], folder: Path, target: Path, notify: Notify, record: Callable[[str], None]
) -> Exported:
    """Writes all files, puts the digest of their manifest on record, and then writes what proves that record."""
    whole = folder / "bundle"
    whole.mkdir()
    try:
        key = load_key(store.places.key, store.evidence().origin).public
        with closing(open_database(store.path)) as connection:
            _refuse_erased(connection, run_ids)
            if store.refusal is None:
                store.publish()  # an anchor that cannot be reached is said before the work
            sealed = {run_id for run_id in run_ids if connection.execute(_ENCRYPTED, (run_id, SEALED)).fetchone()}
            unfinished = sum(_status(connection, run_id) not in {None, *ENDED_STATUSES} for run_id in run_ids)
            _write_for_reading(store, run_ids, sealed, key, whole, target.name, notify)
            _refuse_erased(connection, run_ids)
            writer = BundleWriter(connection, run_ids, key, whole)
            writer.write_events()
            writer.write_head(audit.FORMAT)
            manifest = writer.write_manifest()
            record(manifest)
            if not (bound := writer.is_recorded(manifest)):
                for each in whole.iterdir():
                    if each.is_dir():
                        shutil.rmtree(each)
                    elif each.name not in audit.FILES:
                        each.unlink()
                writer.write_head(audit.FORMAT_1)
            if store.refusal is None:
                store.publish()
            writer.write_proofs()
    except (NoEvidence, sqlite3.Error) as error:
        raise BadInput(str(error)) from error
    packed = folder / "whole.zip"
    _pack(whole, packed)
    packed.chmod(0o600)  # as a backup: nothing is hidden in it
    # A link fails if somebody else has made the file meanwhile. A rename would replace it.
    os.link(packed, target)
    size = target.stat().st_size
    return Exported(target, len(run_ids), len(sealed), unfinished, size, key, bound)


def _write_for_reading(
    store: Store,
    run_ids: Sequence[str],
    sealed: Container[str],
    key: PublicKey,
    folder: Path,
    name: str,
    notify: Notify,
) -> None:
    """Writes what a person reads: README, verifier, images, and a decision record of each run that is not encrypted."""
    verifier = verifier_source()
    (folder / "verify.py").write_text(verifier, encoding="utf-8", newline="\n")
    read_me = _READ_ME.format(
        version=__version__,
        verifier=verifier_digest(verifier),
        when=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        name=name,
        key=key.line,
        fingerprint=key.fingerprint,
        count=f"{len(run_ids):,}",
        runs="\n".join(printable(run_id) + ("  (encrypted)" if run_id in sealed else "") for run_id in run_ids),
    )
    (folder / "README.txt").write_text(read_me, encoding="utf-8", newline="\n")
    readable = [run_id for run_id in run_ids if run_id not in sealed]
    (folder / "contents").mkdir()
    for sha256, (media_type, data) in _images(store, readable).items():
        kind = media_type.partition("/")[2] if media_type in IMAGE_TYPES else "bin"
        (folder / "contents" / f"{sha256}.{kind}").write_bytes(data)
    judgements: list[Judgement] = []
    for run_id in readable:
        with suppress(StoreDamaged):  # a check of the database says what is wrong with them
            judgements += store.judgements.of(run_id)
    if judgements:
        lines = "".join(f"{each.model_dump_json()}\n" for each in judgements)
        (folder / "judgements.jsonl").write_text(lines, encoding="utf-8", newline="\n")
    (folder / "records").mkdir()
    used: set[str] = set()
    for number, run_id in enumerate(readable):
        notify(number, len(readable))
        file = safe_name(run_id, f"_{number + 1}")
        if file.casefold() in used:  # some systems take both for one file
            file = f"_{number + 1}"
        used.add(file.casefold())
        try:
            record = record_page_of(store, run_id, Redactor())
        except InspectorError as error:
            said = f"<p>No record: {escape(str(error))}"
            record = f"<!doctype html><meta charset=utf-8><title>Decision record</title>{said}"
        (folder / "records" / f"{file}.html").write_bytes(record.encode(errors="replace"))
    notify(len(readable), len(readable))


def _pack(folder: Path, target: Path) -> None:
    """Packs the files of ``folder``. Raises: BadInput if nobody would read that much; OSError."""
    files = sorted((each.relative_to(folder).as_posix(), each) for each in folder.rglob("*") if each.is_file())
    try:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, allowZip64=False) as archive:
            for name, file in files:
                archive.write(file, name)
        with target.open("rb") as packed:
            audit.check_archive(packed)
    except (zipfile.LargeZipFile, Invalid) as error:
        raise BadInput(f"the bundle is too large to be read ({error}): export fewer runs at once") from error


def safe_name(run_id: str, instead: str) -> str:
    """Returns the run's id as part of a file's name; ``instead`` for one that this program never gives a run."""
    return run_id if _SAFE.fullmatch(run_id) and audit.is_plain_name(run_id) else instead


def _images(store: Store, run_ids: Iterable[str]) -> dict[str, tuple[str, bytes]]:
    found: dict[str, tuple[str, bytes]] = {}
    for run_id in run_ids:
        try:
            named = store.created(run_id).request.all_images
        except InspectorError:
            continue  # the events are in the bundle as they are, and the record says what is wrong
        for image in named:
            try:
                found.setdefault(image.sha256, store.content(image.sha256))
            except ContentMissing as error:
                print(f"note: {error}", file=sys.stderr)
    return found


def _refuse_erased(connection: sqlite3.Connection, run_ids: Iterable[str]) -> None:
    for run_id in run_ids:
        if _status(connection, run_id) == ERASED:
            raise BadInput(f"run {run_id} was erased: there is nothing of it to export")


def _status(connection: sqlite3.Connection, run_id: str) -> str | None:
    row = connection.execute("SELECT status FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else row[0]
