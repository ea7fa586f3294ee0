"""Service keys: found while they are valid, never stored, summed by day, and proven by the log."""

import json
import logging
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conductor_core.errors import BadInput, StoreDamaged
from conductor_core.privacy import masking
from conductor_core.run.actor import Actor, Caller, local_caller
from conductor_core.run.service_key import Keys
from storage import Store, open_store
from storage.access_log import AccessQuery
from storage.endpoint import _SPENT
from tests.support.command_line import log as main
from tests.support.damaging import doctor
from tests.support.run_events import created_otherwise, whole_run

ADA = Caller(actor=Actor(kind="person", id="ada", name="Ada"), door="page")


def run_of(store: Store, run_id: str, actor: Actor | None) -> None:
    first, *rest = whole_run(run_id)
    store.log.append_and_wait(created_otherwise(first, actor=actor), *rest)


def test_a_key_is_found_until_it_is_revoked(store: Store) -> None:
    keys: Keys = store.service_keys
    assert not keys.any()
    assert keys.find("") is None
    made, text = store.service_keys.create(
        " my   app ", ADA, models=("fugu", "fugu"), excluded_providers=("openai",), usd_per_day=5, tokens_per_day=10
    )
    assert text.startswith("ci-")
    assert len(text) == len("ci-") + 43
    assert (made.name, made.models, made.excluded_providers, made.usd_per_day) == ("my app", ("fugu",), ("openai",), 5)
    assert keys.any()
    assert keys.find(text) == keys.current(made.id) == made
    for wrong in (text[:-1], text + " ", text.swapcase(), made.id, "", "\ud800", "ci-"):
        assert keys.find(wrong) is None
    revoked = store.service_keys.revoke("my app", ADA)
    assert revoked.revoked_at_utc is not None
    assert keys.find(text) is None
    assert keys.current(made.id) is None
    assert keys.any(), "a key that was revoked has existed"
    assert store.service_keys.list() == (revoked,)


def test_another_process_hears_of_a_revocation(store: Store, url: str) -> None:
    made, text = store.service_keys.create("app", ADA)
    with closing(open_store(url)) as other:
        assert other.service_keys.find(text) == made
        store.service_keys.revoke(made.id, ADA)
        assert other.service_keys.find(text) is None
        assert other.service_keys.current(made.id) is None


def test_the_text_of_a_key_and_its_digest_are_in_no_file_but_the_digest_in_its_row(
    store: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    masking.mask_logs()
    made, text = store.service_keys.create("app", ADA, usd_per_day=1)
    store.publish()
    with caplog.at_level(logging.INFO):
        logging.getLogger("anywhere").warning("somebody sent %s", text)
    assert text not in caplog.text
    for file in path.parent.rglob("*"):
        assert not file.is_file() or text.encode() not in file.read_bytes(), file
    with closing(sqlite3.connect(path)) as connection:
        ((digest,),) = connection.execute("SELECT digest FROM service_keys")
        records = "".join(record for (record,) in connection.execute("SELECT record FROM leaves") if record)
    assert '"service_key.created"' in records
    assert made.id in records
    assert digest not in records


def test_names_of_valid_keys_are_unique(store: Store) -> None:
    first, _ = store.service_keys.create("app", ADA)
    with pytest.raises(BadInput, match="a key named 'app' exists"):
        store.service_keys.create(" app", ADA)
    store.service_keys.revoke("app", ADA)
    second, _ = store.service_keys.create("app", ADA)
    with pytest.raises(BadInput, match="is already revoked"):
        store.service_keys.revoke(first.id, ADA)
    assert store.service_keys.revoke("app", ADA).id == second.id
    with pytest.raises(BadInput, match="unknown key 'other'"):
        store.service_keys.revoke("other", ADA)
    with pytest.raises(BadInput, match="looks like a key itself") as caught:
        store.service_keys.revoke("ci-and-the-rest-of-it", ADA)
    assert "rest" not in str(caught.value), "what may be a key is not repeated"


@pytest.mark.parametrize("name", ["", " \n ", "x" * 81, "a\x1b[31m", "a\u202eb", "\ud800", "ci-app"])
def test_a_name_that_no_list_could_show_is_refused(store: Store, name: str) -> None:
    with pytest.raises(BadInput, match="the key's name"):
        store.service_keys.create(name, ADA)
    assert not store.service_keys.any()


@pytest.mark.parametrize(
    "limits",
    [
        {"usd_per_day": -1},
        {"usd_per_day": float("nan")},
        {"usd_per_day": float("inf")},
        {"tokens_per_day": 0},
        {"requests_per_minute": 2**63},
        {"models": ["fugu", ""]},
        {"excluded_providers": ["a\nb"]},
        {"excluded_providers": ["nosuchprovider"]},
    ],
)
def test_a_limit_that_cannot_be_is_refused(store: Store, limits: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        store.service_keys.create("app", ADA, **limits)  # type: ignore[arg-type]
    assert not store.service_keys.any()


def test_what_a_keys_runs_of_this_day_spent(store: Store, path: Path) -> None:
    made, _ = store.service_keys.create("app", ADA)
    other, _ = store.service_keys.create("other", ADA)
    assert store.service_keys.spent_today(made.id) == (0.0, 0)
    assert store.service_keys.last_used(made.id) is None
    # A local account that is called as the key is another actor.
    for run_id, actor in (
        ("a", made.actor),
        ("b", made.actor),
        ("yesterday", made.actor),
        ("other", other.actor),
        ("local", Actor(kind="local", id=made.id, name=made.name)),
        ("nobody", None),
        ("damaged", made.actor),
    ):
        run_of(store, run_id, actor)
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    doctor(path, "UPDATE runs SET known_usd = 0.25, input_tokens = 7, output_tokens = 5")
    doctor(path, "UPDATE runs SET created_at_utc = :at WHERE run_id = 'yesterday'", at=yesterday)
    doctor(path, "UPDATE runs SET actor = '{\"kind\":\"service\",' WHERE run_id = 'damaged'")
    assert store.service_keys.spent_today(made.id) == (0.5, 24)
    assert store.service_keys.spent_today(other.id) == (0.25, 12)
    last = store.service_keys.last_used(made.id)
    assert last == next(run.created_at_utc for run in store.runs() if run.run_id == "b")


def test_the_runs_of_a_key_are_found_by_an_index(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {_SPENT}", ("key-1", "2026-01-01")).fetchall()
    assert [row[-1].partition("(")[0] for row in plan] == ["SEARCH runs USING INDEX ix_runs_service "]


def test_who_created_and_revoked_a_key_is_in_the_access_log(store: Store) -> None:
    store.service_keys.create("app", ADA)
    store.service_keys.revoke("app", local_caller("cli"))
    found = store.access_log.read(AccessQuery()).records
    assert [(each.in_words, each.caller.door) for each in found] == [
        ("revoked a service key: app", "cli"),
        ("created a service key: app", "page"),
    ]


def test_the_database_itself_forbids_to_change_a_key(store: Store, path: Path) -> None:
    for name in ("app", "gone"):
        store.service_keys.create(name, ADA)
    store.service_keys.revoke("gone", ADA)
    for statement in (
        "UPDATE service_keys SET usd_per_day = NULL",
        "UPDATE service_keys SET revoked_at_utc = NULL WHERE name = 'gone'",
        "UPDATE service_keys SET revoked_at_utc = '2020-01-01' WHERE name = 'gone'",
        "DELETE FROM service_keys",
    ):
        with (
            closing(sqlite3.connect(path)) as connection,
            pytest.raises(sqlite3.IntegrityError, match="only ever revoked"),
        ):
            connection.execute(statement)


def findings(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    main(["verify", "--db", str(path), "--json"])
    return [each["what"] for each in json.loads(capsys.readouterr().out)["findings"] if each["class"] == "derived"]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE service_keys SET usd_per_day = 500 WHERE name = 'app'", "differs from the log: usd_per_day"),
        ("UPDATE service_keys SET tokens_per_day = NULL WHERE name = 'app'", "differs from the log: tokens_per_day"),
        ("UPDATE service_keys SET models = NULL WHERE name = 'app'", "differs from the log: models"),
        ("UPDATE service_keys SET excluded_providers = '[]' WHERE name = 'app'", "the log: excluded_providers"),
        (f"UPDATE service_keys SET digest = '{'0' * 64}' WHERE name = 'app'", "differs from the log: which key it is"),
        ("UPDATE service_keys SET revoked_at_utc = NULL", "which says that it was revoked: revoked_at_utc"),
        ("UPDATE service_keys SET revoked_at_utc = '2020-01-01' WHERE name = 'app'", "nothing of its being revoked"),
        ("DELETE FROM service_keys WHERE name = 'gone'", "was created, and the table of service keys lacks it"),
        (
            "INSERT INTO service_keys SELECT 'key-2', 'mine', created_at_utc, actor, door, NULL, '[]', NULL, NULL, "
            "NULL, 'another', NULL FROM service_keys LIMIT 1",
            "has the service key key-2, and no record in the log does",
        ),
    ],
)
def test_a_key_that_was_changed_by_hand_is_found(
    store: Store, path: Path, statement: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of = {"models": ("fugu",), "excluded_providers": ("openai",), "usd_per_day": 5.0, "tokens_per_day": 100}
    store.service_keys.create("app", ADA, **of)  # type: ignore[arg-type]
    store.service_keys.create("gone", Caller())
    store.service_keys.revoke("gone", ADA)
    store.publish()
    assert findings(path, capsys) == []
    doctor(path, statement)
    (what,) = findings(path, capsys)
    assert says in what


def test_a_damaged_row_is_told_and_lets_nobody_in(store: Store, path: Path) -> None:
    _, text = store.service_keys.create("app", ADA)
    doctor(path, "UPDATE service_keys SET excluded_providers = '{'")
    for ask in (store.service_keys.list, lambda: store.service_keys.find(text)):
        with pytest.raises(StoreDamaged, match="conductor log verify"):
            ask()
