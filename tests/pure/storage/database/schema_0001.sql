-- A database as schema 0001 left it, with one run.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE events (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	run_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	at_utc TEXT NOT NULL, 
	payload TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,'old','run.created','2026-11-20T21:44:56.043920+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.043920Z","at_ms":0.0,"kind":"run.created","task":"What is 6 times 7?","by":"cli","conductor":{"name":"tiny","kind":"local","model":"tiny","device":null,"dtype":null,"constrained":false},"pool":{"name":"rehearsal","workers":[{"name":"solver","provider":"rehearsal","model":"solver","description":"","base_url":null,"api_key_env":null,"usd_per_mtok":null,"params":{},"timeout_s":120.0,"max_concurrency":8,"max_output_bytes":4000000},{"name":"checker","provider":"rehearsal","model":"checker","description":"","base_url":null,"api_key_env":null,"usd_per_mtok":null,"params":{},"timeout_s":120.0,"max_concurrency":8,"max_output_bytes":4000000}]},"limits":{"max_steps":5,"max_tokens":null,"max_usd":null,"max_seconds":600.0,"max_depth":1},"seed":0,"plan_only":false,"simulated":true,"parent_run_id":null,"resumed":false,"app_version":"0"}');
INSERT INTO "events" VALUES(2,'old','plan.started','2026-11-20T21:44:56.043937+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.043937Z","at_ms":5.0,"kind":"plan.started","round":[],"attempt":1,"messages":[{"role":"user","content":"plan"}]}');
INSERT INTO "events" VALUES(3,'old','plan.delta','2026-11-20T21:44:56.043947+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.043947Z","at_ms":10.0,"kind":"plan.delta","round":[],"text":"model_id = "}');
INSERT INTO "events" VALUES(4,'old','plan.delta','2026-11-20T21:44:56.043950+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.043950Z","at_ms":15.0,"kind":"plan.delta","round":[],"text":"[0, 1]"}');
INSERT INTO "events" VALUES(5,'old','plan.completed','2026-11-20T21:44:56.043962+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.043962Z","at_ms":20.0,"kind":"plan.completed","round":[],"source":"conductor","raw":"model_id = [0, 1]","workflow":{"steps":[{"instruction":"Solve it.","agent":"solver","access_list":[]},{"instruction":"Check it.","agent":"checker","access_list":[0]}]},"topology":"chain","repairs":[],"warnings":[],"usage":{"input_tokens":10,"output_tokens":5,"estimated":false},"first_token_ms":5.0,"duration_ms":15.0}');
INSERT INTO "events" VALUES(6,'old','step.started','2026-11-20T21:44:56.043975+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.043975Z","at_ms":30.0,"kind":"step.started","path":[0],"agent":"solver","identity":"identity 0","messages":[{"role":"user","content":"step 0"}],"granted":[],"withheld":[]}');
INSERT INTO "events" VALUES(7,'old','step.delta','2026-11-20T21:44:56.043983+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.043983Z","at_ms":31.0,"kind":"step.delta","path":[0],"text":"42","reasoning":false,"output_tokens":3}');
INSERT INTO "events" VALUES(8,'old','step.completed','2026-11-20T21:44:56.044038+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.044038Z","at_ms":40.0,"kind":"step.completed","path":[0],"output":"42","output_sha256":"73475cb40a568e8da8a045ced110137e159f890ac4da883b6b17dc651b3a8049","finish_reason":"stop","incomplete":false,"usage":{"input_tokens":7,"output_tokens":3,"estimated":false},"cost_usd":0.5,"cost_estimated":false,"model":null,"attempts":1,"first_token_ms":1.0,"duration_ms":10.0}');
INSERT INTO "events" VALUES(9,'old','step.started','2026-11-20T21:44:56.044048+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.044048Z","at_ms":50.0,"kind":"step.started","path":[1],"agent":"solver","identity":"identity 1","messages":[{"role":"user","content":"step 1"}],"granted":[],"withheld":[]}');
INSERT INTO "events" VALUES(10,'old','step.delta','2026-11-20T21:44:56.044054+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.044054Z","at_ms":51.0,"kind":"step.delta","path":[1],"text":"42, checked","reasoning":false,"output_tokens":3}');
INSERT INTO "events" VALUES(11,'old','step.completed','2026-11-20T21:44:56.044059+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.044059Z","at_ms":60.0,"kind":"step.completed","path":[1],"output":"42, checked","output_sha256":"85bb30bb5da91e4be84bdad65746a7b6d8551e8b3648875fc75bdd622b2df1ad","finish_reason":"stop","incomplete":false,"usage":{"input_tokens":7,"output_tokens":3,"estimated":false},"cost_usd":0.5,"cost_estimated":false,"model":null,"attempts":1,"first_token_ms":1.0,"duration_ms":10.0}');
INSERT INTO "events" VALUES(12,'old','run.completed','2026-11-20T21:44:56.044067+00:00','{"run_id":"old","at_utc":"2026-11-20T21:44:56.044067Z","at_ms":100.0,"kind":"run.completed","answer":"42, checked","usage":{"input_tokens":0,"output_tokens":0,"estimated":false},"cost_usd":1.0,"duration_ms":100.0}');
CREATE TABLE runs (
	run_id TEXT NOT NULL, 
	sequence INTEGER NOT NULL, 
	created_at_utc TEXT NOT NULL, 
	status TEXT NOT NULL, 
	task TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
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
	owner_host TEXT NOT NULL, 
	owner_pid INTEGER NOT NULL, 
	owner_opened_at_utc TEXT NOT NULL, 
	PRIMARY KEY (run_id)
);
INSERT INTO "runs" VALUES('old',1,'2026-11-20T21:44:56.043920+00:00','completed','What is 6 times 7?','cli','tiny','rehearsal',NULL,1,0,'chain','["solver", "checker"]',2,2,0,0,24,11,1.0,100.0,NULL,'02f719c55fad4580b03e59ad56d3ed2f','host',4711,'2026-11-20T21:44:56.043553+00:00');
CREATE TABLE snapshots (
	run_id TEXT NOT NULL, 
	sequence INTEGER NOT NULL, 
	fold_digest TEXT NOT NULL, 
	trace TEXT NOT NULL, 
	PRIMARY KEY (run_id)
);
INSERT INTO "snapshots" VALUES('old',12,'cee6e2e4429aef4d','{"run_id":"old","status":"completed","task":"What is 6 times 7?","by":"cli","parent_run_id":null,"resumed":false,"plan_only":false,"simulated":true,"seed":0,"conductor":{"name":"tiny","kind":"local","model":"tiny","device":null,"dtype":null,"constrained":false},"pool":{"name":"rehearsal","workers":[{"name":"solver","provider":"rehearsal","model":"solver","description":"","base_url":null,"api_key_env":null,"usd_per_mtok":null,"params":{},"timeout_s":120.0,"max_concurrency":8,"max_output_bytes":4000000},{"name":"checker","provider":"rehearsal","model":"checker","description":"","base_url":null,"api_key_env":null,"usd_per_mtok":null,"params":{},"timeout_s":120.0,"max_concurrency":8,"max_output_bytes":4000000}]},"limits":{"max_steps":5,"max_tokens":null,"max_usd":null,"max_seconds":600.0,"max_depth":1},"app_version":"0","created_at_utc":"2026-11-20T21:44:56.043920Z","root":{"path":[],"status":"planned","source":"conductor","messages":[{"role":"user","content":"plan"}],"raw":"model_id = [0, 1]","workflow":{"steps":[{"instruction":"Solve it.","agent":"solver","access_list":[]},{"instruction":"Check it.","agent":"checker","access_list":[0]}]},"topology":"chain","repairs":[],"warnings":[],"rejected":[],"edited_by":null,"before_edit":null,"usage":{"input_tokens":10,"output_tokens":5,"estimated":false},"started_ms":5.0,"first_token_ms":5.0,"duration_ms":15.0,"steps":[{"path":[0],"instruction":"Solve it.","agent":"solver","access_list":[],"reads":[],"status":"completed","simulated":true,"identity":"identity 0","messages":[{"role":"user","content":"step 0"}],"granted":[],"withheld":[],"output":"42","output_sha256":"73475cb40a568e8da8a045ced110137e159f890ac4da883b6b17dc651b3a8049","reasoning":"","incomplete":false,"finish_reason":"stop","usage":{"input_tokens":7,"output_tokens":3,"estimated":false},"cost_usd":0.5,"cost_estimated":false,"model":null,"started_ms":30.0,"first_token_ms":1.0,"duration_ms":10.0,"attempts":[],"error_code":null,"error":null,"because":[],"reused_from":null,"round":null},{"path":[1],"instruction":"Check it.","agent":"checker","access_list":[0],"reads":[0],"status":"completed","simulated":true,"identity":"identity 1","messages":[{"role":"user","content":"step 1"}],"granted":[],"withheld":[],"output":"42, checked","output_sha256":"85bb30bb5da91e4be84bdad65746a7b6d8551e8b3648875fc75bdd622b2df1ad","reasoning":"","incomplete":false,"finish_reason":"stop","usage":{"input_tokens":7,"output_tokens":3,"estimated":false},"cost_usd":0.5,"cost_estimated":false,"model":null,"started_ms":50.0,"first_token_ms":1.0,"duration_ms":10.0,"attempts":[],"error_code":null,"error":null,"because":[],"reused_from":null,"round":null}]},"answer":"42, checked","usage":{"input_tokens":24,"output_tokens":11,"estimated":false},"cost_usd":1.0,"duration_ms":100.0,"error_code":null,"error":null,"ended_by":null,"last_at_ms":100.0}');
CREATE INDEX ix_events_run_id_sequence ON events (run_id, sequence);
CREATE UNIQUE INDEX ix_runs_sequence ON runs (sequence);
CREATE INDEX ix_runs_status_sequence ON runs (status, sequence);
CREATE INDEX ix_runs_parent_run_id ON runs (parent_run_id);
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',12);
COMMIT;
