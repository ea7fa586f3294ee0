import json
from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.analysis.conclusion import concluded
from conductor_core.analysis.documents import run_document
from conductor_core.chat.messages import Usage
from conductor_core.errors import StoreLocked, StoreReadOnly
from conductor_core.run.actor import local_caller
from conductor_core.run.events import RunFailed
from conductor_core.run.request import PASS_PURPOSE, REPLAY_PURPOSE, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import BatchRow, Limits
from conductor_core.workflow.model import Step, Workflow
from pages.components.app.session import Session
from pages.components.run_list import selection as history_selection
from pages.components.run_list.table import with_ancestors
from storage.access_log import AccessQuery
from tests.support.damaging import doctor
from tests.support.run_events import (
    created,
    created_otherwise,
    planned,
    run_completed,
    step_completed,
    step_started,
    whole_run,
)

Visit = Callable[..., AppTest]
ONE_SHOT = Workflow(steps=(Step(instruction="{question}", agent="writer"),))


def links(app: AppTest) -> list[str]:
    """What the rows are called, without what tells a run from others of its task."""
    return [
        link.proto.label.partition(" :gray[")[0].removeprefix("**").removesuffix("**") for link in app.get("page_link")
    ]


def cells(app: AppTest) -> list[str]:
    """The HTML of each row's columns, without the head."""
    return [each.proto.body for each in app.get("html") if 'class="cells runs ' in each.proto.body]


def test_without_runs_it_says_what_will_be_here(visit: Visit) -> None:
    assert any("No runs yet" in each.value for each in visit("history").markdown)


def test_where_all_runs_were_deleted_it_says_so_and_where_they_are_listed(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    session.store.delete([finished_run.run_id], local_caller("page"))
    app = visit("history")
    assert not any("No runs yet" in each.value for each in app.markdown)
    (said,) = [each.value for each in app.markdown if "All runs were deleted" in each.value]
    (expander,) = app.expander
    assert f"“{expander.label}” below" in said


def groups(app: AppTest) -> list[str]:
    """The lines that say which task the rows below them have in common."""
    return [each.label for each in app.button if str(each.key).startswith("run-group-")]


def test_a_group_folds_and_stays_folded(visit: Visit, session: Session) -> None:
    for run_id in ("first", "second"):
        session.store.log.append_and_wait(*whole_run(run_id))
    session.store.log.append_and_wait(*whole_run("alone", task="Another task"))
    app = visit("history")
    (head,) = [each for each in app.button if str(each.key).startswith("run-group-")]
    assert head.label.startswith("▾")
    head.click().run()
    assert [link.proto.query_string for link in app.get("page_link")] == ["run=alone"]
    app.text_input("history-search").set_value("6 times").run()
    assert [each.label[:1] for each in app.button if str(each.key).startswith("run-group-")] == ["▸"]
    app.button(str(head.key)).click().run()
    assert [link.proto.query_string for link in app.get("page_link")] == ["run=first", "run=second"]


def test_a_run_is_found_by_its_answer_and_by_its_id_and_replays_do_not_hide_it(visit: Visit, session: Session) -> None:
    session.store.log.append_and_wait(*whole_run("run-of-turnips", answer="It is turnips."))
    session.store.log.append_and_wait(*whole_run("run-of-beets", answer="It is beets."))
    for number in range(40):
        place = BatchRow(id="b", row=str(number), name="blame run-of-beets: What", size=40)
        first, *rest = whole_run(f"replay-{number}", answer="It is beets.")
        of = {"parent_run_id": "run-of-beets", "purpose": REPLAY_PURPOSE, "batch": place}
        session.store.log.append_and_wait(created_otherwise(first, **of), *rest)
    session.store.search.catch_up()
    for typed, found in (("turnips", ["run-of-turnips"]), ("of-beets", ["run-of-beets"]), ("beets", ["run-of-beets"])):
        app = visit("history")
        app.text_input("history-search").set_value(typed).run()
        assert [link.proto.query_string for link in app.get("page_link")] == [f"run={each}" for each in found]
    assert any("1 run · 40 replays" in each.value for each in app.caption)


def test_a_run_is_listed_with_its_answer_its_steps_and_that_it_is_simulated(
    visit: Visit, finished_run: RunTrace
) -> None:
    app = visit("history")
    (row,) = cells(app)
    answer = concluded(finished_run)
    assert answer is not None
    for said in (f'title="{answer.text}"', "3 called, 0 reused", "simulated"):
        assert said in row
    assert "✓" not in row, "that it completed is no mark"
    (link,) = app.get("page_link")
    assert link.proto.query_string == f"run={finished_run.run_id}"
    assert "A train leaves" in link.proto.label
    assert "Plan by hand" in link.proto.label
    assert "chain, 3 steps" in link.proto.help.replace("\\", "")


def test_a_rerun_hangs_below_the_run_it_came_from_named_by_its_change_with_both_answers(
    visit: Visit, session: Session
) -> None:
    def tell(run_id: str, answer: str, **of: object) -> None:
        first, *rest = whole_run(run_id, answer=f"The answer is {answer}.")
        session.store.log.append_and_wait(created_otherwise(first, **of), *rest)

    for number in range(3):
        tell(f"old-{number}", str(number), task="Another task")
    tell("first", "42")
    tell("other", "7", task="A third task")
    tell("same", "42", parent_run_id="first")
    tell("changed", "41", parent_run_id="first")
    app = visit("history")
    assert [link.proto.query_string for link in app.get("page_link")][:4] == [
        "run=first", "run=same", "run=changed", "run=other",
    ]  # fmt: skip
    assert links(app)[:3] == ["Plan by tiny", "again", "again"]
    assert ["6 times 7" in groups(app)[0], "42 2 times" in groups(app)[0], "3 runs" in groups(app)[0]] == [True] * 3
    _first, same, changed = cells(app)[:3]
    assert '42</b> <span class="muted">same</span>' in same
    assert '<span class="muted">42 →</span> <b dir="auto">41</b>' in changed
    app.segmented_control("history-order").set_value("By time").run()
    assert links(app)[0].startswith("↻ again")
    assert not groups(app)
    newest = session.store.runs(limit=1)
    assert {run.sequence for run in with_ancestors(newest)} == {
        run.sequence for run in session.store.runs() if run.run_id in ("first", "changed")
    }, "the run that it came from is there, however old it is"


def test_an_estimated_cost_is_marked(visit: Visit, session: Session) -> None:
    place = BatchRow(id="b", row="1", name="tasks.jsonl", size=1)
    for run_id, estimated, batch in (("said", False, None), ("guess", True, None), ("in-batch", True, place)):
        first = created(run_id, simulated=False, batch=batch)
        call = {"usage": Usage(output_tokens=3, estimated=estimated), "cost_estimated": True}
        step = step_completed(run_id, 0, "x", 40, 0.5).model_copy(update=call)
        end = RunFailed(run_id=run_id, error_code="X", error="why")
        session.store.log.append_and_wait(first, *planned(run_id), step_started(run_id, 0, 30), step, end)
    of_batch, said, guess = cells(visit("history"))
    why = "no exact figure: not all tokens were counted, or a cache has no price"
    for row in (of_batch, guess):
        assert f'<span title="$0.5000, {why}">≈ $0.5000</span>' in row
    assert '<span title="$0.5000">$0.5000</span>' in said


def test_a_cost_of_which_a_part_is_unknown_is_a_bound(visit: Visit, session: Session) -> None:
    begun, *told = planned("part")
    told[-1] = told[-1].model_copy(update={"cost_usd": None, "at_list_price": False})
    steps = [
        event
        for index, cost in enumerate((0.0123, 0.0))
        for event in (step_started("part", index, 30), step_completed("part", index, "42", 40, cost_usd=cost))
    ]
    end = run_completed("part", "42").model_copy(update={"cost_usd": None})
    session.store.log.append_and_wait(created("part", simulated=False), begun, *told, *steps, end)
    app = visit("history")
    (row,) = cells(app)
    assert "at least $0.0123" in row
    assert any(
        each.value.replace("\\", "").endswith("at least $0.0123 (1 run with a part of no known price)")
        for each in app.caption
    )


def test_a_search_without_a_match_says_what_to_change(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("history")
    app.text_input("history-search").set_value("no such words").run()
    assert any("No run matches" in each.value for each in app.markdown)


def test_only_runs_of_the_chosen_status_are_listed(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    plan = RunRequest(task="only planned", workflow=ONE_SHOT, door="page", plan_only=True)
    session.host.wait(session.host.start(plan), 30)
    app = visit("history")
    assert len(links(app)) == 2
    app.selectbox("history-status").set_value("planned").run()
    assert links(app) == ["only planned"]


def test_older_runs_are_on_further_pages_and_the_way_back_is_there(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(32):
        request = RunRequest(task=f"task {number}", workflow=ONE_SHOT, door="page", plan_only=True)
        session.host.wait(session.host.start(request), 30)
    app = visit("history")
    assert links(app) == [f"task {number}" for number in range(31, 1, -1)]
    app.button("older").click().run()
    assert links(app) == ["task 1", "task 0"]
    assert app.button("older").disabled
    app.button("newer").click().run()
    assert links(app)[0] == "task 31"


def test_hostile_text_is_shown_and_does_nothing(visit: Visit, session: Session) -> None:
    hostile = "<script>alert(1)</script> ![x](http://example.com/x.png) **bold**"
    request = RunRequest(task=hostile, workflow=ONE_SHOT, purpose="<b>me</b>", plan_only=True)
    session.host.wait(session.host.start(request), 30)
    app = visit("history")
    (label,) = links(app)
    assert label.replace("\\", "").replace("\u2060", "") == hostile
    assert "http:" not in label, "an address becomes no link"
    assert "\\<script" in label
    assert "\\!\\[x\\]" in label
    assert all("<script" not in each.proto.body for each in app.get("html") if "<style" not in each.proto.body)


def test_a_database_that_cannot_be_read_is_one_line(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(**_: object) -> None:
        raise StoreLocked("the database is locked by another program")

    app = visit("history")
    monkeypatch.setattr(session.store, "runs", locked)
    app.run()
    assert [error.value for error in app.error] == ["the database is locked by another program"]
    assert not app.exception


def test_a_damaged_run_is_listed_as_such_with_what_to_do(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    sound = session.host.start(RunRequest(task="only planned", workflow=ONE_SHOT, door="page"))
    session.host.wait(sound, 30)
    doctor(
        session.store._database.path,
        "UPDATE events SET payload = '{' WHERE run_id = :run_id AND kind = 'step.completed'",
        run_id=finished_run.run_id,
    )
    app = visit("history")
    _whole, damaged = cells(app)
    assert "⚠ damaged" in damaged
    [note] = app.warning
    assert "restore a copy of the database" in note.value
    app.selectbox("history-status").select("damaged").run()
    assert len(cells(app)) == 1


def test_a_database_that_can_only_be_read_says_so(
    visit: Visit, session: Session, finished_run: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.store._database, "refusal", StoreReadOnly("it cannot be written"))
    app = visit("history")
    assert len(cells(app)) == 1
    assert [note.value for note in app.info] == ["it cannot be written"]


def batch_of(session: Session, rows: int, *, failing: int = 0) -> None:
    """A batch of one task more than ``rows``, which are begun; the first ``failing`` lack the tokens they need."""
    for number in range(rows):
        request = RunRequest(
            task=f"batch task {number}",
            workflow=ONE_SHOT,
            limits=Limits(max_tokens=1) if number < failing else Limits(),
            batch=BatchRow(id="some-batch", row=str(number), name="tasks.jsonl", size=rows + 1),
        )
        session.host.wait(session.host.start(request), 30)


def test_a_batch_is_one_row_that_opens_to_its_runs(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    batch_of(session, 3, failing=1)
    app = visit("history")
    assert len(links(app)) == 1, "runs of the batch do not stand for themselves"
    opener = app.button("open-batch-some-batch")
    assert opener.label == "▤ tasks\\.jsonl · 4 tasks"
    assert any("2 of 4 completed, 1 failed, 1 not begun" in row for row in cells(app))
    opener.click().run()
    assert links(app) == ["batch task 2", "batch task 1", "batch task 0"]
    assert any("2 of 4 completed" in each.value for each in app.markdown)
    assert not any(" 0 tokens" in each.value for each in app.caption), "what its runs took is counted here, too"
    app.selectbox("history-status").set_value("failed").run()
    assert links(app) == ["batch task 0"]
    app.selectbox("history-status").set_value("").run()
    app.button("all-runs").click().run()
    assert len(links(app)) == 1


def test_the_filters_and_the_summary_count(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    batch_of(session, 3, failing=1)
    app = visit("history")
    options = app.selectbox("history-status").options
    assert {"any status · 4", "✓ completed · 3", "✕ failed · 1", "■ cancelled · 0"} <= set(options)
    assert any(each.value.startswith("4 runs · ") for each in app.caption)
    whole = next(each.value for each in app.caption if each.value.startswith("4 runs"))
    app.selectbox("history-status").set_value("failed").run()
    of_failed = next(each.value for each in app.caption if each.value.startswith("1 run · "))
    assert "tokens" in of_failed
    assert of_failed.partition(" · ")[2] != whole.partition(" · ")[2]
    app.selectbox("history-status").set_value("").run()
    app.text_input("history-search").set_value("batch task").run()
    assert "any status · 3" in app.selectbox("history-status").options


def test_the_page_shows_no_text_but_its_own_and_which_status_is_chosen(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("history")
    assert [each.value for each in app.markdown] == []
    assert app.selectbox("history-status").value == ""
    assert app.selectbox("history-status").options[0] == "any status · 1"


def test_a_question_about_runs_that_are_no_longer_ticked_is_gone(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    batch_of(session, 2)
    app = visit("history")
    app.toggle("history-select").set_value(True).run()
    app.checkbox(f"pick-run-{finished_run.run_id}").set_value(True).run()
    app.button("delete-picked").click().run()
    assert app.button("delete-yes").label == "Delete 1 run"
    assert not any("held" in each.value for each in app.markdown)
    session.store.hold([finished_run.run_id], local_caller("cli"))
    app.run()
    assert any("Held runs stay until they are released: 1 of these." in each.value for each in app.markdown)
    app.button("open-batch-some-batch").click().run()
    assert not any(button.key == "delete-yes" for button in app.button)
    app.button("all-runs").click().run()
    assert not any(button.key == "delete-yes" for button in app.button), "it is asked anew"


def test_a_day_can_be_jumped_to(visit: Visit, session: Session) -> None:
    for day in (1, 2, 3):
        moment = datetime(2026, 1, day, 12, tzinfo=UTC)
        first, *rest = whole_run(f"run-{day}")
        told = created_otherwise(first, at_utc=moment, task=f"of January {day}")
        session.store.log.append_and_wait(told, *rest)
    app = visit("history")
    assert links(app)[0] == "of January 3"
    app.date_input("history-day").set_value(date(2026, 1, 2)).run()
    assert links(app) == ["of January 2", "of January 1"]
    app.button("newer").click().run()
    assert links(app)[0] == "of January 3"


def test_several_runs_are_exported_as_show_prints_them(session: Session, finished_run: RunTrace) -> None:
    (line,) = history_selection.documents_of([finished_run.run_id], "b").decode().splitlines()
    assert session.store.access_log.settle() is None
    assert [look.in_words for look in session.store.access_log.read(AccessQuery(kind="exported")).records] == [
        "exported: json"
    ]
    assert json.loads(line) == json.loads(json.dumps(run_document(finished_run, whole=True)))


def test_several_runs_are_deleted_after_a_question_and_held_ones_stay(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    batch_of(session, 2)
    app = visit("history")
    app.toggle("history-select").set_value(True).run()
    assert app.button("delete-picked").disabled
    app.checkbox(f"pick-run-{finished_run.run_id}").set_value(True).run()
    app.button("hold-picked").click().run()
    assert any("⚑" in label for label in links(app))
    app.checkbox("pick-batch-some-batch").set_value(True).run()
    assert any("3 runs selected" in each.value for each in app.markdown)
    app.button("delete-picked").click().run()
    assert len(session.store.runs()) == 3, "nothing goes before the question is answered"
    app.button("delete-yes").click().run()
    assert [run.run_id for run in session.store.runs()] == [finished_run.run_id]
    said = app.warning[0].value.replace("\\", "")
    assert "2 runs deleted." in said
    assert "it is held: release it first" in said
    assert any("2 runs deleted or erased" in each.label for each in app.expander)


def test_damaged_rows_of_a_batch_and_of_a_deletion_are_shown_as_far_as_they_can_be_read(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    batch_of(session, 1)
    session.store.delete([finished_run.run_id], local_caller("page"))
    doctor(session.store._database.path, "UPDATE runs SET batch_size = 'x', batch_name = x'ff'")
    doctor(
        session.store._database.path,
        "INSERT INTO deletions (run_id, deleted_at_utc, door, created_at_utc, status, events, events_sha256) "
        "VALUES ('damaged', 'x', 'x', 'x', 'x', 1, 'x')",
    )
    app = visit("history")
    assert not app.exception
    assert "1 task" in app.button("open-batch-some-batch").label
    assert any("2 runs deleted or erased" in expander.label for expander in app.expander)


def test_what_counts_of_a_run_is_a_sign_and_a_filter_with_counts(visit: Visit, session: Session) -> None:
    judgements, caller = session.store.judgements, local_caller("page")
    for run_id in ("good", "bad", "other"):
        session.store.log.append_and_wait(*whole_run(run_id, task=f"The {run_id} task"))
    judgements.add("good", caller, mark="right", note="<b>As</b> expected.")
    judgements.add("bad", caller, mark="wrong")
    forwarded = created("forwarded", purpose=PASS_PURPOSE)
    session.store.log.append_and_wait(forwarded, *whole_run("forwarded")[1:])
    judgements.add("forwarded", caller, mark="wrong")
    app = visit("history")
    other, bad, good = cells(app)
    assert '<i class="right">✓</i>' in good
    assert "&lt;b&gt;As&lt;/b&gt; expected." in good
    assert '<i class="wrong">✗</i>' in bad
    assert "judged-mark" not in other
    box = app.selectbox("history-judged")
    assert box.options == ["any judgement", "✓ right · 1", "✗ wrong · 1", "not judged · 1", "✎ with a note · 1"]
    for which, found in (("wrong", ["run=bad"]), ("unjudged", ["run=other"]), ("noted", ["run=good"])):
        app.selectbox("history-judged").set_value(which).run()
        assert [link.proto.query_string for link in app.get("page_link")] == found
    judgements.take_back(judgements.of("good")[0], caller)
    app.selectbox("history-judged").set_value("right").run()
    assert any("No run matches" in each.value for each in app.markdown)
