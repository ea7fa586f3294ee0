"""Four databases that somebody bent, and what the Audit page says of each: true, in plain words, within the page.

One was stripped of its evidence; beside it lies a new log under the old key. Of one the anchor is in nobody's reach, one
holds a file that claims what no provider did, and one hides a run from the search.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from conductor_core.chat.messages import WorkerSpec
from conductor_core.run.actor import local_caller
from conductor_core.run.redaction import Redactor
from conductor_core.run.share import as_imported, read_shared
from conductor_core.run.values import PoolInfo
from pages.components.live_workflow.shared_page import shared_page
from storage import Store, open_store
from storage.merkle.chain import add_record
from tests.browser.conftest import ROOT, App
from tests.browser.pages.test_other_pages import SIDEWAYS
from tests.support.run_events import created_otherwise, whole_run

OpenPage = Callable[..., Page]
SCHEMES = (False, True)


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.sqlite3'}"


def written(folder: Path, *run_ids: str) -> None:
    folder.mkdir(exist_ok=True)
    with closing(open_store(url_of(folder))) as store:
        for run_id in run_ids:
            store.log.append_and_wait(*whole_run(run_id))


def without_evidence(database: Path) -> None:
    """Drops the log, its checkpoints and the search tables, as before the version that brought them."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for table in ("evidence_log", "leaves", "checkpoints", "search_words", "search_dense", "search_state"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("UPDATE alembic_version SET version_num = '0012'")


def import_forged(store: Store) -> str:
    """Imports a shared file, edited by hand: it says that a provider answered, and for how much."""
    events = whole_run("elsewhere")
    workers = tuple(
        WorkerSpec(name=name, provider="openai", model="m", base_url="https://api.claimed.example/v1")
        for name in ("solver", "checker")
    )
    events[0] = created_otherwise(events[0], pool=PoolInfo(name="theirs", workers=workers), simulated=False)
    ((shared, read, _),) = read_shared(shared_page(events, {}, Redactor()), "file")
    mine = as_imported(read, shared, local_caller("cli"))
    store.import_run(mine, [])
    return mine[0].run_id


def within(page: Page) -> None:
    assert page.evaluate(SIDEWAYS) == []


def test_a_database_without_its_evidence_is_not_served_and_the_last_line_says_why(tmp_path: Path) -> None:
    written(tmp_path, "one")
    without_evidence(tmp_path / "runs.sqlite3")
    environment = os.environ | {"CONDUCTOR_DATABASE_URL": url_of(tmp_path), "CONDUCTOR_DATA_FOLDER": str(tmp_path)}
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port=0"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "which had no evidence, so it is not opened" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_new_log_under_the_old_key_is_said_on_the_audit_page(
    start_app: Callable[..., object], open_page: OpenPage, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    written(old, "one", "two")
    written(new, "one")
    evidence = "runs.sqlite3.evidence"
    for name in ("signing-key", "anchor.jsonl"):
        shutil.copy(old / evidence / name, new / evidence / name)
    with start_app(new, database_url=url_of(new)) as app:  # type: ignore[attr-defined]
        for dark in SCHEMES:
            page = open_page(f"{app.url}/audit?view=integrity", dark=dark, width=1280, height=720)
            expect(page.locator(".st-key-audit-integrity .audit-state.damaged")).to_contain_text("A log began again")
            facts = page.locator(".st-key-audit-protected")
            expect(facts).to_contain_text("a log never begins again")
            expect(facts).to_contain_text("Nothing is published until then")
            within(page)


def test_a_stopped_anchor_a_forged_import_and_a_hidden_run(app: App, open_page: OpenPage) -> None:
    store = app.store
    forged = import_forged(store)
    store.log.append_and_wait(*whole_run("hidden"))
    store.search.catch_up()
    page = open_page(f"{app.url}/audit?run={forged}", width=1280, height=720)
