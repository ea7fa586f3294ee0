"""The exact chance of a workflow is what carrying it out with the simulated workers tends to."""

from collections.abc import Sequence
from math import sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.engine import prompts
from conductor_core.errors import BadInput
from conductor_core.rehearsal import (
    DIFFICULTIES,
    FAMILIES,
    PROFILES,
    RehearsalTask,
    RehearsalWorker,
    generate,
    grade,
    rehearsal_specs,
)
from conductor_core.rehearsal.exact import Ending, endings, second_round, success_chance
from conductor_core.rehearsal.skills import Branch
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Step, Workflow

SPECS = {spec.name: spec for spec in rehearsal_specs()}
SOLVE, PLAN, CHECK = "Solve the task step by step: {question}", "Plan the task: {question}", "Check the answer above."
COMPARE, STATE = "Compare the answers and decide which is right.", "State the final answer."
INSTRUCTIONS = (
    SOLVE,
    PLAN,
    CHECK,
    "{question}",
    "Solve it by the plan above.",
    "Solve solve {question}",
    "Check the solution of this task and correct it: {question}",
    "Combine the answers above to: {question}",
    COMPARE,
    STATE,
    "Write the result in the form that is asked for: {question}",
    "{question} Check the result independently.",
)

Given = tuple[str, str, Sequence[int]]


def plan(*steps: Given) -> Workflow:
    return Workflow(
        steps=tuple(
            Step(instruction=instruction, agent=agent, access_list=tuple(reads)) for instruction, agent, reads in steps
        )
    )


def carried_out(task: RehearsalTask, workflow: Workflow, seed: int) -> str:
    """The last step's text, the messages built as the engine does."""
    answers: dict[int, prompts.Answer] = {}
    for index, step in enumerate(workflow.steps):
        if step.agent == CONDUCTOR_AGENT:
            output = answers[workflow.reads(index)[-1]].output
        else:
            messages = prompts.build(prompts.Asked(task.question), workflow, index, answers).messages
            output = RehearsalWorker(SPECS[step.agent], seed=seed, tokens_per_s=0).respond(messages)
        answers[index] = prompts.Answer.of((index,), step, task.question, output, "")
    return answers[len(workflow.steps) - 1].output


def replayed(
    task: RehearsalTask, workflow: Workflow, seeds: Sequence[int], recorded: Sequence[str | None]
) -> tuple[list[str], list[Branch]]:
    """Text and outcome of each step. Those that are ``recorded`` keep their text; each other has a seed of its own."""
    answers: dict[int, prompts.Answer] = {}
    branches = []
    for index, step in enumerate(workflow.steps):
        messages = prompts.build(prompts.Asked(task.question), workflow, index, answers).messages
        worker = RehearsalWorker(SPECS[step.agent], seed=seeds[index], tokens_per_s=0)
        output = recorded[index] or worker.respond(messages)
        branches.append(worker.drawn(messages))
        answers[index] = prompts.Answer.of((index,), step, task.question, output, "")
    return [answers[index].output for index in range(len(workflow.steps))], branches


def drawn_plan(rng: Random, agents: Sequence[str]) -> Workflow:
    return plan(
        *(
            (rng.choice(INSTRUCTIONS), rng.choice(agents), [each for each in range(index) if rng.random() < 0.6])
            for index in range(rng.randint(2, 5))
        )
    )


def assert_as_often(task: RehearsalTask, workflow: Workflow, seeds: int) -> None:
    chance = success_chance(task, workflow)
    often = sum(grade(task, carried_out(task, workflow, seed)) for seed in range(seeds)) / seeds
    # 4.5 standard deviations of a binomial: a false alarm in about one of 150,000.
    assert abs(often - chance) <= 4.5 * sqrt(chance * (1 - chance) / seeds) + 1e-9, (chance, often, workflow)


@pytest.mark.parametrize("number", range(16))
def test_a_random_plan_succeeds_as_often_as_enumerated(number: int) -> None:
    rng = Random(number)
    task = generate(FAMILIES[number % len(FAMILIES)], DIFFICULTIES[number % 3], number)
    # Few workers, so that equal calls and own work in view come up.
    assert_as_often(task, drawn_plan(rng, list(SPECS)[number % 5 :][:2]), 300)


@pytest.mark.parametrize(
    "workflow",
    [
        plan((PLAN, "planner", []), (SOLVE, "reasoner", [0]), (CHECK, "verifier", [0, 1])),
        plan((SOLVE, "reasoner", []), (SOLVE, "planner", []), (CHECK, "writer", [0]), (CHECK, "writer", [1])),
        plan(*((SOLVE, name, []) for name in list(SPECS)[:4]), (INSTRUCTIONS[7], "verifier", range(4))),
        plan((SOLVE, "verifier", []), (CHECK + QUESTION, "verifier", [0])),
        plan((SOLVE, "writer", []), (SOLVE, "reasoner", []), (CHECK, "verifier", [1]), (COMPARE, "writer", [0, 2])),
        plan((SOLVE, "coder", []), (CHECK, "coder", [0]), (CHECK, CONDUCTOR_AGENT, [0, 1])),
        # The last one has no question: what it shows of the text before it is no answer of its own.
        plan((SOLVE, "coder", []), (STATE, "writer", [0]), (STATE, "writer", [1]), ("Work it out.", "planner", [2])),
    ],
    ids=[
        "plan, solve, check",
        "two checked apart",
        "mixture",
        "own work",
        "one of two checked",
        "ended recursion",
        "shown, not given",
    ],
)
def test_a_common_plan_succeeds_as_often_as_enumerated(workflow: Workflow) -> None:
    assert_as_often(generate("comparison", "hard", 3), workflow, 400)


@pytest.mark.parametrize("number", range(5))
def test_a_replay_that_keeps_some_answers_succeeds_as_often_as_enumerated(number: int) -> None:
    rng = Random(f"replay {number}")
    task = generate(FAMILIES[number % len(FAMILIES)], DIFFICULTIES[number % 3], number)
    workflow = drawn_plan(rng, list(SPECS)[number % 5 :][:2])
    count, seeds = len(workflow.steps), 300
    texts, branches = replayed(task, workflow, [number] * count, [None] * count)
    fresh = rng.randrange(count)
    below = {fresh}
    for later in range(fresh + 1, count):
        below |= {later} if below.intersection(workflow.reads(later)) else set()
    kept = [None if index in below else texts[index] for index in range(count)]
    chance = success_chance(task, workflow, {index: branches[index] for index in range(count) if index not in below})
    right = sum(
        grade(task, replayed(task, workflow, [seed * count + index for index in range(count)], kept)[0][-1])
        for seed in range(seeds)
    )
    assert abs(right / seeds - chance) <= 4.5 * sqrt(chance * (1 - chance) / seeds) + 1e-9, (right, chance, workflow)


def test_a_replay_keeps_two_equal_wrong_answers_equal() -> None:
    task = generate("algebra", "hard", 1)
    workflow = plan(
        *((SOLVE, name, []) for name in ("reasoner", "calculator", "scientist")), (COMPARE, "coder", [0, 1, 2])
    )
    right, wrong = Branch(1.0, "solution", 0), Branch(1.0, "solution", 3)
    # Without the question in view it can only count: two wrong ones outvote a right one.
    assert success_chance(task, workflow, {0: right, 1: wrong, 2: right}) == pytest.approx(1.0)
    assert success_chance(task, workflow, {0: right, 1: wrong, 2: wrong._replace(answer=2)}) > 0.5
    judged = plan(
        *((SOLVE, name, []) for name in ("reasoner", "calculator", "scientist")), (INSTRUCTIONS[7], "coder", [0, 1, 2])
    )
    assert success_chance(task, judged, {0: right, 1: wrong, 2: wrong}) < 0.5


def test_a_replay_that_keeps_everything_is_what_was_recorded() -> None:
    task, workflow = generate("table", "medium", 5), plan((SOLVE, "coder", []), (CHECK + QUESTION, "verifier", [0]))
    ends = set()
    for seed in range(12):
        texts, branches = replayed(task, workflow, [seed, seed], [None, None])
        chance = success_chance(task, workflow, dict(enumerate(branches)))
        assert chance == grade(task, texts[-1])
        ends.add(chance)
    assert ends == {0.0, 1.0}
    assert success_chance(task, workflow, {}) == pytest.approx(success_chance(task, workflow))


_tasks = st.builds(generate, st.sampled_from(FAMILIES), st.sampled_from(DIFFICULTIES), st.integers(0, 10**6))
_steps = st.lists(
    st.tuples(
        st.sampled_from(INSTRUCTIONS),
        st.sampled_from([worker.name for worker in PROFILES]),
        st.frozensets(st.integers(0, 3), max_size=3),
    ),
    min_size=1,
    max_size=5,
)


@given(_tasks, _steps)
def test_chances_are_chances(task: RehearsalTask, steps: list[Given]) -> None:
    workflow = plan(*steps)
    every = endings(task, workflow)
    assert all(chance > 0 for chance in every.values())
    assert sum(every.values()) == pytest.approx(1)
    assert success_chance(task, workflow) == pytest.approx(sum(c for each, c in every.items() if each.right))


@given(_tasks, _steps, st.integers(0, 4))
def test_a_step_that_nobody_reads_changes_nothing(task: RehearsalTask, steps: list[Given], place: int) -> None:
    place = min(place, len(steps) - 1)
    moved: list[Given] = [
        (instruction, agent, [read + (read >= place) for read in reads if read < index])
        for index, (instruction, agent, reads) in enumerate(steps)
    ]
    more = [*moved[:place], ("Solve all of it alone: {question}", "writer", ()), *moved[place:]]
    assert success_chance(task, plan(*more)) == pytest.approx(success_chance(task, plan(*steps)))


@given(_tasks, st.sampled_from([worker.name for worker in PROFILES]))
def test_a_solution_that_is_withheld_cannot_be_verified(task: RehearsalTask, checker: str) -> None:
    check = "Check the solution of this task: {question}"
    assert success_chance(task, plan((SOLVE, "reasoner", []), (check, checker, []))) == 0
    assert success_chance(task, plan((SOLVE, "reasoner", []), (check, checker, [0]))) > 0


@given(_tasks)
def test_the_task_copied_into_an_instruction_counts_as_the_macro(task: RehearsalTask) -> None:
    copied = SOLVE.replace(QUESTION, task.question)
    assert success_chance(task, plan((copied, "coder", []))) == success_chance(task, plan((SOLVE, "coder", [])))
    assert success_chance(task, plan(("Solve it.", "coder", []))) == 0


def test_the_same_call_made_twice_is_one() -> None:
    task = generate("facts", "medium", 1)
    twice = plan((SOLVE, "writer", []), (SOLVE, "writer", []), ("Combine the answers: {question}", "verifier", [0, 1]))
    assert endings(task, twice) == {
        Ending("all agree", True): pytest.approx(success_chance(task, plan((SOLVE, "writer", [])))),
        Ending("all agree", False): pytest.approx(1 - success_chance(task, plan((SOLVE, "writer", [])))),
    }


def test_a_worker_that_checks_its_own_work_sees_less() -> None:
    task = generate("journey", "hard", 1)
    own = success_chance(task, plan((SOLVE, "reasoner", []), (CHECK + QUESTION, "reasoner", [0])))
    alone = success_chance(task, plan((SOLVE, "reasoner", [])))
    other = success_chance(task, plan((SOLVE, "reasoner", []), (CHECK + QUESTION, "verifier", [0])))
    assert alone < own < other


def test_a_conductor_step_hands_on_the_last_output_it_reads() -> None:
    task = generate("algebra", "hard", 1)
    steps: list[Given] = [(SOLVE, "reasoner", []), (SOLVE, "calculator", [])]
    assert endings(task, plan(*steps, (CHECK, CONDUCTOR_AGENT, [0]))) == endings(task, plan(steps[0]))
    assert endings(task, plan(*steps, (CHECK, CONDUCTOR_AGENT, [0, 1]))) == endings(task, plan(*steps))
    assert endings(task, plan(*steps, (CHECK, CONDUCTOR_AGENT, []))) == {}
    assert success_chance(task, Workflow(steps=())) == 0


def test_an_unknown_agent_is_named() -> None:
    with pytest.raises(BadInput, match="oracle"):
        success_chance(generate("algebra", "easy", 1), plan((SOLVE, "oracle", [])))


@settings(max_examples=40)
@given(_tasks, _steps, _steps)
def test_a_second_round_keeps_the_laws_of_chance(task: RehearsalTask, first: list[Given], inner: list[Given]) -> None:
    after = second_round(task, plan(*first), plan(*inner))
    assert {each: chance for each, (chance, _) in after.items()} == pytest.approx(endings(task, plan(*first)))
    total = sum(chance * right for chance, right in after.values())
    assert total == pytest.approx(success_chance(task, plan(*inner)))


def test_a_second_round_in_the_same_words_brings_the_same_and_in_others_may_bring_more() -> None:
    task = generate("algebra", "hard", 1)
    first = plan((PLAN, "planner", []), (SOLVE, "reasoner", [0]), (CHECK + QUESTION, "verifier", [1]))
    other = plan((PLAN, "planner", []), ("Solve it once more: {question}", "reasoner", [0]), (CHECK, "verifier", [1]))
    doubt = Ending("read through", False)
    assert second_round(task, first, first)[doubt][1] == 0
    assert second_round(task, first, other)[doubt][1] > 0.4
    stopped = second_round(task, first, Workflow(steps=()))
    assert all(right == bool(ending.right) for ending, (_, right) in stopped.items())


def test_doubt_in_the_last_text_says_something_about_it() -> None:
    task = generate("comparison", "hard", 1)
    checked = endings(task, plan((PLAN, "planner", []), (SOLVE, "reasoner", [0]), (CHECK + QUESTION, "verifier", [1])))
    share = {
        manner: checked.get(Ending(manner, True), 0) / sum(checked.get(Ending(manner, r), 0) for r in (True, False))
        for manner in ("confirmed", "corrected", "read through")
    }
    assert share["confirmed"] == 1
    assert share["corrected"] > 0.9
    assert 0.3 < share["read through"] < 0.8
