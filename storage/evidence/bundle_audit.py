"""Checks an exported bundle (docs/audit.md): a folder or a zip file with events, records, proofs and a checkpoint."""

import base64
import hashlib
import json
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from storage.evidence.formats import (
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
from storage.evidence.history import History, Report

FORMAT = "conductor-inspector bundle 1"
FILES = ("bundle.json", "events.jsonl", "records.jsonl", "proofs.jsonl", "checkpoint")
"""What of a bundle is checked. Other files in it are for reading, and prove nothing."""
_ZIP = b"PK\x03\x04"
_MOST_BYTES = 1 << 30
_EVENT_KEYS = {"at_utc", "kind", "payload", "payload_base64", "place", "position", "run_id", "sequence"}


def json_line(value: object) -> str:
    """Returns the one form of a JSON document in a bundle. Anything else there is refused."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@dataclass
class Bundle:
    manifest: dict[str, Any]
    events: list[dict[str, Any]]
    records: list[dict[str, Any]]
    proofs: dict[int, list[bytes]]
    note: str
    others: list[str] = field(default_factory=list)


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


def read_bundle(path: Path) -> Bundle:
    """Raises: Invalid, OSError."""
    texts, others = _texts(path)
    manifest = _document(texts["bundle.json"].rstrip("\n"))
    if texts["bundle.json"] != json_line(manifest) + "\n" or manifest.get("format") != FORMAT:
        raise Invalid("bundle.json is no manifest of this form")
    if set(manifest) != {"covered_from", "format", "key", "origin", "runs"} or not _is_manifest(manifest):
        raise Invalid("bundle.json has other fields than a manifest of this form")
    events = [_of(line, "events.jsonl") for line in _lines(texts["events.jsonl"])]
    if not all(_is_event(each) for each in events):
        raise Invalid("events.jsonl holds a line that is no event")
    records = [_of(line, "records.jsonl") for line in _lines(texts["records.jsonl"])]
    if not all(_is_record(each) for each in records):
        raise Invalid("records.jsonl holds a line that is no record")
    proofs: dict[int, list[bytes]] = {}
    for line in _lines(texts["proofs.jsonl"]):
        proof = _of(line, "proofs.jsonl")
        right = set(proof) == {"path", "position"} and type(proof["position"]) is int and type(proof["path"]) is list
        if not right or proof["position"] in proofs:
            raise Invalid("proofs.jsonl holds a line that is no proof, or two of one entry")
        proofs[proof["position"]] = [unpacked(each, 32) for each in proof["path"]]
    if list(proofs) != sorted(proofs) or records != sorted(records, key=lambda line: int(line["position"])):
        raise Invalid("the lines of records.jsonl or proofs.jsonl are not in order of position")
    if [run_id for run_id, _ in groupby(event["run_id"] for event in events)] != manifest["runs"]:
        raise Invalid("events.jsonl does not hold the runs of bundle.json, one after another")
    return Bundle(manifest, events, records, proofs, texts["checkpoint"], others)


def _texts(path: Path) -> tuple[dict[str, str], list[str]]:
    raw: dict[str, bytes] = {}
    if path.is_dir():
        names = sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())
        for name in set(FILES) & set(names):
            if (path / name).stat().st_size > _MOST_BYTES:
                raise Invalid(f"{name} is longer than this program reads")
            raw[name] = (path / name).read_bytes()
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                for name in FILES:
                    if names.count(name) == 1 and archive.getinfo(name).file_size <= _MOST_BYTES:
                        with archive.open(name) as file:
                            raw[name] = file.read(_MOST_BYTES)
        except (
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            NotImplementedError,
            RuntimeError,
            EOFError,
            ValueError,
            KeyError,
        ) as error:
            raise Invalid(f"the zip file cannot be read: {error}") from None
    missing = [name for name in FILES if name not in raw]
    if missing:
        raise Invalid(f"{missing[0]} is missing, is there twice, or is too long")
    try:
        return {name: each.decode() for name, each in raw.items()}, [name for name in names if name not in FILES]
    except UnicodeDecodeError:
        raise Invalid("a file of the bundle is no UTF-8") from None


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines.pop() != "":
        raise Invalid("a file of the bundle does not end with a line feed")
    return lines


def _of(line: str, name: str) -> dict[str, Any]:
    found = _document(line)
    try:
        same = json_line(found) == line
    except ValueError:
        same = False
    if not same:
        raise Invalid(f"a line of {name} is not in the form in which bundles are written")
    return found


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Invalid("a line of the bundle is no JSON") from None
    if not isinstance(found, dict):
        raise Invalid("a line of the bundle is no JSON object")
    return found


def _is_manifest(manifest: dict[str, Any]) -> bool:
    runs = manifest["runs"]
    texts = isinstance(manifest["origin"], str) and isinstance(manifest["key"], str)
    if not texts or type(manifest["covered_from"]) is not int:
        return False
    if not isinstance(runs, list) or not all(isinstance(run, str) for run in runs):
        return False
    return len(set(runs)) == len(runs)


def _is_record(line: dict[str, Any]) -> bool:
    return set(line) == {"position", "record"} and type(line["position"]) is int and type(line["record"]) is str


def _is_event(event: dict[str, Any]) -> bool:
    texts = all(isinstance(event.get(name), str) for name in ("at_utc", "kind", "run_id"))
    numbers = type(event.get("sequence")) is int and all(
        event.get(name) is None or type(event[name]) is int for name in ("place", "position")
    )
    numbers = numbers and (event.get("place") is None) == (event.get("position") is None)
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
        raise Invalid("an event is no UTF-8") from None


def payload_fields(payload: bytes) -> dict[str, str]:
    """Returns the field of a line of events.jsonl that holds these bytes."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def audit_bundle(bundle: Bundle, keys: Sequence[PublicKey], anchors: History, report: Report) -> None:
    """Adds what it finds to ``report``. ``anchors``: what was published outside of the database."""
    try:
        checkpoint = open_note(bundle.note, keys)
    except Invalid as error:
        report.add("unsigned", None, None, f"the checkpoint of the bundle cannot be trusted: {error}")
        return
    if bundle.manifest["origin"] != checkpoint.origin or bundle.manifest["key"] not in {key.line for key in keys}:
        report.add("evidence", None, None, "bundle.json names another log or key than the checkpoint's")
    _check_against_anchors(checkpoint, anchors, report)
    check = _Check(checkpoint, bundle, anchors, report)
    seals = check.records()
    runs: dict[str, list[dict[str, Any]]] = {}
    for event in bundle.events:
        runs.setdefault(event["run_id"], []).append(event)
    for run_id, events in runs.items():
        check.run(run_id, events, seals.get(run_id))
    check.uncovered()
    unused = len(bundle.proofs.keys() - check.proved)
    if unused:
        report.add("evidence", None, None, f"proofs.jsonl has {unused} proofs of entries that the bundle does not hold")
    report.verified_size = checkpoint.size
    if bundle.others:
        names = ", ".join(bundle.others[:5])
        report.notes.append(f"for reading only, not covered by the proofs: {names}")


def _check_against_anchors(checkpoint: Checkpoint, anchors: History, report: Report) -> None:
    if checkpoint.size <= len(anchors) and anchors.root(checkpoint.size) != checkpoint.root:
        report.add("fork", None, None, "the checkpoint of the bundle is signed for another history than the anchor's")
    for other in anchors.checkpoints:
        if other.size == checkpoint.size and other.root != checkpoint.root:
            report.add("fork", None, None, "two checkpoints of one size are signed for different histories")


class _Check:
    def __init__(self, checkpoint: Checkpoint, bundle: Bundle, anchors: History, report: Report) -> None:
        self._checkpoint, self._bundle, self._anchors, self._report = checkpoint, bundle, anchors, report
        self._origin = checkpoint.origin.encode()
        self.proved: set[int] = set()
        self._before = 0
        self._anchored = Counter(anchors.run(at) for at in range(min(len(anchors), checkpoint.size)))

    def _proved(self, leaf: bytes, position: int) -> bool:
        self.proved.add(position)
        path = self._bundle.proofs.get(position)
        size, root = self._checkpoint.size, self._checkpoint.root
        return path is not None and included(leaf, position, size, path, root)

    def records(self) -> dict[str, dict[str, Any]]:
        """Returns the seals by run."""
        seals: dict[str, dict[str, Any]] = {}
        seen: set[int] = set()
        for line in self._bundle.records:
            position, text = line["position"], str(line["record"])
            try:
                raw = text.encode()
                record = _document(text)
            except (Invalid, UnicodeEncodeError):
                raw, record = b"", {}
            if position in seen or not self._proved(record_leaf(self._origin, raw), position):
                self._report.add("evidence", None, None, f"the record at entry {position} is not as it was written")
            elif record.get("kind") == "run.sealed":
                seals[str(record.get("run"))] = record
            elif record.get("kind") == "log.began":
                self._began(record)
            seen.add(position)
        if 0 not in seen:
            self._report.add("evidence", None, None, "the record with which the log begins is missing")
        return seals

    def _began(self, record: dict[str, Any]) -> None:
        if record.get("covered_from") != self._bundle.manifest["covered_from"]:
            self._report.add("evidence", None, None, "bundle.json and the log differ in where the evidence begins")
        before = record.get("events_before")
        self._before = before if type(before) is int else 0

    def uncovered(self) -> None:
        """Compares how many events are older than the evidence with how many there were when it began."""
        count = self._report.uncovered_events
        if count > self._before:
            what = f"{count} events are older than the log's evidence, and there were {self._before} of them"
            self._report.add("inserted", None, None, what)

    def run(self, run_id: str, events: list[dict[str, Any]], seal: dict[str, Any] | None) -> None:
        report = self._report
        covered = [event for event in events if event["position"] is not None]
        report.uncovered_events += len(events) - len(covered)
        for event in events:
            old = event["sequence"] < self._bundle.manifest["covered_from"]
            if event["sequence"] < 1 or old != (event["position"] is None and event["place"] is None):
                report.add("inserted", run_id, event["sequence"], "the event has no place in the log")
        order = [event["sequence"] for event in events]
        if order != sorted(set(order)):
            at = next(order[i] for i in range(1, len(order)) if order[i] <= order[i - 1])
            report.add("reordered", run_id, at, "the events of the run are not in their order")
        head, place = NO_LEAF, 0
        for event in covered:
            if event["place"] != place:
                kind = "deleted" if event["place"] > place else "reordered"
                report.add(kind, run_id, event["sequence"], f"event {place} of the run should stand before this one")
                return  # what follows cannot be checked without it
            head, good = self._event(run_id, event, head)
            place += 1
            if not good:
                return  # nor without the leaf of this one
        if seal is None:
            report.notes.append(f"run {run_id} had not ended: later events may exist")
        elif (seal.get("events"), seal.get("head")) != (place, head.hex()):
            report.add("truncated", run_id, order[-1] if order else None, "the seal of the run names later events")
        wanted = self._anchored[run_id]
        if wanted > place:
            report.add(
                "truncated", run_id, order[-1] if order else None, f"the anchor knows {wanted} events of this run"
            )

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
            self._report.add("edited", run_id, sequence, "the event, or its place, is not as it was written")
        elif position < len(self._anchors) and self._anchors.leaf(position) != leaf:
            self._report.add("fork", run_id, sequence, "the anchor has another entry here")
        else:
            self._report.verified_events += 1
            self._report.unanchored_events += position >= self._anchors.anchored
        return leaf, good
