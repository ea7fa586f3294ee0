"""Texts are found where they stand, filters narrow, pages go on, and nothing that is typed breaks a search."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Message
from conductor_core.errors import BadInput, StoreDamaged, StoreError
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor
from conductor_core.workflow.model import Step, Workflow
from storage import Store, open_store
from storage.search import search
from storage.search.filters import Filters, read_words
from storage.search.index import forget
from tests.support.damaging import doctor
from tests.support.run_events import (
    PAGE,
    TWO_STEPS,
    created,
    planned,
    run_completed,
    whole_run,
)

ADA = Actor(kind="person", id="ada", name="Ada")


def found(store: Store, typed: str, **only: object) -> list[str]:
    return [hit.run_id for hit in store.search.texts(typed, Filters.model_validate(only)).hits]


@pytest.fixture
def searched(store: Store) -> Store:
    """Runs in two scripts; one was edited by Ada and failed."""
    edited = Workflow(steps=(Step(instruction="Ask Müller instead.", agent="checker"), TWO_STEPS.steps[1]))
    edit = ev.PlanEdited(run_id="edited", before=TWO_STEPS, after=edited, actor=ADA, door="page")
    failed = ev.StepFailed(run_id="edited", path=(0,), error_code="WorkerTimedOut", error="no answer within 5 s")
    end = ev.RunFailed(run_id="edited", error_code="WorkerTimedOut", error="step 0 failed")
    store.log.append_and_wait(*whole_run("latin", "Where does Zoë live?"), *whole_run("signs", "東京の天気は？"))
    store.log.append_and_wait(created("edited", "RerunTarget to ask?"), *planned("edited"), edit, failed, end)
    store.search.catch_up()
    return store


@pytest.mark.parametrize(
    ("typed", "runs"),
    [
        ("zoe", ["latin"]),
        ("Zo*", ["latin"]),
        ('"does zoë"', ["latin"]),
        ("live Where", ["latin"]),
        ("zoe tokyo", []),
        ("東京の天気", ["signs"]),
        ("天気", ["signs"]),
        ("天気 東京の", ["signs"]),
        ("北京", []),
        ("timed OR answer", []),
        ("within", ["edited"]),
    ],
)
def test_words_phrases_beginnings_and_signs_without_spaces_are_found(
    searched: Store, typed: str, runs: list[str]
) -> None:
    assert found(searched, typed) == runs
    assert searched.search.count(typed).runs == len(runs)


def test_a_hit_says_where_the_text_stands_and_shows_what_was_found(searched: Store) -> None:
    (hit,) = searched.search.texts("muller").hits
    (place,) = hit.places
    assert (hit.run_id, hit.status, place.field, place.path, place.agent) == (
        "edited",
        "failed",
        "instruction",
        "0",
        "checker",
    )
    assert "Ada" in place.detail
    assert [piece for piece, is_found in hit.snippet if is_found] == ["Müller"]
    (before,) = searched.search.texts("solve", field="before").hits
    assert before.run_id == "edited"


@pytest.mark.parametrize(
    ("values", "runs"),
    [
        ({"edited": "*"}, ["edited"]),
        ({"edited": "ada"}, ["edited"]),
        ({"edited": "bob"}, []),
        ({"failure": "WorkerTimedOut"}, ["edited"]),
        ({"status": "completed"}, ["signs", "latin"]),
        ({"status": "completed", "agent": "solver"}, ["signs", "latin"]),
        ({"approval": "denied"}, []),
        ({"workers": "simulated"}, ["edited", "signs", "latin"]),
    ],
)
def test_filters_narrow_runs_and_texts_alike(searched: Store, values: dict[str, str], runs: list[str]) -> None:
    only = Filters(values=values)
    assert [run.run_id for run in searched.search.runs(only)] == runs
    assert searched.search.count("", only).runs == len(runs)
    assert {hit.run_id for hit in searched.search.texts("step OR solve", only).hits} <= set(runs)
    assert sorted(found(searched, "check", values=values)) == sorted(runs), "each plan has an instruction to check"


def test_pages_show_each_text_and_each_run_once(store: Store) -> None:
    for number in range(7):
        store.log.append_and_wait(*whole_run(f"r{number}", f"The same word, task {number}"))
    store.search.catch_up()
    seen, before = [], None
    while True:
        page = store.search.texts("same", before=before, limit=2)
        seen += [hit.run_id for hit in page.hits]
        if (before := page.before) is None:
            break
    assert seen == [f"r{number}" for number in reversed(range(7))]
    first = store.search.runs(limit=4)
    rest = store.search.runs(before=first[-1].sequence, limit=4)
    assert [run.run_id for run in (*first, *rest)] == seen


def test_a_text_that_stands_in_several_places_is_one_hit(searched: Store) -> None:
    (hit,) = searched.search.texts("answer").hits
    assert {place.field for place in hit.places} == {"error"}
    message = Message(role="user", content="42")
    started = ev.StepStarted(run_id="twice", path=(1,), agent="checker", identity="i", messages=(message,))
    events = whole_run("twice", "42")
    searched.log.append_and_wait(*events[:-1], started, events[-1])
    searched.search.catch_up()
    (hit,) = [hit for hit in searched.search.texts("42").hits if hit.run_id == "twice" and len(hit.places) > 1]
    assert [place.field for place in hit.places] == ["task", "output", "sent"]


HOSTILE = [
    '"',
    '""',
    "*",
    "AND",
    "NEAR(",
    "a AND",
    "text:a",
    "-a",
    "^a",
    "a*b*",
    "'; DROP TABLE runs; --",
    "\0",
    "\ud800a",
]


@pytest.mark.parametrize("typed", [*HOSTILE, "x" * 1001, "a " * 33, "{}[]", "…"])
def test_hostile_searches_find_plainly_or_say_one_clear_error(searched: Store, typed: str) -> None:
    _searches_or_says_why(searched, typed)


@settings(max_examples=60, deadline=None)
@given(typed=st.text(st.characters(codec=None), max_size=40) | st.text('"*東京a ()-:^', max_size=20))
def test_no_search_raises_anything_else(typed: str) -> None:
    with suppress(BadInput):
        words = read_words(typed)
        assert words is None or words.plain


def _searches_or_says_why(store: Store, typed: str) -> None:
    said = ""
    try:
        store.search.texts(typed)
        store.search.count(typed)
        store.search.receivers(typed)
    except BadInput as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 200


def test_the_index_says_what_it_does_not_hold(store: Store) -> None:
    store.log.append_and_wait(*whole_run("ended"), created("running", "A task of a run that goes on"))
    lag = store.search.lag()
    assert (lag.runs, lag.running) == (1, 1)
    assert lag.in_words == "1 ended run not indexed yet, 1 still running"
    assert store.search.catch_up() == 1
    assert (store.search.lag().runs, found(store, "goes")) == (0, [])
    store.log.append_and_wait(run_completed("running"))
    assert store.search.catch_up() == 1
    assert found(store, "goes") == ["running"]
    assert store.search.catch_up() == 0


def test_a_deleted_run_leaves_no_word_in_the_file(path: Path, store: Store) -> None:
    store.log.append_and_wait(*whole_run("kept", "a task that stays"), *whole_run("gone", "quetzalcoatl 猫の名前は"))
    store.search.catch_up()
    store.delete(["gone"], PAGE)
    assert found(store, "quetzalcoatl") == found(store, "猫の名") == []
    store.search.catch_up()
    assert found(store, "stays") == ["kept"]
    store.close()
    stored = path.read_bytes()
    assert b"stays" in stored
    assert b"quetzalcoatl" not in stored
    assert "猫の名".encode() not in stored


def test_forgetting_a_run_takes_it_from_the_index_alone(path: Path, store: Store) -> None:
    store.log.append_and_wait(*whole_run("r", "quetzalcoatl"))
    store.search.catch_up()
    store.log.change_and_wait(lambda cursor: forget(cursor, "r"))
    assert found(store, "quetzalcoatl") == []
    assert store.search.catch_up() == 0, "it does not come back by itself"
    assert store.trace("r")[0].task == "quetzalcoatl"


def test_a_rebuilt_index_finds_the_same(searched: Store) -> None:
    before = [searched.search.texts(typed).hits for typed in ("zoe", "天気", "within")]
    facets, calls = searched.search.facets(), searched.search.calls()
    assert searched.search.rebuild() == 3
    again = [searched.search.texts(typed).hits for typed in ("zoe", "天気", "within")]
    assert [[hit.model_copy(update={"text_id": 0}) for hit in hits] for hits in before] == [
        [hit.model_copy(update={"text_id": 0}) for hit in hits] for hits in again
    ]
    assert (searched.search.facets(), len(searched.search.calls())) == (facets, len(calls))


def test_a_search_of_what_cannot_be_searched_is_one_clear_error(store: Store) -> None:
    store._database.writer.execute("DROP TABLE search_state")
    with pytest.raises(StoreError, match="has no search index"):
        store.search.texts("a")


def test_runs_whose_first_event_cannot_be_read_keep_no_other_out(store: Store, path: Path, url: str) -> None:
    store.log.append_and_wait(*whole_run("one"), *whole_run("two"), *whole_run("gone"), *whole_run("whole", "Zoë?"))
    store.close()
    doctor(path, "UPDATE events SET payload = '{' WHERE run_id IN ('one', 'two') AND kind = 'run.created'")
    doctor(path, "DELETE FROM events WHERE run_id = 'gone' AND kind <> 'run.completed'")
    damaged = open_store(url)
    damaged.search.catch_up()
    assert found(damaged, "zoe") == ["whole"]
    lag = damaged.search.lag()
    assert (lag.runs, lag.damaged) == (0, 3)
    assert "3 damaged" in lag.in_words
    damaged.close()


def test_a_run_that_cannot_be_stored_keeps_no_other_out(store: Store, path: Path, url: str) -> None:
    """SQLite has no number as large as that of its tokens."""
    store.log.append_and_wait(*whole_run("before", "Zoë?"), *whole_run("many", "Zoë!"), *whole_run("after", "Zoë."))
    store.close()
    large = f'"input_tokens":{10**25}'
    doctor(
        path,
        "UPDATE events SET payload = replace(payload, '\"input_tokens\":7', :large) WHERE run_id = 'many'",
        large=large,
    )
    damaged = open_store(url)
    damaged.search.catch_up()
    assert found(damaged, "zoe") == ["after", "before"]
    assert (damaged.search.lag().runs, damaged.search.lag().damaged) == (0, 1)
    damaged.close()


def test_an_index_without_its_state_says_what_to_do_and_can_be_built_again(store: Store, path: Path, url: str) -> None:
    store.log.append_and_wait(*whole_run("one", "Zoë?"))
    store.close()
    doctor(path, "DELETE FROM search_state")
    damaged = open_store(url)
    for ask in (damaged.search.lag, damaged.search.catch_up):
        with pytest.raises(StoreDamaged, match="search --rebuild"):
            ask()
    assert damaged.search.rebuild() == 1
    assert found(damaged, "zoe") == ["one"]
    damaged.close()


def test_the_index_is_kept_up_after_an_error_that_nobody_foresaw(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls, third = [], threading.Event()

    def breaks(*_: object, **__: object) -> int:
        calls.append(1)
        if len(calls) == 3:
            third.set()
        raise IndexError("broken")

    monkeypatch.setattr(search, "KEEP_UP_S", 0.01)
    monkeypatch.setattr(store.search, "catch_up", breaks)
    store.search.keep_up()
    assert third.wait(10)
    store.search.close()
    assert [record.exc_info is not None for record in caplog.records] == [True], "it is said once"


def test_lists_find_runs_by_task_by_answer_and_by_id_but_not_by_what_only_an_earlier_step_wrote(store: Store) -> None:
    store.log.append_and_wait(*whole_run("run-of-beets", "Which root?", "It is beets."))
    store.log.append_and_wait(*whole_run("run-of-leeks", "Which leaf?", "The answer: leeks"))

    def listed(typed: str) -> list[str]:
        assert store.totals(typed).runs == len(store.runs(search=typed))
        return [run.run_id for run in store.runs(search=typed)]

    assert listed("leeks") == [], "the index does not have it yet"
    store.search.catch_up()
    assert listed("answer LEEKS") == listed("Which LEAF") == ["run-of-leeks"]
    assert listed("of-beets") == ["run-of-beets"]
    assert listed("run-of-") == ["run-of-leeks", "run-of-beets"]
    assert listed("42") == [], "the output of the first step of both"


@pytest.mark.parametrize("typed", [*HOSTILE, "x" * 1001, "%", "_", "'", "zoe OR"])
def test_whatever_is_typed_lists_and_sums_agree(searched: Store, typed: str) -> None:
    assert searched.totals(typed).runs == len(searched.runs(search=typed))
