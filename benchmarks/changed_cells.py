"""Single cells of a database changed past the program: does ``verify`` find each change that anybody could notice?

    python -m benchmarks.changed_cells [--trials 5000] [--seed 1]

Each trial copies one database that holds runs of all kinds: completed, failed, cancelled, waiting, running, queued,
erased, deleted, held, encrypted and imported ones, a batch, images, approvals, commands and views. It changes one cell
of any table by SQL, or deletes or repeats a row, or changes the schema. It passes if ``verify`` has a finding. Without
a finding it passes only if no answer changed. That is decided by comparing all answers before and after: all that the
store returns of runs (lists, traces, events, totals, pages), batches, deletions, holds, images that a run names,
commands, search, ledger, received texts, sums, failures, the access log, service keys, conversations, deleted
responses, the name of the log, the proven files of each run's bundle, and which runs would be marked as interrupted.
Pages, commands and exports are made of nothing else.

A cell is changed to the value of another row, NULL, another type, another bit, the next number, or nothing.
"""

import argparse
import contextlib
import hashlib
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from conductor_core.chat.messages import ImagePart
from conductor_core.errors import InspectorError
from conductor_core.run import events as ev
from conductor_core.run.actor import Caller, local_caller
from conductor_core.run.commands import Approve
from conductor_core.run.values import BatchRow, Imported
from storage import Privacy, open_store
from storage.access_log import AccessQuery
from storage.bundles import BundleWriter
from storage.evidence.anchoring import places_of
from storage.evidence.bundle_audit import FILES, FORMAT_1
from storage.evidence.checking import check_log, public_key
from storage.evidence.database_audit import open_database
from storage.evidence.history import Report
from storage.merkle.formats import PublicKey
from storage.search.filters import Filters
from storage.store import Store
from tests.support.damaging import past_triggers
from tests.support.pictures import picture
from tests.support.run_events import created, created_otherwise, planned, step_completed, step_started, whole_run

CALLER = local_caller("cli")
KINDS = ("other", "null", "type", "bit", "step", "empty", "delete row", "repeat row", "schema")
_TURNS = tuple(f"0a1b2c3d4e5{number}-0123456789abcdef" for number in range(3))
_WORDS = ("Ada", "solver", "checked", "6", "\u5927\u9634")


def write_bundle(connection: sqlite3.Connection, run_ids: Sequence[str], key: PublicKey, folder: Path) -> None:
    """Writes a bundle of format 1, without files for reading, into ``folder``. Raises: as ``BundleWriter``."""
    writer = BundleWriter(connection, run_ids, key, folder)
    writer.write_head(FORMAT_1)
    writer.write_events()
    writer.write_proofs()


@dataclass(frozen=True)
class Pristine:
    """A database as it was written, in a folder with its keys and anchor, and the digest of its answers."""

    path: Path
    run_ids: tuple[str, ...]
    images: tuple[str, ...]
    answers: dict[str, str]


@dataclass(frozen=True)
class Trial:
    """What was changed, and what came of it.

    Attributes:
        found: the classes of the findings. silent: which answers changed although nothing was found.
        broken: what ended the check, or made it look like bad input.
    """

    kind: str
    table: str
    change: str
    found: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    broken: str = ""

    @property
    def good(self) -> bool:
        return not self.broken and not self.silent


def pristine(folder: Path) -> Pristine:
    folder.mkdir()
    path = folder / "runs.sqlite3"
    shown, unused, away = (picture(colour) for colour in ((200, 30, 30), (30, 200, 30), (30, 30, 200)))
    with closing(open_store(f"sqlite:///{path}", Privacy(encrypt=True))) as store:
        for run_id in ("secret", "secret-erased"):
            store.log.append_and_wait(*whole_run(run_id, f"A secret of {run_id}"))
        store.erase(["secret-erased"], CALLER)
    with closing(open_store(f"sqlite:///{path}")) as store:
        _write(store, [ImagePart.of(shown), ImagePart.of(away)], lambda: store.keep_images([shown, unused]))
        run_ids = tuple(run.run_id for run in store.runs(limit=1000))
    images = (shown.sha256, away.sha256)  # what no run names, nothing asks for
    asked = folder.with_name("asked")  # to ask leaves something behind
    shutil.copytree(folder, asked)
    return Pristine(path, run_ids, images, answers(asked / path.name, run_ids, images))


def _write(store: Store, images: list[ImagePart], keep: Callable[[], None]) -> None:
    log = store.log.append_and_wait
    for run_id in ("first", "deleted", "erased", "held", "released"):
        log(*whole_run(run_id, f"What does Ada ask of {run_id}?"))
    begin = (created("failed", "Fail."), *planned("failed"), step_started("failed", 0, 30))
    failed = ev.RunFailed(run_id="failed", error="No worker answered.", error_code="WorkerFailed", duration_ms=40)
    log(*begin, failed)
    log(*whole_run("dense", "\u5927\u9634\u8c37 asks", "\u6f22\u5b57\u4eee\u540d"))
    log(created("cancelled"), *planned("cancelled"), ev.RunCancelled(run_id="cancelled"))
    for number in range(3):
        place = BatchRow(id="batch", row=str(number), name="tasks.jsonl", size=4)
        first, *rest = whole_run(f"row-{number}", f"Task {number}")
        log(created_otherwise(first, batch=place), *rest)
    keep()
    first, *rest = whole_run("pictured")
    log(created_otherwise(first, images=(images[0],)), *rest)
    now = datetime.now(UTC)
    came = Imported(run_id="there", written_by="conductor", written_at_utc=now, imported_at_utc=now)
    first, *rest = whole_run("imported")
    log(created_otherwise(first, imported=came, images=tuple(images)), *rest)
    asked = ev.ApprovalRequested(run_id="waiting", number=1, of="plan", path=(), rules=("plan",), identity="i")
    log(created("waiting"), *planned("waiting"), asked, ev.RunWaiting(run_id="waiting"))
    log(created("running"), *planned("running"), step_started("running", 0, 30), step_completed("running", 0, "x", 40))
    log(created("queued", queued=True))
    store.send(Approve(run_id="waiting", numbers=(1,), actor=CALLER.actor, door=CALLER.door))
    log(created("child", parent_run_id="first"), *whole_run("child")[1:])
    store.search.catch_up()
    store.hold(["held", "released"], CALLER)
    store.hold(["released"], CALLER, held=False)
    store.delete(["deleted", "row-0"], CALLER)
    store.erase(["erased", "row-1"], CALLER)
    store.search.catch_up()
    _write_keys(store)
    _write_conversation(store)
    _write_judgements(store)
    store.access_log.viewed(["first", "held"], "show", CALLER)
    store.access_log.exported(["first"], "bundle", CALLER)
    store.access_log.settle()
    store.publish()
    log(*whole_run("late"))


def _write_keys(store: Store) -> None:
    for name in ("revoked", "app", "free"):
        limits: Any = {"usd_per_day": 2.5, "tokens_per_day": 1000, "requests_per_minute": 60} if name == "app" else {}
        of: Any = {"models": ("fugu",), "excluded_providers": ("openai",)} if name == "app" else {}
        key, _ = store.service_keys.create(name, CALLER if name == "app" else Caller(), **of, **limits)
        if name == "app":
            first, *rest = whole_run("of-key")
            store.log.append_and_wait(created_otherwise(first, actor=key.actor), *rest)
    store.service_keys.revoke("revoked", CALLER)


def _write_conversation(store: Store) -> None:
    for number in range(3):
        first, *rest = whole_run(_TURNS[number])
        store.log.append_and_wait(created_otherwise(first, conversation_id=_TURNS[0] if number else None), *rest)
        store.deleted_responses.delete(_response(number), CALLER if number else Caller())
    store.erase(_TURNS[2:], CALLER)


def _write_judgements(store: Store) -> None:
    add = store.judgements.add
    add("first", CALLER, mark="wrong", score=0.25, note="It names the wrong year.")
    add("first", CALLER, path=(1,), mark="right")
    add("first", CALLER, mark="right")
    add("secret", Caller(), score=1, note="A secret note.", by="grader")
    add("held", CALLER, mark="better", by="judge", source_run_id="child", compared_with="first")
    store.judgements.take_back(store.judgements.of("first")[-1], CALLER)


def _response(number: int) -> str:
    return f"resp_{_TURNS[number].replace('-', '')}_0"


def answers(path: Path, run_ids: tuple[str, ...], images: tuple[str, ...]) -> dict[str, str]:
    """Returns a digest of each answer of the database, by name. Where one ends in an error, that is the answer."""
    found: dict[str, str] = {}

    def keep(name: str, answer: Callable[[], object]) -> None:
        try:
            said = answer()
        except Exception as error:  # noqa: BLE001  it is what a person would see
            said = f"{type(error).__name__}: {error}"
        found[name] = hashlib.sha256(repr(said).encode(errors="replace")).hexdigest()

    try:
        store = open_store(f"sqlite:///{path}")
    except InspectorError as error:
        return {"open": repr(error).replace(str(path.parent), "")}
    with closing(store):
        search = store.search
        keep("runs", lambda: store.runs(limit=1000, answers=True))
        keep("page", lambda: store.runs(limit=4, before=store.runs(limit=4)[-1].sequence))
        for status in ("completed", "waiting", "running", "queued", "damaged", "erased"):
            keep(f"runs {status}", partial(store.runs, limit=1000, status=status))
        keep("turns", lambda: (store.conversation(_TURNS[1]), store.turn_numbers(_TURNS)))
        keep("no responses", lambda: [store.deleted_responses.deleted(_response(number)) for number in range(3)])
        keep("tree", lambda: store.runs(limit=1000, tree="child"))
        keep("in batch", lambda: store.runs(limit=1000, batch="batch"))
        keep("alone", lambda: store.runs(limit=1000, alone=True, without=("x",), search="ada"))
        keep("totals", store.totals)
        keep("batches", store.batches)
        keep("deletions", store.deletions)
        keep("held", lambda: sorted(store.held(run_ids)))
        keep("waits", lambda: (store.waiting(), store.waiting_approvals()))
        keep("used", lambda: (store.newest(), store.was_used(), store.sent_to_waiting()))
        keep("copies", lambda: store.copies("first"))
        keep("cursor", lambda: store.cursor_at(datetime.now(UTC)))
        for run_id in run_ids:
            keep(f"trace {run_id}", partial(store.read, run_id))
            keep(f"events {run_id}", partial(store.readable_events, run_id))
            keep(f"raw {run_id}", partial(store.raw_events, run_id))
            keep(f"commands {run_id}", partial(store.commands, run_id))
            keep(f"deletion {run_id}", partial(store.deletion, run_id))
            keep(f"id {run_id}", partial(store.resolve, run_id))
        for sha256 in images:
            keep(f"image {sha256[:4]}", partial(store.content, sha256))
        keep("lag", search.lag)
        keep("facets", search.facets)
        for words in _WORDS:
            keep(f"texts {words}", partial(search.texts, words))
            keep(f"count {words}", partial(search.count, words))
            keep(f"received {words}", partial(search.receivers, words))
        filters: tuple[dict[str, str], ...] = ({}, {"agent": "solver"}, {"status": "completed"}, {"failure": "*"})
        for values in filters:
            keep(f"runs {values}", partial(search.runs, Filters(values=values)))
        keep("receipt", lambda: search.receipt("rehearsal", "step 0"))
        keep("ledger", search.receivers)
        keep("calls", lambda: [each.model_dump(exclude={"call_id"}) for each in search.calls(limit=1000)])
        keep("spending", search.spending)
        keep("failures", search.failures)
        keep("access", lambda: store.access_log.read(AccessQuery(), limit=1000))
        keys = store.service_keys
        keep("keys", lambda: [(key, keys.current(key.id), keys.last_used(key.id)) for key in keys.list()])
        keep("judgements", store.judgements.list)
        keep("what counts", lambda: (store.judgements.latest(run_ids), store.judgements.counts()))
        keep("evidence", lambda: store.evidence().origin)
        keep("published", store.publish)
        for run_id in run_ids:
            keep(f"proofs {run_id}", partial(_proofs, path, run_id))
        keep("interrupted", store.mark_interrupted)
    return found


def _proofs(path: Path, run_id: str) -> object:
    """Returns what the bundle of a run says of it; not the checkpoint and its paths, which grow with the log."""
    key = public_key(path, places_of(path))
    if key is None:
        return None
    with tempfile.TemporaryDirectory() as folder, closing(open_database(path)) as connection:
        write_bundle(connection, [run_id], key, Path(folder))
        return [(Path(folder) / name).read_bytes() for name in FILES if name in ("bundle.json", "events.jsonl")]


def _columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Returns all tables and their columns, but of views and virtual tables."""
    tables = [
        name
        for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name")
        if not str(sql).startswith("CREATE VIRTUAL")
    ]
    return [(table, row[1]) for table in tables for row in connection.execute(f"PRAGMA table_info({table})")]


def change_cell(path: Path, table: str, column: str, kind: str, rng: random.Random) -> str | None:
    """Changes one cell of a column. Returns what was changed; None: nothing could be."""
    with past_triggers(path) as connection, contextlib.suppress(sqlite3.IntegrityError):
        connection.text_factory = _text
        return _change(connection, table, column, kind, rng)
    return None


def change(path: Path, rng: random.Random) -> tuple[str, str, str]:
    """Changes one thing. Returns kind and table of the change, and what it is, in words."""
    done = None
    with past_triggers(path) as connection:
        connection.text_factory = _text
        columns = _columns(connection)
        while done is None:
            table, column = rng.choice(columns)
            kind = rng.choice(KINDS if rng.random() < 0.3 else KINDS[:6])
            if kind == "schema":
                break
            with contextlib.suppress(sqlite3.IntegrityError):
                done = _change(connection, table, column, kind, rng)
    if done is not None:
        return kind, table, done
    with closing(sqlite3.connect(path)) as connection, connection:
        return kind, "schema", _change_schema(connection, rng)


def _text(raw: bytes) -> str | bytes:
    return raw.decode(errors="surrogateescape")


def _change(connection: sqlite3.Connection, table: str, column: str, kind: str, rng: random.Random) -> str | None:
    """Returns what was changed; None: nothing was, because the value is the same, or there is no row."""
    key = _key(connection, table)
    rows = connection.execute(f"SELECT {key}, {column}, typeof({column}) FROM {table}").fetchall()
    if not rows:
        return None
    *place, value, stored = rng.choice(rows)
    names = key.split(", ")
    at = " AND ".join(f"{name} = ?" for name in names)
    where = f"{table}.{column} of {', '.join(map(repr, place))}"
    if kind == "delete row":
        connection.execute(f"DELETE FROM {table} WHERE {at}", place)
        return f"{where}: row deleted"
    if kind == "repeat row":
        return _repeat(connection, table, names, place, where)
    new: object = None
    if kind == "other":
        others = [row[-2] for row in rows if row[-2] != value]
        if not others:
            return None
        new = rng.choice(others)
    elif kind != "null":
        new = CHANGES[kind](value, rng)
    as_text = isinstance(value, str) and isinstance(new, bytes) and kind == "bit"
    new = new.encode(errors="surrogateescape") if isinstance(new, str) else new
    cast = "CAST(? AS TEXT)" if as_text or (isinstance(new, bytes) and kind != "type" and stored == "text") else "?"
    if kind == "other" and isinstance(value, bytes | type(None)) and stored != "text":
        cast = "?"
    connection.execute(f"UPDATE {table} SET {column} = {cast} WHERE {at}", (new, *place))
    after = connection.execute(
        f"SELECT {column}, typeof({column}) FROM {table} WHERE {at}",
        [new if name == column else each for name, each in zip(names, place, strict=True)],
    ).fetchone()
    if after is not None and after == (value, stored):
        return None
    return f"{where} ({kind}): {str(value)[:60]!r} -> {new!r:.60}"


def _key(connection: sqlite3.Connection, table: str) -> str:
    try:
        connection.execute(f"SELECT rowid FROM {table}")
    except sqlite3.OperationalError:
        return ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5])
    return "rowid"


def _repeat(connection: sqlite3.Connection, table: str, names: list[str], place: list[Any], where: str) -> str:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    keys = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]
    at = " AND ".join(f"{name} = ?" for name in names)
    values = ", ".join(
        f"(SELECT max({name}) + 1 FROM {table})" if [name] == keys and table != "runs" else name for name in columns
    )
    connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table} WHERE {at}", place)
    return f"{where}: row repeated"


def _change_schema(connection: sqlite3.Connection, rng: random.Random) -> str:
    query = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'index') AND sql IS NOT NULL ORDER BY name"
    kind, name = rng.choice(connection.execute(query).fetchall())
    statement = rng.choice(
        [
            f"DROP {kind} {name}",
            "CREATE TRIGGER added AFTER INSERT ON events BEGIN DELETE FROM snapshots; END",
            "CREATE VIEW added AS SELECT * FROM runs",
            "CREATE TABLE added (it TEXT)",
            "ALTER TABLE runs ADD COLUMN added TEXT",
        ]
    )
    connection.execute(statement)
    return statement


def _other_type(value: object, rng: random.Random) -> object:
    match value:
        case str():
            return rng.choice([value.encode(errors="surrogateescape"), b"\xff\xfe", b"", 7, 2**62])
        case bytes():
            return rng.choice([value.decode("latin-1"), "", 7])
        case _:
            return rng.choice(["x", b"\x00", str(value).encode(), 1e300, 2**63 - 1])


def _bit(value: object, rng: random.Random) -> object:
    if isinstance(value, int):
        return value ^ (1 << rng.randrange(8))
    if isinstance(value, float) or value is None:
        return (value or 0.0) + rng.choice([1e-9, 0.5])
    raw = bytearray(value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape"))
    if not raw:
        return b" "
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return bytes(raw)


def _step(value: object, rng: random.Random) -> object:
    if isinstance(value, int | float):
        return value + rng.choice([-1, 1])
    if isinstance(value, str):
        return value + rng.choice([" ", "0", "\u0000"])
    return b"\x00" if value is None else bytes(value) + b"\x00" if isinstance(value, bytes) else None


def _empty(value: object, rng: random.Random) -> object:
    return 0 if isinstance(value, int | float) else b"" if isinstance(value, bytes) else ""


CHANGES: dict[str, Callable[[Any, random.Random], object]] = {
    "type": _other_type,
    "bit": _bit,
    "step": _step,
    "empty": _empty,
}


def check(path: Path) -> Report:
    places = places_of(path)
    key = public_key(path, places)
    keys, anchors = ([], []) if key is None else ([key], [places.anchor.file])
    return check_log(path, keys, anchors, Privacy().vault(path), lambda what, count: None)


def trial(whole: Pristine, folder: Path, seed: int) -> Trial:
    rng = random.Random(seed)
    _copy(whole, folder)
    path = folder / whole.path.name
    kind, table, what = change(path, rng)
    try:
        report = check(path)
    except Exception as error:  # noqa: BLE001  whatever it is, it ended the check
        return Trial(kind, table, what, broken=f"{type(error).__name__}: {error}")
    found = tuple(dict.fromkeys(each.kind for each in report.findings))
    if found:
        return Trial(kind, table, what, found)
    now = answers(path, whole.run_ids, whole.images)
    silent = tuple(name for name in now.keys() | whole.answers.keys() if now.get(name) != whole.answers.get(name))
    return Trial(kind, table, what, silent=silent)


def _copy(whole: Pristine, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(whole.path.parent, folder)


def trials(count: int, seed: int) -> Iterator[Trial]:
    """Makes ``count`` changes, each of its own database; ``seed``: of the first."""
    with tempfile.TemporaryDirectory() as name:
        whole = pristine(Path(name) / "kept")
        for number in range(count):
            yield trial(whole, Path(name) / "changed", seed + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    with contextlib.suppress(KeyboardInterrupt):  # then the table is of what was done until then
        for number, each in enumerate(trials(options.trials, options.seed)):
            outcome = "silent" if each.silent else "found" if each.found else "no answer changed"
            if each.broken:
                outcome = "broken"
            counts[each.kind][outcome] += 1
            if outcome in ("broken", "silent"):
                what = f"seed {options.seed + number}: {each.change}: {each.broken or each.silent}"
                print(what.encode("ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)
    outcomes = ("found", "no answer changed", "silent", "broken")
    print("| change | " + " | ".join(outcomes) + " |")
    print("|---|" + "---:|" * len(outcomes))
    total: Counter[str] = Counter()
    for kind, counted in counts.items():
        total += counted
        print(f"| {kind} | " + " | ".join(f"{counted[each]:,}" for each in outcomes) + " |")
    print("| all | " + " | ".join(f"{total[each]:,}" for each in outcomes) + " |")
    print(f"{time.perf_counter() - began:.0f} s")
    return 1 if total["silent"] + total["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
