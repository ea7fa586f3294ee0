import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.lab.evaluation.report import summarise
from conductor_core.lab.records.evaluation import OUTCOMES, SUMMARY, Outcome
from conductor_core.run.trace import RunTrace
from pages.components.app.session import Session
from pages.components.records import folders as record_folders
from tests.support.records import evaluation_plan, outcomes, seeds_and_parts, write_evaluation

Visit = Callable[..., AppTest]
PLAN = evaluation_plan("rehearsal-test", ("conductor", "single:reasoner", "moa"), 48)


@pytest.fixture(autouse=True)
def _nothing_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_folders, "SHIPPED", tmp_path / "shipped")


@pytest.fixture
def root(session: Session) -> Path:
    return session.settings.data_folder / "evaluations"


def html(app: AppTest) -> str:
    return "".join(each.proto.body for each in app.get("html") if "<style" not in each.proto.body)


def commands(app: AppTest) -> list[str]:
    return re.findall('<pre class="command"[^>]*>(.*?)</pre>', html(app), re.DOTALL)


def rows(app: AppTest, kind: str) -> list[str]:
    """The HTML of each row's columns, without the head."""
    bodies = [each.proto.body for each in app.get("html") if f'class="cells {kind}' in each.proto.body]
    return [body for body in bodies if " head" not in body.partition(">")[0]]


def names(app: AppTest) -> list[str]:
    return [each.label.replace("\\", "") for each in app.button if str(each.key).startswith("open-")]


def test_without_an_evaluation_it_says_which_command_makes_one_and_where_it_looks(visit: Visit, root: Path) -> None:
    app = visit("evaluate")
    assert any("No evaluation yet" in each.value for each in app.markdown)
    assert "evaluate --suite rehearsal --orchestrators conductor,single,moa" in app.code[0].value
    assert any(str(root) in each.value.replace("\\", "") for each in app.caption)


def test_a_finished_evaluation_has_a_row_per_orchestrator_in_the_plan_s_order(visit: Visit, root: Path) -> None:
    write_evaluation(root / "e", PLAN, outcomes(PLAN))
    app = visit("evaluate")
    assert names(app) == list(PLAN.orchestrators)
    assert all("whisker" in row for row in rows(app, "standings"))
    assert [">120</span>" in row for row in rows(app, "standings")] == [True, False, False]
    for said in ("✓ done", "simulated workers", "48 tasks", "rehearsal, test split"):
        assert said in html(app)
    assert len(app.get("bidi_component")) == 2
    assert 'class="heat"' in html(app)


def test_real_workers_on_simulated_tasks_are_shown_as_real_and_paid(visit: Visit, root: Path) -> None:
    plan = PLAN.model_copy(update={"pool": "paper", "settings": {"simulated": ["tasks"]}})
    found = [each.model_copy(update={"cost_usd": 0.0123}) for each in outcomes(plan)]
    write_evaluation(root / "e", plan, found)
    app = visit("evaluate", state={"evaluation-opened": "moa"})
    said = html(app) + "".join(each.value for each in app.caption).replace("\\", "")
    assert ">simulated tasks<" in said
    assert "the workers are real" in said
    assert not any(each in said for each in ("simulated workers", "nothing was paid", "workers are simulated"))
    assert all(">0.0123<" in row for row in rows(app, "standings"))
    assert "It asks the workers again, at their price." in said


def test_a_suite_without_difficulties_has_no_empty_figures(visit: Visit, root: Path) -> None:
    found = [each.model_copy(update={"difficulty": "", "rounds": 2}) for each in outcomes(PLAN)]
    write_evaluation(root / "e", PLAN, found, figures=summarise)
    app = visit("evaluate")
    assert len(app.get("bidi_component")) == 1
    assert not any(each in html(app) for each in ('colspan="0"', "by difficulty"))
    assert "Score by family" in html(app)
    assert '<th class="first">all</th>' in html(app)


def test_the_legend_is_of_the_difficulties_that_there_are(visit: Visit, root: Path) -> None:
    found = [each.model_copy(update={"difficulty": "hard"}) for each in outcomes(PLAN)]
    write_evaluation(root / "e", PLAN, found, figures=summarise)
    assert ">■ hard.<" in html(visit("evaluate"))


def test_differences_name_what_they_are_to_in_any_order(visit: Visit, root: Path) -> None:
    write_evaluation(root / "e", PLAN, outcomes(PLAN))
    app = visit("evaluate")
    app.segmented_control("evaluation-order").set_value("tokens").run()
    assert names(app)[0] != "conductor"
    assert ">Against conductor<" in html(app)


def test_rows_can_be_ordered_and_narrowed_down(visit: Visit, root: Path) -> None:
    write_evaluation(root / "e", PLAN, outcomes(PLAN))
    app = visit("evaluate")
    app.segmented_control("evaluation-order").set_value("tokens").run()
    assert names(app) == ["single:reasoner", "conductor", "moa"]
    app.multiselect("evaluation-names").set_value(["moa", "conductor"]).run()
    assert names(app) == ["conductor", "moa"]


def test_one_that_goes_on_shows_its_progress_and_no_intervals_yet(visit: Visit, root: Path) -> None:
    write_evaluation(root / "e", PLAN, outcomes(PLAN)[:72], done=False)
    app = visit("evaluate")
    assert "◔ evaluating" in html(app)
    assert "72 of 144 runs" in html(app)
    assert len(rows(app, "standings")) == 3
    assert "whisker" not in html(app)


def test_one_that_stopped_gives_the_whole_command_that_goes_on_with_it(visit: Visit, root: Path) -> None:
    folder = write_evaluation(root / "e", PLAN, outcomes(PLAN)[:72], done=False, age_s=600)
    page = html(visit("evaluate"))
    assert "It continues where it stopped with<br><code>conductor evaluate --suite rehearsal" in page
    assert "--orchestrators conductor,single:reasoner,moa --name e --resume</code>" in page
    lines = (folder / OUTCOMES).read_text().splitlines()
    (folder / OUTCOMES).write_text("\n".join(["no json", *lines]) + "\n")
    os.utime(folder / OUTCOMES, (0, 0))
    assert "Remove each line that cannot be read; then it continues" in html(visit("evaluate"))


def test_a_summary_that_is_half_written_need_not_be_removed_by_hand(visit: Visit, root: Path) -> None:
    folder = write_evaluation(root / "e", PLAN, outcomes(PLAN))
    (folder / SUMMARY).write_text("{")
    app = visit("evaluate")
    assert "summary.json cannot be used" in app.error[0].value.replace("\\", "")
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    page = html(visit("evaluate"))
    assert "It continues where it stopped" in page
    assert "Remove each line" not in page


@pytest.mark.parametrize("left", [0, 3])
def test_figures_without_the_runs_behind_them_say_so(visit: Visit, root: Path, left: int) -> None:
    folder = write_evaluation(root / "e", PLAN, outcomes(PLAN))
    assert "runs are in this record" not in html(visit("evaluate"))
    lines = (folder / OUTCOMES).read_text().splitlines(keepends=True)
    (folder / OUTCOMES).write_text("".join(lines[:left]))
    if not left:
        (folder / OUTCOMES).unlink()
    assert f"Only {left} of 144 runs are in this record" in html(visit("evaluate"))


def test_a_summary_with_figures_that_are_infinite_is_left_out(visit: Visit, root: Path) -> None:
    folder = write_evaluation(root / "e", PLAN, outcomes(PLAN))
    written = json.loads((folder / SUMMARY).read_text())
    written["results"][0]["latency_ms_per_task"] = float("inf")
    (folder / SUMMARY).write_text(json.dumps(written))
    app = visit("evaluate")
    assert "results.0.latency_ms_per_task" in app.error[0].value.replace("\\", "")
    assert len(rows(app, "standings")) == 3


def test_a_row_opens_its_runs_and_those_in_this_database_are_links(
    visit: Visit, root: Path, finished_run: RunTrace
) -> None:
    first, *rest = outcomes(PLAN)
    here = first.model_copy(update={"run_id": finished_run.run_id, "score": 1.0, "fault": None})
    write_evaluation(root / "e", PLAN, [here, *rest])
    app = visit("evaluate")
    app.button("open-conductor").click().run()
    assert len(rows(app, "outcomes")) == 20
    assert sum('<span class="muted">not in this database' in each.proto.body for each in app.get("html")) == 19
    app.segmented_control("runs-which-one").set_value("right").run()
    assert all("✓ right" in row for row in rows(app, "outcomes"))
    (link,) = [each.proto for each in app.get("page_link")]
    assert link.query_string == f"run={finished_run.run_id}"
    assert "A train leaves" in link.label
    app.button("open-conductor").click().run()
    assert rows(app, "outcomes") == []


def test_with_a_part_of_the_pool_it_says_whether_a_plan_named_an_absent_worker(visit: Visit, root: Path) -> None:
    found = [each.model_copy(update={"present": ("coder", "writer")}) for each in outcomes(PLAN)]
    write_evaluation(root / "e", PLAN, found)
    assert any("No plan named an absent worker" in each.value for each in visit("evaluate").caption)


def test_runs_made_elsewhere_say_where(visit: Visit, root: Path) -> None:
    plan = PLAN.model_copy(update={"database": "sqlite:///elsewhere.sqlite3"})
    write_evaluation(root / "e", plan, outcomes(plan))
    app = visit("evaluate", state={"evaluation-opened": "moa"})
    said = "".join(each.value for each in app.caption).replace("\\", "")
    assert "These runs were made in another database (sqlite:///elsewhere.sqlite3), not in this one" in said
    (again,) = commands(app)
    assert again.startswith("conductor evaluate --suite rehearsal --split test --limit 48 --seed 0")
    assert "--orchestrators conductor,single:reasoner,moa" in again


def test_runs_that_are_partly_here_need_no_command(visit: Visit, root: Path, finished_run: RunTrace) -> None:
    first, *rest = outcomes(PLAN)
    here = first.model_copy(update={"run_id": finished_run.run_id, "score": 0.0, "fault": None})
    write_evaluation(root / "e", PLAN, [here, *rest])
    assert commands(visit("evaluate", state={"evaluation-opened": "conductor"})) == []


def test_seeds_rounds_and_parts_of_the_pool_are_shown_where_there_are_any(visit: Visit, root: Path) -> None:
    plan, found = seeds_and_parts(70)
    write_evaluation(root / "e", plan, found, figures=summarise)
    app = visit("evaluate")
    said = html(app)
    assert "<b>conductor</b> over 2 Conductors" in said
    assert "Second rounds by difficulty" in said
    assert [each.label for each in app.expander] == ["The 35 parts of the pool, 3 workers each"]
    assert said.count('<tr><th scope="row">') == 35
    assert '<b>tiny</b><code title="sha256 d9abbc4d' in said
    app.multiselect("evaluation-names").set_value(["conductor", "single:coder"]).run()
    assert "Second rounds by difficulty" not in html(app)


def test_an_older_record_has_no_empty_sections(visit: Visit, root: Path) -> None:
    write_evaluation(root / "e", PLAN, outcomes(PLAN))
    app = visit("evaluate")
    assert not app.expander
    assert not any(each in html(app) for each in ("Second rounds", "record-conductors", 'class="spreads"'))


def test_tasks_that_one_solves_and_the_other_does_not(visit: Visit, root: Path) -> None:
    found = outcomes(PLAN)
    write_evaluation(root / "e", PLAN, found)
    app = visit("evaluate", state={"evaluation-opened": "conductor"})
    app.selectbox("runs-other").set_value("moa").run()
    app.segmented_control("runs-which-two").set_value("mine").run()
    scores = {(each.orchestrator, each.task_id): each.score for each in found}
    tasks = {each.task_id for each in found}
    expected = sum(scores["conductor", task] > scores["moa", task] for task in tasks)
    shown = rows(app, "outcomes")
    assert len(shown) == expected
    assert all("✓ right" in row and ("✕ wrong" in row or "⚡ no answer" in row) for row in shown)


def test_runs_are_narrowed_down_by_difficulty_and_family(visit: Visit, root: Path) -> None:
    write_evaluation(root / "e", PLAN, outcomes(PLAN))
    app = visit("evaluate", state={"evaluation-opened": "conductor"})
    app.selectbox("runs-difficulty").set_value("hard").run()
    app.selectbox("runs-family").set_value("code").run()
    shown = rows(app, "outcomes")
    assert shown
    assert all(">hard<" in row and ">code<" in row for row in shown)


def test_further_runs_are_on_further_pages(visit: Visit, root: Path) -> None:
    write_evaluation(root / "e", PLAN, outcomes(PLAN))
    app = visit("evaluate", state={"evaluation-opened": "moa"})
    app.pagination[0].select(3).run()
    assert any(each.value == "41 to 48 of 48" for each in app.caption)
    assert app.pagination[0].num_pages == 3


def test_a_filter_leads_back_to_the_first_page(visit: Visit, root: Path) -> None:
    write_evaluation(root / "e", PLAN, outcomes(PLAN))
    app = visit("evaluate", state={"evaluation-opened": "moa"})
    app.pagination[0].select(3).run()
    app.selectbox("runs-difficulty").set_value("hard").run()
    assert not app.pagination
    app.selectbox("runs-difficulty").set_value(None).run()
    assert any(each.value == "1 to 20 of 48" for each in app.caption)


def test_a_broken_line_is_one_error_and_the_rest_is_shown(visit: Visit, root: Path) -> None:
    folder = write_evaluation(root / "e", PLAN, outcomes(PLAN))
    lines = (folder / OUTCOMES).read_text().splitlines()
    (folder / OUTCOMES).write_text("\n".join([lines[0], "{}", *lines[1:]]) + "\n")
    app = visit("evaluate")
    (error,) = app.error
    assert f"{folder / OUTCOMES}, line 2, is not a valid outcome" in error.value.replace("\\", "")
    assert len(rows(app, "standings")) == 3


def test_a_plan_that_cannot_be_read_is_one_error_and_another_can_be_chosen(visit: Visit, root: Path) -> None:
    plan = PLAN.model_copy(update={"at": "2026-01-01T00:00:00+00:00"})
    write_evaluation(root / "good", plan, outcomes(plan))
    (root / "bad").mkdir()
    (root / "bad" / "plan.json").write_text("{}")
    app = visit("evaluate")
    (error,) = app.error
    assert "plan.json cannot be used" in error.value.replace("\\", "")
    app.selectbox(f"evaluations:{root / 'bad'}").set_value(str(root / "good")).run()
    assert not app.error
    assert len(rows(app, "standings")) == 3


def test_what_a_record_holds_is_shown_and_does_nothing(visit: Visit, root: Path) -> None:
    hostile = "<script>alert(1)</script>![x](http://example.com/x.png)"
    plan = PLAN.model_copy(update={"name": hostile, "orchestrators": (hostile,), "suite": hostile})
    made = Outcome(
        orchestrator=hostile, task_id=hostile, family=hostile, difficulty=hostile, run_id=hostile, score=0.0,
        tokens=1, duration_ms=1, steps=1, fault=hostile,
    )  # fmt: skip
    write_evaluation(root / "e", plan, [made], done=False)
    app = visit("evaluate", state={"evaluation-opened": hostile})
    assert "<script" not in html(app)
    assert "&lt;script&gt;alert(1)" in html(app)
    assert all("](http" not in each.label for each in app.button)
    assert all("](http" not in each.value for each in [*app.markdown, *app.caption])
