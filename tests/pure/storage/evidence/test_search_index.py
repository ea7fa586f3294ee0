"""The search index, from which the ledger and the hits of an audit are read, against the events."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.run import events as ev
from storage import Privacy, open_store
from storage.search.index import CALL_COLUMNS
from tests.support.command_line import log as main
from tests.support.run_events import PAGE, created, planned, step_started, whole_run
from tests.support.tool_runs import run_with_tools


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "runs.sqlite3"
    with closing(open_store(f"sqlite:///{path}")) as store:
        for run_id in ("a", "b"):
            store.log.append_and_wait(*whole_run(run_id, f"What of {run_id}?"))
        store.log.append_and_wait(created("on"), *planned("on"), step_started("on", 0, 30))
        store.search.catch_up()
        store.log.append_and_wait(*whole_run("late", "東京の天気は"))
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made.parent, tmp_path / "copy")
    return tmp_path / "copy" / made.name


def found(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    code = main(["verify", "--db", str(path), "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert (code != 0) == bool(findings)
    assert {each["class"] for each in findings} <= {"derived", "schema", "evidence"}
    said: dict[str, str] = {}
    for each in findings:
        said[each["run_id"]] = f"{said.get(each['run_id'], '')} {each['what']}"
    return said


def test_what_the_program_indexed_is_found_without_a_fault(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(path, capsys) == {}
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.log.append_and_wait(*run_with_tools("tools"))
        store.search.catch_up()
        store.search.rebuild()
    assert found(path, capsys) == {}


OF_A = "(SELECT run FROM search_runs WHERE run_id = 'a')"


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (f"UPDATE search_calls SET provider = 'nobody' WHERE run = {OF_A}", "calls"),
        (f"UPDATE search_calls SET cost_usd = 0.5 WHERE run = {OF_A}", "calls"),
        (f"DELETE FROM search_calls WHERE run = {OF_A}", "calls"),
        (f"UPDATE search_texts SET text = 'nothing' WHERE run = {OF_A}", "texts, places"),
        (f"UPDATE search_texts SET dense = 1 WHERE run = {OF_A}", "texts"),
        (
            f"UPDATE search_places SET text_id = (SELECT id FROM search_texts WHERE text = '42' AND run <> {OF_A}) "
            f"WHERE run = {OF_A} AND field = 'output' AND path = '0'",
            "places",
        ),
        (
            "UPDATE search_runs SET fault = 'it cannot be indexed: x' WHERE run_id = 'a'",
            "only its name is there, because it could not be indexed",
        ),
        (f"UPDATE search_places SET agent = 'eve' WHERE run = {OF_A}", "places"),
        (f"DELETE FROM search_facets WHERE run = {OF_A} AND kind = 'agent'", "filters"),
        ("DELETE FROM search_runs WHERE run_id = 'a'", "it is missing"),
        ("UPDATE search_runs SET indexed_to = 0 WHERE run_id = 'a'", "it is of other events"),
        ("UPDATE search_runs SET indexed_to = 1000000 WHERE run_id = 'a'", "it is of other events"),
        ("UPDATE search_runs SET fault = 'unread' WHERE run_id = 'a'", "how far it could be read"),
        ("UPDATE search_runs SET fault = x'00' WHERE run_id = 'a'", "it is of other events"),
        ("UPDATE search_runs SET indexed_to = 'late' WHERE run_id = 'a'", "it is of other events"),
    ],
)
def test_an_index_that_was_changed_is_found_and_can_be_built_again(
    path: Path, statement: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount > 0
    said = found(path, capsys)
    assert said.keys() - {None} == {"a"}
    assert f"of the run: {says}; `conductor log search --rebuild` mends it" in said["a"]
    assert main(["search", "--rebuild", "--db", str(path)]) == 0
    assert found(path, capsys) == {}


PLANTED = (
    f"INSERT INTO search_calls ({CALL_COLUMNS}) "
    f"SELECT 999, {CALL_COLUMNS.removeprefix('run, ').replace('provider', repr('nobody'))} FROM search_calls LIMIT 1"
)


def test_rows_of_no_run_are_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(PLANTED)
    assert "the search index has rows of no run in the log" in found(path, capsys)[None]  # type: ignore[index]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO search_runs (run, run_id, indexed_to, fault) VALUES (999, 'made-up', 1, '')")
        connection.execute("INSERT INTO search_runs (run, run_id, indexed_to, fault) VALUES (998, 'on', 1, '')")
    assert list(found(path, capsys)) == ["made-up", "on"]
    assert main(["search", "--rebuild", "--db", str(path)]) == 0
    assert found(path, capsys) == {}


def test_a_run_that_the_index_was_told_to_pass_over_is_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE search_state SET reached = 1000000")
    said = found(path, capsys)
    assert set(said) == {None, "late"}
    assert "says that it goes further than the events do" in said[None]  # type: ignore[index]


# What a search answers.

FORGET = "INSERT INTO {0} ({0}, rowid, text) SELECT 'delete', id, text FROM search_texts WHERE {1}"


@pytest.mark.parametrize(
    ("statements", "run_id", "says"),
    [
        ([FORGET.format("search_words", f"run = {OF_A}")], "a", "does not find"),
        (
            [FORGET.format("search_words", f"run = {OF_A} AND text LIKE 'What of%'")],
            "a",
            "does not find 1 of its texts",
        ),
        ([FORGET.format("search_signs", "dense")], "late", "does not find 1 of its texts"),
        (["INSERT INTO search_words (search_words) VALUES ('delete-all')"], "a", "does not find"),
        (["INSERT INTO search_words (rowid, text) VALUES (99999, 'planted')"], None, "answers with texts that are not"),
        (
            [f"INSERT INTO search_words (rowid, text) SELECT min(id), 'planted' FROM search_texts WHERE run = {OF_A}"],
            "a",
            "does not find 1 of its texts",
        ),
        (["INSERT INTO search_words (search_words, rank) VALUES ('rank', 'bm25(9)')"], None, "search_words_config was"),
        (["DELETE FROM search_words_config"], None, "search_words_config was"),
        (["UPDATE search_words_data SET block = x'00'"], "a", "does not find"),
        (["UPDATE search_words_data SET block = zeroblob(length(block)) WHERE id > 10"], "a", "does not find"),
        (["UPDATE search_words_idx SET pgno = 98"], "a", "does not find"),
        (["DROP TABLE search_words_data"], None, "table search_words_data is missing"),
        (["DROP TABLE search_signs_config"], None, "table search_signs_config is missing"),
        (["DROP TABLE search_words"], None, "table search_words is missing"),
        (["DROP TABLE search_state"], None, "table search_state is missing"),
        (["DROP TABLE search_texts"], None, "table search_texts is missing"),
        (
            ["DROP TABLE search_calls", "CREATE VIEW search_calls AS SELECT 1 AS run"],
            None,
            "the table search_calls is missing; `conductor log search --rebuild` mends it",
        ),
        (
            ["DROP TABLE search_words", "CREATE VIRTUAL TABLE search_words USING fts5(text, content='')"],
            None,
            "table search_words is not as this program makes it",
        ),
        (
            ["CREATE TRIGGER hide AFTER INSERT ON search_texts BEGIN DELETE FROM search_texts WHERE id = new.id; END"],
            None,
            "the trigger hide was added",
        ),
        (
            ["CREATE TRIGGER hide AFTER INSERT ON events BEGIN DELETE FROM search_runs; END"],
            None,
            "the trigger hide was added",
        ),
        (["DELETE FROM search_state"], None, "search_state does not say how far"),
        (["UPDATE search_state SET reached = 'far'"], None, "search_state does not say how far"),
        (["INSERT INTO search_state (id, reached, residue) VALUES (2, 1, 0)"], None, "search_state does not say"),
        (["DROP TABLE search_runs", "CREATE TABLE search_runs (run)"], None, "table search_runs is not as"),
    ],
)
def test_what_a_search_answers_is_checked_and_can_be_built_again(
    path: Path, statements: list[str], run_id: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.search.catch_up()
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    said = found(path, capsys)
    assert says in said[run_id]  # type: ignore[index]
    for command in (["search", "what"], ["ledger", "step"], ["received", "", "step"]):
        assert main([*command, "--db", str(path)]) in (0, 2), "a clear line, whatever became of the index"
    assert main(["search", "--rebuild", "--db", str(path)]) == 0
    assert found(path, capsys) == {}
    assert main(["search", "what", "--db", str(path)]) == 0
    assert "What" in capsys.readouterr().out


def test_a_table_in_which_no_word_is_looked_for_in_its_page_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All words are still in the table: only the way to their pages is gone."""
    path = tmp_path / "runs.sqlite3"
    words = " ".join(f"{number:x}word{number}" for number in range(3_000))
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.log.append_and_wait(*whole_run("a", f"What of {words}?"))
        store.search.catch_up()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM search_words_idx WHERE term <> ''")
    assert "does not find all its texts" in found(path, capsys)[None]  # type: ignore[index]
    assert main(["search", "--rebuild", "--db", str(path)]) == 0
    assert found(path, capsys) == {}


def test_rows_of_an_erased_run_are_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        (row,) = connection.execute("SELECT run, run_id, indexed_to, fault FROM search_runs WHERE run_id = 'a'")
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.erase(["a"], PAGE)
    assert found(path, capsys) == {}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO search_runs (run, run_id, indexed_to, fault) VALUES (?, ?, ?, ?)", row)
    assert "the search index has rows of a run that is not in the log, or was erased" in found(path, capsys)["a"]


def test_encrypted_runs_and_a_run_that_goes_on_after_it_was_indexed_are_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.sqlite3"
    with closing(open_store(f"sqlite:///{path}", Privacy(encrypt=True))) as store:
        store.log.append_and_wait(*whole_run("secret"))
        store.search.catch_up()
    with closing(open_store(f"sqlite:///{path}")) as store:
        asked = ev.ApprovalRequested(run_id="w", number=1, of="plan", path=(), rules=("plan",), identity="i")
        store.log.append_and_wait(created("w"), *planned("w"), asked, ev.RunWaiting(run_id="w"))
        store.search.catch_up()
        store.log.append_and_wait(ev.RunTaken(run_id="w"))
    assert found(path, capsys) == {}
