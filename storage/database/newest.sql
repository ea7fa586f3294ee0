-- Written by `make schema` from the migrations.

CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE events (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	at_utc TEXT NOT NULL,
	payload TEXT NOT NULL
, position INTEGER);

CREATE INDEX ix_events_run_id_sequence ON events (run_id, sequence);

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
	vocabulary INTEGER DEFAULT '1' NOT NULL, batch_id TEXT, batch_row TEXT, known_usd FLOAT DEFAULT '0' NOT NULL, cost_estimated BOOLEAN DEFAULT '0' NOT NULL, actor TEXT, purpose TEXT DEFAULT '' NOT NULL, asked_for TEXT, imported BOOLEAN DEFAULT '0' NOT NULL, imported_answers BOOLEAN DEFAULT '0' NOT NULL, recorded BOOLEAN DEFAULT '0' NOT NULL, batch_name TEXT, batch_size INTEGER,
	PRIMARY KEY (run_id)
);

CREATE UNIQUE INDEX ix_runs_sequence ON runs (sequence);

CREATE INDEX ix_runs_status_sequence ON runs (status, sequence);

CREATE INDEX ix_runs_parent_run_id ON runs (parent_run_id);

CREATE TABLE snapshots (
	run_id TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	fold_digest TEXT NOT NULL,
	trace TEXT NOT NULL, events_sha256 TEXT DEFAULT '' NOT NULL, sha256 TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (run_id)
);

CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END;

CREATE INDEX ix_runs_batch_id_sequence ON runs (batch_id, sequence);

CREATE INDEX ix_runs_created_at_utc ON runs (created_at_utc);

CREATE TABLE deletions (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	deleted_at_utc TEXT NOT NULL,
	"door" TEXT NOT NULL,
	created_at_utc TEXT NOT NULL,
	status TEXT NOT NULL,
	events INTEGER NOT NULL,
	events_sha256 TEXT NOT NULL
, actor TEXT, erased BOOLEAN DEFAULT '0' NOT NULL);

CREATE UNIQUE INDEX ix_deletions_run_id ON deletions (run_id);

CREATE TABLE holds (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	held BOOLEAN NOT NULL,
	at_utc TEXT NOT NULL,
	"door" TEXT NOT NULL
, actor TEXT);

CREATE INDEX ix_holds_run_id_id ON holds (run_id, id);

CREATE TRIGGER deletions_no_update BEFORE UPDATE ON deletions BEGIN SELECT RAISE(ABORT, 'deletions are only ever added'); END;

CREATE TRIGGER deletions_no_delete BEFORE DELETE ON deletions BEGIN SELECT RAISE(ABORT, 'deletions are only ever added'); END;

CREATE TRIGGER holds_no_update BEFORE UPDATE ON holds BEGIN SELECT RAISE(ABORT, 'holds are only ever added'); END;

CREATE TRIGGER holds_no_delete BEFORE DELETE ON holds BEGIN SELECT RAISE(ABORT, 'holds are only ever added'); END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events WHEN NOT EXISTS (SELECT 1 FROM deletions WHERE run_id = OLD.run_id) OR (SELECT held FROM holds WHERE run_id = OLD.run_id ORDER BY id DESC LIMIT 1) BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END;

CREATE TABLE commands (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	run_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	at_utc TEXT NOT NULL,
	payload TEXT NOT NULL
);

CREATE INDEX ix_commands_run_id_id ON commands (run_id, id);

CREATE TRIGGER commands_no_update BEFORE UPDATE ON commands BEGIN SELECT RAISE(ABORT, 'commands are only ever added'); END;

CREATE TRIGGER commands_no_delete BEFORE DELETE ON commands WHEN NOT EXISTS (SELECT 1 FROM deletions WHERE run_id = OLD.run_id) OR (SELECT held FROM holds WHERE run_id = OLD.run_id ORDER BY id DESC LIMIT 1) BEGIN SELECT RAISE(ABORT, 'commands are only ever added'); END;

CREATE TABLE contents (
	sha256 TEXT NOT NULL,
	media_type TEXT NOT NULL,
	data BLOB NOT NULL,
	created_at_utc TEXT NOT NULL,
	PRIMARY KEY (sha256)
);

CREATE TABLE run_contents (
	run_id TEXT NOT NULL,
	sha256 TEXT NOT NULL,
	PRIMARY KEY (run_id, sha256)
);

CREATE INDEX ix_run_contents_sha256 ON run_contents (sha256);

CREATE TRIGGER contents_no_update BEFORE UPDATE ON contents BEGIN SELECT RAISE(ABORT, 'contents are never changed'); END;

CREATE TRIGGER run_contents_no_update BEFORE UPDATE ON run_contents BEGIN SELECT RAISE(ABORT, 'contents are never changed'); END;

CREATE TRIGGER contents_no_delete BEFORE DELETE ON contents WHEN EXISTS (SELECT 1 FROM run_contents WHERE sha256 = OLD.sha256) BEGIN SELECT RAISE(ABORT, 'a run names this content'); END;

CREATE INDEX ix_runs_asked_for ON runs (sequence) WHERE asked_for IS NOT NULL;

CREATE TABLE evidence_log (
	origin TEXT NOT NULL,
	covered_from INTEGER NOT NULL,
	PRIMARY KEY (origin)
);

CREATE TABLE leaves (
	position INTEGER NOT NULL,
	run_id TEXT,
	hash BLOB NOT NULL,
	record TEXT,
	PRIMARY KEY (position)
);

CREATE TABLE checkpoints (
	size INTEGER NOT NULL,
	at_utc TEXT NOT NULL,
	note TEXT NOT NULL,
	peaks BLOB NOT NULL,
	PRIMARY KEY (size)
);

CREATE TRIGGER evidence_log_no_update BEFORE UPDATE ON evidence_log BEGIN SELECT RAISE(ABORT, 'evidence_log are only ever added'); END;

CREATE TRIGGER evidence_log_no_delete BEFORE DELETE ON evidence_log BEGIN SELECT RAISE(ABORT, 'evidence_log are only ever added'); END;

CREATE TRIGGER leaves_no_update BEFORE UPDATE ON leaves BEGIN SELECT RAISE(ABORT, 'leaves are only ever added'); END;

CREATE TRIGGER leaves_no_delete BEFORE DELETE ON leaves BEGIN SELECT RAISE(ABORT, 'leaves are only ever added'); END;

CREATE TRIGGER checkpoints_no_update BEFORE UPDATE ON checkpoints BEGIN SELECT RAISE(ABORT, 'checkpoints are only ever added'); END;

CREATE TRIGGER checkpoints_no_delete BEFORE DELETE ON checkpoints BEGIN SELECT RAISE(ABORT, 'checkpoints are only ever added'); END;

CREATE TABLE search_runs (
	run INTEGER NOT NULL,
	run_id TEXT NOT NULL,
	indexed_to INTEGER NOT NULL,
	fault TEXT NOT NULL,
	PRIMARY KEY (run),
	UNIQUE (run_id)
);

CREATE TABLE search_texts (
	id INTEGER NOT NULL,
	run INTEGER NOT NULL,
	dense BOOLEAN NOT NULL,
	text TEXT NOT NULL,
	PRIMARY KEY (id)
);

CREATE INDEX ix_search_texts_run ON search_texts (run);

CREATE INDEX ix_search_texts_dense ON search_texts (id) WHERE dense;

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
);

CREATE INDEX ix_search_places_text_id ON search_places (text_id);

CREATE INDEX ix_search_places_run ON search_places (run);

CREATE INDEX ix_search_places_error ON search_places (detail, run) WHERE field = 'error';

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
);

CREATE INDEX ix_search_calls_event ON search_calls (event);

CREATE INDEX ix_search_calls_run ON search_calls (run);

CREATE TABLE search_facets (
	kind TEXT NOT NULL,
	value TEXT NOT NULL,
	run INTEGER NOT NULL,
	times INTEGER NOT NULL,
	PRIMARY KEY (kind, value, run)
)
 WITHOUT ROWID

;

CREATE INDEX ix_search_facets_run ON search_facets (run);

CREATE TABLE search_state (
	id INTEGER NOT NULL,
	reached INTEGER NOT NULL,
	residue BOOLEAN NOT NULL,
	PRIMARY KEY (id)
);

CREATE VIRTUAL TABLE search_words USING fts5(text, content='search_texts', content_rowid='id', columnsize=0, tokenize='unicode61 remove_diacritics 2');

CREATE VIRTUAL TABLE search_signs USING fts5(text, content='search_texts', content_rowid='id', columnsize=0, tokenize='trigram');

CREATE INDEX ix_leaves_records ON leaves (run_id) WHERE record IS NOT NULL;

CREATE TRIGGER run_contents_no_delete BEFORE DELETE ON run_contents WHEN NOT EXISTS (SELECT 1 FROM deletions WHERE run_id = OLD.run_id) OR (SELECT held FROM holds WHERE run_id = OLD.run_id ORDER BY id DESC LIMIT 1) BEGIN SELECT RAISE(ABORT, 'a run keeps its contents'); END;
