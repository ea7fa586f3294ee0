import csv
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from conductor_core.lab.evaluation.report import summarise
from conductor_core.lab.records.evaluation import EvaluationRecord, Outcome, Present
from pages.components.evaluation.standings import (
    NO_INTERVAL,
    Pair,
    Standing,
    Which,
    difficulties,
    frontier,
    heat_html,
    pairs,
    pareto,
    row_html,
    standings,
    steps_by_difficulty,
    to_csv,
    to_markdown,
)
from pages.components.style.figures import legend
from pages.components.style.formats import html
from tests.support.evaluations import plan, row
from tests.support.records import evaluation_plan, outcomes, summary

PLAN = evaluation_plan("e", ("conductor", "single:reasoner", "moa", "random"), 60)
FOUND = tuple(outcomes(PLAN))
DONE = EvaluationRecord(Path("e"), PLAN, FOUND, summary(PLAN, FOUND))
GOING = EvaluationRecord(Path("e"), PLAN, FOUND[:90], None)
ROWS = standings(DONE)


def table_head_html(first: str) -> str:
    return html("evaluation/evaluation", "table_head", first=first)


def changed(row: Standing, **fields: Any) -> Standing:
    return row.model_copy(update=fields)


def test_a_finished_evaluation_shows_its_summary() -> None:
    assert DONE.summary is not None
    assert [row.score_high for row in ROWS] == [result.score_high for result in DONE.summary.results]


def test_one_that_goes_on_shows_what_there_is_without_intervals() -> None:
    rows = standings(GOING)
    assert [(row.orchestrator, row.n) for row in rows] == [
        ("conductor", 23), ("single:reasoner", 23), ("moa", 22), ("random", 22),
    ]  # fmt: skip
    assert {row.score_low for row in rows} == {None}
    own = [each.score for each in GOING.outcomes if each.orchestrator == "conductor"]
    assert rows[0].score == pytest.approx(sum(own) / len(own))
    assert rows[0].difference is None
    assert [row.conductor_tokens_per_task for row in rows] == [120.0, 0.0, 0.0, 0.0]


def test_a_difference_so_far_is_over_the_tasks_that_both_have_done() -> None:
    """The first orchestrator is one task ahead: that task does not count against the others."""
    moa = next(row for row in standings(GOING) if row.orchestrator == "moa")
    theirs = {each.task_id: each.score for each in GOING.outcomes if each.orchestrator == "conductor"}
    own = [each for each in GOING.outcomes if each.orchestrator == "moa"]
    assert moa.difference == pytest.approx(sum(each.score - theirs[each.task_id] for each in own) / 22)


def test_a_score_that_may_be_nothing_has_its_whisker_down_to_nothing() -> None:
    row = changed(ROWS[0], score=0.25, score_low=0.0, score_high=0.5)
    (marks,) = [each for each in pareto([row])["data"] if each["mode"] == "markers"]
    assert marks["error_y"]["arrayminus"] == [25.0]
    assert pareto([row])["layout"]["yaxis"]["range"][0] == 0


def test_the_best_present_worker_stands_last_and_has_no_runs_of_its_own() -> None:
    assert DONE.summary is not None
    best = DONE.summary.results[1].model_copy(update={"orchestrator": "best present worker"})
    part = DONE.summary.model_copy(update={"present": Present(k=3, best_present=best, subsets=())})
    rows = standings(EvaluationRecord(Path("e"), PLAN, FOUND, part))
    assert [row.computed for row in rows] == [False, False, False, False, True]
    assert rows[-1].orchestrator == "best present worker"


def test_nobody_on_the_frontier_is_beaten_with_as_few_tokens() -> None:
    front = frontier(ROWS)
    assert all(a.tokens_per_task < b.tokens_per_task and a.score < b.score for a, b in pairwise(front))
    for each in ROWS:
        assert each in front or any(
            one.tokens_per_task <= each.tokens_per_task and one.score >= each.score for one in front
        )


def test_the_tables_to_take_away_hold_every_row() -> None:
    table = list(csv.DictReader(to_csv(ROWS, PLAN).splitlines()))
    assert [row["orchestrator"] for row in table] == list(PLAN.orchestrators)
    assert float(table[0]["score"]) == ROWS[0].score
    assert float(table[2]["difficulty:hard"]) == ROWS[2].by_difficulty["hard"]
    assert float(table[0]["worker_tokens_per_task"]) == ROWS[0].tokens_per_task
    assert [float(row["conductor_tokens_per_task"]) for row in table] == [120.0, 0.0, 0.0, 0.0]
    written = to_markdown(ROWS, PLAN)
    assert written.count("\n| ") == len(ROWS) + 1
    assert f"| {ROWS[0].tokens_per_task:,.0f} | 120 | simulated |" in written
    assert f"| conductor | 60 | {100 * ROWS[0].score:.1f} [" in written


def test_the_tables_to_take_away_say_what_they_are_of() -> None:
    """Also where the orchestrator that the others are compared with is not among the rows."""
    written = to_markdown(ROWS[1:], PLAN)
    assert written.startswith(
        "e: rehearsal, test split, 60 tasks, pool rehearsal, seed 0; workers are simulated.\n\n| orchestrator |"
    )
    assert "| difference to conductor [95 %] |" in written
    assert written.endswith("Simulated workers answer at once: these seconds are this program's own.\n")
    (first, *_) = csv.DictReader(to_csv(ROWS[1:], PLAN).splitlines())
    assert [first[name] for name in ("compared_with", "suite", "split", "pool", "simulated")] == [
        "conductor", "rehearsal", "test", "rehearsal", "workers",
    ]  # fmt: skip
    paid = PLAN.model_copy(update={"simulated": False})
    assert "simulated" not in to_markdown([changed(ROWS[0], usd_per_task=0.0)], paid)


@pytest.mark.parametrize("name", ['=HYPERLINK("http://a.b")', "+1+1", "-2", "@SUM(1)", "\t=1"])
def test_a_name_is_no_formula_of_a_spreadsheet(name: str) -> None:
    plan = PLAN.model_copy(update={"suite": name})
    (first, *_) = csv.DictReader(to_csv([changed(ROWS[0], orchestrator=name)], plan).splitlines())
    assert (first["orchestrator"], first["suite"]) == (f"'{name}", f"'{name}")


def test_a_name_is_no_image_or_tag_in_the_written_table() -> None:
    hostile = changed(ROWS[0], orchestrator="![x](http://a.b/c.png) <img src=x> `c`")
    assert "| !\\[x\\](http://a.b/c.png) \\<img src=x> \\`c\\` |" in to_markdown([hostile], PLAN)


def test_names_cannot_break_a_table_or_a_page() -> None:
    hostile = changed(ROWS[0], orchestrator="<script>x</script>|@ink")
    assert "<script>" not in heat_html([hostile])
    assert "\\|@ink" in to_markdown([hostile], PLAN)
    assert pareto([hostile])["labels"][0]["name"] == "‹script›x‹/script›|＠ink"
    assert steps_by_difficulty([hostile])["layout"]["yaxis"]["ticktext"] == ["‹script›x‹/script›|＠ink"]


def test_a_row_says_its_score_with_interval_and_that_nothing_was_paid() -> None:
    row = row_html(ROWS[0], chosen=False, simulated=True)
    assert f'>{ROWS[0].tokens_per_task:,.0f}</span><span class="number">120</span>' in row
    assert "Worker<br>tokens" in table_head_html("moa")
    assert "Conductor<br>tokens" in table_head_html("moa")
    assert f"<b>{100 * ROWS[0].score:.1f} %</b>" in row
    assert 'class="whisker"' in row
    assert ">simulated<" in row
    assert 'class="whisker"' not in row_html(standings(GOING)[0], chosen=False, simulated=False)


def test_a_difference_that_was_not_shown_says_so() -> None:
    clear = changed(ROWS[1], difference=-0.3, difference_low=-0.4, difference_high=-0.2)
    unclear = changed(ROWS[1], difference=0.01, difference_low=-0.02, difference_high=0.04)
    assert "−30.0" in row_html(clear, chosen=False, simulated=False)
    assert "≈" not in row_html(clear, chosen=False, simulated=False)
    assert "≈ +1.0" in row_html(unclear, chosen=False, simulated=False)


def test_the_head_names_what_the_differences_are_to() -> None:
    assert ">Against moa</span>" in table_head_html("moa")
    assert "<script>" not in table_head_html("<script>x</script>")


def test_what_was_paid_is_said_also_where_workers_are_called_simulated() -> None:
    """Records from before a mixed pool was told apart."""
    assert ">0.0123</span>" in row_html(changed(ROWS[0], usd_per_task=0.0123), chosen=False, simulated=True)
    assert ">unknown</span>" in row_html(changed(ROWS[0], usd_per_task=None), chosen=False, simulated=True)
    part = changed(ROWS[0], usd_per_task=None, known_usd_per_task=0.0123)
    assert ">at least 0.0123</span>" in row_html(part, chosen=False, simulated=False)
    assert ">0.0000</span>" in row_html(ROWS[0], chosen=False, simulated=False)


def test_the_latency_of_simulated_workers_is_not_taken_for_theirs() -> None:
    row = changed(ROWS[0], latency_ms_per_task=5700)
    muted = (
        '<span class="muted" title="Simulated workers answer at once: these seconds are this program&#39;s own.">5.7 s'
    )
    assert muted in row_html(row, chosen=False, simulated=True)
    assert ">5.7 s<" in row_html(row, chosen=False, simulated=False)
    assert muted not in row_html(row, chosen=False, simulated=False)


def test_one_task_or_identical_outcomes_have_no_interval() -> None:
    told = [
        row("first"), row("second", score=0.0), row("third"),
        row("first", "task-1", score=0.0), row("second", "task-1"), row("third", "task-1"),
    ]  # fmt: skip
    made = plan("first", "second", "third")
    one, two = (summarise(made, told[:3]), summarise(made, told))
    alone = standings(EvaluationRecord(Path("e"), made, tuple(told[:3]), one))
    assert {(each.score_low, each.score_high, each.difference_low, each.difference_high) for each in alone} == {
        (None, None, None, None)
    }
    assert alone[1].difference == -1
    shown = row_html(alone[1], chosen=False, simulated=False)
    assert f'title="{NO_INTERVAL}">—</span>' in shown
    assert f'title="{NO_INTERVAL}">−100.0</span>' in shown
    assert "[" not in shown
    assert "0.0 [" not in to_markdown(alone, made)
    first, _, third = standings(EvaluationRecord(Path("e"), made, tuple(told), two))
    assert (first.score_low, first.score_high) == (0, 1)
    assert (third.score_low, third.difference_low, third.difference_high) == (None, 0, 1)
    (marks,) = [each for each in pareto([first, third])["data"] if each["mode"] == "markers"]
    assert marks["error_y"]["arrayminus"] == [50.0, 0.0], "the others keep their whiskers"


def of_difficulty(*names: str) -> list[Outcome]:
    return [row("first", f"task-{number}", difficulty=name) for number, name in enumerate(names)]


@pytest.mark.parametrize("done", [True, False])
def test_a_suite_without_difficulties_has_scores_by_family_only(done: bool) -> None:
    told = of_difficulty("", "")
    figures = summarise(plan(), told) if done else None
    rows = standings(EvaluationRecord(Path("e"), plan(), tuple(told), figures))
    assert difficulties(rows) == []
    assert "difficulty" not in heat_html(rows)
    assert '<th class="first" colspan="1">by family</th>' in heat_html(rows)


def test_a_difficulty_has_its_mark_by_its_name() -> None:
    told = of_difficulty("hard", "level 4", "level 2")
    rows = standings(EvaluationRecord(Path("e"), plan(), tuple(told), summarise(plan(), told)))
    drawn = [each["marker"]["symbol"] for each in steps_by_difficulty(rows)["data"] if each["mode"] == "markers"]
    assert drawn == ["square", "triangle-up-open", "triangle-down-open"]
    assert legend(difficulties(rows)) == "■ hard, △ level 2, ▽ level 4"
    assert legend(("easy", "medium", "hard")) == "○ easy, ◇ medium, ■ hard"


def test_tasks_are_compared_only_where_both_have_done_them() -> None:
    both = pairs(GOING, "conductor", "moa")
    assert len(pairs(GOING, "conductor", None)) == 23
    assert len(both) == 22
    assert all(pair.other is not None and pair.own.task_id == pair.other.task_id for pair in both)


@pytest.mark.parametrize(
    ("own", "other", "under"),
    [(1, 0, {"mine", "right"}), (0, 1, {"theirs", "wrong"}), (1, 1, {"both", "right"}), (0, 0, {"neither", "wrong"})],
)
def test_a_pair_falls_under_what_both_made_of_the_task(own: float, other: float, under: set[str]) -> None:
    pair = Pair(FOUND[0].model_copy(update={"score": own}), FOUND[1].model_copy(update={"score": other}))
    everything: tuple[Which, ...] = ("all", "wrong", "right", "mine", "theirs", "both", "neither")
    assert {which for which in everything if pair.falls_under(which)} == under | {"all"}
