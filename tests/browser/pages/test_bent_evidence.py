"""Four databases that somebody bent, and what the Audit page says of each: true, in plain words, within the page.

One was stripped of its evidence, and beside it lies a new log under the old key. One cannot reach its anchor, holds a
file that claims what no provider did, and hides a run from the search.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

from playwright.sync_api import Page, expect

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.run import events as ev
from conductor_core.run.actor import local_caller
from conductor_core.run.redaction import Redactor
from conductor_core.run.share import as_imported, read_shared
from conductor_core.run.values import PoolInfo
from pages.components.live_workflow.shared_page import shared_page
from storage import Store, open_store
from tests.browser.conftest import ROOT, SIDEWAYS, App
from tests.support.run_events import created, created_otherwise, planned, run_completed, step_completed, whole_run

OpenPage = Callable[..., Page]
StartApp = Callable[..., AbstractContextManager[App]]
SCHEMES = (False, True)
SECRET = "Quetzalcoatlus"


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


def asked_about(run_id: str, name: str) -> list[ev.Event]:
    """A run whose provider was sent a name."""
    pool = PoolInfo(
        name="p", workers=(WorkerSpec(name="solver", provider="openai", model="m", base_url="http://one.example/v1"),)
    )
    sent = (Message(role="user", content=f"Who is {name}?"),)
    return [
        created(run_id, f"Who is {name}?", pool=pool, simulated=False),
        *planned(run_id),
        ev.StepStarted(run_id=run_id, path=(0,), agent="solver", identity="i", messages=sent),
        step_completed(run_id, 0, f"{name} is a bird.", 40),
        run_completed(run_id, f"{name} is a bird."),
    ]


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
    start_app: StartApp, open_page: OpenPage, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    written(old, "one", "two")
    written(new, "one")
    evidence = "runs.sqlite3.evidence"
    for name in ("signing-key", "anchor.jsonl"):
        shutil.copy(old / evidence / name, new / evidence / name)
    with start_app(new, database_url=url_of(new)) as app:
        for dark in SCHEMES:
            page = open_page(f"{app.url}/audit?view=integrity", dark=dark, width=1280, height=720)
            expect(page.locator(".st-key-audit-integrity .audit-state.damaged")).to_contain_text("A log began again")
            facts = page.locator(".st-key-audit-protected")
            expect(facts).to_contain_text("a log never begins again")
            expect(facts).to_contain_text("Nothing is published until then")
            within(page)


def test_a_stopped_anchor_a_forged_import_and_a_hidden_run(
    start_app: StartApp, open_page: OpenPage, tmp_path: Path
) -> None:
    with start_app(tmp_path) as app:
        forged = import_forged(app.store)
        app.store.log.append_and_wait(*asked_about("hidden", SECRET))
        app.store.search.catch_up()
        _the_anchor_is_out_of_reach(app, open_page)
        _a_file_claims_a_provider(app, open_page, forged)
        _a_run_is_hidden(app, open_page)


def _the_anchor_is_out_of_reach(app: App, open_page: OpenPage) -> None:
    app.store.publish()
    anchor = app.store.places.anchor.file
    kept = anchor.rename(anchor.with_name("kept"))
    anchor.mkdir()
    app.store.log.append_and_wait(*whole_run("late"))
    for dark in SCHEMES:
        page = open_page(f"{app.url}/audit?view=integrity", dark=dark, width=1280, height=720)
        line = page.locator(".st-key-audit-integrity .audit-state")
        expect(line).to_contain_text("not anchored yet")
        expect(line).to_contain_text("publishing has stopped")
        why = page.locator(".st-key-audit-protected")
        expect(why).to_contain_text("Is a directory")
        expect(why).to_contain_text("Runs continue, and nothing is lost")
        within(page)
    anchor.rmdir()
    kept.rename(anchor)
    app.store.publish()


def _a_file_claims_a_provider(app: App, open_page: OpenPage, forged: str) -> None:
    for dark in SCHEMES:
        page = open_page(f"{app.url}/audit?run={forged}", dark=dark, width=1280, height=720)
        top = page.locator(".st-key-audit-top")
        expect(top).to_contain_text("from a file that nobody signed")
        expect(top).to_contain_text("(as the file says)")
        expect(page.locator(".st-key-audit-part-plan")).to_contain_text("(says the file)")
        expect(page.locator(".st-key-audit-part-egress")).to_contain_text("says the imported file")
        within(page)
        page.goto(f"{app.url}/audit?view=ledger")
        servers = page.locator(".st-key-audit-servers")
        expect(servers).to_contain_text("1 imported run is left out: only the file says what was sent")
        expect(servers).not_to_contain_text("api.claimed.example")
        within(page)


def _a_run_is_hidden(app: App, open_page: OpenPage) -> None:
    with closing(sqlite3.connect(app.store.path)) as connection, connection:
        hidden = connection.execute(
            "INSERT INTO search_words (search_words, rowid, text) SELECT 'delete', t.id, t.text FROM search_texts t "
            "JOIN search_runs r ON r.run = t.run WHERE r.run_id = 'hidden'"
        ).rowcount
    assert hidden > 0
    page = open_page(f"{app.url}/audit?view=integrity", width=1280, height=720)
    page.get_by_role("button", name="Verify", exact=True).click()
    for dark in SCHEMES:
        page = open_page(f"{app.url}/audit?view=integrity", dark=dark, width=1280, height=720)
        expect(page.locator(".st-key-audit-integrity .audit-state.damaged")).to_contain_text(
            "Lists or the search index do not say what the events say: 1 finding"
        )
        finding = page.locator(".st-key-audit-checked .audit-findings li")
        expect(finding).to_contain_text(f"a search does not find {hidden} of its texts")
        expect(finding.locator("code")).to_have_text("conductor log search --rebuild")
        expect(finding.get_by_role("link", name="run hidden")).to_be_visible()
        within(page)
        page.goto(f"{app.url}/audit?view=ledger&q={SECRET}")
        expect(page.locator(".st-key-audit-servers")).to_contain_text("openai at one.example")
        within(page)
