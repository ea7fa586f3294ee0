"""The schema, declared once: ``_BASELINE``, and in ``CHANGES`` what was changed since.

A blank database and an older one go the same way: the changes that it lacks, in their order. Times are ISO 8601 text in
UTC, and JSON is text.
"""

import re
import secrets
import sqlite3
import warnings
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_core.errors import StoreError, StoreTooNew
from storage import errors
from storage.merkle.chain import add_record

if TYPE_CHECKING:
    from sqlmodel import SQLModel

# The text is what SQLite keeps of a statement, to the sign: the audit compares it.
_BASELINE = """\
-- The version of the schema, in one row.
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)

-- The truth: all else but the evidence is folded from it and could be made again.
-- sequence: counts over all runs, in the order of commits, and is never given twice.
-- payload: the event as JSON, in the exact bytes (UTF-8) that a digest covers, or its ciphertext.
-- position: of its leaf in leaves.
CREATE TABLE events (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	at_utc TEXT NOT NULL,
	payload TEXT NOT NULL
, position INTEGER)

-- A run for lists (storage.records.RunSummary), changed in the transaction of the event that changes it.
-- sequence: of its run.created; the order of the list.
-- actor: who caused it, as JSON (conductor_core.run.actor.Actor). agents: a JSON list.
-- asked_for: what of it waits for an approval, else the client's tools that it waits for, in words; NULL: nothing.
-- imported: whether it came as a file. imported_answers: whether it reuses answers of a run that did. recorded:
-- whether the file is one of this program's own.
-- cost_estimated: whether it is no exact figure (conductor_core.run.costs.basis).
-- vocabulary: the version of the events (conductor_core.run.events.VOCABULARY) of the program that began the run.
-- owner_id: names the lock file of the process that carries it out; empty: none does.
-- batch_*: the batch, its place there, and the file of tasks (conductor_core.run.values.BatchRow).
CREATE TABLE runs (
	run_id TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	created_at_utc TEXT NOT NULL,
	status TEXT NOT NULL,
	task TEXT NOT NULL,
	"door" TEXT NOT NULL,
	conductor TEXT,
	pool TEXT NOT NULL,
	parent_run_id TEXT,
	simulated BOOLEAN NOT NULL,
	plan_only BOOLEAN NOT NULL,
	topology TEXT,
	agents TEXT NOT NULL,
	steps INTEGER NOT NULL,
	steps_completed INTEGER NOT NULL,
	steps_reused INTEGER NOT NULL,
	steps_failed INTEGER NOT NULL,
	input_tokens INTEGER NOT NULL,
	output_tokens INTEGER NOT NULL,
	cost_usd FLOAT,
	duration_ms FLOAT,
	error TEXT,
	owner_id TEXT NOT NULL,
	vocabulary INTEGER DEFAULT '1' NOT NULL, batch_id TEXT, batch_row TEXT, known_usd FLOAT DEFAULT '0' NOT NULL, \
cost_estimated BOOLEAN DEFAULT '0' NOT NULL, actor TEXT, purpose TEXT DEFAULT '' NOT NULL, asked_for TEXT, \
imported BOOLEAN DEFAULT '0' NOT NULL, imported_answers BOOLEAN DEFAULT '0' NOT NULL, \
recorded BOOLEAN DEFAULT '0' NOT NULL, batch_name TEXT, batch_size INTEGER,
	PRIMARY KEY (run_id)
)

-- The latest stored fold of a run: its trace after the event sequence.
-- fold_digest: of the code that folded it; a snapshot of other code is ignored.
-- events_sha256: of the run's events up to sequence as written: if it differs now, an event was changed.
-- sha256: of all other columns; a snapshot that was changed itself is ignored.
CREATE TABLE snapshots (
	run_id TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	fold_digest TEXT NOT NULL,
	trace TEXT NOT NULL, events_sha256 TEXT DEFAULT '' NOT NULL, sha256 TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (run_id)
)

-- A run that somebody deleted. Triggers demand it before the run's events go.
-- erased: whether it stays in lists, and in the log if it was encrypted, without any text that can be read.
-- created_at_utc, status: of the run. events: how many it had. events_sha256: of all, as in snapshots.
CREATE TABLE deletions (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	deleted_at_utc TEXT NOT NULL,
	"door" TEXT NOT NULL,
	created_at_utc TEXT NOT NULL,
	status TEXT NOT NULL,
	events INTEGER NOT NULL,
	events_sha256 TEXT NOT NULL
, actor TEXT, erased BOOLEAN DEFAULT '0' NOT NULL)

-- A hold placed on a run (held) or taken off; the last one counts.
CREATE TABLE holds (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	held BOOLEAN NOT NULL,
	at_utc TEXT NOT NULL,
	"door" TEXT NOT NULL
, actor TEXT)

-- A command to a run (conductor_core.run.commands) and its proof, as JSON. It goes only with its run.
CREATE TABLE commands (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	at_utc TEXT NOT NULL,
	payload TEXT NOT NULL
)

-- Bytes that events name by their digest, each kept once: the images of tasks.
CREATE TABLE contents (
	sha256 TEXT NOT NULL,
	media_type TEXT NOT NULL,
	data BLOB NOT NULL,
	created_at_utc TEXT NOT NULL,
	PRIMARY KEY (sha256)
)

-- Which run's run.created names which content. A content that no run names goes with the last that did.
CREATE TABLE run_contents (
	run_id TEXT NOT NULL,
	sha256 TEXT NOT NULL,
	PRIMARY KEY (run_id, sha256)
)

-- The one row of the evidence: the log's name, and the sequence from which on events have a leaf.
CREATE TABLE evidence_log (
	origin TEXT NOT NULL,
	covered_from INTEGER NOT NULL,
	PRIMARY KEY (origin)
)

-- The leaf of an event, or of a record that is kept here.
-- position: in the log's Merkle tree; 0, 1, 2 and so on, without gaps.
-- hash: see storage.merkle.formats. record: JSON in the exact bytes that were hashed; NULL for an event.
CREATE TABLE leaves (
	position INTEGER NOT NULL,
	run_id TEXT,
	hash BLOB NOT NULL,
	record TEXT,
	PRIMARY KEY (position)
)

-- A checkpoint that was signed and published elsewhere. The copy here says how far that went, and proves nothing.
-- size: how many entries it covers. peaks: of the tree then (storage.merkle.formats.Tree).
CREATE TABLE checkpoints (
	size INTEGER NOT NULL,
	at_utc TEXT NOT NULL,
	note TEXT NOT NULL,
	peaks BLOB NOT NULL,
	PRIMARY KEY (size)
)

-- A run whose texts are in the search index. Its tables can be made again from events.
-- run: sequence of its run.created; the other tables name the run by it. indexed_to: of the last event.
-- fault: why the run could not be read to its end; empty: it could.
CREATE TABLE search_runs (
	run INTEGER NOT NULL,
	run_id TEXT NOT NULL,
	indexed_to INTEGER NOT NULL,
	fault TEXT NOT NULL,
	PRIMARY KEY (run),
	UNIQUE (run_id)
)

-- A text of a run, once however often it is there. dense: it has signs of a script without spaces.
CREATE TABLE search_texts (
	id INTEGER NOT NULL,
	run INTEGER NOT NULL,
	dense BOOLEAN NOT NULL,
	text TEXT NOT NULL,
	PRIMARY KEY (id)
)

-- Where a text is (storage.search.reading.Place). event: sequence of the event.
CREATE TABLE search_places (
	id INTEGER NOT NULL,
	text_id INTEGER NOT NULL,
	run INTEGER NOT NULL,
	field TEXT NOT NULL,
	event INTEGER NOT NULL,
	path TEXT NOT NULL,
	agent TEXT NOT NULL,
	detail TEXT NOT NULL,
	PRIMARY KEY (id)
)

-- A call of a model (conductor_core.run.egress.Call). event: sequence of the event that holds its messages.
-- messages: how many were sent. images: how many of their parts were images. The other figures are of this call;
-- cost_usd is NULL if the price is unknown.
CREATE TABLE search_calls (
	id INTEGER NOT NULL,
	run INTEGER NOT NULL,
	event INTEGER NOT NULL,
	at_utc TEXT NOT NULL,
	purpose TEXT NOT NULL,
	path TEXT NOT NULL,
	agent TEXT NOT NULL,
	provider TEXT NOT NULL,
	host TEXT NOT NULL,
	simulated BOOLEAN NOT NULL,
	how TEXT NOT NULL,
	ended TEXT NOT NULL,
	messages INTEGER NOT NULL,
	images INTEGER NOT NULL,
	input_tokens INTEGER NOT NULL,
	output_tokens INTEGER NOT NULL,
	cost_usd FLOAT,
	PRIMARY KEY (id)
)

-- A value that a filter can ask for, and how often the run has it.
CREATE TABLE search_facets (
	kind TEXT NOT NULL,
	value TEXT NOT NULL,
	run INTEGER NOT NULL,
	times INTEGER NOT NULL,
	PRIMARY KEY (kind, value, run)
)
 WITHOUT ROWID

-- How far the index is, in one row. reached: all runs that ended up to this sequence are in it.
-- residue: whether the full-text tables still hold words of a run that was taken out.
CREATE TABLE search_state (
	id INTEGER NOT NULL,
	reached INTEGER NOT NULL,
	residue BOOLEAN NOT NULL,
	PRIMARY KEY (id)
)

-- Words in lower case without accents; and every three signs, for dense texts. The text itself is in search_texts.
-- Nothing is ranked, so no lengths are kept.
CREATE VIRTUAL TABLE search_words USING fts5(text, content='search_texts', content_rowid='id', columnsize=0, \
tokenize='unicode61 remove_diacritics 2')

CREATE VIRTUAL TABLE search_signs USING fts5(text, content='search_texts', content_rowid='id', columnsize=0, \
tokenize='trigram')
"""
_INDEXES = """\
CREATE INDEX ix_events_run_id_sequence ON events (run_id, sequence)
CREATE UNIQUE INDEX ix_runs_sequence ON runs (sequence)
CREATE INDEX ix_runs_status_sequence ON runs (status, sequence)
CREATE INDEX ix_runs_parent_run_id ON runs (parent_run_id)
CREATE INDEX ix_runs_batch_id_sequence ON runs (batch_id, sequence)
CREATE INDEX ix_runs_created_at_utc ON runs (created_at_utc)
CREATE INDEX ix_runs_asked_for ON runs (sequence) WHERE asked_for IS NOT NULL
CREATE UNIQUE INDEX ix_deletions_run_id ON deletions (run_id)
CREATE INDEX ix_holds_run_id_id ON holds (run_id, id)
CREATE INDEX ix_commands_run_id_id ON commands (run_id, id)
CREATE INDEX ix_run_contents_sha256 ON run_contents (sha256)
CREATE INDEX ix_leaves_records ON leaves (run_id) WHERE record IS NOT NULL
CREATE INDEX ix_search_texts_run ON search_texts (run)
CREATE INDEX ix_search_texts_dense ON search_texts (id) WHERE dense
CREATE INDEX ix_search_places_text_id ON search_places (text_id)
CREATE INDEX ix_search_places_run ON search_places (run)
CREATE INDEX ix_search_places_error ON search_places (detail, run) WHERE field = 'error'
CREATE INDEX ix_search_calls_event ON search_calls (event)
CREATE INDEX ix_search_calls_run ON search_calls (run)
CREATE INDEX ix_search_facets_run ON search_facets (run)
"""
_OF_KEPT_RUN = (
    "NOT EXISTS (SELECT 1 FROM deletions WHERE run_id = OLD.run_id) "
    "OR (SELECT held FROM holds WHERE run_id = OLD.run_id ORDER BY id DESC LIMIT 1)"
)
_ONLY_ADDED = ("events", "deletions", "holds", "commands", "evidence_log", "leaves", "checkpoints")
_NO_UPDATE = {table: f"{table} are only ever added" for table in _ONLY_ADDED}
_NO_UPDATE |= dict.fromkeys(("contents", "run_contents"), "contents are never changed")
_NO_DELETE = _NO_UPDATE | {"contents": "a run names this content", "run_contents": "a run keeps its contents"}
"""What a trigger says, by table."""
_NO_DELETE_WHEN = dict.fromkeys(("events", "commands", "run_contents"), _OF_KEPT_RUN)
_NO_DELETE_WHEN["contents"] = "EXISTS (SELECT 1 FROM run_contents WHERE sha256 = OLD.sha256)"
BASELINE = 17

_SERVICE_KEYS = """\
-- A service key of the endpoint (conductor_core.run.service_key.ServiceKey), which is only ever revoked.
-- actor, door: of who created it; the record in the log says who revoked it. models: a JSON list; NULL: all.
-- excluded_providers: a JSON list. digest: SHA-256 of the key in hexadecimal.
CREATE TABLE service_keys (
	id TEXT NOT NULL,
	name TEXT NOT NULL,
	created_at_utc TEXT NOT NULL,
	actor TEXT,
	door TEXT NOT NULL,
	models TEXT,
	excluded_providers TEXT NOT NULL,
	usd_per_day FLOAT,
	tokens_per_day INTEGER,
	requests_per_minute INTEGER,
	digest TEXT NOT NULL,
	revoked_at_utc TEXT,
	PRIMARY KEY (id)
)

CREATE UNIQUE INDEX ix_service_keys_digest ON service_keys (digest)

CREATE UNIQUE INDEX ix_service_keys_name ON service_keys (name) WHERE revoked_at_utc IS NULL

-- The runs of a service key, by day. Somebody may have damaged the JSON of an actor.
CREATE INDEX ix_runs_service ON runs (json_extract(actor, '$.id'), created_at_utc) \
WHERE json_valid(actor) AND json_extract(actor, '$.kind') = 'service'

CREATE TRIGGER service_keys_no_update BEFORE UPDATE ON service_keys \
WHEN OLD.revoked_at_utc IS NOT NULL OR NEW.revoked_at_utc IS NULL \
BEGIN SELECT RAISE(ABORT, 'service keys are only ever revoked'); END

CREATE TRIGGER service_keys_no_change BEFORE UPDATE OF id, name, created_at_utc, actor, door, models, \
excluded_providers, usd_per_day, tokens_per_day, requests_per_minute, digest ON service_keys \
BEGIN SELECT RAISE(ABORT, 'service keys are only ever revoked'); END

CREATE TRIGGER service_keys_no_delete BEFORE DELETE ON service_keys \
BEGIN SELECT RAISE(ABORT, 'service keys are only ever revoked'); END
"""


_CONVERSATIONS = f"""\
-- conversation_id: of the run that began the conversation; NULL: the run is in none, or began one.
ALTER TABLE runs ADD COLUMN conversation_id TEXT

CREATE INDEX ix_runs_conversation_id ON runs (conversation_id) WHERE conversation_id IS NOT NULL

-- A response of a run that a client deleted: the endpoint does not show it any more. It goes with its run.
-- actor, door: of who deleted it, as in runs.
CREATE TABLE deleted_responses (
	response_id TEXT NOT NULL,
	run_id TEXT NOT NULL,
	at_utc TEXT NOT NULL,
	actor TEXT,
	door TEXT NOT NULL,
	PRIMARY KEY (response_id)
)

CREATE INDEX ix_deleted_responses_run_id ON deleted_responses (run_id)

CREATE TRIGGER deleted_responses_no_update BEFORE UPDATE ON deleted_responses \
BEGIN SELECT RAISE(ABORT, 'deleted responses are only ever added'); END

CREATE TRIGGER deleted_responses_no_delete BEFORE DELETE ON deleted_responses WHEN {_OF_KEPT_RUN} \
BEGIN SELECT RAISE(ABORT, 'deleted responses are only ever added'); END
"""


_ABOUT = """\
-- about_run_id: the run that this one shadows or judges; NULL: it is about none.
ALTER TABLE runs ADD COLUMN about_run_id TEXT

CREATE INDEX ix_runs_about_run_id ON runs (about_run_id) WHERE about_run_id IS NOT NULL
"""


_JUDGEMENTS = f"""\
-- A judgement of a run or of a step (conductor_core.run.judgement.Judgement). It goes with its run.
-- path: a JSON list; NULL: the run's answer. judged_by: ``by``. judge: tells judges apart. note: see storage.privacy.
-- actor, door: as in runs. salt: by chance; without it, nobody can guess a note from the digest in the log.
CREATE TABLE judgements (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	path TEXT,
	mark TEXT,
	score FLOAT,
	note TEXT NOT NULL,
	judged_by TEXT NOT NULL,
	judge TEXT NOT NULL,
	source_run_id TEXT,
	compared_with TEXT,
	at_utc TEXT NOT NULL,
	actor TEXT,
	door TEXT NOT NULL,
	salt TEXT NOT NULL
)

CREATE INDEX ix_judgements_run_id_id ON judgements (run_id, id)

CREATE TRIGGER judgements_no_update BEFORE UPDATE ON judgements \
BEGIN SELECT RAISE(ABORT, 'judgements are only ever added'); END

CREATE TRIGGER judgements_no_delete BEFORE DELETE ON judgements WHEN {_OF_KEPT_RUN} \
BEGIN SELECT RAISE(ABORT, 'judgements are only ever added'); END
"""


_FAILURES = """\
-- A failure in a run (storage.search.failures). event: sequence of the event that says so. path: of the step; empty: of
-- none. served: the model that the client asked; empty: none. said: in the words of the event, cut.
CREATE TABLE search_failures (
	id INTEGER NOT NULL,
	run INTEGER NOT NULL,
	event INTEGER NOT NULL,
	kind TEXT NOT NULL,
	code TEXT NOT NULL,
	path TEXT NOT NULL,
	agent TEXT NOT NULL,
	served TEXT NOT NULL,
	said TEXT NOT NULL,
	PRIMARY KEY (id)
)

CREATE INDEX ix_search_failures_run ON search_failures (run)

CREATE INDEX ix_search_failures_kind ON search_failures (kind, code, run)

-- The index is filled again, from the first run on: what it lacks now, it has of no run.
INSERT INTO search_words (search_words) VALUES ('delete-all')

INSERT INTO search_signs (search_signs) VALUES ('delete-all')

DELETE FROM search_places

DELETE FROM search_texts

DELETE FROM search_calls

DELETE FROM search_facets

DELETE FROM search_runs

UPDATE search_state SET reached = 0, residue = 0
"""


_SHADOWED = """\
-- All that storage.shadow reads of a run, so that the long texts of the table are passed over.
CREATE INDEX ix_runs_shadowed ON runs (purpose, sequence, run_id, about_run_id, imported, created_at_utc, status, \
agents, conductor, input_tokens, output_tokens, cost_usd, known_usd, duration_ms, simulated) \
WHERE purpose IN ('pass-through', 'shadow', 'judge')
"""


CHANGES = (_SERVICE_KEYS, _CONVERSATIONS, _ABOUT, _JUDGEMENTS, _FAILURES, _SHADOWED)
"""The first makes version 18 of version 17, and so on. None of them is edited later."""
HEAD = f"{BASELINE + len(CHANGES):04}"
"""The version that this program reads and writes."""
EVIDENCE_SINCE = "0013"
"""The first version with evidence. Whoever took the evidence out of a database must not have it begin again."""


def make(cursor: sqlite3.Cursor, version: str) -> None:
    """Makes the schema in a blank database, and begins its log. Call it in a transaction of the writer."""
    _execute(cursor, _BASELINE)
    for statement in _INDEXES.splitlines():
        cursor.execute(statement)
    for table, why in _NO_UPDATE.items():
        refused = f"BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, '{why}'); END"
        cursor.execute(f"CREATE TRIGGER {table}_no_update {refused}")
    for table, why in _NO_DELETE.items():
        when = f" WHEN {_NO_DELETE_WHEN[table]}" if table in _NO_DELETE_WHEN else ""
        refused = f"BEFORE DELETE ON {table}{when} BEGIN SELECT RAISE(ABORT, '{why}'); END"
        cursor.execute(f"CREATE TRIGGER {table}_no_delete {refused}")
    cursor.execute("INSERT INTO alembic_version (version_num) VALUES (?)", (f"{BASELINE:04}",))
    cursor.execute("INSERT INTO search_state (id, reached, residue) VALUES (1, 0, 0)")
    upgrade(cursor, f"{BASELINE:04}", version)
    origin = f"conductor-inspector/{secrets.token_hex(8)}"
    cursor.execute("INSERT INTO evidence_log (origin, covered_from) VALUES (?, 1)", (origin,))
    add_record(cursor, "log.began", covered_from=1)


def upgrade(cursor: sqlite3.Cursor, version: str, to: str) -> None:
    """Makes the changes that a database of this version lacks. Call it in a transaction of the writer.

    Raises: sqlite3.Error.
    """
    for change in CHANGES[int(version) - BASELINE : int(to) - BASELINE]:
        _execute(cursor, change)
    cursor.execute("UPDATE alembic_version SET version_num = ?", (to,))


def _execute(cursor: sqlite3.Cursor, statements: str) -> None:
    for statement in statements.strip().split("\n\n"):
        cursor.execute(statement)


def read_version(connection: sqlite3.Connection | sqlite3.Cursor, path: Path) -> str | None:
    """Returns the version, None if blank. Raises: StoreTooNew, StoreDamaged; StoreError for a version older than
    ``BASELINE`` or another program's file."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if "alembic_version" not in tables:
        if tables:
            raise StoreError(
                f"the database {path} belongs to another program: name another one with --db or DATABASE_URL"
            )
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    version = row[0] if row else None
    if not isinstance(version, str) or not re.fullmatch(r"\d{4}", version):
        raise errors.damaged(path, f"its schema version reads {version!r}")
    if version > HEAD:
        raise StoreTooNew(
            f"the database {path} was written by a newer version of this program (schema {version}, this program "
            f"knows {HEAD}): upgrade this program, or name another database with --db or DATABASE_URL"
        )
    if version < EVIDENCE_SINCE:
        raise StoreError(
            f"the database {path} says schema {version}, which had no evidence, so it is not opened: no released "
            "program wrote such a database, and one with evidence has lost it. Restore a backup with `conductor "
            "log restore`, and verify that with the public key and the anchor that you kept"
        )
    if int(version) < BASELINE:
        raise StoreError(
            f"the database {path} is of schema {version}, which is too old to be opened: the revision 65b7dff7 of this "
            "program's repository is the newest that can open it and export its runs"
        )
    return version


@cache
def tables() -> "dict[str, type[SQLModel]]":
    """Returns a class for each table but SQLite's own, for queries in Python: ``select(tables()["runs"])``.

    The program itself reads with plain SQL, because to import SQLModel takes as long as a short command.
    """
    from sqlalchemy import MetaData, create_engine
    from sqlalchemy.pool import StaticPool
    from sqlmodel import SQLModel

    with closing(sqlite3.connect(":memory:")) as blank:
        make(blank.cursor(), HEAD)
        blank.commit()
        metadata, of_sqlite = MetaData(), ("sqlite_", "search_words", "search_signs")
        with (
            create_engine("sqlite://", creator=lambda: blank, poolclass=StaticPool).connect() as connection,
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", "Skipped unsupported reflection of expression-based index")
            metadata.reflect(connection, only=lambda name, _: not name.startswith(of_sqlite))
    made: Any = type(SQLModel)
    return {name: made(name, (SQLModel,), {"__table__": of}, table=True) for name, of in metadata.tables.items()}
