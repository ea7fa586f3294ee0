"""A suite of judged runs: which answer counts as right, what is left out, and that the loader reads the rows."""

import json
from pathlib import Path

import pytest

from conductor_core.chat.messages import Message
from conductor_core.lab.evaluation.judged import Judged, dataset
from conductor_core.lab.evaluation.suites import load_suite
from conductor_core.run import events as ev
from conductor_core.run.judgement import By, Judgement, Mark
from conductor_core.run.request import Given
from conductor_core.run.trace import fold
from conductor_core.workflow.model import Step, Workflow
from tests.support.run_events import (
    PAGE,
    TWO_STEPS,
    answered,
    created,
    created_otherwise,
    planned,
    run_completed,
    whole_run,
)

QUESTION = "What is 6 times 7?"


def said(mark: Mark | None, by: By = "person", path: tuple[int, ...] | None = None, number: int = 1) -> Judgement:
    at = created("x").at_utc
    return Judgement(id=number, run_id="x", mark=mark, score=0.5, by=by, path=path, at_utc=at)


def judged(*judgements: Judgement, run_id: str = "run", task: str = QUESTION, answer: str = "**Answer: 42**") -> Judged:
    return fold(whole_run(run_id, task, answer)), judgements


def test_the_loader_reads_the_rows(tmp_path: Path) -> None:
    words = judged(said("right"), run_id="b", task="Capital of India?", answer="Answer: New Delhi")
    made = dataset([judged(said("right")), words])
    file = tmp_path / "judged.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in made.rows))
    suite = load_suite(str(file))
    assert {(task.question, task.reference, task.grader, task.task_id) for task in suite.tasks} == {
        (QUESTION, "42", "numeric", "judged/run"),
        ("Capital of India?", "New Delhi", "exact", "judged/b"),
    }
    assert made.left_out == {}
    assert made.rows[0]["answer"] == "**Answer: 42**"
    assert made.rows[0]["plan"] == [step.model_dump(mode="json") for step in TWO_STEPS.steps]
    assert "plan_before" not in made.rows[0]


def test_an_edited_plan_has_the_plan_before_beside_it() -> None:
    after = Workflow(steps=(*TWO_STEPS.steps, Step(instruction="Check.", agent="checker", access_list="all")))
    edit = ev.PlanEdited(run_id="run", at_ms=21, before=TWO_STEPS, after=after, actor=PAGE.actor, door="page")
    events = [created("run"), *planned("run"), edit, *answered("run", 0, at_ms=30), *answered("run", 1, at_ms=50)]
    events += [*answered("run", 2, "Answer: 42", at_ms=70), run_completed("run", "Answer: 42")]
    (row,) = dataset([(fold(events), [said("right")])]).rows
    assert [len(row[name]) for name in ("plan_before", "plan")] == [2, 3]


def test_the_newest_right_run_gives_the_answer_of_a_task_that_others_got_wrong() -> None:
    wrong, old = judged(said("wrong"), run_id="a"), judged(said("right"), run_id="b")
    new = judged(said("right"), run_id="c")
    later = new[0].model_copy(update={"created_at_utc": new[0].created_at_utc.replace(year=2100)})
    (row,) = dataset([wrong, (later, new[1]), old]).rows
    assert row["run_id"] == "c"


def test_an_answer_that_a_person_wrote_is_right_without_a_mark() -> None:
    given = Given(how="written", actor=PAGE.actor, door="page")
    step = ev.StepGiven(
        run_id="written", at_ms=50, path=(1,), agent="checker", output="Answer: 42", output_sha256="0" * 64, given=given
    )
    events = [
        created("written"),
        *planned("written"),
        *answered("written", 0),
        step,
        run_completed("written", "Answer: 42"),
    ]
    written = fold(events)
    (row,) = dataset([judged(said("wrong"), answer="Answer: 41"), (written, [])]).rows
    assert (row["run_id"], row["reference"]) == ("written", "42")
    assert dataset([(written, [said("wrong")])]).rows == ()


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (judged(said("wrong")), "judged wrong, and no right answer is known"),
        (judged(said(None)), "its answer has no mark"),
        (judged(said("right", path=(0,))), "its answer has no mark"),
        (judged(said("right"), said("wrong", number=2)), "its judges disagree"),
        (
            judged(said("right", "judge"), said("wrong", "grader", number=2)),
            "judged wrong, and no right answer is known",
        ),
        (
            judged(said("right"), answer="The sea is wide. It goes on and on, and nobody has seen its end. " * 5),
            "prose",
        ),
        (judged(said("right"), answer="```python\ndef f(x):\n    return x\n```"), "code"),
        (judged(said("right"), answer="I cannot answer this question."), "declines"),
    ],
)
def test_what_is_left_out_is_counted_with_its_reason(run: Judged, why: str) -> None:
    made = dataset([run])
    assert made.rows == ()
    ((reason, count),) = made.left_out.items()
    assert why in reason
    assert count == 1


def test_a_grader_counts_before_a_judge() -> None:
    assert len(dataset([judged(said("wrong", "judge"), said("right", "grader", number=2))]).rows) == 1


def test_a_task_with_turns_before_it_is_left_out() -> None:
    first, *rest = whole_run("run", answer="Answer: 42")
    turns = (Message(role="user", content="Hello."), Message(role="assistant", content="Hello."))
    trace = fold([created_otherwise(first, turns_before=turns), *rest])
    assert dataset([(trace, [said("right")])]).left_out == {"turns came before the task": 1}
