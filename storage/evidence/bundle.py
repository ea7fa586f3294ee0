"""Writes the part of a bundle that proves itself (docs/audit.md): events, records, proofs and the checkpoint."""

import base64
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conductor_core.errors import BadInput
from storage.evidence.bundle_audit import FORMAT, payload_fields
from storage.evidence.bundle_files import FILES, MOST_BYTES, MOST_LINE_BYTES, json_line
from storage.merkle.formats import PublicKey, node

_EVENTS = (
    "SELECT sequence, position, CAST(kind AS BLOB), CAST(at_utc AS BLOB), CAST(payload AS BLOB) FROM events "
    "WHERE run_id = ? ORDER BY sequence"
)
_RECORDS = "SELECT position, run_id, CAST(record AS BLOB) FROM leaves WHERE record IS NOT NULL ORDER BY position"
_OF_RUNS = ("run.sealed", "run.held", "run.released", "content.viewed", "content.exported")
_NOTE = "SELECT size, note FROM checkpoints ORDER BY size DESC LIMIT 1"
_HASHES = "SELECT hash FROM leaves WHERE position < ? ORDER BY position"


@dataclass(frozen=True)
class Proofs:
    """Inclusion proofs of one tree. ``levels``: its nodes from the leaves up, 32 bytes each; an odd last one rises."""

    levels: Sequence[bytes]

    def path(self, position: int) -> list[bytes]:
        """Returns the proof of the leaf at ``position``, from the leaf up (RFC 9162, 2.1.3)."""
        path = []
        for level in self.levels[:-1]:
            sibling = position ^ 1
            if 32 * sibling < len(level):
                path.append(bytes(level[32 * sibling : 32 * sibling + 32]))
            position >>= 1
        return path


def proofs_of(leaves: bytes) -> Proofs:
    """Returns the proofs of the tree with these leaves, 32 bytes each."""
    levels = [leaves]
    while len(levels[-1]) > 32:
        level, above = levels[-1], bytearray()
        for at in range(0, len(level) - 32, 64):
            above += node(level[at : at + 32], level[at + 32 : at + 64])
        if len(level) % 64:
            above += level[-32:]
        levels.append(bytes(above))
    return Proofs(levels)


def write_bundle(connection: sqlite3.Connection, run_ids: Sequence[str], key: PublicKey, folder: Path) -> None:
    """Writes the checked files of a bundle of these runs into ``folder``, which exists.

    Raises: BadInput if a run has no events, or was not published yet, or if no verifier would read that much; OSError,
    sqlite3.Error.
    """
    size, note = connection.execute(_NOTE).fetchone() or (0, "")
    origin, covered_from = connection.execute("SELECT origin, covered_from FROM evidence_log").fetchone()
    events = [line for run_id in run_ids for line in _events(connection, run_id, size)]
    records = list(_records(connection, set(run_ids), size))
    proofs = proofs_of(b"".join(leaf for (leaf,) in connection.execute(_HASHES, (size,))))
    positions = [line["position"] for line in [*events, *records] if line["position"] is not None]
    paths = [
        {"path": [base64.b64encode(each).decode() for each in proofs.path(at)], "position": at}
        for at in sorted(positions)
    ]
    manifest = {
        "covered_from": covered_from,
        "format": FORMAT,
        "key": key.line,
        "origin": origin,
        "runs": list(run_ids),
    }
    files: dict[str, Sequence[dict[str, Any]]] = {
        "bundle.json": [manifest],
        "events.jsonl": events,
        "records.jsonl": records,
        "proofs.jsonl": paths,
    }
    for name, lines in files.items():
        with (folder / name).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(_bounded(f"{json_line(line)}\n") for line in lines)
    (folder / "checkpoint").write_text(note, encoding="utf-8", newline="\n")
    size_bytes = sum((folder / name).stat().st_size for name in FILES)
    if size_bytes > MOST_BYTES:
        raise BadInput(f"the bundle has {size_bytes:,} bytes, and {MOST_BYTES:,} are read: export fewer runs at once")


def _bounded(line: str) -> str:
    if len(line) > MOST_LINE_BYTES // 4 and len(line.encode(errors="replace")) > MOST_LINE_BYTES:
        raise BadInput(f"an event has more than the {MOST_LINE_BYTES:,} bytes that are read in one line of a bundle")
    return line


def _events(connection: sqlite3.Connection, run_id: str, size: int) -> Iterator[dict[str, Any]]:
    place = 0
    found = False
    for sequence, position, kind, at_utc, payload in connection.execute(_EVENTS, (run_id,)):
        found = True
        if position is not None and position >= size:
            raise BadInput(f"run {run_id} has events that were not published yet: try again in a second")
        yield {
            "at_utc": at_utc.decode(errors="replace"),
            "kind": kind.decode(errors="replace"),
            **payload_fields(payload),
            "place": None if position is None else place,
            "position": position,
            "run_id": run_id,
            "sequence": sequence,
        }
        place += position is not None
    if not found:
        raise BadInput(f"unknown run {run_id}")


def _records(connection: sqlite3.Connection, run_ids: set[str], size: int) -> Iterator[dict[str, Any]]:
    """Yields the log's first record, the rotations of its key, and the seals of these runs and looks at them."""
    for position, run_id, record in connection.execute(_RECORDS):
        if position >= size:
            return
        try:
            text = record.decode()
            found = json.loads(text)
        except (ValueError, RecursionError):  # damaged: whoever verifies the database is told
            continue
        kind = found.get("kind") if isinstance(found, dict) else None
        if kind in ("log.began", "key.rotated") or (kind in _OF_RUNS and run_id in run_ids):
            yield {"position": position, "record": text}
