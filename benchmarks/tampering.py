"""Databases that somebody changed: does the verifier find it, and say what and where?

    python -m benchmarks.tampering [--trials 200] [--clean 1000] [--seed 1]

Twenty classes of changes, each by three attackers. All can write the database, and none can write the anchor:

naive     changes rows
rehash    also makes every leaf, record and count fit again, and takes away the checkpoints that would not
key       also holds the signing key, and signs all checkpoints again

Each trial copies a database of runs whose events were all published, changes it, and verifies it. A trial passes if the
change is found and its class is right; for the first six classes its run and sequence, too, and for looks the entry of
the log. What lies beside the events is in ``benchmarks.tampered_tables``; there the anchor is changed, too. Databases
that nobody changed must raise no alarm.
"""

import argparse
import hashlib
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks import tampered_tables
from benchmarks.changed_cells import write_bundle
from benchmarks.tampered_tables import ATTACKERS, sign_again
from conductor_core.run.actor import local_caller
from conductor_core.run.events import RunCancelled
from conductor_core.run.values import Imported
from conductor_core.settings import Settings
from storage import Privacy, open_store
from storage.backup import backup, restore
from storage.evidence.anchoring import places_of
from storage.evidence.bundle_audit import FILES
from storage.evidence.checking import check_log, public_key
from storage.evidence.history import Report
from storage.evidence.keys import SigningKey, load_key
from storage.evidence.verifier import verify
from storage.merkle.chain import RunChain
from storage.merkle.formats import PublicKey, event_leaf, record_leaf
from storage.store import Store
from tests.support.run_events import created_otherwise, whole_run

LOCATED = ("edited", "deleted", "inserted", "reordered", "truncated", "run_removed")
CALLER = local_caller("cli")


@dataclass
class Stored:
    sequence: int
    run_id: str
    kind: str
    at_utc: str
    payload: str


@dataclass(frozen=True)
class Laboratory:
    """A published database, an older copy of it, and one that went on from that copy with other events."""

    path: Path
    older: Path
    forked: Path
    anchor: Path
    key: SigningKey

    @property
    def public(self) -> PublicKey:
        return self.key.public


@dataclass
class Change:
    """What an attacker did. ``classes``: each names it. ``at``: each (run, sequence) says where.

    ``entry``: of the log that was changed, if it is a record.
    """

    classes: Sequence[str]
    at: list[tuple[str, int]] = field(default_factory=list)
    entry: int | None = None


def laboratory(folder: Path, runs: int = 8) -> Laboratory:
    path, older, forked = (folder / name for name in ("log.sqlite3", "older.sqlite3", "forked.sqlite3"))
    rng = random.Random(0)
    rows = [whole_run(f"run-{number}") for number in range(runs)]
    with_gaps = whole_run("run-deleted")
    store = open_store(f"sqlite:///{path}")
    store.log.append_and_wait(*with_gaps)
    store.delete(["run-deleted"], CALLER)
    count = 0
    while any(rows):
        ready = [run for run in rows if run]
        store.log.append_and_wait(*(run.pop(0) for run in rng.sample(ready, min(4, len(ready)))))
        count += 1
        if count % 4 == 0:
            store.access_log.exported([f"run-{count % runs}"], "bundle", CALLER)
            store.access_log.settle()
        if count % 6 == 0:
            store._anchoring.publish()
        if count == len(with_gaps):
            _copy(path, older)
    store.close()
    shutil.copy(older, forked)
    other = open_store(f"sqlite:///{forked}")  # with a key and an anchor of its own
    other.log.append_and_wait(*whole_run("run-elsewhere"), *whole_run("run-elsewhere-2"))
    other.close()
    evidence = path.with_name(f"{path.name}.evidence")
    with closing(sqlite3.connect(path)) as connection:
        ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
    return Laboratory(path, older, forked, evidence / "anchor.jsonl", load_key(evidence / "signing-key", origin))


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)


def edit(rows: list[Stored], rng: random.Random) -> Change:
    row = rng.choice(rows)
    if rng.random() < 0.2:
        row.at_utc = row.at_utc.replace("+00:00", "+01:00")
    else:
        at = rng.randrange(len(row.payload))
        row.payload = row.payload[:at] + rng.choice("xyz") + row.payload[at:]
    return Change(["edited"], [(row.run_id, row.sequence)])


def delete(rows: list[Stored], rng: random.Random) -> Change:
    at = rng.randrange(len(rows) - 1)
    row = rows.pop(at)
    _close_gaps(rows[at:], 1, rng)
    return Change(["deleted"], [(row.run_id, row.sequence)])


def insert(rows: list[Stored], rng: random.Random) -> Change:
    at = rng.randrange(1, len(rows))
    like = rng.choice(rows)
    payload = like.payload.replace("a", "b", 1)
    new = Stored(rows[at].sequence, like.run_id, like.kind, like.at_utc, payload)
    for row in rows[at:]:
        row.sequence += 1
    rows.insert(at, new)
    return Change(["inserted"], [(new.run_id, new.sequence)])


def reorder(rows: list[Stored], rng: random.Random) -> Change:
    one = rng.choice(rows)
    other = rng.choice([row for row in rows if row.run_id == one.run_id and row is not one])
    _exchange(one, other)
    return Change(["reordered"], [(one.run_id, one.sequence), (one.run_id, other.sequence)])


def truncate(rows: list[Stored], rng: random.Random) -> Change:
    count = rng.randrange(1, 12)
    cut = rows[-count:]
    del rows[-count:]
    # Without anything that tells that there was more, a cut log is an older one.
    return Change(["truncated", "rolled_back"], [(cut[0].run_id, cut[0].sequence)])


def remove_run(rows: list[Stored], rng: random.Random) -> Change:
    run_id = rng.choice(rows).run_id
    first = next(row for row in rows if row.run_id == run_id)
    before = sum(row.sequence < first.sequence for row in rows)
    rows[:] = [row for row in rows if row.run_id != run_id]
    if rng.random() < 0.5:
        for number, row in enumerate(rows[before:]):
            row.sequence = first.sequence + number
    return Change(["run_removed"], [(run_id, first.sequence)])


def swap(rows: list[Stored], rng: random.Random) -> Change:
    one = rng.choice(rows)
    other = rng.choice([row for row in rows if row.run_id != one.run_id])
    _exchange(one, other)
    return Change(["swapped"], [(one.run_id, one.sequence), (other.run_id, other.sequence)])


def _exchange(one: Stored, other: Stored) -> None:
    one.kind, other.kind = other.kind, one.kind
    one.at_utc, other.at_utc = other.at_utc, one.at_utc
    one.payload, other.payload = other.payload, one.payload


def _close_gaps(rows: list[Stored], by: int, rng: random.Random) -> None:
    if rng.random() < 0.5:
        for row in rows:
            row.sequence -= by


ROWS = {
    "edit": edit,
    "delete": delete,
    "insert": insert,
    "reorder": reorder,
    "truncate": truncate,
    "remove run": remove_run,
    "swap": swap,
}
LOOKS = ("edit a look", "delete a look")
CLASSES = (*ROWS, *LOOKS, "glue", "roll back", "fork")


def attack(lab: Laboratory, path: Path, how: str, attacker: str, rng: random.Random) -> Change:
    if how in LOOKS:
        shutil.copy(lab.path, path)
        return change_look(lab, path, how, attacker, rng)
    if how in ROWS or how == "glue":
        shutil.copy(lab.path, path)
        change = change_rows(lab, path, ROWS.get(how, edit), attacker, rng)
        if how == "glue":
            glue_bundle(lab, path)
        return change
    shutil.copy(lab.older if how == "roll back" else lab.forked, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        _drop_triggers(connection)
        if how == "fork":
            rebuild(connection, lab.key if attacker == "key" else None)
    return Change(["rolled_back"] if how == "roll back" else ["fork"])


def change_rows(
    lab: Laboratory, path: Path, how: Callable[[list[Stored], random.Random], Change], attacker: str, rng: random.Random
) -> Change:
    with closing(sqlite3.connect(path)) as connection, connection:
        _drop_triggers(connection)
        query = "SELECT sequence, run_id, kind, at_utc, payload FROM events ORDER BY sequence"
        rows = [Stored(*row) for row in connection.execute(query)]
        places = dict(connection.execute("SELECT sequence, position FROM events"))
        change = how(rows, rng)
        connection.execute("DELETE FROM events")
        kept = [(row.sequence, row.run_id, row.kind, row.at_utc, row.payload, places.get(row.sequence)) for row in rows]
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", kept)
        if attacker != "naive":
            rebuild(connection, lab.key if attacker == "key" else None)
    return change


def change_look(lab: Laboratory, path: Path, how: str, attacker: str, rng: random.Random) -> Change:
    """Makes a look somebody else's, or takes it out of the log."""
    with closing(sqlite3.connect(path)) as connection, connection:
        _drop_triggers(connection)
        rows = connection.execute("SELECT position, run_id, hash, record FROM leaves ORDER BY position").fetchall()
        at = rng.choice([row[0] for row in rows if row[3] is not None and '"content.exported"' in row[3]])
        text = rows[at][3].replace(f'"name":"{CALLER.actor.name}"' if CALLER.actor else "", '"name":"somebody else"')
        if attacker == "naive":
            change = "DELETE FROM leaves" if how == LOOKS[1] else "UPDATE leaves SET record = :text"
            connection.execute(f"{change} WHERE position = :at", {"text": text, "at": at})
            return Change(["evidence"], entry=at)
        ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
        if how == LOOKS[0]:
            rows[at] = (at, rows[at][1], record_leaf(origin.encode(), text.encode()), text)
        else:
            rows = rows[:at] + [(position - 1, *rest) for position, *rest in rows[at + 1 :]]
            connection.execute("UPDATE events SET position = position - 1 WHERE position > ?", (at,))
        connection.execute("DELETE FROM leaves")
        connection.executemany("INSERT INTO leaves VALUES (?, ?, ?, ?)", rows)
        sign_again(connection, lab.key if attacker == "key" else None)
    return Change(["evidence"], entry=at)


def glue_bundle(lab: Laboratory, path: Path) -> None:
    """Puts a good bundle, as a zip file, at the end of the database: both can still be opened."""
    file = path.with_name(f"{path.name}.zip")
    with tempfile.TemporaryDirectory() as folder:
        with closing(sqlite3.connect(lab.path)) as connection:
            write_bundle(connection, ["run-1"], lab.public, Path(folder))
        with zipfile.ZipFile(file, "w") as archive:
            for name in FILES:
                archive.write(Path(folder) / name, name)
    with path.open("ab") as database:
        database.write(file.read_bytes())
    file.unlink()


def _drop_triggers(connection: sqlite3.Connection) -> None:
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")


def rebuild(connection: sqlite3.Connection, key: SigningKey | None) -> None:
    """Makes all evidence in the database fit its events, as one who knows how it is made can."""
    ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
    records = [json.loads(text) for (text,) in connection.execute("SELECT record FROM leaves WHERE record IS NOT NULL")]
    gone = {each["run"] for each in records if each["kind"] == "run.deleted"}
    query = "SELECT sequence, run_id, kind, at_utc, payload FROM events ORDER BY sequence"
    rows = [Stored(*row) for row in connection.execute(query)]
    ends = {each["run"] for each in records if each["kind"] == "run.sealed"} - gone
    # The deleted run left leaves that nobody can make again: they stay.
    begin = 1 + max((at for at, run, text in _own(connection) if text is None and run == "run-deleted"), default=0)
    begin += sum(1 for at, run, text in _own(connection) if at >= begin and text is not None and run == "run-deleted")
    leaves = connection.execute("SELECT position, run_id, hash, record FROM leaves WHERE position < ?", (begin,))
    kept: list[tuple[int, str | None, bytes, str | None]] = leaves.fetchall()
    chains: dict[str, RunChain] = {}
    last = {row.run_id: row.sequence for row in rows}
    for row in rows:
        chain = chains.setdefault(row.run_id, RunChain())
        chain.head = _leaf(origin, chain, row)
        chain.places += 1
        connection.execute("UPDATE events SET position = ? WHERE sequence = ?", (len(kept), row.sequence))
        kept.append((len(kept), row.run_id, chain.head, None))
        if row.run_id in ends and last[row.run_id] == row.sequence:
            seal = {"kind": "run.sealed", "run": row.run_id, "events": chain.places, "head": chain.head.hex()}
            text = json.dumps(seal, sort_keys=True, separators=(",", ":"))
            kept.append((len(kept), row.run_id, record_leaf(origin.encode(), text.encode()), text))
    for at, of_run, other in _own(connection):
        if at >= begin and other is not None and json.loads(other)["kind"] != "run.sealed":
            kept.append((len(kept), of_run, record_leaf(origin.encode(), other.encode()), other))
    connection.execute("DELETE FROM leaves")
    connection.executemany("INSERT INTO leaves VALUES (?, ?, ?, ?)", kept)
    connection.execute("UPDATE sqlite_sequence SET seq = (SELECT max(sequence) FROM events) WHERE name = 'events'")
    sign_again(connection, key)


def _own(connection: sqlite3.Connection) -> list[tuple[int, str | None, str | None]]:
    return connection.execute("SELECT position, run_id, record FROM leaves ORDER BY position").fetchall()


def _leaf(origin: str, chain: RunChain, row: Stored) -> bytes:
    digest = hashlib.sha256(row.payload.encode()).hexdigest().encode()
    names = row.at_utc.encode(), row.kind.encode(), row.run_id.encode()
    return event_leaf(origin.encode(), chain.places, row.sequence, digest, chain.head, *names)


def check(lab: Laboratory, path: Path) -> Report:
    return verify(path, [lab.public], [lab.anchor], lambda what, count: None)


def missed(change: Change, report: Report, *, located: bool) -> str:
    """Returns what the verifier did not say, or nothing."""
    if report.ok:
        return "not found"
    said = [(each.run_id, each.sequence) for each in report.findings if each.kind in change.classes]
    if not said:
        return f"found as {report.findings[0].kind}"
    named = [each.what for each in report.findings if each.kind in change.classes]
    if change.entry is not None and not all(f"entry {change.entry} " in f"{what} " for what in named):
        return f"found as {named}, not at entry {change.entry} alone"
    if located and not set(said) & set(change.at):
        return f"found at {said[:2]}, not at {change.at}"
    return ""


def trial(lab: Laboratory, path: Path, how: str, attacker: str, rng: random.Random) -> str:
    """Makes a changed database at ``path``. Returns what the verifier did not say of it, or nothing."""
    change = attack(lab, path, how, attacker, rng)
    return missed(change, check(lab, path), located=change.classes[0] in LOCATED)


def clean(folder: Path, rng: random.Random) -> Report:
    """Checks a database that only the program has written, and all that is made of it.

    It has runs, broken off, deleted, erased, held and imported ones, in several sittings, with restores between them.
    """
    folder = Path(tempfile.mkdtemp(dir=folder))
    path = folder / "clean.sqlite3"
    for sitting in range(rng.randrange(1, 4)):
        with closing(open_store(f"sqlite:///{path}", Privacy(encrypt=rng.random() < 0.2))) as store:
            _sit(store, sitting, rng)
        if rng.random() < 0.3:
            copy = folder / f"backup-{sitting}.sqlite3"
            backup(path, copy)
            restore(copy, path, Settings(), lambda what, count: None, replace=True)
    places = places_of(path)
    key = public_key(path, places)
    keys = [] if key is None else [key]
    report = check_log(path, keys, [places.anchor.file], Privacy().vault(path), lambda what, count: None)
    shutil.rmtree(folder)
    return report


def _sit(store: Store, sitting: int, rng: random.Random) -> None:
    store.mark_interrupted()
    for number in range(rng.randrange(1, 4)):
        run_id = f"run-{sitting}-{number}"
        events = whole_run(run_id)
        kept = events if rng.random() < 0.6 else events[: rng.randrange(1, len(events))]
        if kept == events and rng.random() < 0.3:
            now = datetime.now(UTC)
            came = Imported(run_id="there", written_by="conductor", written_at_utc=now, imported_at_utc=now)
            store.import_run([created_otherwise(events[0], imported=came), *events[1:]], [])
        else:
            store.log.append_and_wait(*kept)
        ended = kept == events
        if not ended and rng.random() < 0.3:
            store.log.append_and_wait(RunCancelled(run_id=run_id))
            ended = True
        if ended and rng.random() < 0.3:
            store.search.catch_up()
        if ended and rng.random() < 0.2:
            store.hold([run_id], CALLER)
            store.hold([run_id], CALLER, held=rng.random() < 0.5)
        elif ended and rng.random() < 0.4:
            rng.choice((store.delete, store.erase))([run_id], CALLER)
        store.access_log.viewed([run_id], "show", CALLER)
    if rng.random() < 0.2:
        store.rotate_key(CALLER)


def main() -> int:
    parser = argparse.ArgumentParser(description="Does the verifier find what somebody changed?")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--clean", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    faults = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lab, tables = laboratory(folder), tampered_tables.laboratory(folder / "tables")
        trials: dict[str, Callable[[str], str]] = {
            how: partial(trial, lab, folder / "changed.sqlite3", how, rng=rng) for how in CLASSES
        }
        for how in tampered_tables.CLASSES:
            trials[how] = partial(tampered_tables.trial, tables, folder / "changed", how, rng=rng)
        print("| class | " + " | ".join(f"{each}: found, named, and located if asked" for each in ATTACKERS) + " |")
        print("|---|" + "---|" * len(ATTACKERS))
        for how, once in trials.items():
            cells = []
            for attacker in ATTACKERS:
                whys = [why for _ in range(options.trials) if (why := once(attacker))]
                for why in whys:
                    print(f"{how}, {attacker}: {why}", file=sys.stderr)
                cells.append(f"{options.trials - len(whys)} of {options.trials}")
                faults += len(whys)
            print(f"| {how} | {' | '.join(cells)} |", flush=True)
        alarms = sum(not clean(folder, rng).ok for _ in range(options.clean))
        print(f"{options.clean:,} databases that nobody changed: {alarms} alarms", flush=True)
    return 1 if faults or alarms else 0


if __name__ == "__main__":
    sys.exit(main())
