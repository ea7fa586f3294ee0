import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from conductor_core.records.evaluation import EvaluationRecord, Present
from pages.components.evaluation_charts import pareto, steps_by_difficulty
from pages.components.outcomes import Pair, Which, pairs
from pages.components.standing_rows import difference_html, head_html, heat_html, row_html
from pages.components.standings import frontier, standings, to_csv, to_markdown
from tests.support.records import evaluation_plan, outcomes, summary

PLAN = evaluation_plan("e", ("conductor", "single:reasoner", "moa", "random"), 60)
FOUND = tuple(outcomes(PLAN))
DONE = EvaluationRecord(Path("e"), PLAN, FOUND, summary(PLAN, FOUND))
GOING = EvaluationRecord(Path("e"), PLAN, FOUND[:90], None)
ROWS = standings(DONE)


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
    assert [row.conductor_tokens for row in rows] == [120.0, 0.0, 0.0, 0.0]


def test_a_difference_so_far_is_over_the_tasks_that_both_have_done() -> None:
    """The first orchestrator is one task ahead: that task does not count against the others."""
    moa = next(row for row in standings(GOING) if row.orchestrator == "moa")
    theirs = {each.task_id: each.score for each in GOING.outcomes if each.orchestrator == "conductor"}
    own = [each for each in GOING.outcomes if each.orchestrator == "moa"]
    assert moa.difference == pytest.approx(sum(each.score - theirs[each.task_id] for each in own) / 22)


def test_a_score_that_may_be_nothing_has_its_whisker_down_to_nothing() -> None:
    row = replace(ROWS[0], score=0.25, score_low=0.0, score_high=0.5)
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
    assert all(a.tokens < b.tokens and a.score < b.score for a, b in pairwise(front))
    for row in ROWS:
        assert row in front or any(each.tokens <= row.tokens and each.score >= row.score for each in front)


def test_the_tables_to_take_away_hold_every_row() -> None:
    table = list(csv.DictReader(to_csv(ROWS).splitlines()))
    assert [row["orchestrator"] for row in table] == list(PLAN.orchestrators)
    assert float(table[0]["score"]) == ROWS[0].score
    assert float(table[2]["difficulty:hard"]) == ROWS[2].by_difficulty["hard"]
    assert float(table[0]["worker_tokens_per_task"]) == ROWS[0].tokens
    assert [float(row["conductor_tokens_per_task"]) for row in table] == [120.0, 0.0, 0.0, 0.0]
    assert to_markdown(ROWS).count("\n") == 6
    assert f"| {ROWS[0].tokens:,.0f} | 120 | 0.0000 |" in to_markdown(ROWS)
    assert f"| {100 * ROWS[0].score:.1f} [" in to_markdown(ROWS)


def test_names_cannot_break_a_table_or_a_page() -> None:
    hostile = replace(ROWS[0], orchestrator="<script>x</script>|@ink")
    assert "<script>" not in heat_html([hostile])
    assert "\\|@ink" in to_markdown([hostile])
    assert pareto([hostile])["labels"][0]["name"] == "‹script›x‹/script›|＠ink"
    assert steps_by_difficulty([hostile])["layout"]["yaxis"]["ticktext"] == ["‹script›x‹/script›|＠ink"]


def test_a_row_says_its_score_with_interval_and_that_nothing_was_paid() -> None:
    row = row_html(ROWS[0], chosen=False, simulated=True)
    assert f'>{ROWS[0].tokens:,.0f}</span><span class="number">120</span>' in row
    assert "Worker<br>tokens" in head_html()
    assert "Conductor<br>tokens" in head_html()
    assert f"<b>{100 * ROWS[0].score:.1f} %</b>" in row
    assert 'class="whisker"' in row
    assert ">simulated<" in row
    assert 'class="whisker"' not in row_html(standings(GOING)[0], chosen=False, simulated=False)


def test_a_difference_that_was_not_shown_says_so() -> None:
    clear = replace(ROWS[1], difference=-0.3, difference_low=-0.4, difference_high=-0.2)
    unclear = replace(ROWS[1], difference=0.01, difference_low=-0.02, difference_high=0.04)
    assert "−30.0" in difference_html(clear)
    assert "≈" not in difference_html(clear)
    assert "≈ +1.0" in difference_html(unclear)


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
