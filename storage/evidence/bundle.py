"""Writes the part of a bundle that proves itself (docs/audit.md): events, manifest, records, proofs, checkpoint."""

import base64
import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from conductor_core import __version__
from conductor_core.errors import BadInput
from storage.evidence.bundle_audit import (
    FILES,
    FORMAT_1,
    MANIFEST,
    MOST_BYTES,
    MOST_FILES,
    MOST_LINE_BYTES,
    OUTSIDE_MANIFEST,
    json_line,
    payload_fields,
)
from storage.merkle.formats import PublicKey, node

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
        if len(lines) > MOST_FILES - len(OUTSIDE_MANIFEST):
            raise BadInput(
                f"the bundle has more than the {MOST_FILES:,} files that are read: export fewer runs at once"
            )
        manifest = "".join(lines).encode()
        (self._folder / MANIFEST).write_bytes(manifest)
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
        size_bytes = sum((self._folder / name).stat().st_size for name in FILES)
        if size_bytes > MOST_BYTES:
            raise BadInput(
                f"the bundle has {size_bytes:,} bytes, and {MOST_BYTES:,} are read: export fewer runs at once"
            )

    def _write(self, name: str, lines: Iterable[dict[str, Any]]) -> None:
        with (self._folder / name).open("wb") as file:
            for each in lines:
                line = f"{json_line(each)}\n".encode()
                if len(line) > MOST_LINE_BYTES:
                    raise BadInput(
                        f"an event has more than the {MOST_LINE_BYTES:,} bytes that are read in one line of a bundle"
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
                **payload_fields(payload),
                "place": place,
                "position": position,
                "run_id": run_id,
                "sequence": sequence,
            }
        if place < 0:
            raise BadInput(f"unknown run {run_id}")


def write_bundle(connection: sqlite3.Connection, run_ids: Sequence[str], key: PublicKey, folder: Path) -> None:
    """Writes a bundle of format 1, without files for reading, into ``folder``. Raises: as ``BundleWriter``."""
    writer = BundleWriter(connection, run_ids, key, folder)
    writer.write_head(FORMAT_1)
    writer.write_events()
    writer.write_proofs()


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
    *(f"evidence.{name}" for name in ("bundle_audit", "event_record", "verifier")),
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
        file = Path(__file__).parents[1] / f"{name.replace('.', '/')}.py"
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
