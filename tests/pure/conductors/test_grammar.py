import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.conductors.grammar import PlanShape, plan_schema
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import validate
from tests.support.grammars import accepts, begin

STOP = "model_id = []\nsubtasks = []\naccess_list = []"


def plan(ids: str, subtasks: str, access: str, before: str = "") -> str:
    return f"{before}model_id = [{ids}]\nsubtasks = [{subtasks}]\naccess_list = [{access}]"


def test_accepts_every_form_of_a_legal_plan() -> None:
    shape = PlanShape(choices=(0, 1, 2), max_steps=4)
    assert accepts(shape, plan("2", '"x"', "[]"))
    assert accepts(shape, plan("0, 1", '"Ask \\"why\\"", "a\\nb \\\\ ä 😀 {question}"', '[], "all"'))
    assert accepts(shape, plan("0, 1, 2, 0", '"a", "b", "c", "d"', "[], [0], [0, 1], [1, 2]", "Use max_sum.\n\n"))


@pytest.mark.parametrize(
    "text",
    [
        plan("3", '"x"', "[]"),  # unknown agent
        plan("0, 1", '"x"', "[]"),  # unequal lengths
        plan("0", '"x"', "[0]"),  # self reference
        plan("0, 1", '"x", "y"', "[], [1]"),
        plan("0, 1", '"x", "y"', "[], [2]"),  # forward
        plan("0, 1, 2", '"x", "y", "z"', "[], [], [1, 0]"),  # descending
        plan("0, 1, 2", '"x", "y", "z"', "[], [], [0, 0]"),  # twice
        plan("0", '""', "[]"),  # empty instruction
        plan("0", '"  "', "[]"),
        plan("0, 0, 0, 0, 0", '"a", "b", "c", "d", "e"', "[], [], [], [], []"),  # too many steps
        plan("0", '"a\nb"', "[]"),  # newline in a string
        plan("0", '"x"', "[]") + "\nand more",
        plan("0", '"x"', "[]", "```\n"),
        plan("0", '"x"', "[]", "model_id = [9]\n"),
        plan("0", '"x"', "[]", "So: "),  # lists begin a line of their own
        STOP,
    ],
)
def test_refuses_every_other(text: str) -> None:
    assert not accepts(PlanShape(choices=(0, 1, 2), max_steps=4), text)


def test_the_stop_is_offered_only_in_a_recursion() -> None:
    assert accepts(PlanShape(choices=(0, 1, 2), max_steps=4, may_stop=True), "Done.\n" + STOP)
    assert parse_completion(STOP).is_stop


BOOK = (
    'usual1 ::= "Solve {question}" | "Check it"\nusual_opening1 ::= "Solve {question}"\nagain ::= "Look once more"\n'
    'anew1 ::= "Solve {question} anew"\nanew_opening1 ::= "Solve {question} anew"\ntask_head1 ::= "A task"\n'
    'usual2 ::= "Prove {question}"\nusual_opening2 ::= "Prove {question}"\ntask_head2 ::= "A proof"\n'
    'anew2 ::= "Prove {question} anew"\nanew_opening2 ::= "Prove {question} anew"\n'
    'done ::= "solved" | "checked"\nagain_done ::= "looked at again"\nstop_thought ::= "It is settled."'
)


@pytest.mark.parametrize(
    ("ids", "subtasks", "access", "legal"),
    [
        ("0, 1", '"Solve {question}", "Check it"', "[], [0]", True),
        ("0, 2", '"Solve {question}", "Look once more"', "[], [0]", True),
        ("0, 2", '"Solve {question}", "Look once more"', '[], "all"', True),
        ("0, 2", '"Solve {question}", "Look once more"', "[], []", False),
        ("0, 2", '"Solve {question}", "Check it"', "[], [0]", False),
        ("0, 1", '"Solve {question}", "Look once more"', "[], [0]", False),
        ("0, 2, 1", '"Solve {question}", "Look once more", "Check it"', "[], [0], [0, 1]", False),
        ("2", '"Solve {question}"', "[]", False),
    ],
)
def test_a_phrase_book_speaks_of_another_round_to_the_conductor_at_the_end_alone(
    ids: str, subtasks: str, access: str, legal: bool
) -> None:
    shape = PlanShape((0, 1, 2), 3, task_first=True, phrases=BOOK, recursion=True)
    assert accepts(shape, plan(ids, subtasks, access, "A task: solved by model 0.\n")) is legal
    never = PlanShape((0, 1), 3, task_first=True, phrases=BOOK)
    assert accepts(never, plan(ids, subtasks, access, "A task: solved by model 0.\n")) is (legal and "2" not in ids)


def test_the_first_instruction_can_be_made_to_hold_the_task() -> None:
    shape = PlanShape(choices=(0, 1, 2), max_steps=4, task_first=True)
    assert accepts(shape, plan("0, 1", '"Plan this: {question}", "Do it"', "[], [0]"))
    assert accepts(shape, plan("0", '"{question}"', "[]"))
    assert not accepts(shape, plan("0, 1", '"Plan this", "Do it: {question}"', "[], [0]"))


def test_access_lists_are_all_subsets() -> None:
    shape = PlanShape(choices=(0,), max_steps=5)
    for size in range(4):
        for subset in itertools.combinations(range(4), size):
            listed = ", ".join(map(str, subset))
            assert accepts(shape, plan("0, 0, 0, 0, 0", '"a", "b", "c", "d", "e"', f"[], [], [], [], [{listed}]"))


def test_two_digit_ordinals_and_steps() -> None:
    shape = PlanShape(choices=tuple(range(12)), max_steps=12)
    subtasks = ", ".join(f'"step {i}"' for i in range(12))
    access = ", ".join(["[]"] * 11 + ["[2, 10]"])
    assert accepts(shape, plan(", ".join(["11"] * 12), subtasks, access))


def written_at_random(shape: PlanShape, random: Random) -> str:
    """Draws one allowed byte after the other, as a model that knows nothing would."""
    matcher, text = begin(shape), b""
    while not matcher.complete:
        byte = random.choice(matcher.allowed(256).nonzero().flatten().tolist())
        assert matcher.accept([byte])
        text += bytes([byte])
    return text.decode()


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    choices=st.integers(1, 12),
    max_steps=st.integers(1, 5),
    may_stop=st.booleans(),
    task_first=st.booleans(),
)
def test_even_a_byte_at_a_time_plans_are_whole_and_of_bounded_length(
    seed: int, choices: int, max_steps: int, may_stop: bool, task_first: bool
) -> None:
    shape = PlanShape(choices=tuple(range(choices)), max_steps=max_steps, may_stop=may_stop, task_first=task_first)
    text = written_at_random(shape, Random(seed))
    assert len(text) <= 700 + max_steps * 1_700
    parsed = parse_completion(text)
    assert not parsed.faults
    if not (may_stop and parsed.is_stop):
        assert not validate(parsed, [f"w{i}" for i in range(choices)], max_steps=max_steps).faults
        assert parsed.steps is not None
        assert not task_first or "{question}" in str(parsed.steps[0].instruction)


@pytest.mark.parametrize("inner", [False, True])
def test_instructions_speak_of_the_kind_of_task_that_the_thought_names(inner: bool) -> None:
    shape = PlanShape((0, 1), 3, may_stop=inner, task_first=True, phrases=BOOK)
    anew = " anew" if inner else ""
    for kind, verb in (("task", "Solve"), ("proof", "Prove")):
        thought = f"A {kind}: solved by model 0.\n"
        assert accepts(shape, plan("0", f'"{verb} {{question}}{anew}"', "[]", thought))
        other = "Prove" if verb == "Solve" else "Solve"
        assert not accepts(shape, plan("0", f'"{other} {{question}}{anew}"', "[]", thought))


@pytest.mark.parametrize(
    ("thought", "legal"),
    [
        ("A task: solved by model 0.", True),
        ("A proof: solved by models 0, 1 and 0.", True),
        ("A task: solved by models 0 and 1, checked by model 1.", True),
        ("A task: solved by model 0, looked at again by model 2.", True),
        ("A task: solved by models 0 and 1, looked at again by model 2.", True),
        ("A task: solved by models 0, 1 and 0, checked by model 1.", False),
        ("A task: solved by models 0, 1 and 0, looked at again by model 2.", False),
        ("A task: looked at again by model 2.", False),
        ("A task: looked at again by model 0.", False),
        ("A task: solved by model 2.", False),
        ("A task: solved by models 0.", False),
        ("It is settled.", False),
    ],
)
def test_the_thought_names_as_many_as_there_may_be_steps(thought: str, legal: bool) -> None:
    matcher = begin(PlanShape((0, 1, 2), 3, phrases=BOOK, recursion=True))
    assert matcher.accept(list(f"{thought}\nmodel_id = [".encode())) is legal


def test_the_schema_says_the_same_of_agents_and_lengths() -> None:
    schema = plan_schema(PlanShape(choices=(0, 1, 2), max_steps=4))
    steps = schema["properties"]["steps"]
    assert (steps["minItems"], steps["maxItems"]) == (1, 4)
    assert steps["items"]["properties"]["agent"]["enum"] == [0, 1, 2]
    _, listed = steps["items"]["properties"]["access_list"]["anyOf"]
    assert (listed["items"]["enum"], listed["maxItems"]) == ([0, 1, 2], 3)
    assert plan_schema(PlanShape(choices=(0, 1, 2), max_steps=4, may_stop=True))["properties"]["steps"]["minItems"] == 0


def test_a_plan_in_the_schema_is_read() -> None:
    parsed = parse_completion('{"steps": [{"instruction": "a", "agent": 1, "access_list": "all"}]}')
    assert not validate(parsed, ["x", "y"], max_steps=2).faults
