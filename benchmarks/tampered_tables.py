"""What an attacker changes beside the events: tables that are made of them, triggers, commands, the anchor, a bundle.

Part of ``benchmarks.tampering``. Every class has several ways, of which a trial draws one. The three attackers are
those of that command: the second also makes fit what the program would compare first (the full-text tables, filters,
the snapshot, the record in the log with its leaf), and the third signs all checkpoints of the database again.
"""

import hashlib
import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

from benchmarks import changed_cells
from benchmarks.changed_cells import CALLER, Pristine
from benchmarks.mutated_archives import MUTATIONS, archive_of, read_by_zipfile
from conductor_core.errors import InspectorError
from storage import Privacy, open_store
from storage.bundles import export_runs
from storage.evidence.anchoring import places_of
from storage.evidence.checking import check_own_log
from storage.evidence.database_audit import NoEvidence
from storage.evidence.keys import SigningKey, load_key
from storage.evidence.verifier import verify
from storage.log import commands
from storage.merkle.formats import Checkpoint, Tree, record_leaf
from tests.support.damaging import begun_again, past_triggers, without_evidence

ATTACKERS = ("naive", "rehash", "key")


@dataclass(frozen=True)
class Laboratory:
    """A database with runs of all kinds, its key, and a bundle of two of its runs."""

    whole: Pristine
    key: SigningKey
    bundle: Path


@dataclass(frozen=True)
class Attack:
    """One trial: the copy that is changed, who changes it, and what this person has."""

    lab: Laboratory
    path: Path
    attacker: str
    rng: random.Random

    @property
    def skilled(self) -> bool:
        return self.attacker != "naive"


def laboratory(folder: Path) -> Laboratory:
    """Writes the database into the new ``folder``, and a bundle beside it."""
    whole = changed_cells.pristine(folder)
    with closing(sqlite3.connect(whole.path)) as connection:
        ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
    copy = shutil.copytree(folder, folder.with_name(f"{folder.name}-exported")) / whole.path.name
    bundle = folder.with_name(f"{folder.name}.zip")
    with closing(open_store(f"sqlite:///{copy}")) as store:
        export_runs(store, ["first", "dense"], bundle, lambda *_: None, CALLER)
    return Laboratory(whole, load_key(places_of(whole.path).key, origin), bundle)


def trial(lab: Laboratory, folder: Path, how: str, attacker: str, rng: random.Random) -> str:
    """Changes a copy in ``folder`` in a way of the class ``how``. Returns what is wrong with the verifier's answer."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(lab.whole.path.parent, folder)
    attack = Attack(lab, folder / lab.whole.path.name, attacker, rng)
    way = rng.choice(WAYS[how])
    if how == "archives":
        return "" if not way(attack) else f"{way.__name__}: accepted"
    way(attack)
    try:
        places = places_of(attack.path)
        report = check_own_log(attack.path, places, Privacy().vault(attack.path), lambda what, count: None)
    except InspectorError as error:  # a database without evidence is refused, and not called sound
        return "" if how == "laundering" else f"{way.__name__}: {error}"
    if not report.findings:
        return f"{way.__name__}: not found"
    kinds = {each.kind for each in report.findings}
    return "" if kinds & CLASSES[how] else f"{way.__name__}: found as {sorted(kinds)}"


def sign_again(connection: sqlite3.Connection, key: SigningKey | None) -> None:
    """Signs the checkpoints for the leaves that are there; without the key keeps those that still fit."""
    ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
    leaves = [leaf for (leaf,) in connection.execute("SELECT hash FROM leaves ORDER BY position")]
    notes = dict(connection.execute("SELECT size, note FROM checkpoints"))
    connection.execute("DELETE FROM checkpoints")
    tree = Tree()
    for size in [*(each for each in sorted(notes) if each < len(leaves)), len(leaves)]:
        for leaf in leaves[tree.size : size]:
            tree.append(leaf)
        checkpoint = Checkpoint(origin, size, tree.root())
        note = notes.get(size, "")
        if key is not None:
            note = key.note(checkpoint)
        elif not note.startswith(checkpoint.text):
            continue
        connection.execute("INSERT INTO checkpoints VALUES (?, '', ?, ?)", (size, note, tree.peaks))


def _by_sql(change: Callable[[Attack, sqlite3.Connection], object]) -> Callable[[Attack], None]:
    """The way that is ``change`` past the triggers; a skilled attacker signs again after it."""

    @wraps(change)
    def way(attack: Attack) -> None:
        with past_triggers(attack.path) as connection:
            change(attack, connection)
            if attack.skilled:
                sign_again(connection, attack.lab.key if attack.attacker == "key" else None)

    return way


def _record(connection: sqlite3.Connection, kind: str, change: Callable[[dict[str, object]], object]) -> None:
    """Changes the newest record of a kind, with its leaf."""
    query = "SELECT position, record FROM leaves WHERE record IS NOT NULL ORDER BY position DESC"
    for position, text in connection.execute(query).fetchall():
        record = json.loads(text)
        if record["kind"] != kind:
            continue
        change(record)
        text = json.dumps(record, sort_keys=True, separators=(",", ":"))
        ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
        leaf = record_leaf(origin.encode(), text.encode())
        connection.execute("UPDATE leaves SET record = ?, hash = ? WHERE position = ?", (text, leaf, position))
        return


def _drawn(attack: Attack, connection: sqlite3.Connection, query: str) -> tuple[object, ...]:
    return tuple(attack.rng.choice(connection.execute(query).fetchall()))


# The search index.

_WORDS = "INSERT INTO {0} ({0}, rowid, text) VALUES ('delete', ?, ?)"


def _forgotten(attack: Attack, connection: sqlite3.Connection) -> None:
    """The words of one run, and of the skilled all that the index has of it."""
    (run,) = _drawn(attack, connection, "SELECT run FROM search_runs")
    for table in ("search_words", "search_signs"):
        dense = " AND dense" * (table == "search_signs")
        rows = connection.execute(f"SELECT id, text FROM search_texts WHERE run = ?{dense}", (run,)).fetchall()
        connection.executemany(_WORDS.format(table), rows)
    if attack.skilled:
        for table in ("search_places", "search_texts", "search_calls", "search_facets", "search_runs"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))


def _emptied_words(attack: Attack, connection: sqlite3.Connection) -> None:
    tables = ("search_words", "search_signs")
    for table in tables if attack.skilled else [attack.rng.choice(tables)]:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")


def _planted_words(attack: Attack, connection: sqlite3.Connection) -> None:
    (text_id,) = _drawn(attack, connection, "SELECT id FROM search_texts")
    at = text_id if attack.skilled else 99_999
    connection.execute("INSERT INTO search_words (rowid, text) VALUES (?, 'planted')", (at,))


def _forged_text(attack: Attack, connection: sqlite3.Connection) -> None:
    text_id, text = _drawn(attack, connection, "SELECT id, text FROM search_texts WHERE NOT dense")
    if attack.skilled:
        connection.execute(_WORDS.format("search_words"), (text_id, text))
        connection.execute("INSERT INTO search_words (rowid, text) VALUES (?, 'forged')", (text_id,))
    connection.execute("UPDATE search_texts SET text = 'forged' WHERE id = ?", (text_id,))


def _forged_filter(attack: Attack, connection: sqlite3.Connection) -> None:
    kind, value, run = _drawn(attack, connection, "SELECT kind, value, run FROM search_facets")
    change = attack.rng.choice(("DELETE FROM search_facets", "UPDATE search_facets SET times = times + 1"))
    connection.execute(f"{change} WHERE kind = ? AND value = ? AND run = ?", (kind, value, run))


# The ledger.


def _other_receiver(attack: Attack, connection: sqlite3.Connection) -> None:
    """A call went to somebody else: one received what it did not, and another never did."""
    call, run = _drawn(attack, connection, "SELECT id, run FROM search_calls")
    column = attack.rng.choice(("provider", "host", "agent"))
    connection.execute(f"UPDATE search_calls SET {column} = 'nobody' WHERE id = ?", (call,))
    if attack.skilled:
        connection.execute(
            "UPDATE OR REPLACE search_facets SET value = 'nobody' WHERE run = ? AND kind = ?", (run, column)
        )


def _call_gone(attack: Attack, connection: sqlite3.Connection) -> None:
    call, run = _drawn(attack, connection, "SELECT id, run FROM search_calls")
    if attack.skilled:  # all calls of the run, so that no sum gives it away
        connection.execute("DELETE FROM search_calls WHERE run = ?", (run,))
    connection.execute("DELETE FROM search_calls WHERE id = ?", (call,))


def _call_made_up(attack: Attack, connection: sqlite3.Connection) -> None:
    (call,) = _drawn(attack, connection, "SELECT id FROM search_calls")
    columns = [row[1] for row in connection.execute("PRAGMA table_info(search_calls)")]
    run = "(SELECT max(run) FROM search_runs)" if attack.skilled else "99999"
    values = ["(SELECT max(id) + 1 FROM search_calls)" if each == "id" else each for each in columns]
    values = [run if each == "run" else each for each in values]
    connection.execute(
        f"INSERT INTO search_calls ({', '.join(columns)}) SELECT {', '.join(values)} FROM search_calls WHERE id = ?",
        (call,),
    )


def _other_figures(attack: Attack, connection: sqlite3.Connection) -> None:
    (call,) = _drawn(attack, connection, "SELECT id FROM search_calls")
    column = attack.rng.choice(("input_tokens", "output_tokens", "cost_usd", "messages", "images"))
    connection.execute(f"UPDATE search_calls SET {column} = coalesce({column}, 0) + 1 WHERE id = ?", (call,))


# Laundering.


def _evidence_dropped(attack: Attack) -> None:
    without_evidence(attack.path)
    if attack.attacker == "key":  # what was published goes, too, so that nothing speaks of a log
        places_of(attack.path).anchor.file.unlink()


def _second_log(attack: Attack) -> None:
    begun_again(attack.path)
    if attack.attacker == "key":
        with closing(sqlite3.connect(attack.path)) as connection, connection:
            ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
            public = type(attack.lab.key.public)(origin, attack.lab.key.public.key)
            sign_again(connection, SigningKey(public, attack.lab.key.private))


def _evidence_later(attack: Attack, connection: sqlite3.Connection) -> None:
    """Events that are said to be older than all evidence can be changed."""
    connection.execute("UPDATE evidence_log SET covered_from = 13")
    _record_if_skilled(attack, connection, "log.began", covered_from=13)


def _record_if_skilled(attack: Attack, connection: sqlite3.Connection, of: str, /, **fields: object) -> None:
    if attack.skilled:
        _record(connection, of, lambda record: record.update(fields))


# Triggers.


def _triggers_gone(attack: Attack) -> None:
    with closing(sqlite3.connect(attack.path)) as connection, connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in names if attack.attacker == "naive" else [attack.rng.choice(names)]:
            connection.execute(f"DROP TRIGGER {name}")


def _hostile_trigger(attack: Attack) -> None:
    body = attack.rng.choice(("DELETE FROM snapshots", "DELETE FROM search_runs", "UPDATE runs SET task = ''"))
    with closing(sqlite3.connect(attack.path)) as connection, connection:
        connection.execute(f"CREATE TRIGGER added AFTER INSERT ON events BEGIN {body}; END")


def _trigger_without_effect(attack: Attack) -> None:
    """A trigger of the right name and nearly the right text, which forbids nothing."""
    with closing(sqlite3.connect(attack.path)) as connection, connection:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%RAISE%'"
        name, sql = _drawn(attack, connection, query)
        connection.execute(f"DROP TRIGGER {name}")
        made = f"CREATE TRIGGER {name} BEFORE UPDATE ON events BEGIN SELECT 1; END"
        if attack.skilled:
            made = re.sub(r"\bWHEN\b", "WHEN 0 AND", str(sql), count=1)
            made = made if made != sql else re.sub(r"\bBEGIN\b", "WHEN 0 BEGIN", made, count=1)
        connection.execute(made)


# Side tables.

_FOLDED = ("status", "task", "steps", "cost_usd", "error", "actor", "purpose", "conductor", "imported", "recorded")


def _row_of_run(attack: Attack) -> None:
    kinds = ("step", "bit", "empty", "other", "null")
    while True:
        column, kind = attack.rng.choice(_FOLDED), attack.rng.choice(kinds)
        if changed_cells.change_cell(attack.path, "runs", column, kind, attack.rng) is not None:
            break
    _by_sql(_without_snapshots)(attack)


def _without_snapshots(attack: Attack, connection: sqlite3.Connection) -> None:
    if attack.skilled:
        connection.execute("DELETE FROM snapshots")


def _batch_of_run(attack: Attack, connection: sqlite3.Connection) -> None:
    column = attack.rng.choice(("batch_id", "batch_row", "batch_name", "batch_size"))
    run_id = attack.rng.choice(("row-2", "first", "dense"))
    value = 77 if column == "batch_size" else "other"
    connection.execute(f"UPDATE runs SET {column} = ? WHERE run_id = ?", (value, run_id))
    if attack.skilled:
        connection.execute("DELETE FROM snapshots WHERE run_id = ?", (run_id,))


def _deletion(attack: Attack, connection: sqlite3.Connection) -> None:
    """A deletion by somebody else, at another time, or never."""
    run_id, erased = _drawn(attack, connection, "SELECT run_id, erased FROM deletions")
    change = attack.rng.choice(("door = 'page'", "deleted_at_utc = '2026-01-01T00:00:00+00:00'", "events = 3", ""))
    sql = f"UPDATE deletions SET {change}" if change else "DELETE FROM deletions"
    connection.execute(f"{sql} WHERE run_id = ?", (run_id,))
    if attack.skilled and not change and not erased:
        connection.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
    _record_if_skilled(attack, connection, "run.deleted", door="page")


def _hold(attack: Attack, connection: sqlite3.Connection) -> None:
    """A hold that was never placed, or was lifted."""
    change = attack.rng.choice(
        ("DELETE FROM holds WHERE run_id = 'held'", "UPDATE holds SET held = 0 WHERE run_id = 'held'")
    )
    connection.execute(change)
    _record_if_skilled(attack, connection, "run.held", kind="run.released")


def _judgement(attack: Attack, connection: sqlite3.Connection) -> None:
    """Another mark, another judge, one that nobody gave, or one less."""
    others = "score, note, judged_by, judge, source_run_id, compared_with, at_utc, actor, door, salt"
    change = attack.rng.choice(
        (
            "UPDATE judgements SET mark = 'right', score = 1.0 WHERE id = 1",
            "UPDATE judgements SET judge = 'person local somebody' WHERE id = 2",
            "DELETE FROM judgements WHERE id = 2",
            f"INSERT INTO judgements SELECT 90, 'held', path, 'right', {others} FROM judgements LIMIT 1",
        )
    )
    connection.execute(change)
    _record_if_skilled(attack, connection, "judgement.added", row_sha256="0" * 64)


def _image(attack: Attack, connection: sqlite3.Connection) -> None:
    """An image of another type, of another run, or of none."""
    named = "WHERE sha256 IN (SELECT sha256 FROM run_contents)"
    change = attack.rng.choice(
        (
            f"UPDATE contents SET media_type = 'image/gif' {named}",
            f"DELETE FROM contents {named}",
            "DELETE FROM run_contents WHERE run_id = 'pictured'",
            "INSERT INTO run_contents SELECT 'first', sha256 FROM contents LIMIT 1",
        )
    )
    connection.execute(change)
    _without_snapshots(attack, connection)


# What was published.


def _lines(change: Callable[[list[str], random.Random], Iterable[str]]) -> Callable[[Attack], None]:
    @wraps(change)
    def way(attack: Attack, connection: sqlite3.Connection) -> None:
        anchor = places_of(attack.path).anchor.file
        anchor.write_text("".join(change(anchor.read_text().splitlines(keepends=True), attack.rng)))

    return _by_sql(way)


def _without_one(lines: list[str], rng: random.Random) -> list[str]:
    """Not the last: an anchor that ends earlier is what was there before."""
    del lines[rng.randrange(len(lines) - 1)]
    return lines


def _twice_one(lines: list[str], rng: random.Random) -> list[str]:
    lines.insert(rng.randrange(len(lines)), rng.choice(lines[:-1]))
    return lines


def _other_order(lines: list[str], rng: random.Random) -> list[str]:
    before = list(lines)
    while lines == before:
        rng.shuffle(lines)
    return lines


def _emptied(lines: list[str], rng: random.Random) -> list[str]:
    return []


def _no_device(attack: Attack, connection: sqlite3.Connection) -> None:
    anchor = places_of(attack.path).anchor.file
    anchor.unlink()
    anchor.symlink_to("/dev/null")


# Bundles.


def _misleading_archive(attack: Attack) -> bool:
    """A zip file that two programs read differently. Returns whether it was accepted."""
    files = read_by_zipfile(attack.lab.bundle)
    if attack.skilled:  # the manifest fits again
        before, after = (hashlib.sha256(each).hexdigest() for each in (files["README.txt"], b"All is well.\n"))
        files["README.txt"] = b"All is well.\n"
        files["manifest.sha256"] = files["manifest.sha256"].replace(before.encode(), after.encode())
    key = attack.lab.key
    if attack.attacker == "key":
        size = int(files["checkpoint"].split(b"\n")[1])
        files["checkpoint"] = key.note(Checkpoint(key.public.name, size, attack.rng.randbytes(32))).encode()
    archive = archive_of(files)
    MUTATIONS[attack.rng.choice(sorted(MUTATIONS))](archive, attack.rng)
    file = attack.path.with_name("bundle.zip")
    file.write_bytes(archive.pack())
    try:
        return verify(file, [key.public], [], lambda what, count: None).ok
    except NoEvidence:  # it looks like no bundle any more
        return False


# Commands.

_INSERT = "INSERT INTO commands (run_id, kind, at_utc, payload) VALUES (?, ?, ?, ?)"
_AT_UTC = "2026-01-01T00:00:00+00:00"


def _by_hand(attack: Attack, connection: sqlite3.Connection) -> None:
    """An approval that the program did not send; of the skilled with a proof by a key of their own."""
    number = 1 + connection.execute("SELECT max(id) FROM commands").fetchone()[0]
    run_id, kind = attack.rng.choice(("waiting", "running")), attack.rng.choice(("approve", "cancel"))
    payload = json.dumps({"kind": kind, "run_id": run_id, "door": "cli"})
    if attack.skilled:
        machine = _forger(attack)
        payload = commands.prove(machine, number, run_id, kind, _AT_UTC, payload)
    connection.execute(_INSERT, (run_id, kind, _AT_UTC, payload))


def _forger(attack: Attack) -> commands.Signer:
    key = load_key(attack.path.with_name("forged-key"), attack.lab.key.public.name)
    return commands.Signer(key.public, key.private.sign)


def _replayed(attack: Attack, connection: sqlite3.Connection) -> None:
    row = connection.execute("SELECT run_id, kind, at_utc, payload FROM commands").fetchone()
    connection.execute(_INSERT, row)
    if attack.skilled:  # in the place of the first
        connection.execute("DELETE FROM commands WHERE id = 1")


def _edited_command(attack: Attack, connection: sqlite3.Connection) -> None:
    ((payload,),) = connection.execute("SELECT payload FROM commands")
    envelope = json.loads(payload)
    envelope["command"] = envelope["command"].replace("approve", "deny")
    change = attack.rng.choice(("kind = 'deny'", "run_id = 'running'", "at_utc = '2026-01-01'", ""))
    if not change or attack.skilled:
        connection.execute("UPDATE commands SET payload = ?", (json.dumps(envelope),))
    if change:
        connection.execute(f"UPDATE commands SET {change}")


def _forged_machine(attack: Attack, connection: sqlite3.Connection) -> None:
    """A machine that was never put on record by the log's key, in its place or after it, and what it sent.

    Whoever holds the log's key can put a machine on record at the end: this one takes the place of another.
    """
    machine = _forger(attack)
    cursor = connection.cursor()
    number = 1 + cursor.execute("SELECT max(id) FROM commands").fetchone()[0]
    payload = commands.prove(machine, number, "waiting", "approve", _AT_UTC, json.dumps({"kind": "approve"}))
    cursor.execute(_INSERT, ("waiting", "approve", _AT_UTC, payload))
    if attack.attacker == "key":
        own = attack.lab.key
        record = _registered(connection, machine, commands.Signer(own.public, own.private.sign))
        _record(connection, commands.REGISTERED, lambda old: old.update(record))
    elif attack.skilled and attack.rng.random() < 0.5:
        record = _registered(connection, machine, machine)
        _record(connection, commands.REGISTERED, lambda old: old.update(record))
    else:
        commands.register(cursor, machine.public, machine)


def _registered(connection: sqlite3.Connection, machine: commands.Signer, by: commands.Signer) -> dict[str, object]:
    """Returns the fields of the record that ``by`` makes of a machine."""
    cursor = connection.cursor()
    commands.register(cursor, machine.public, by)
    ((position, text),) = cursor.execute("SELECT position, record FROM leaves ORDER BY position DESC LIMIT 1")
    cursor.execute("DELETE FROM leaves WHERE position = ?", (position,))
    return {name: value for name, value in json.loads(text).items() if name != "at_utc"}


WAYS: dict[str, tuple[Callable[[Attack], object], ...]] = {
    "search index": (*map(_by_sql, (_forgotten, _emptied_words, _planted_words, _forged_text, _forged_filter)),),
    "ledger": (*map(_by_sql, (_other_receiver, _call_gone, _call_made_up, _other_figures)),),
    "laundering": (_evidence_dropped, _second_log, _by_sql(_evidence_later)),
    "triggers": (_triggers_gone, _hostile_trigger, _trigger_without_effect),
    "side tables": (_row_of_run, *map(_by_sql, (_batch_of_run, _deletion, _hold, _judgement, _image))),
    "anchors": (*map(_lines, (_without_one, _twice_one, _other_order, _emptied)), _by_sql(_no_device)),
    "archives": (_misleading_archive,),
    "commands": (*map(_by_sql, (_by_hand, _replayed, _edited_command, _forged_machine)),),
}
CLASSES = {
    "search index": {"derived"},
    "ledger": {"derived"},
    "laundering": {"begun_again", "unsigned"},
    "triggers": {"schema"},
    "side tables": {"derived"},
    "anchors": {"anchor"},
    "archives": {"evidence"},
    "commands": {"derived", "evidence"},
}
"""The class that a finding has to have, of each class of changes."""
