import os
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.lab.records import LOCK
from conductor_core.lab.records.training import RECORD, Ended, append
from pages.components.app.session import Session
from pages.components.records import folders as record_folders
from tests.support.holding import another_process
from tests.support.records import AGENTS, training_rows, write_training

Visit = Callable[..., AppTest]


@pytest.fixture(autouse=True)
def _nothing_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_folders, "SHIPPED", tmp_path / "shipped")


@pytest.fixture
def root(session: Session) -> Path:
    return session.settings.data_folder / "training"


def html(app: AppTest) -> str:
    return "".join(each.proto.body for each in app.get("html") if "<style" not in each.proto.body)


def figures(app: AppTest) -> list[str]:
    return [str(each.proto.component_name) for each in app.get("bidi_component")]


def test_without_a_record_it_says_which_command_trains_and_where_it_looks(visit: Visit, root: Path) -> None:
    app = visit("training")
    assert any("No training yet" in each.value for each in app.markdown)
    assert [each.value for each in app.code] == [f"conductor train tiny --out {root / 'tiny'}"]
    assert any(str(root) in each.value.replace("\\", "") for each in app.caption)


def test_a_finished_training_shows_where_it_has_come_to(visit: Visit, root: Path) -> None:
    write_training(root / "done", training_rows(1, cold_start=10, grpo=40, recursion=5))
    app = visit("training")
    page = html(app)
    for said in ("✓ done", "simulated workers", "seed 1", "x86-64, 2 threads", "40 iterations", "held-out accuracy"):
        assert said in page
    assert len(figures(app)) == 8
    assert f"<b>{AGENTS[2]}</b>" in page


def test_figures_of_the_head_are_means_and_difficulties_are_in_order(visit: Visit, root: Path) -> None:
    rows = training_rows(1, cold_start=0, grpo=40, recursion=0)
    write_training(root / "done", rows)
    page = html(visit("training"))
    steps = [row.steps for row in rows if row.kind == "iteration" and row.steps is not None]
    assert f"{sum(steps[-10:]) / 10:.2f}" in page
    assert f"{sum(steps[:10]) / 10:.2f} in the first 10" in page
    assert "easy / medium / hard" in page


def test_real_workers_are_not_called_simulated(visit: Visit, root: Path) -> None:
    write_training(root / "real", training_rows(1, cold_start=0, grpo=5, recursion=0, simulated=False))
    app = visit("training")
    assert "simulated" not in html(app) + "".join(each.value for each in app.caption)


def test_a_training_that_runs_shows_its_progress_and_what_is_left(visit: Visit, root: Path) -> None:
    rows = training_rows(1, cold_start=10, grpo=20, recursion=0, ended=False, planned={"cold_start": 10, "grpo": 120})
    folder = write_training(root / "live", rows)
    app = visit("training")
    assert "◔ training" in html(app)
    assert "20 of 120 · 56.0 s · about 5 min left" in html(app)
    append(folder, Ended(at="2026-11-21T10:00:00+00:00", seconds=60, model="m", sha256="0" * 64))
    app.run()
    assert "✓ done" in html(app)


def test_a_training_that_stopped_says_how_it_goes_on(visit: Visit, root: Path) -> None:
    write_training(root / "stopped", training_rows(1, cold_start=5, grpo=5, recursion=0, ended=False), age_s=7200)
    app = visit("training")
    assert "⚡ stopped" in html(app)
    assert "last written 2 h ago" in html(app)
    assert any("--resume" in each.value for each in app.caption)


def test_a_training_that_is_silent_runs_as_long_as_its_process_lives(visit: Visit, root: Path) -> None:
    """The stage that teaches rounds writes no row for minutes while it prepares."""
    rows = training_rows(1, cold_start=5, grpo=5, recursion=0, ended=False, planned={"cold_start": 5, "grpo": 9})
    folder = write_training(root / "silent", rows, age_s=7200)
    with another_process(folder):
        app = visit("training")
        assert "◔ training" in html(app)
        assert not any("--resume" in each.value for each in app.caption)
    app.run()
    assert "⚡ stopped" in html(app)
    assert any(each.value.startswith("It continues from its last checkpoint") for each in app.caption)
    (folder / LOCK).unlink()
    assert any("If its process has ended" in each.value for each in visit("training").caption)


def test_a_training_that_stopped_with_a_line_that_cannot_be_read_says_to_remove_it(visit: Visit, root: Path) -> None:
    rows = training_rows(1, cold_start=5, grpo=5, recursion=0, ended=False)
    folder = write_training(root / "stopped", rows, age_s=7200)
    lines = (folder / RECORD).read_text().splitlines()
    (folder / RECORD).write_text("\n".join([*lines[:3], "{", *lines[3:]]) + "\n")
    os.utime(folder / RECORD, (0, 0))
    app = visit("training")
    assert any("`--resume`, once each line that cannot be read is removed." in each.value for each in app.caption)


def test_without_its_first_row_a_training_says_what_is_unknown_and_draws_no_full_bar(visit: Visit, root: Path) -> None:
    _, *rows = training_rows(1, cold_start=5, grpo=5, recursion=0, ended=False)
    write_training(root / "stopped", rows, age_s=7200)
    app = visit("training")
    said = [each.value for each in app.caption]
    assert any("whether the workers were simulated is unknown" in each for each in said)
    assert "It cannot be resumed: its first row is missing." in said
    assert html(app).count('class="track"') == 1, "of the cold start alone, after which another stage began"
    assert "⚡ GRPO" in html(app)


def test_labels_name_the_split_and_what_the_grammar_holds(visit: Visit, root: Path) -> None:
    first, *rest = training_rows(1, cold_start=0, grpo=40, recursion=0)
    held = first.model_copy(update={"config": {"grpo": {"constrained": True}}}) if first.kind == "started" else first
    write_training(root / "held", [held, *rest])
    app = visit("training")
    page = html(app)
    assert "at first · test split" in page
    assert "in the first 10 · held by the grammar" in page
    assert "parses and breaks no rule; held by the grammar." in page
    assert ": held out, test split." in page
    assert any(each.value.startswith("running mean of 3 points,") for each in app.caption)


def test_rollouts_that_no_grammar_holds_are_not_said_to_be(visit: Visit, root: Path) -> None:
    write_training(root / "free", training_rows(1, cold_start=0, grpo=40, recursion=0))
    assert "held by the grammar" not in html(visit("training"))


def test_figures_that_are_no_numbers_are_told_and_the_rest_is_drawn(visit: Visit, root: Path) -> None:
    folder = write_training(root / "odd", training_rows(1, cold_start=0, grpo=8, recursion=0, ended=False))
    with (folder / RECORD).open("a") as file:
        file.write('{"kind":"iteration","stage":"grpo","iteration":9,"seconds":NaN,"reward":0.5}\n')
        file.write('{"kind":"taught","stage":"recursion","rounds":0,"planned":0,"seconds":1,"loss":1}\n')
    app = visit("training")
    (error,) = app.error
    assert "iteration.seconds: Input should be a finite number (1 more after it)" in error.value.replace("\\", "")
    assert len(figures(app)) == 8


def test_a_stage_that_no_plan_names_is_not_done_while_it_goes_on(visit: Visit, root: Path) -> None:
    """Records of older versions, gone on with after --stop-after."""
    rows = training_rows(1, cold_start=10, grpo=20, recursion=0, ended=False, planned={"cold_start": 10})
    folder = write_training(root / "live", rows)
    app = visit("training")
    assert "✓ Cold start" in html(app)
    assert "◔ GRPO" in html(app)
    append(folder, Ended(at="2026-11-21T10:00:00+00:00", seconds=60, model="m", sha256="0" * 64))
    app.run()
    assert "✓ GRPO" in html(app)


def test_one_that_has_just_begun_says_so(visit: Visit, root: Path) -> None:
    write_training(root / "new", training_rows(1, cold_start=0, grpo=0, recursion=0, ended=False))
    app = visit("training")
    assert not app.info
    (coming,) = app.get("progress")
    assert "The first iteration is under way" in coming.proto.text
    assert figures(app) == []


def test_another_record_can_be_chosen_and_the_last_begun_comes_first(visit: Visit, root: Path) -> None:
    first, *rest = training_rows(2, cold_start=0, grpo=5, recursion=0)
    write_training(root / "older", [first.model_copy(update={"at": "2026-01-01T00:00:00+00:00"}), *rest])
    write_training(root / "newer", training_rows(1, cold_start=0, grpo=5, recursion=0))
    app = visit("training")
    assert "seed 1" in html(app)
    choice = app.selectbox(f"training:{root / 'newer'}")
    choice.set_value(str(root / "older")).run()
    assert "seed 2" in html(app)


def test_a_broken_line_is_one_error_and_the_rest_is_drawn(visit: Visit, root: Path) -> None:
    folder = write_training(root / "broken", training_rows(1, cold_start=0, grpo=8, recursion=0))
    lines = (folder / RECORD).read_text().splitlines()
    (folder / RECORD).write_text("\n".join([*lines[:3], '{"kind": <b>', *lines[3:]]) + "\n")
    app = visit("training")
    (error,) = app.error
    assert f"{folder / RECORD}, line 4, is not a valid row of a training record" in error.value.replace("\\", "")
    assert len(figures(app)) == 8


def test_only_the_chosen_stages_are_drawn_and_smoothing_can_be_taken_away(visit: Visit, root: Path) -> None:
    write_training(root / "done", training_rows(1, cold_start=10, grpo=40, recursion=5))
    app = visit("training")
    stages = app.segmented_control("training-stages-3")
    assert stages.value == ["grpo", "recursion"]
    stages.set_value(["cold_start"]).run()
    assert len(figures(app)) == 2
    app.toggle("training-smooth").set_value(False).run()
    assert any(each.value == "as recorded" for each in app.caption)


def test_workflows_stand_early_beside_late_for_the_same_task(visit: Visit, root: Path) -> None:
    write_training(root / "done", training_rows(1, cold_start=0, grpo=41, recursion=0))
    app = visit("training")
    assert "no valid plan" in html(app), "what changed most is shown first"
    tasks = app.selectbox("sample-group-3")
    tasks.select(tasks.options[1]).run()
    page = html(app)
    assert "Answer this:" in page
    assert "Reason it out independently" in page
    assert all(f"<b>{agent}</b>" in page for agent in (AGENTS[0], AGENTS[5]))
    assert '<pre class="written" dir="auto">one worker answers' in page
    tasks = app.selectbox("sample-group-3")
    code = next(each for each in tasks.options if "Python function" in each)
    tasks.select(code).run()
    assert "Work out the numbers" in html(app)


def test_what_a_record_holds_is_shown_and_does_nothing(visit: Visit, root: Path) -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)> ![x](http://example.com/x.png)"
    rows = training_rows(1, cold_start=0, grpo=2, recursion=0)
    other = {"task": hostile, "completion": hostile}
    changed = [row.model_copy(update=other) if row.kind == "sample" else row for row in rows]
    changed[0] = changed[0].model_copy(update={"name": hostile, "machine": hostile})
    write_training(root / "hostile", changed)
    app = visit("training")
    assert "<script" not in html(app)
    assert "<img src=x" not in html(app)
    assert "&lt;script&gt;alert(1)" in html(app)
    assert all("](http" not in each.value for each in [*app.markdown, *app.caption])
