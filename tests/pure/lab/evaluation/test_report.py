"""Figures by hand."""

from pathlib import Path
from typing import Any

import pytest

from conductor_core.lab.evaluation import report
from conductor_core.lab.records.evaluation import LearnedFrom, Outcome, append, read_record
from tests.support.evaluations import plan, row

FOUR = (
    ("task-0", "easy", "sums"), ("task-1", "easy", "words"), ("task-2", "hard", "sums"), ("task-3", "hard", "words"),
)  # fmt: skip


def rows(name: str, *scores: float, **fields: Any) -> list[Outcome]:
    return [
        row(name, task_id, difficulty=difficulty, family=family, score=score, **fields)
        for (task_id, difficulty, family), score in zip(FOUR, scores, strict=True)
    ]


def test_a_row_by_hand() -> None:
    outcomes = rows("first", 1, 0, 1, 1, tokens=8, steps=2, duration_ms=50.0)
    outcomes[2] = outcomes[2].model_copy(update={"tokens": 16, "steps": 4, "rounds": 2, "conductor_tokens": 4})
    figures = report.result("first", outcomes)
    assert (figures.n, figures.score, figures.tokens_per_task, figures.steps_per_task) == (4, 0.75, 10.0, 2.5)
    assert (figures.usd_per_task, figures.latency_ms_per_task) == (0.5, 50.0)
    assert (figures.conductor_tokens_per_task, figures.difference) == (1.0, None)
    assert figures.by_difficulty == {"easy": 0.5, "hard": 1.0}
    assert figures.by_family == {"sums": 1.0, "words": 0.5}
    assert figures.steps_by_difficulty == {"easy": 2.0, "hard": 3.0}
    assert figures.rounds_by_difficulty == {"easy": 1.0, "hard": 1.5}
    assert figures.score_low <= 0.75 <= figures.score_high


def test_an_unknown_price_is_not_taken_for_nothing() -> None:
    outcomes = [*rows("first", 1, 1, 1, 1), row("first", "task-4", cost_usd=None)]
    found = report.result("first", outcomes)
    assert found.usd_per_task is None
    assert found.known_usd_per_task == pytest.approx(0.4), "four of five cost 0.5"
    half = [*outcomes[:4], row("first", "task-4", cost_usd=None, known_usd=0.25)]
    assert report.result("first", half).known_usd_per_task == pytest.approx(0.45)


def test_differences_are_with_the_first_orchestrator_on_shared_tasks() -> None:
    first, second = rows("first", 1, 1, 1, 0), rows("second", 0, 1, 0, 0)[:3]
    summary = report.summarise(plan("first", "second", "third"), [*second, *first])
    assert [each.orchestrator for each in summary.results] == ["first", "second"]
    assert summary.results[0].difference is None
    assert summary.results[1].difference == pytest.approx(-2 / 3)
    assert summary.n == 0, "no task was answered by all three"
    assert report.summarise(plan("first", "second"), [*second, *first]).n == 3


def test_differences_by_difficulty() -> None:
    first, second = rows("first", 1, 1, 0, 0), rows("second", 1, 1, 1, 1, stops=1)
    figures = report.result("second", second, first)
    assert figures.difference_by_difficulty == {"easy": (0.0, 0.0, 0.0), "hard": (1.0, 1.0, 1.0)}
    assert figures.stops_by_difficulty == {"easy": 1.0, "hard": 1.0}
    assert report.result("first", first, first).difference_by_difficulty == {}
    summary = report.summarise(plan("first", "second"), [*first, *second])
    text = report.markdown(plan("first", "second"), summary)
    assert "| second | +0.0 | +100.0 |" in text, "identical differences have no interval"


def test_several_conductors_are_taken_together() -> None:
    names = ("conductor:one", "conductor:two", "conductor:three", "recursion:one")
    outcomes = [*rows(names[0], 1, 1, 1, 0), *rows(names[1], 1, 1, 0, 0), *rows(names[2], 1, 0, 0, 0)]
    summary = report.summarise(plan(*names), [*outcomes, *rows(names[3], 1, 1, 1, 1)])
    (spread,) = summary.spreads
    assert (spread.kind, spread.orchestrators) == ("conductor", names[:3])
    assert (spread.score, spread.score_sd, spread.score_min, spread.score_max) == (0.5, 0.25, 0.25, 0.75)
    text = report.markdown(plan(*names), summary)
    assert "conductor, 3 of them: mean 50.0, standard deviation 25.0, from 25.0 to 75.0; " in text
    assert "1.00 steps and 10 worker tokens a task." in text


def test_faults_and_plans_that_named_an_absent_worker_are_counted() -> None:
    outcomes = [row(fault="PlanRejected: none", score=0.0, rejected_plans=2, absent_named=1), row(task_id="task-1")]
    figures = report.result("first", outcomes)
    assert (figures.faults, figures.rejected_plans, figures.absent_named) == (1, 2, 1)


def test_the_best_present_worker_is_the_best_of_all_tasks() -> None:
    """beta is the better one (3 of 4 against 2): it is taken wherever it is there, even where alpha did better."""
    alpha, beta = rows("single:alpha", 1, 1, 0, 0), rows("single:beta", 0, 1, 1, 1)
    gamma = rows("single:gamma", 0, 0, 0, 0)
    parts = [("alpha", "beta"), ("alpha", "gamma"), ("alpha", "beta"), ("beta", "gamma")]
    asked = [
        each.model_copy(update={"present": part})
        for each, part in zip(rows("conductor", 1, 1, 0, 1), parts, strict=True)
    ]
    names = ("conductor", "single:alpha", "single:beta", "single:gamma")
    summary = report.summarise(plan(*names), [*asked, *alpha, *beta, *gamma])
    present = summary.present
    assert present is not None
    assert present.k == 2
    assert [(each.present, each.n, each.best_worker, each.best_score, each.scores) for each in present.subsets] == [
        (("alpha", "beta"), 2, "beta", 0.5, {"conductor": 0.5}),
        (("alpha", "gamma"), 1, "alpha", 1.0, {"conductor": 1.0}),
        (("beta", "gamma"), 1, "beta", 1.0, {"conductor": 1.0}),
    ]
    assert (present.best_present.n, present.best_present.score, present.best_present.difference) == (4, 0.75, 0.0)
    assert "| 2 present |" in report.markdown(plan(*names), summary)
    without_gamma = report.summarise(plan(*names[:3]), [*asked, *alpha, *beta])
    assert without_gamma.present is None, "who was not asked alone cannot be compared with"


def test_tables_are_markdown_in_points() -> None:
    plan_ = plan("first", "second", simulated=True, settings={"simulated": ["workers", "tasks"]})
    summary = report.summarise(
        plan_, [*rows("first", 1, 1, 1, 0), *rows("second", 0, 1, 0, 0, cost_usd=None, conductor_tokens=7)]
    )
    text = report.markdown(plan_, summary)
    assert "workers and tasks are simulated" in text
    lines = text.splitlines()
    assert (
        lines[2]
        == "| orchestrator | score | 95 % | difference | steps | worker tokens | Conductor tokens | USD | seconds |"
    )
    assert lines[4].startswith("| first | 75.0 | ")
    assert lines[5].startswith("| second | 25.0 | ")
    assert "| -50.0 (" in lines[5]
    assert lines[5].endswith("| 1.00 | 10 | 7 | unknown | 0.10 |")
    assert "| difficulty | easy | hard |" in lines
    assert "| first | 100.0 | 50.0 |" in lines
    assert "rounds by difficulty" not in text


def test_one_task_has_no_interval() -> None:
    plan_ = plan("first", "second")
    told = [row("first"), row("second", score=0.0)]
    text = report.markdown(plan_, report.summarise(plan_, told))
    assert "| first | 100.0 | — |  | " in text
    assert "| second | 0.0 | — | -100.0 | " in text
    assert "—: too few or identical outcomes for an interval." in text
    more = [*told, row("first", "task-1", score=0.0), row("second", "task-1")]
    text = report.markdown(plan_, report.summarise(plan_, more))
    assert "| second | 50.0 | 0.0 to 100.0 | +0.0 (-100.0 to +100.0) | " in text
    assert "—" not in text


def test_a_group_that_one_has_no_outcome_of_leaves_a_gap() -> None:
    summary = report.summarise(plan("first", "second"), [*rows("first", 1, 1, 1, 0), *rows("second", 1, 1, 1, 1)[2:]])
    assert "| second |  | 100.0 |" in report.markdown(plan("first", "second"), summary)


def test_the_summary_can_be_read_again(tmp_path: Path) -> None:
    plan_, outcomes = plan("first"), rows("first", 1, 0, 1, 0)
    (tmp_path / "plan.json").write_text(plan_.model_dump_json())
    append(tmp_path, *outcomes)
    summary = report.summarise(plan_, outcomes)
    report.write_summary(tmp_path, summary)
    record = read_record(tmp_path)
    assert (record.summary, record.outcomes) == (summary, tuple(outcomes))


def test_a_task_counts_once_for_each_orchestrator(tmp_path: Path) -> None:
    """As after two processes have carried out the same runs, each with a luck of its own."""
    first, second = rows("first", 1, 1, 1, 1), rows("second", 0, 1, 0, 0)
    again = [each.model_copy(update={"score": 1.0, "run_id": "again"}) for each in second[:2]]
    plan_ = plan("first", "second")
    wanted = report.summarise(plan_, [*first, *second])
    assert wanted.n == 4
    assert report.summarise(plan_, [*first, *second, *again]) == wanted
    (tmp_path / "plan.json").write_text(plan_.model_dump_json())
    append(tmp_path, *first, *second, *again)
    assert read_record(tmp_path).outcomes == (*first, *second)


def test_the_tables_say_whose_answers_have_which_fault() -> None:
    first = rows("first", 1, 1, 1, 1)
    second = [
        each.model_copy(update={"fault": fault})
        for each, fault in zip(
            rows("second", 1, 0, 0, 0), (None, "WorkerFailed: b", "LimitReached: a: c", "WorkerFailed: a"), strict=True
        )
    ]
    told = "Counted as wrong for a fault: second 3 of 4 (LimitReached 1, WorkerFailed 2)."
    trial = plan("first", "second")
    assert told in report.markdown(trial, report.summarise(trial, [*first, *second]))
    assert "fault" not in report.markdown(plan("first"), report.summarise(plan("first"), first))


def test_the_budget_of_a_learned_router_stands_below_its_score() -> None:
    learned_from = {
        "router-dc": LearnedFrom(tasks=300, answers=2100),
        "mas-router": LearnedFrom(tasks=300, answers=2100, tried=22835, exact=True),
        "kind-table": LearnedFrom(tasks=4, answers=28, tried=60),
    }
    summary = report.summarise(plan("first"), rows("first", 1, 0, 1, 1), learned_from)
    assert (
        "Learned from: router-dc 300 tasks, 2,100 answers of single workers; "
        "mas-router 300 tasks, 2,100 answers of single workers, 22,835 workflows by exact chance; "
        "kind-table 4 tasks, 28 answers of single workers, 60 workflows by one run each."
    ) in report.markdown(plan("first"), summary)
    assert "Learned from" not in report.markdown(
        plan("first"), report.summarise(plan("first"), rows("first", 1, 0, 1, 1))
    )
