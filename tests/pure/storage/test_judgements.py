"""Judgements: kept with their run, the last of each judge counts, and proven by the log."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor_core.errors import BadInput, StoreDamaged, UnknownRun
from conductor_core.run.actor import Actor, Caller, local_caller
from conductor_core.run.judgement import TAKEN_BACK, By, Judged, Judgement, Mark, Verdict
from storage import Store, open_store
from storage.judgements import UNREADABLE, JudgementQuery
from storage.privacy import Privacy
from tests.support.command_line import log as main
from tests.support.damaging import doctor
from tests.support.run_events import created, whole_run

ADA = Caller(actor=Actor(kind="person", id="ada", name="Ada"), door="page")
BOB = Caller(actor=Actor(kind="service", id="key-1", name="bob"), door="api")


@pytest.fixture
def run(store: Store) -> str:
    store.log.append_and_wait(*whole_run("run"))
    return "run"


def findings(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    main(["verify", "--db", str(path), "--json"])
    return [each["what"] for each in json.loads(capsys.readouterr().out)["findings"] if each["class"] == "derived"]


def test_the_last_judgement_of_each_judge_counts_until_it_is_taken_back(store: Store, run: str) -> None:
    keep = store.judgements
    assert keep.of(run) == ()
    assert keep.latest([run]) == {}
    first = keep.add(run, ADA, mark="wrong", note="It misses the year.")
    assert (first.id, first.caller, first.mark, first.note, first.by) == (
        1,
        ADA,
        "wrong",
        "It misses the year.",
        "person",
    )
    of_step = keep.add(run, ADA, path=(1,), score=0.5)
    of_key = keep.add(run, BOB, mark="wrong")
    second = keep.add(run, ADA, mark="right")
    assert keep.of(run) == (first, of_step, of_key, second)
    assert keep.latest([run, "unknown"]) == {run: (of_step, of_key, second)}
    taken = keep.take_back(second, ADA)
    assert (taken.mark, taken.score, taken.note, taken.taken_back) == (None, None, TAKEN_BACK, True)
    assert keep.latest([run]) == {run: (of_step, of_key)}
    assert keep.add(run, local_caller("cli"), mark="right").judge == keep.add(run, local_caller("page"), score=1).judge


def test_judgements_are_filtered_and_counted(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.log.append_and_wait(*whole_run(name))
    keep = store.judgements
    assert keep.counts() == {"right": 0, "wrong": 0, "unjudged": 3, "noted": 0}
    keep.add("a", ADA, mark="wrong")
    keep.add("a", ADA, mark="right", note="Now it is.")
    graded = keep.add("a", BOB, mark="wrong", by="grader")
    keep.add("b", ADA, path=(0,), note="A step.")
    assert keep.counts() == {"right": 1, "wrong": 1, "unjudged": 2, "noted": 2}
    store.log.append_and_wait(created("forwarded", purpose="pass-through"), *whole_run("forwarded")[1:])
    assert (keep.counts("pass-through")["unjudged"], keep.counts(without=["pass-through"])["unjudged"]) == (1, 2)
    assert [each.id for each in keep.list()] == [4, 3, 2, 1]
    assert [each.id for each in keep.list(limit=2, before=4)] == [3, 2]
    for asked, ids in (
        (JudgementQuery(mark="wrong"), [3, 1]),
        (JudgementQuery(mark="wrong", counting=True), [3]),
        (JudgementQuery(by="grader"), [3]),
        (JudgementQuery(run_ids=("b",)), [4]),
        (JudgementQuery(run_ids=()), []),
        (JudgementQuery(since_utc=graded.at_utc), [4, 3]),
    ):
        assert [each.id for each in keep.list(asked)] == ids
    keep.take_back(keep.list(JudgementQuery(run_ids=("b",)))[0], ADA)
    assert keep.counts()["noted"] == 1


_THINGS = st.tuples(
    st.sampled_from(["run", "other"]), st.sampled_from([None, (0,), (0, 1)]), st.sampled_from([None, "run"])
)
_SAID: st.SearchStrategy[tuple[Mark | None, float | None, str]] = st.one_of(
    st.tuples(st.none(), st.floats(0, 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    st.just((None, None, TAKEN_BACK)),
    st.just((None, None, "a note")),
)
_BY = st.sampled_from(["person", "grader", "judge"])
_WHO = st.sampled_from([ADA, BOB, Caller(), local_caller("cli"), local_caller("page")])


@given(given=st.lists(st.tuples(_THINGS, _SAID, _BY, _WHO), max_size=15))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_what_counts_is_what_a_plain_fold_says(
    tmp_path_factory: pytest.TempPathFactory,
    given: list[
        tuple[tuple[str, tuple[int, ...] | None, str | None], tuple[Mark | None, float | None, str], By, Caller]
    ],
) -> None:
    path = tmp_path_factory.mktemp("fold") / "runs.sqlite3"
    with closing(open_store(f"sqlite:///{path}")) as store:
        for name in ("run", "other"):
            store.log.append_and_wait(*whole_run(name))
        last: dict[object, Judgement] = {}
        for (run_id, step, against), (mark, score, note), by, who in given:
            kept = store.judgements.add(
                run_id, who, path=step, mark=mark, score=score, note=note, by=by, compared_with=against
            )
            actor = who.actor and (who.actor.kind, who.actor.id)
            last.pop(key := (run_id, step, against, by, actor), None)
            last[key] = kept
        wanted: dict[str, tuple[Judgement, ...]] = {}
        for kept in last.values():
            if not kept.taken_back:
                wanted[kept.run_id] = (*wanted.get(kept.run_id, ()), kept)
        assert store.judgements.latest(["run", "other"]) == wanted


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "a mark, a score or a note"),
        ({"note": "  \n"}, "a mark, a score or a note"),
        ({"score": 1.5}, "from 0 .* to 1"),
        ({"score": float("nan")}, "from 0 .* to 1"),
        ({"note": "x" * 4001}, "more than 4,000 characters"),
        ({"mark": "better"}, "needs the run that it compares with"),
        ({"mark": "right", "compared_with": "run"}, "compares with no run"),
        ({"mark": "good"}, "mark"),
    ],
)
def test_what_is_no_judgement_is_refused(store: Store, run: str, fields: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        store.judgements.add(run, ADA, **fields)  # type: ignore[arg-type]
    assert store.judgements.list() == ()


def test_only_runs_that_are_there_are_judged_and_all_or_none_are_kept(store: Store, run: str) -> None:
    for unknown in ("unknown", "", "\ud800"):
        with pytest.raises(UnknownRun):
            store.judgements.add_all([Verdict(run_id=run, mark="right"), Verdict(run_id=unknown, mark="right")], ADA)
    with pytest.raises(UnknownRun):
        store.judgements.add(run, ADA, mark="better", compared_with="unknown")
    assert store.judgements.list() == ()
    assert store.judgements.add_all([], ADA) == ()


def test_many_of_a_grader_are_one_transaction(store: Store, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"run-{number}" for number in range(50)]
    store.log.append_and_wait(*(created(name) for name in names))
    marks: list[Mark] = ["right", "wrong"]
    many = [Verdict(run_id=names[number % 50], mark=marks[number % 2], by="grader") for number in range(10_000)]
    kept = store.judgements.add_all(many, ADA)
    assert [each.id for each in kept] == list(range(1, 10_001))
    assert store.judgements.list()[::-1] == kept
    store.publish()
    assert findings(path, capsys) == []


@pytest.mark.parametrize("erases", [True, False])
def test_a_judgement_goes_with_its_run_and_its_number_is_not_given_again(
    store: Store, run: str, path: Path, erases: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store.log.append_and_wait(*whole_run("other"))
    store.judgements.add("other", ADA, mark="right")
    store.judgements.add(run, ADA, note="A zebra crosses.")
    (store.erase if erases else store.delete)([run], ADA)
    assert [each.id for each in store.judgements.list()] == [1]
    with pytest.raises(UnknownRun):
        store.judgements.add(run, ADA, mark="right")
    assert store.judgements.add("other", ADA, mark="wrong").id == 3
    store.publish()
    assert findings(path, capsys) == []
    store.close()
    if erases:
        assert b"zebra" not in b"".join(file.read_bytes() for file in path.parent.rglob("*") if file.is_file())


def test_a_note_is_redacted_and_kept_as_text(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-4f6g8h1j2k3l5m7n9p0q")
    with closing(open_store(url, Privacy(redact=frozenset({"mail"})))) as store:
        store.log.append_and_wait(*whole_run("run"))
        kept = store.judgements.add("run", ADA, note="ada@example.org \ud800 has sk-4f6g8h1j2k3l5m7n9p0q")
        assert kept.note.startswith("[redacted: mail address] \ufffd has ")
        assert "4f6g8h1j2k3l5m7n9p0q" not in kept.note
        assert store.judgements.of("run") == (kept,)
        longest = store.judgements.add("run", ADA, note=("a@b.org " * 600)[:4000])
        assert store.judgements.of("run")[1] == longest


@pytest.fixture
def secret(url: str) -> Iterator[Store]:
    with closing(open_store(url, Privacy(encrypt=True))) as store:
        store.log.append_and_wait(*whole_run("run"))
        store.judgements.add("run", ADA, mark="right", note="A zebra crosses.")
        yield store


def test_a_note_of_an_encrypted_run_needs_its_key(
    secret: Store, url: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert secret.judgements.of("run")[0].note == "A zebra crosses."
    assert secret.judgements.counts()["noted"] == 1
    secret.publish()
    assert findings(path, capsys) == []
    secret.close()
    assert b"zebra" not in b"".join(file.read_bytes() for file in path.parent.rglob("*") if file.is_file())
    path.with_name(f"{path.name}.keys").rename(path.with_name("away"))
    with closing(open_store(url)) as store:
        ((kept),) = store.judgements.of("run")
        assert (kept.mark, kept.note) == ("right", UNREADABLE)
    assert findings(path, capsys) == []


def test_a_note_that_was_moved_is_not_decrypted(secret: Store, path: Path) -> None:
    doctor(path, "UPDATE judgements SET id = 2")
    with pytest.raises(StoreDamaged, match=r"a judgement .* cannot be read"):
        secret.judgements.of("run")


def test_the_database_itself_keeps_judgements(store: Store, run: str, path: Path) -> None:
    store.judgements.add(run, ADA, mark="right")
    for statement in ("UPDATE judgements SET mark = 'wrong'", "DELETE FROM judgements"):
        with (
            closing(sqlite3.connect(path)) as connection,
            pytest.raises(sqlite3.IntegrityError, match="only ever added"),
        ):
            connection.execute(statement)


_COPY = "INSERT INTO judgements SELECT 7, run_id, path, 'right', {} FROM judgements LIMIT 1".format(
    "score, note, judged_by, judge, source_run_id, compared_with, at_utc, actor, door, salt"
)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM judgements WHERE id = 1", "lacks number 1"),
        ("DELETE FROM judgements WHERE id = 2", "lacks number 2"),
        ("UPDATE judgements SET mark = 'right' WHERE id = 1", "the judgement 1 differs"),
        ("UPDATE judgements SET note = '' WHERE id = 1", "the judgement 1 differs"),
        ("UPDATE judgements SET run_id = 'other' WHERE id = 2", "the judgement 2 differs"),
        ("UPDATE judgements SET judge = 'person person bob' WHERE id = 2", "the judgement 2 differs"),
        (_COPY, "has number 7, and no record"),
    ],
)
def test_a_judgement_that_was_changed_by_hand_is_found(
    store: Store, run: str, path: Path, statement: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.judgements.add(run, ADA, mark="wrong", note="No.")
    store.judgements.add(run, ADA, path=(0,), score=0.25)
    store.publish()
    assert findings(path, capsys) == []
    doctor(path, statement)
    assert says in " ".join(findings(path, capsys))


def test_a_damaged_row_is_told(store: Store, run: str, path: Path) -> None:
    store.judgements.add(run, ADA, mark="wrong")
    doctor(path, "UPDATE judgements SET path = '{'")
    for ask in (store.judgements.list, lambda: store.judgements.latest([run])):
        with pytest.raises(StoreDamaged, match=r"a judgement .* cannot be read"):
            ask()


def test_runs_are_found_by_what_counts_of_them(store: Store) -> None:
    for name in ("a", "b", "c", "d"):
        store.log.append_and_wait(*whole_run(name))
    keep = store.judgements
    keep.add("a", ADA, mark="wrong")
    keep.add("a", ADA, mark="right", note="Now it is.")
    keep.add("b", ADA, mark="wrong")
    keep.take_back(keep.add("c", ADA, mark="right", note="Well."), ADA)
    keep.add("d", ADA, path=(0,), mark="wrong", note="A step.")
    found = {which: {run.run_id for run in store.runs(judged=which)} for which in get_args(Judged)}
    assert found == {"right": {"a"}, "wrong": {"b"}, "unjudged": {"c", "d"}, "noted": {"a", "d"}}
    assert keep.counts() == {which: len(runs) for which, runs in found.items()}
    assert store.totals(judged="right").runs == 1
    assert [run.run_id for run in store.runs(judged="unjudged", limit=1)] == ["d"]
