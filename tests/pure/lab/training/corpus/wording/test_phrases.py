"""The phrase book: everything that the corpus writes is in it, and nothing else is."""

import itertools

import pytest

from conductor_core.conductors.grammar import PlanShape
from conductor_core.lab.training.corpus.plans import examples
from conductor_core.lab.training.corpus.wording.phrases import phrase_rules
from tests.support import grammars


def accepts(text: str, *, recursion: bool = True, choices: int = 8, inner: bool = False) -> bool:
    rules = phrase_rules()
    shape = PlanShape(tuple(range(choices)), 5, may_stop=inner, task_first=True, phrases=rules, recursion=recursion)
    return grammars.accepts(shape, text)


def test_every_plan_of_the_corpus_can_be_said() -> None:
    drawn = [each for each in itertools.islice(examples(11), 600) if len(each.plan.steps) <= 5]
    said = [(each.completion, each.request.parent is not None) for each in drawn]
    assert [text for text, inner in said if not accepts(text, inner=inner)] == []
    assert any(inner and not text.endswith("[]") for text, inner in said)
    # A first round cannot speak of an earlier one, and an inner one cannot say the same again.
    assert not any(accepts(text, inner=not inner) for text, inner in said)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Solve this word problem", "Solve the the problem"),
        ("A hard word problem: ", "A hard and say in in: "),
        ("solved by model 2", "solved"),
        ("{question}", "{quest}"),
    ],
)
def test_a_slip_cannot_be_said(right: str, wrong: str) -> None:
    plan = (
        "A hard word problem: solved by model 2.\nmodel_id = [2]\n"
        'subtasks = ["Solve this word problem step by step, check each number, and end with the answer: {question}"]\n'
        "access_list = [[]]"
    )
    assert accepts(plan)
    assert right in plan
    assert not accepts(plan.replace(right, wrong))


def test_another_round_and_absent_workers_are_not_spoken_of_where_they_are_not_offered() -> None:
    again = next(
        each.completion
        for each in itertools.islice(examples(12), 5000)
        if each.plan.steps and each.plan.steps[-1].ordinal == 7
    )
    assert accepts(again)
    assert not accepts(again, recursion=False, choices=7)
    thought = (
        'A proof: solved by model 6.\nmodel_id = [1]\nsubtasks = ["Prove the claim in full, justify each step and '
    )
    plan = thought + 'check it for gaps: {question}"]\naccess_list = [[]]'
    assert accepts(plan, recursion=False, choices=7)
    assert not accepts(plan, recursion=False, choices=3)


def test_a_plan_begins_with_words_that_speak_of_nothing_above() -> None:
    thought = "A proof: solved by model 0, checked by model 1.\nmodel_id = [0, 1]\n"
    gaps = '"Find the gaps in the proof above and write the corrected proof of: {question}"'
    whole = '"Write a complete proof with each step justified: {question}"'
    assert accepts(f"{thought}subtasks = [{whole}, {gaps}]\naccess_list = [[], [0]]")
    assert not accepts(f"{thought}subtasks = [{gaps}, {whole}]\naccess_list = [[], [0]]")


@pytest.mark.parametrize(
    ("noun", "other"), [("translation", "word problem"), ("chemistry question", "decision"), ("proof", "summary")]
)
def test_a_plan_speaks_of_one_kind_of_task(noun: str, other: str) -> None:
    def plan(named: str) -> str:
        words = f"Solve this {named}, check the result by another route and give the final answer: {{question}}"
        return f'A simple {noun}: solved by model 0.\nmodel_id = [0]\nsubtasks = ["{words}"]\naccess_list = [[]]'

    assert accepts(plan(noun))
    assert not accepts(plan(other))
