"""The Audit page's integrity without a browser: its line in each state, verify, findings, and bundles of runs."""

import io
import threading
import zipfile
from collections.abc import Callable
from datetime import timedelta

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.errors import BadInput, StoreError
from pages.components.app import work
from pages.components.app.session import Session
from pages.components.app.work import Work
from pages.components.audit import export_menu, integrity
from pages.components.audit.export_menu import Bundle
from storage.evidence.anchoring import evidence_folder
from storage.evidence.checking import keep_check, last_check
from storage.evidence.history import Finding
from tests.apptest.test_audit_page import htmls, press
from tests.support.damaging import doctor
from tests.support.eventually import eventually
from tests.support.run_events import PAGE, created, whole_run

Visit = Callable[..., AppTest]


def verified(session: Session, app: AppTest) -> AppTest:
    press(app, "audit-verify")
    begun = integrity.check_of(session.store)
    assert begun is not None
    begun.wait()
    return app.run()


def label(app: AppTest, key: str) -> str:
    (button,) = [button for button in app.button if button.key == key]
    return button.label.replace("\\", "")


def test_verify_finds_nothing_and_says_what_that_rests_on(visit: Visit, session: Session) -> None:
    session.store.log.append_and_wait(*whole_run("one"))
    session.store.publish()
    app = visit("audit")
    assert "◐ Signed here, not witnessed" in htmls(app)
    assert "All events are anchored" not in htmls(app)
    assert label(app, "audit-last") == "Never verified here"
    assert label(verified(session, app), "audit-last") == "Verified just now: nothing found"
    integrity._works.clear()
    app = press(visit("audit", run="one"), "audit-last")
    assert app.query_params["view"] == "integrity"
    assert label(app, "audit-last") == "Verified just now: nothing found", "a restart forgets no result"
    said = htmls(app)
    assert "Nothing was found" in said
    assert "12 events compared with a signed checkpoint" in said
    assert "all events, 1 to 12" in said
    command, fingerprint, key = [each.value for each in app.code][:3]
    assert command == f"conductor log anchor --db {session.store.path} --to FOLDER"
    assert key.startswith("conductor-inspector/")
    assert len(fingerprint) == 64
    session.store.log.append_and_wait(*whole_run("two"))
    assert "It has newer events" in htmls(visit("audit", run="two"))
    for run_id in ("two", "none"):
        assert label(visit("audit", run=run_id), "audit-last") == "Verified just now: nothing known about this run"


def test_a_changed_event_is_named_and_leads_to_its_run(visit: Visit, session: Session) -> None:
    session.store.log.append_and_wait(*whole_run("one"), *whole_run("two"))
    session.store.publish()
    doctor(session.store.path, "UPDATE events SET at_utc = '2020-01-01T00:00:00+00:00' WHERE sequence = 15")
    app = verified(session, visit("audit"))
    assert "✕ The record is not as it was written: 1 finding" in htmls(app)
    said = htmls(visit("audit", view="integrity"))
    assert '<span class="pill failed">edited</span> <a href="audit?run=two" target="_self">run two</a> event 15' in said
    assert '<span class="pill failed">edited</span>' in htmls(visit("audit", run="two"))
    assert "nothing found about this run" in htmls(visit("audit", run="one"))


def test_what_another_program_found_later_is_shown(visit: Visit, session: Session) -> None:
    session.store.log.append_and_wait(*whole_run("one"))
    session.store.publish()
    verified(session, visit("audit"))
    folder = evidence_folder(session.store.path)
    result = last_check(folder, session.store.evidence().origin)
    assert result is not None
    found = Finding(kind="edited", run_id="one", sequence=1, what="it was edited")
    later_utc = result.at_utc + timedelta(seconds=30)
    keep_check(result.model_copy(update={"at_utc": later_utc, "findings": (found,)}), folder)
    app = visit("audit")
    assert "✕ The record is not as it was written: 1 finding" in htmls(app)
    assert label(app, "audit-last") == "Verified just now: 1 finding"


def test_a_running_verification_is_one_for_all_pages_and_can_be_stopped(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.store.log.append_and_wait(*whole_run("one"))
    go_on = threading.Event()

    def slow(_path: object, _places: object, _vault: object, progress: Callable[[str, int], None]) -> None:
        for count in range(1024, 10_000_000, 1024):
            progress("events", count)
            go_on.wait(0.01)

    monkeypatch.setattr(integrity, "check_own_log", slow)
    app = press(visit("audit"), "audit-verify")
    begun = integrity.check_of(session.store)
    for page in (app, visit("audit", run="one")):
        assert "Verifying: " in page.get("progress")[0].proto.text
        assert not [button for button in page.button if button.key == "audit-verify"]
    assert integrity.begin_check(session.store) is begun
    assert begun is not None
    press(app, "audit-verify-stop")
    begun.wait()
    assert "stopped before its end" in htmls(app.run())
    assert label(app, "audit-verify") == "Verify"
    monkeypatch.setattr(work, "ABANDONED_S", 0.0)
    begun = integrity.begin_check(session.store)
    begun.wait()
    assert begun.error == "stopped before its end", "nobody looked"


def test_a_database_that_cannot_be_checked_says_why(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StoreError("the disk failed")

    monkeypatch.setattr(integrity, "check_own_log", fails)
    assert "▲ the disk failed" in htmls(verified(session, visit("audit")))


def test_an_anchor_that_cannot_be_written_is_said_with_how_much_and_why(visit: Visit, session: Session) -> None:
    session.store.places.anchor.file.parent.mkdir(exist_ok=True)
    session.store.places.anchor.file.mkdir()
    session.store.log.append_and_wait(*whole_run("one"))
    eventually(lambda: session.store.evidence().fault)
    app = visit("audit", view="integrity")
    assert "▲ 12 events not anchored yet, for " in htmls(app)
    assert "publishing has stopped" in htmls(app)
    assert "Is a directory" in htmls(app)
    app = press(visit("audit", run="one"), "audit-bundle")
    (error,) = app.error
    assert "checkpoints cannot be published to" in error.value.replace("\\", "")
    session.store.places.anchor.file.rmdir()


def test_an_empty_database_has_nothing_to_export_and_nothing_to_fear(visit: Visit) -> None:
    app = visit("audit")
    assert "– No event yet" in htmls(app)
    assert not [button for button in app.button if button.key == "audit-bundle"]
    assert "it is made at the first event" in " ".join(each.value for each in visit("audit", view="integrity").caption)


def made(app: AppTest) -> Bundle:
    """The bundle that the page made in a thread."""
    kept: tuple[str, Work[Bundle]] = app.session_state[export_menu._WORK]
    kept[1].wait()
    assert kept[1].result is not None, kept[1].error
    return kept[1].result


def test_all_runs_that_were_found_leave_in_one_bundle(visit: Visit, session: Session) -> None:
    for run_id, task in (("one", "of Ada"), ("two", "of Bob"), ("three", "of Ada")):
        session.store.log.append_and_wait(*whole_run(run_id, f"The task {task}"))
    app = press(visit("audit", q="ada"), "audit-bundle")
    bundle = made(app)
    app.run()
    assert (bundle.what.runs, bundle.more) == (2, False)
    with zipfile.ZipFile(io.BytesIO(bundle.data)) as archive:
        assert {"records/one.html", "records/three.html", "verify.py"} < set(archive.namelist())
        assert b'"two"' not in archive.read("bundle.json")
    assert next(each.proto.label for each in app.get("download_button")).startswith("Save runs-")
    app.query_params["q"] = "bob"
    app.run()
    assert label(app, "audit-bundle") == "Make the bundle", "the bundle of another search is not offered"


def test_a_run_whose_id_is_no_file_name_is_exported(visit: Visit, session: Session) -> None:
    run_id = "../../x<img src=y>"
    session.store.log.append_and_wait(*whole_run(run_id))
    assert made(press(visit("audit", run=run_id), "audit-bundle")).name == "run-export.zip"


def test_exports_go_one_after_another_are_stopped_by_another_question_and_are_bounded(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.store.log.append_and_wait(*whole_run("one", "of Ada"))
    with export_menu._one:  # an export of somebody else
        app = press(visit("audit", q="ada"), "audit-bundle")
        waiting: Work[Bundle] = app.session_state[export_menu._WORK][1]
        assert (waiting.running, waiting.stage) == (True, "another export is running")
        app.query_params["q"] = "of"
        app.run()
        waiting.wait(10)
        assert waiting.error == "stopped before its end"
    monkeypatch.setattr(export_menu, "MOST_BYTES", 1000)
    too_large = export_menu.bundle_of_run(session.store, "one", "browser")
    too_large.wait()
    assert "narrow the search" in (too_large.error or "")


def test_a_bundle_of_before_an_erasure_is_offered_no_more(visit: Visit, session: Session) -> None:
    for run_id in ("one", "two"):
        session.store.log.append_and_wait(*whole_run(run_id, "The task of Ada"))
    app = press(visit("audit", q="ada"), "audit-bundle")
    bundle = made(app)
    session.store.erase(["one"], PAGE)
    session.store.log.append_and_wait(*whole_run("three", "The task of Ada"))
    session.store.search.catch_up()
    with pytest.raises(BadInput, match="make it again"):
        export_menu._data(bundle, 0)
    assert label(app.run(), "audit-bundle") == "Make the bundle"
    assert export_menu._WORK not in app.session_state


def test_a_checkpoint_that_somebody_put_into_the_database_is_not_believed(visit: Visit, session: Session) -> None:
    session.store.log.append_and_wait(*whole_run("one"))
    session.store.publish()
    doctor(session.store.path, "INSERT INTO checkpoints SELECT 1 << 30, at_utc, 'junk', peaks FROM checkpoints LIMIT 1")
    app = visit("audit")
    assert "All events are anchored" not in htmls(app)
    assert "▲ It cannot be confirmed how far the log is published" in htmls(app)


def test_a_signing_key_that_is_away_is_asked_for(visit: Visit, session: Session) -> None:
    session.store.log.append_and_wait(*whole_run("one"))
    session.store.publish()
    session.store.places.key.rename(session.store.places.key.with_name("away"))
    app = visit("audit", view="integrity")
    assert "▲ It cannot be confirmed how far the log is published" in htmls(app)
    assert "No signing key at" in htmls(app)
    assert "put its copy there" in app.warning[0].value


def test_a_log_that_names_itself_otherwise_than_ours_gives_no_command(visit: Visit, session: Session) -> None:
    session.store.log.append_and_wait(*whole_run("one"))
    session.store.publish()
    doctor(session.store.path, "UPDATE evidence_log SET origin = 'x''; touch FILE #'")
    app = visit("audit", view="integrity")
    assert not [each for each in app.code if "touch" in each.value]
    assert "✕ A log began again" in htmls(app)


def test_what_the_bundle_of_a_run_will_not_hold_is_said_before(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.store.log.append_and_wait(created("on"), *whole_run("gone"))
    app = visit("audit", run="on")
    said = " ".join(each.value for each in app.caption).replace("\\", "")
    assert "This run has not ended: the bundle holds what was there" in said
    bundle = made(press(app, "audit-bundle"))
    assert (bundle.what.runs, bundle.what.unfinished) == (1, 1)
    monkeypatch.setattr(session.store.vault, "all_of", list)
    said = " ".join(each.value for each in visit("audit", run="on").caption).replace("\\", "")
    assert "This run is encrypted" in said
    session.store.erase(["gone"], PAGE)
    assert not visit("audit", run="gone").get("download_button"), "of an erased run there is nothing to export"
