"""Databases that somebody bent, and what the Audit page says of each: true, and in plain words.

Beside one lies a new log under the old key. One holds a file that claims what no provider did. One hides a run from the
search.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.run import events as ev
from conductor_core.run.actor import local_caller
from conductor_core.run.redaction import Redactor
from conductor_core.run.share import as_imported, read_shared
from conductor_core.run.values import PoolInfo
from pages.components.app.session import Session
from pages.components.live_workflow.shared_page import shared_page
from storage import Store, open_store
from tests.apptest.test_audit_integrity import verified
from tests.apptest.test_audit_page import htmls
from tests.support.run_events import created, created_otherwise, planned, run_completed, step_completed, whole_run

Visit = Callable[..., AppTest]
SECRET = "Quetzalcoatlus"
FILE = "conductor-inspector.sqlite3"


def written(folder: Path, *run_ids: str) -> Path:
    """A database with these runs; gives the folder of its evidence."""
    folder.mkdir(exist_ok=True)
    with closing(open_store(f"sqlite:///{folder / FILE}")) as store:
        for run_id in run_ids:
            store.log.append_and_wait(*whole_run(run_id))
    return folder / f"{FILE}.evidence"


def test_a_new_log_under_the_old_key_is_said(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    old, new = written(tmp_path / "old", "one", "two"), written(tmp_path / "data", "one")
    for name in ("signing-key", "anchor.jsonl"):
        shutil.copy(old / name, new / name)
    said = htmls(request.getfixturevalue("visit")("audit", view="integrity"))
    assert "A log began again" in said
    assert "a log never begins again" in said
    assert "Nothing is published until then" in said


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


def test_what_an_imported_file_claims_is_said_to_be_its_claim_and_counted_nowhere(
    visit: Visit, session: Session
) -> None:
    run_id = import_forged(session.store)
    said = htmls(visit("audit", run=run_id))
    for words in (
        "from a file that nobody signed",
        "(as the file says)",
        "(says the file)",
        "says the imported file",
    ):
        assert words in said
    app = visit("audit", view="ledger")
    ledger = " ".join([htmls(app), *(each.value for each in (*app.caption, *app.markdown))]).replace("\\", "")
    assert "1 imported run is left out: only the file says what was sent" in ledger
    assert "api.claimed.example" not in ledger


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


def test_a_run_that_is_hidden_from_the_search_is_found_by_verifying_and_by_the_ledger(
    visit: Visit, session: Session
) -> None:
    session.store.log.append_and_wait(*asked_about("hidden", SECRET))
    session.store.search.catch_up()
    with closing(sqlite3.connect(session.store.path)) as connection, connection:
        hidden = connection.execute(
            "INSERT INTO search_words (search_words, rowid, text) SELECT 'delete', t.id, t.text FROM search_texts t "
            "JOIN search_runs r ON r.run = t.run WHERE r.run_id = 'hidden'"
        ).rowcount
    assert hidden > 0
    said = htmls(verified(session, visit("audit", view="integrity")))
    assert "Lists or the search index do not say what the events say: 1 finding" in said
    assert f"a search does not find {hidden} of its texts" in said
    assert "<code>conductor log search --rebuild</code>" in said
    assert "run hidden" in said
    assert "openai at one.example" in htmls(visit("audit", view="ledger", q=SECRET))
