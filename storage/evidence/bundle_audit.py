"""Checks an exported bundle (docs/audit.md): events, records, proofs and a checkpoint."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from storage.evidence.bundle_files import FILES, MANIFEST, BundleFiles, is_plain_name, json_object
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
        report.add("unsigned", None, None, f"the checkpoint of the bundle cannot be trusted: {error}; {advice}")
        return
    if bundle.head["origin"] != checkpoint.origin or bundle.head["key"] not in {key.line for key in keys}:
        report.add("evidence", None, None, "bundle.json names another log or key than the checkpoint's")
    if checkpoint.size <= len(anchors) and anchors.root(checkpoint.size) != checkpoint.root:
        report.add("fork", None, None, "the checkpoint of the bundle is signed for another history than the anchor's")
    for other in anchors.checkpoints:
        if other.size == checkpoint.size and other.root != checkpoint.root:
            report.add("fork", None, None, "two checkpoints of one size are signed for different histories")
    check = _Check(checkpoint, bundle, anchors, report, verified)
    seals = check.records()
    for run_id, events in groupby(_counted(bundle.events, progress), key=lambda event: str(event["run_id"])):
        check.run(run_id, events, seals.get(run_id))
    unused = len(bundle.proofs.keys() - check.proved)
    if unused:
        report.add("evidence", None, None, f"proofs.jsonl has {unused} proofs of entries that the bundle does not hold")
    report.verified_size = checkpoint.size
    if bundle.head["format"] == FORMAT:
        _check_files(bundle, check.manifests, report)
    else:
        for name in sorted(bundle.digests.keys() - set(FILES)):
            # Else whoever takes the manifest out of a bundle could change all that is there for reading.
            report.add("evidence", None, None, f"no signature covers {name}: a bundle of format 1 has no such file")


def _check_files(bundle: Bundle, recorded: dict[str, set[str]], report: Report) -> None:
    """Compares the files with the manifest, and that with those that the log has of exports. ``recorded``: by run."""
    digest = bundle.digests[MANIFEST]
    for run_id in bundle.head["runs"]:
        if digest not in recorded.get(run_id, ()):
            what = f"{MANIFEST} is not one that the log has of an export of this run"
            report.add("evidence", run_id, None, what)
    for name, wanted in bundle.listed.items():
        if name not in bundle.digests:
            report.add("evidence", None, None, f"{name} was removed from the bundle")
        elif bundle.digests[name] != wanted:
            report.add("evidence", None, None, f"{name} is not as it was exported")
    for name in bundle.digests.keys() - bundle.listed.keys() - set(OUTSIDE_MANIFEST):
        report.add("evidence", None, None, f"{name} was added to the bundle")
    for name in FILES[:2]:
        if name not in bundle.listed:
            report.add("evidence", None, None, f"{MANIFEST} does not name {name}")


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
                self._report.add("evidence", None, None, f"the record at entry {position} is not as it was written")
            elif record.get("kind") == "run.sealed":
                seals[str(record.get("run"))] = record
            elif record.get("kind") == "log.began" and record.get("covered_from") != self._bundle.head["covered_from"]:
                what = "bundle.json and the log differ in where the evidence begins"
                self._report.add("evidence", None, None, what)
            elif record.get("kind") == "content.exported" and record.get("what") == "bundle":
                self.manifests.setdefault(str(record.get("run")), set()).add(str(record.get("manifest")))
            seen.add(position)
        if 0 not in seen:
            self._report.add("evidence", None, None, "the record with which the log begins is missing")
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
                report.add(kind, run_id, last, f"event {place} of the run should come before this one")
        if not good:
            return
        if seal is None:
            report.notes.append(f"run {run_id} had not ended: later events may exist")
        elif (seal.get("events"), seal.get("head")) != (place, head.hex()):
            report.add("truncated", run_id, last, "the seal of the run names later events")
        wanted = self._anchored[run_id]
        if wanted > place:
            report.add("truncated", run_id, last, f"the anchor knows {wanted} events of this run")

    def _is_placed(self, run_id: str, event: dict[str, Any], last: int, in_order: bool) -> bool:
        """Checks where an event claims to stand. Returns whether the events of the run were in order so far."""
        sequence = event["sequence"]
        if sequence < 1:
            self._report.add("inserted", run_id, sequence, "the event has no place in the log")
        if in_order and last and sequence <= last:
            self._report.add("reordered", run_id, sequence, "the events of the run are not in their order")
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
            self._report.add("edited", run_id, sequence, "the event, or its place, is not as it was written")
        elif position < len(self._anchors) and self._anchors.leaf(position) != leaf:
            self._report.add("fork", run_id, sequence, "the anchor has another entry here")
        else:
            self._report.verified_events += 1
            self._report.unanchored_events += position >= self._anchors.anchored
            if run_id not in self._stopped:
                self._verified(run_id, event)
            return leaf, True
        self._stopped.add(run_id)
        return leaf, good
