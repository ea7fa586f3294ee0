"""The task families: a question is recognised by its text alone, and its answer is right."""

import ast
import re
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.errors import BadInput
from conductor_core.rehearsal.families import (
    DIFFICULTIES,
    FAMILIES,
    FORMS,
    SPLITS,
    Difficulty,
    Form,
    Split,
    generate,
    grade,
    recognise,
    same_answer,
)
from conductor_core.rehearsal.families.family import TAILS

_families, _difficulties, _seeds = st.sampled_from(FAMILIES), st.sampled_from(DIFFICULTIES), st.integers(0, 10**9)
_splits = st.sampled_from(SPLITS)


@given(_families, _difficulties, _seeds, _splits, st.sampled_from(("", *TAILS)))
def test_a_question_is_found_again_inside_other_text_with_the_same_answer(
    family: str, difficulty: Difficulty, seed: int, split: Split, tail: str
) -> None:
    task = generate(family, difficulty, seed, split=split)
    found = recognise(f"Dear colleague,\nplease look at this. {task.question} {tail}\n\nThanks, and no rush.")
    assert found == replace(task, question=f"{task.question} {tail}".strip())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.name))
@pytest.mark.parametrize("split", SPLITS)
def test_each_wording_of_each_form_is_found_again(form: Form, split: Split) -> None:
    met: set[int] = set()
    for seed in range(2000):
        if seed >= 20 and len(met) == len(form.wordings(split)):
            break
        task = form.generate(Random(seed), split)
        if seed >= 20 and task.wording in met:
            continue
        met.add(task.wording)
        assert recognise(task.question) == task
        if form.family != "table":  # names of rows and columns are what they are
            assert recognise(task.question.upper()) is not None
    assert met == set(range(len(form.wordings(split))))


@given(_families, _difficulties, _seeds, _splits)
def test_every_slip_is_wrong_and_no_two_say_the_same(
    family: str, difficulty: Difficulty, seed: int, split: Split
) -> None:
    task = generate(family, difficulty, seed, split=split)
    assert task.solution.slips
    answers = [task.answer, *(slip.answer for slip in task.solution.slips)]
    for first, second in combinations(answers, 2):
        assert not same_answer(first, second, task.solution.kind)


def test_every_family_has_all_difficulties() -> None:
    assert len(FAMILIES) >= 8
    for family in FAMILIES:
        assert {form.difficulty for form in FORMS if form.family == family} == set(DIFFICULTIES)


def test_each_form_has_many_wordings_some_of_them_never_trained_on() -> None:
    for form in FORMS:
        train, test = form.wordings("train"), form.wordings("test")
        assert len(set(train)) >= 14
        assert len(set(test)) >= 4
        for one in test:
            for other in train:
                assert _shared_words(one, other) < 0.7, (one, other)


def _shared_words(one: str, other: str) -> float:
    """Of the three-word runs of ``one``, those that ``other`` has as well. Slots count as one word."""
    runs = [
        {tuple(words[place : place + 3]) for place in range(len(words) - 2)}
        for words in (re.findall(r"\w+", re.sub(r"\{\w+:\w+\}", "slot", text).lower()) for text in (one, other))
    ]
    return len(runs[0] & runs[1]) / len(runs[0])


def test_no_question_of_one_split_is_one_of_the_other() -> None:
    made = {
        split: {
            generate(family, difficulty, seed, split=split).question
            for family in FAMILIES
            for difficulty in DIFFICULTIES
            for seed in range(30)
        }
        for split in SPLITS
    }
    assert not made["train"] & made["test"]
    assert {recognised.split for each in made["test"] if (recognised := recognise(each))} == {"test"}
    assert {recognised.split for each in made["train"] if (recognised := recognise(each))} == {"train"}


def test_the_splits_draw_other_figures_with_the_same_seed() -> None:
    figures = {split: re.findall(r"\d+", generate("journey", "hard", 7, split=split).question) for split in SPLITS}
    assert sorted(figures["train"]) != sorted(figures["test"])


def test_the_same_seed_makes_the_same_question_and_seeds_differ() -> None:
    assert generate("journey", "hard", 7) == generate("journey", "hard", 7)
    assert len({generate("journey", "hard", seed).question for seed in range(50)}) > 45


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("A train leaves at 09:40 and covers 210 km at 84 km/h, waits 12 minutes, then covers 95 km at 76 km/h. When "
         "does it arrive?", "13:37"),
        ("A train leaves at 23:00 and covers 100 km at 50 km/h, waits 5 minutes, then covers 10 km at 60 km/h. When "
         "does it arrive?", "01:15"),
        ("what is the chemical symbol of tungsten", "W"),
        ("What is the capital of Australia?", "Canberra"),
        ("What is 17 x 24 + 89?", "497"),
        ("Solve 3x + 7 = 22 for x.", "5"),
        ("Solve 4x + 9 = 2 for x.", "-1.75"),
        ("A rectangle has an area of 12 cm² and a perimeter of 14 cm. How long is its longer side, in cm?", "4"),
        ("Machine A costs 400 euros and uses 12 kWh a day, machine B costs 500 euros and uses 8 kWh a day. A kWh costs "
         "25 cents. After how many whole days has B become the cheaper choice?", "101"),
    ],
)  # fmt: skip
def test_answers_worked_out_by_hand(text: str, answer: str) -> None:
    task = recognise(text)
    assert task is not None
    assert task.answer == answer


def test_the_figures_may_be_changed_by_hand_and_the_answer_follows() -> None:
    question = generate("arithmetic", "easy", 3).question
    changed = re.sub(r"\d+", "7", question)
    found = recognise(changed)
    assert found is not None
    assert found.answer == "56"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "What is the capital of Atlantis?",
        "What is the chemical symbol of kryptonite?",
        "A bus leaves at 25:10 and covers 10 km at 50 km/h, with a stop of 5 minutes on the way. When does it arrive?",
        "A bus leaves at 05:10 and covers 10 km at 0 km/h, with a stop of 5 minutes on the way. When does it arrive?",
        "A rectangle has an area of 900 cm² and a perimeter of 4 cm. How long is its longer side, in cm?",
        "Prove that there are infinitely many primes.",
    ],
)
def test_what_it_cannot_know_it_does_not_recognise(text: str) -> None:
    assert recognise(text) is None


@given(st.text(max_size=400))
def test_recognising_never_fails_on_any_text(text: str) -> None:
    recognise(text)


def test_a_table_in_the_text_is_read_and_a_broken_one_is_not() -> None:
    table = "| Region | Q1 | Q2 |\n|---|---|---|\n| North | 10 | 40 |\n| South | 30 | 50 |"
    ask = "Which region grew the most from the first to the last quarter, in absolute terms?"
    question = "Sales by region, in thousand euros:\n\n{}\n\n" + ask
    found = recognise(question.format(table))
    assert found is not None
    assert found.answer == "North"
    assert recognise(question.format(table.replace("40", "forty"))) is None
    assert recognise(question.format(table.replace("| 50 |", "|"))) is None


def _run_code(code: str, test: str) -> bool:
    """The family's own programs are ours to run, here and only here."""
    space: dict[str, Any] = {}
    exec(compile(ast.parse(code), "answer", "exec"), space)
    try:
        exec(compile(ast.parse(test), "test", "exec"), space)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_the_programs_pass_the_unit_tests_they_are_given(difficulty: Difficulty) -> None:
    caught = 0
    for seed in range(40):
        task = generate("code", difficulty, seed)
        test = re.search(r"assert [^`\n\"]+", task.question)
        assert test is not None
        assert _run_code(task.answer, test[0])
        caught += sum(not _run_code(slip.answer, test[0]) for slip in task.solution.slips)
    assert caught >= 40  # the unit test is worth something: it catches at least one slip a question


def test_the_least_time_is_the_longest_chain() -> None:
    task = recognise(
        "Plan an event with six tasks. survey: 3 h. design: 5 h, after survey. build: 9 h, after survey. labels: 2 h, "
        "after design. testing: 4 h, after design and build. launch: 1 h, after labels and testing. With people "
        "enough, what is the least number of hours?"
    )
    assert task is not None
    assert task.family == "planning"
    assert task.answer == "17"  # survey, build, testing, launch


def test_grading_reads_the_text() -> None:
    question = (
        "A train leaves at 09:40 and covers 210 km at 84 km/h, waits 12 minutes, then covers 95 km at 76 km/h. When "
    )
    question += "does it arrive?"
    assert grade(question, "It takes a while. **Answer: 13:37**")
    assert grade(question, "**Answer: 12:00** was wrong.\n\n**Answer: 13:37**")
    assert grade(question, "The answer: 13:37")
    assert not grade(question, "**Answer: 13:37**, no, **Answer: 13:38**")
    assert not grade(question, "")
    assert not grade(question, "13:37 is when I had lunch.")


def test_grading_of_code_compares_syntax_and_runs_nothing() -> None:
    task = generate("code", "hard", 1)
    spaced = task.answer.replace("    merged = []", "    # start empty\n    merged   =   [ ]")
    assert grade(task, f"Here:\n```python\n{spaced}\n```")
    assert not grade(task, f"```python\n{task.answer}\nraise SystemExit('executed')\n```")
    assert not grade(task, task.answer)


def test_grading_an_unknown_question_says_so() -> None:
    with pytest.raises(BadInput, match="not known"):
        grade("What is love?", "**Answer: 42**")


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(BadInput, match="poetry"):
        generate("poetry", "easy", 0)


# What only some wordings of a form speak of. A text about rolls must not count boxes.
_THINGS = re.compile(
    r"\b(box|boxes|rolls?|trays?|loaf|loaves|tickets?|offers?|machines?|printers?|kWh|driv\w+|cm|form|Monday|Tuesday)\b"
)


@given(_families, _difficulties, _seeds, _splits)
def test_what_workers_write_speaks_of_no_thing_that_the_question_does_not_name(
    family: str, difficulty: Difficulty, seed: int, split: Split
) -> None:
    task = generate(family, difficulty, seed, split=split)
    solution = task.solution
    slips = [line for slip in solution.slips for line in slip.working]
    said = " ".join((*solution.plan, *solution.working, solution.check, solution.risk, *slips))
    named = task.question.lower()
    assert [thing for thing in _THINGS.findall(said) if thing.lower() not in named] == []
