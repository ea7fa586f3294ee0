"""The check of wording: every instruction of the corpus passes, and what decays does not."""

import itertools

import pytest

from benchmarks.readable import faults
from conductor_core.lab.training.corpus.plans import examples
from conductor_core.workflow.model import Step, Workflow


def workflow(*instructions: str) -> Workflow:
    return Workflow(
        steps=tuple(
            Step(instruction=text, agent="a", access_list=(at - 1,) if at else ())
            for at, text in enumerate(instructions)
        )
    )


def test_every_instruction_of_the_corpus_reads_well() -> None:
    for example in itertools.islice(examples(5), 800):
        assert faults(example.plan.workflow()) == []


@pytest.mark.parametrize(
    ("instruction", "said"),
    [
        ("Break the the the question: {question}", "twice running"),
        ("Solve the task and solve the task above: {question}", "repeats itself"),
        ("Solve this zxqv problem step by step: {question}", "never taught (zxqv)"),
        ("Solve it", "hardly anything"),
        ("Solve this problem step by step: {quest", "broken brace"),
        ("Solve {question} and then check {question}", "more than once"),
        ("Solve this problem step by step", "neither the task nor"),
        ("Solve this problem step by step\x07: {question}", "cannot be read"),
    ],
)
def test_decayed_wording_is_named(instruction: str, said: str) -> None:
    assert any(said in fault for fault in faults(workflow(instruction)))


def test_a_step_that_reads_another_needs_no_task_of_its_own() -> None:
    assert faults(workflow("Solve this problem step by step: {question}", "Check the answer above")) == []
