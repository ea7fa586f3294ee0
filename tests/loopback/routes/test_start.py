"""The app as ``make run`` starts it, where it cannot start."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_damaged_database_ends_the_app_with_one_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "conductor-inspector.sqlite3").write_text("no database " * 100)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"],
        cwd=ROOT,
        env={**os.environ, "CONDUCTOR_DATA_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: the database ")
    assert first.endswith("restore a copy, or move the file away to start afresh")
    assert rest == ["Application startup failed. Exiting."]
    assert done.returncode not in (0, -9)
