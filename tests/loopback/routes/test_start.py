"""The app as ``make run`` starts it, where it cannot start."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from storage import open_store
from tests.support.run_events import whole_run

ROOT = Path(__file__).parents[3]
FILE = "conductor-inspector.sqlite3"


def started(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port=0"],
        cwd=ROOT,
        env={**os.environ, "CONDUCTOR_DATA_FOLDER": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_damaged_database_ends_the_app_with_one_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("no database " * 100)
    done = started(tmp_path)
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: the database ")
    assert first.endswith("restore a copy, or move the file away to start afresh")
    assert rest == ["Application startup failed. Exiting."]
    assert done.returncode not in (0, -9)


def test_a_database_without_its_evidence_is_not_served_and_the_last_line_says_why(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path / FILE}")) as store:
        store.log.append_and_wait(*whole_run("one"))
    _without_evidence(tmp_path / FILE)
    done = started(tmp_path)
    assert done.returncode != 0
    assert "which had no evidence, so it is not opened" in done.stderr
    assert "Traceback" not in done.stderr


def _without_evidence(database: Path) -> None:
    """Drops the log, its checkpoints and the search tables, as before the version that brought them."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for table in ("evidence_log", "leaves", "checkpoints", "search_words", "search_dense", "search_state"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("UPDATE alembic_version SET version_num = '0012'")
