"""What stands beside and below the table of an evaluation."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from conductor_core.lab.evaluation.report import summarise
from conductor_core.lab.records.evaluation import EvaluationPlan, EvaluationRecord, PresentSubset, Spread, read_record
from pages.components.evaluation.standings import (
    command,
    head_html,
    meaning,
    missing_settings,
    rounds,
    rounds_html,
    standings,
    workers_simulated,
)
from pages.components.records.folders import record_folders
from pages.components.style.formats import html
from tests.support.evaluations import plan, row
from tests.support.records import evaluation_plan, outcomes, seeds_and_parts, summary

HOSTILE = "<script>x</script>"
PLAN, FOUND = seeds_and_parts(70)
RECORD = EvaluationRecord(Path("seeds"), PLAN, tuple(FOUND), summarise(PLAN, FOUND))


def record(plan: EvaluationPlan) -> EvaluationRecord:
    return EvaluationRecord(Path("e"), plan, (), None)


def spreads_html(spreads: Sequence[Spread]) -> str:
    return html("evaluation/evaluation", "spreads", found=spreads)


def shipped() -> EvaluationRecord:
    (found,) = record_folders("evaluations", Path("nothing-here"))
    return read_record(found.folder)


def test_rounds_are_of_all_tasks_of_a_difficulty_and_a_task_without_a_plan_has_none() -> None:
    """As a summary's mean, the first task's 0 rounds would make up for the second's 2."""
    told = [
        row("recursion", "task-0", rounds=0, score=0.0, fault="PlanRejected: none"),
        row("recursion", "task-1", rounds=2),
        row("recursion", "task-2", stops=1),
        row("recursion", "task-3"),
        row("recursion", "task-4", difficulty="hard", rounds=3),
        row("moa", "task-0"),
    ]
    made = plan("recursion", "moa")
    record = EvaluationRecord(Path("e"), made, tuple(told), summarise(made, told))
    (found,) = rounds(record, standings(record))
    assert found.orchestrator == "recursion"
    assert (found.opened, found.stopped) == ({"easy": 0.25, "hard": 1.0}, {"easy": 0.25, "hard": 0.0})
    assert rounds_html([found], standings(record)).count(">25</td>") == 2


def test_rounds_of_a_suite_without_difficulties_are_of_all_tasks() -> None:
    told = [row("recursion", "task-0", difficulty="", rounds=2), row("recursion", "task-1", difficulty="", stops=1)]
    made = plan("recursion")
    record = EvaluationRecord(Path("e"), made, tuple(told), summarise(made, told))
    table = rounds_html(rounds(record, standings(record)), standings(record))
    assert table.count('<th class="first">all</th>') == 2
    assert 'colspan="0"' not in table
    assert table.count(">50</td>") == 2


def test_the_shipped_rounds_are_those_of_its_summary() -> None:
    record = shipped()
    assert record.summary is not None
    (found,) = rounds(record, standings(record))
    told = next(each for each in record.summary.results if each.orchestrator == "recursion")
    assert {name: 1 + share for name, share in found.opened.items()} == pytest.approx(dict(told.rounds_by_difficulty))
    assert found.stopped == pytest.approx(dict(told.stops_by_difficulty))


def test_what_a_record_does_not_have_leaves_nothing() -> None:
    made = evaluation_plan("e", ("conductor", "moa"), 12)
    found = tuple(outcomes(made))
    old = EvaluationRecord(Path("e"), made, found, summary(made, found))
    assert old.summary is not None
    assert (rounds(old, standings(old)), rounds_html([], standings(old)), spreads_html(old.summary.spreads)) == (
        [], "", "",
    )  # fmt: skip
    assert "Conductors" not in head_html(old, "ended", "")


def test_several_conductors_have_a_line() -> None:
    assert RECORD.summary is not None
    (spread,) = RECORD.summary.spreads
    line = spreads_html([spread])
    assert f"<b>conductor</b> over 2 Conductors: mean {100 * spread.score:.1f} %" in line
    assert f"standard deviation {100 * spread.score_sd:.1f}," in line
    assert "worker tokens a task" in line
    assert HOSTILE not in spreads_html([spread.model_copy(update={"kind": HOSTILE, "orchestrators": (HOSTILE,)})])


def test_each_part_of_the_pool_has_a_line_where_bold_is_better_than_the_best_alone() -> None:
    assert RECORD.summary is not None
    present = RECORD.summary.present
    assert present is not None
    parts = (
        PresentSubset(present=("a", "b"), n=3, best_worker="b", best_score=0.5, scores={"conductor": 0.6, "moa": 0.5}),
        PresentSubset(present=("a", HOSTILE), n=2, best_worker=HOSTILE, best_score=0.25, scores={"moa": 0.0}),
    )
    table = html("evaluation/evaluation", "subsets", parts=parts, names=("conductor", "moa"))
    assert "<b>60.0</b>" in table
    assert "<b>50.0</b>" not in table
    assert '<td class="number">—</td><td class="number">0.0</td>' in table
    assert HOSTILE not in table
    whole = html("evaluation/evaluation", "subsets", parts=present.subsets, names=())
    assert whole.count('scope="row"') == 35


def test_the_head_says_which_conductors_they_were() -> None:
    head = head_html(RECORD, "ended", "")
    assert '<b>tiny</b><code title="sha256 d9abbc4d' in head
    assert ">d9abbc4dd9ab</code><span>conductor, recursion</span>" in head
    assert "<b>seeds/two</b>" in head
    assert ">c0f0e966c0f0</code><span>conductor</span>" in head
    assert ">c0f0e96672ca</code><span>untrained</span>" in head_html(shipped(), "ended", "")


@pytest.mark.parametrize(
    "settings", [{"conductors": 3, "models_sha256": [HOSTILE]}, {"conductors": {HOSTILE: HOSTILE}, "limits": HOSTILE}]
)
def test_settings_that_are_none_do_no_harm(settings: dict[str, object]) -> None:
    odd = plan("conductor", settings=settings)
    assert HOSTILE not in head_html(record(odd), "ended", "")
    assert command(odd).startswith("conductor evaluate")


def simulated(*parts: str, pool: str = "mixed") -> EvaluationPlan:
    return plan("moa", simulated=True, pool=pool, settings={"simulated": list(parts)})


@pytest.mark.parametrize(
    ("made", "pill", "says"),
    [
        (simulated("workers", "tasks"), ">simulated workers<", "The workers are simulated"),
        (simulated("some workers", "tasks"), ">some workers simulated<", "Some workers are simulated"),
        (simulated("tasks", pool="paper"), ">simulated tasks<", "the workers are real"),
        # Older plans do not say it, and settings may be anything.
        (plan("moa", simulated=True, pool="rehearsal"), ">simulated workers<", "The workers are simulated"),
        (plan("moa", simulated=True), ">simulated workers or tasks<", "does not say which"),
        (simulated(HOSTILE), ">simulated workers or tasks<", "does not say which"),
    ],
)
def test_real_workers_are_not_called_simulated(made: EvaluationPlan, pill: str, says: str) -> None:
    assert pill in head_html(record(made), "ended", "")
    assert says in meaning(made)
    alone = pill == ">simulated workers<"
    assert workers_simulated(made) == alone
    assert ("It asks the workers again, at their price." in missing_settings(made)) != alone


def test_where_nothing_is_simulated_nothing_says_so() -> None:
    assert (meaning(plan("moa")), "simulated" in head_html(record(plan("moa")), "ended", "")) == ("", False)


def options(plan: EvaluationPlan) -> dict[str, str]:
    words = shlex.split(command(plan))
    assert words[:2] == ["conductor", "evaluate"]
    return dict(zip(words[2::2], words[3::2], strict=True))


def test_the_command_for_the_shipped_evaluation_makes_its_plan_again() -> None:
    made = shipped().plan
    assert options(made) == {
        "--suite": "rehearsal", "--split": "test", "--limit": "300", "--seed": "0", "--pool": "rehearsal",
        "--orchestrators": ",".join(made.orchestrators), "--conductor": "tiny",
        "--untrained": "cold start of tiny-by-reward",
    }  # fmt: skip
    assert missing_settings(made) == [
        "The Conductor “cold start of tiny-by-reward” (sha256 c0f0e96672ca) is not on this machine: give its folder."
    ]


def test_a_command_takes_along_what_is_not_the_default(tmp_path: Path) -> None:
    made = PLAN.model_copy(update={"settings": {**PLAN.settings, "limits": {"max_steps": 7}}, "suite": "a; b"})
    given = options(made)
    assert (given["--present"], given["--max-steps"], given["--suite"]) == ("3", "7", "a; b")
    assert "--untrained" not in given
    alone = plan("conductor:seeds/two", "moa", settings={"conductors": {"conductor:seeds/two": "seeds/two"}})
    assert "--conductor" not in options(alone)
    assert missing_settings(alone) == [
        "If the suite sums is a file, give its path.",
        "The pool scripted is a file: give its path.",
        "It asks the workers again, at their price.",
    ]
    usual = {"max_steps": 5, "max_tokens": None, "max_usd": None, "max_seconds": 600.0, "max_depth": 1}
    asked = {
        "excluded": ["coder", "a b"],
        "fit_tasks": 900,
        "fit_suite": "gsm8k",
        "limits": usual | {"max_usd": 0.5, "max_seconds": None},
    }
    words = shlex.split(command(plan("moa", settings=asked)))
    assert words[-8:] == ["--fit-tasks", "900", "--fit-suite", "gsm8k", "--exclude", "coder", "--exclude", "a b"]
    assert "Its runs had other limits, which are settings: max_usd 0.5, max_seconds none." in missing_settings(
        plan("moa", settings=asked)
    )
    assert not any("limits" in said for said in missing_settings(plan("moa", settings={"limits": usual})))
    here = {"conductors": {"conductor": str(tmp_path)}, "models_sha256": {str(tmp_path): "0" * 64}}
    assert missing_settings(evaluation_plan("e", ("conductor",), 1).model_copy(update={"settings": here})) == []
    no_path = {"models_sha256": {"x" * 5000: "0" * 64}}
    assert len(missing_settings(evaluation_plan("e", ("conductor",), 1).model_copy(update={"settings": no_path}))) == 1
