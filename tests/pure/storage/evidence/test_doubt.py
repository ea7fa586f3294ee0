"""How much is published is not taken from the database alone: the key and the anchor are outside of it."""

from pathlib import Path

from conductor_core.run.actor import local_caller
from storage import Store, open_store
from storage.backup import backup
from storage.evidence.anchoring import places_of
from tests.support.damaging import doctor
from tests.support.run_events import whole_run


def test_checkpoints_that_key_or_anchor_do_not_confirm_are_doubted(store: Store) -> None:
    store.log.append_and_wait(*whole_run("one"))
    store.publish()
    assert store.evidence().doubt is None
    store.rotate_key(local_caller("cli"))
    assert store.evidence().doubt is None, "the old key's signature stands until the next publication"
    store.publish()
    assert store.evidence().doubt is None
    anchor = store.places.anchor.file
    published = anchor.read_text()
    anchor.write_text("")
    assert "the anchor has 0" in (store.evidence().doubt or "")
    anchor.write_text(published)
    doctor(store.path, "UPDATE checkpoints SET note = 'junk'")
    assert "no signed note" in (store.evidence().doubt or "")
    store.places.key.unlink()
    assert "no signing key" in (store.evidence().doubt or "")


def test_a_database_that_was_put_back_is_not_said_to_be_anchored(url: str, tmp_path: Path) -> None:
    """Its own checkpoints fit it, as whoever put it back sees to; the anchor knows more."""
    older = tmp_path / "older.sqlite3"
    store = open_store(url)
    store.log.append_and_wait(*whole_run("one"))
    store.publish()
    backup(store.path, older)
    store.log.append_and_wait(*whole_run("two"))
    store.publish()
    path, size = store.path, store.evidence().entries
    store.close()
    path.write_bytes(older.read_bytes())
    store = open_store(url)
    try:
        evidence = store.evidence()
        assert places_of(path).anchor.size(evidence.origin) == size
        assert f"{size} entries are published, and the log has {evidence.entries}" in (evidence.doubt or "")
    finally:
        store.close()
