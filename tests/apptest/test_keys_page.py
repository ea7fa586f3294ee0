"""The Keys page: a key is shown once, names are inert, and what each key spent is beside its limits."""

import json
from collections.abc import Callable
from html import unescape

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.conductors.conductors_file import API_KEY_VARIABLE
from conductor_core.run.actor import Caller
from conductor_core.run.events import Event
from conductor_core.run.trace import RunTrace
from pages.components.app.session import Session
from pages.components.keys import table
from tests.support.damaging import doctor

Visit = Callable[..., AppTest]
HOSTILE = "<img src=x onerror=alert(1)> ![x](http://evil.example)"


def drawn(app: AppTest) -> str:
    return "".join(each.proto.body for each in app.get("html"))


def shown_keys(app: AppTest) -> list[str]:
    return [each.value for each in app.code if each.value.startswith("ci-")]


def in_mind(app: AppTest) -> str:
    return repr(app.session_state)


def test_without_a_key_the_page_says_whom_the_endpoint_answers(visit: Visit) -> None:
    app = visit("keys")
    assert "answers programs of this machine only" in app.info[0].value
    assert "http://127.0.0.1:8501/v1" in drawn(app)
    python, curl = app.code
    assert "http://127.0.0.1:8501/v1" in python.value
    compile(python.value, "snippet", "exec")
    assert API_KEY_VARIABLE not in python.value + curl.value, "the program itself would send this one to other servers"
    assert json.loads(curl.value.partition("-d '")[2].rstrip().removesuffix("'"))["model"] == "fugu"


def test_a_key_is_shown_once_and_kept_nowhere(visit: Visit, session: Session) -> None:
    app = visit("keys")
    app.text_input(table.NAME).set_value("my app")
    app.text_input("key-models").set_value("fugu, fugu-ultra")
    app.number_input("key-usd").set_value(2.5)
    app.button("create-key").click().run()
    assert not app.exception
    (text,) = shown_keys(app)
    key = session.store.service_keys.find(text)
    assert key is not None
    assert (key.name, key.models, key.usd_per_day, key.tokens_per_day) == ("my app", ("fugu", "fugu-ultra"), 2.5, None)
    assert (key.created_by.door, key.excluded_providers) == ("page", ())
    assert text not in in_mind(app)
    assert text not in str(app.query_params)
    assert ">my app<" in drawn(app), "it is in the list at once"
    app.button("key-copied").click().run()
    assert shown_keys(app) == []
    assert app.text_input(table.NAME).value == ""


def test_a_second_press_makes_no_second_key_before_the_first_was_seen(visit: Visit, session: Session) -> None:
    app = visit("keys", state={table.NEW: ("app", "ci-of-the-first-press")})
    assert shown_keys(app) == ["ci-of-the-first-press"]
    assert "ci-of-the-first-press" not in in_mind(app)
    assert not session.store.service_keys.any()


def test_a_name_that_is_in_use_is_told_and_what_was_typed_stays(visit: Visit, session: Session) -> None:
    session.store.service_keys.create("app", Caller())
    app = visit("keys")
    app.text_input(table.NAME).set_value("app")
    app.button("create-key").click().run()
    assert "revoke it first" in app.error[0].value
    assert app.text_input(table.NAME).value == "app"
    assert shown_keys(app) == []


def test_a_key_is_revoked_after_a_question(visit: Visit, session: Session) -> None:
    key, text = session.store.service_keys.create("app", Caller())
    app = visit("keys")
    app.button(f"revoke-{key.id}").click().run()
    app.button("revoke-no").click().run()
    assert session.store.service_keys.find(text) == key
    app.button(f"revoke-{key.id}").click().run()
    app.button("revoke-yes").click().run()
    assert session.store.service_keys.find(text) is None
    assert "answers nobody until you create one" in app.warning[0].value
    assert [each.label for each in app.expander] == ["1 revoked key", "Limits"]
    assert not app.exception


def test_what_a_key_spent_today_is_beside_its_limits(
    visit: Visit, session: Session, retell: Callable[..., RunTrace], finished_run: RunTrace
) -> None:
    key, _ = session.store.service_keys.create("app", Caller(), usd_per_day=2, tokens_per_day=10)
    events: list[Event] = [stored.event for stored in session.store.events(finished_run.run_id)]
    told = retell(len(events), actor=key.actor)
    doctor(session.store.path, "UPDATE runs SET known_usd = 0.5 WHERE run_id = :run", run=told.run_id)
    page = drawn(visit("keys"))
    assert 'aria-label="$0.5000 of $2.00 today"' in page
    assert 'aria-valuenow="25"' in page
    assert "of 10: reached" in page
    assert "just now" in page


def test_hostile_names_do_nothing(visit: Visit, session: Session) -> None:
    key, _ = session.store.service_keys.create(HOSTILE, Caller(), models=["<b>m</b>"])
    app = visit("keys")
    assert HOSTILE in unescape(drawn(app))
    for tag in ("<img", "<b>m", "<i>p"):
        assert tag not in drawn(app)
    app.button(f"revoke-{key.id}").click().run()
    assert "![x](" not in "".join(each.value for each in app.markdown)
    app.button("revoke-yes").click().run()
    assert "<img" not in drawn(app)
    assert HOSTILE in unescape(drawn(app)), "among the revoked ones"


@pytest.mark.parametrize(
    ("shown", "endpoint"),
    [
        ("http://127.0.0.1:8600/keys", "http://127.0.0.1:8600/v1"),
        ("https://box.example/lab/keys?x=1", "https://box.example/lab/v1"),
        ("http://[::1]:8501/keys", "http://[::1]:8501/v1"),
        ('http://a"; rm -rf ~;"/keys', "http://127.0.0.1:8501/v1"),
        ("javascript:alert(1)", "http://127.0.0.1:8501/v1"),
        ("http://[broken/keys", "http://127.0.0.1:8501/v1"),
        (None, "http://127.0.0.1:8501/v1"),
    ],
)
def test_the_endpoints_address_is_below_that_of_the_page(shown: str | None, endpoint: str) -> None:
    assert table.endpoint(shown) == endpoint


def test_a_damaged_key_is_told_and_others_can_still_be_made(visit: Visit, session: Session) -> None:
    session.store.service_keys.create("app", Caller())
    doctor(session.store.path, "UPDATE service_keys SET models = '{'")
    app = visit("keys")
    assert "cannot be read" in app.error[0].value
    assert app.button("create-key")
