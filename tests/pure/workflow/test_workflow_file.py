import json

import pytest

from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from conductor_core.workflow.parser import parse_completion, parse_workflow_file, to_json, to_lists
from conductor_core.workflow.source import MOST_NOTES
from conductor_core.workflow.validation import validate

STEP = '{"instruction": "Do it.", "agent": "gpt-5", "access_list": []}'


def file(*steps: str, task: str = '"Why?"') -> str:
    return f'{{"task": {task}, "steps": [\n{", ".join(steps)}\n]}}'


def codes(text: str) -> list[tuple[str, int | None, str, int | None, int | None]]:
    return [(f.code, f.step, f.field, f.line, f.column) for f in parse_workflow_file(text).faults]


def test_the_json_form() -> None:
    text = file(STEP, '{"instruction": "Check.", "agent": 1, "access_list": [0]}', STEP.replace("[]", '"all"'))
    parsed = parse_workflow_file(text)
    assert parsed.steps is not None
    assert (parsed.task, parsed.faults, parsed.repairs) == ("Why?", (), ())
    assert [(step.agent, step.access_list) for step in parsed.steps] == [("gpt-5", ()), (1, (0,)), ("gpt-5", "all")]
    assert [step.instruction_at.column for step in parsed.steps if step.instruction_at] == [17, 81, 140]


def test_the_keys_of_the_first_proof_of_concept_are_accepted() -> None:
    step = json.loads(STEP) | {"step": 0, "result": {"text": ["deep", {"score": -1.5e-3, "ok": True, "none": None}]}}
    parsed = parse_workflow_file(json.dumps({"steps": [step]}))
    assert (parsed.faults, parsed.task) == ((), None)
    assert parsed.steps is not None
    assert parsed.steps[0].instruction == "Do it."


@pytest.mark.parametrize(("agent", "name"), [("gpt-5", "gpt-5"), (1, "qwen"), (0, "gpt-5")])
def test_a_file_of_the_first_proof_of_concept_is_a_workflow(agent: str | int, name: str) -> None:
    steps = [
        {"step": 1, "instruction": "Plan.", "assigned_agent": agent, "access_list": [], "result": "A plan."},
        {"step": 2, "instruction": "Do it.", "assigned_agent": agent, "access_list": "all", "result": None},
    ]
    parsed = parse_workflow_file(json.dumps({"task": "Why?", "steps": steps}))
    checked = validate(parsed, ["gpt-5", "qwen"], max_steps=5)
    assert (checked.faults, parsed.repairs) == ((), ())
    assert checked.workflow is not None
    assert [step.agent for step in checked.workflow.steps] == [name, name]
    assert checked.workflow.steps[1].access_list == "all"


def test_both_names_of_the_agent_in_one_step_are_a_fault() -> None:
    (fault,) = parse_workflow_file(file(STEP.replace("[]}", '[], "assigned_agent": "qwen"}'))).faults
    assert (fault.code, fault.step, fault.line, fault.column) == ("duplicate_key", 0, 2, 64)
    assert fault.message == "Step 0 gives both agent and assigned_agent."


def test_a_text_with_the_three_lists_is_a_workflow_file_too() -> None:
    text = "model_id = [0]\nsubtasks = ['Do it.']\naccess_list = [[]]\n"
    for variant in (
        text,
        f"[INST] plan [/INST]\n{text}",
        '{"model_id": [0], "subtasks": ["Do it."], "access_list": [[]]}',
    ):
        parsed = parse_workflow_file("\ufeff" + variant)
        assert parsed.steps is not None
        assert (parsed.steps[0].instruction, parsed.faults) == ("Do it.", ())


def test_a_mark_of_the_byte_order_changes_nothing() -> None:
    assert parse_workflow_file("\ufeff" + file(STEP)) == parse_workflow_file(file(STEP))


def test_unknown_keys_beyond_those_told_are_counted() -> None:
    keys = ", ".join(f'"x{number}": 1' for number in range(MOST_NOTES + 7))
    parsed = parse_workflow_file(f'{{"task": "Why?", "steps": [{STEP}], {keys}}}')
    assert (len(parsed.faults), parsed.more_faults) == (MOST_NOTES, 7)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"task": "x", "steps": {}}', 'The file has no "steps" list.'),
        (file(STEP.replace('"Do it."', "Do")), 'expected a value, found Do, "agent": "gpt-5….'),
    ],
)
def test_what_is_wrong_is_told_in_words(text: str, told: str) -> None:
    assert told in parse_workflow_file(text).faults[0].message


def test_a_name_that_looks_like_a_number_is_a_name() -> None:
    parsed = parse_workflow_file(file(STEP.replace("gpt-5", "1")))
    assert parsed.steps is not None
    assert parsed.steps[0].agent == "1"
    checked = validate(parsed, ["gpt-5", "qwen"], max_steps=5)
    assert "did you mean" not in checked.faults[0].message


def test_instructions_that_name_the_lists_do_not_confuse() -> None:
    for text in ("subtasks", "model_id = [0], subtasks = ['x'], access_list = [[]]", '"steps": ['):
        parsed = parse_workflow_file(json.dumps({"steps": [{"instruction": text, "agent": 0, "access_list": []}]}))
        assert parsed.steps is not None
        assert (parsed.steps[0].instruction, parsed.faults) == (text, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (file(STEP.replace('"agent"', '"agents"')), [("unknown_key", 0, "workflow", 2, 27),
             ("missing_key", 0, "agent", 2, 1)]),
        (file('{"instruction": "a"}'), [("missing_key", 0, "agent", 2, 1), ("missing_key", 0, "access_list", 2, 1)]),
        (file(STEP.replace('"agent"', '"access_list": [], "agent"')), [("duplicate_key", 0, "workflow", 2, 64)]),
        (file("3"), [("not_a_workflow", 0, "workflow", 2, 1)]),
        (file(STEP, task="7"), [("bad_task", None, "workflow", 1, 10)]),
        ('{"stepps": []}', [("unknown_key", None, "workflow", 1, 2), ("not_a_workflow", None, "workflow", 1, 1)]),
        ('{"task": "x", "steps": {}}', [("not_a_workflow", None, "workflow", 1, 24)]),
        (f"[{STEP}]", [("not_a_workflow", None, "workflow", 1, 1)]),
        (file(STEP.replace('"Do it."', "null")), [("not_text", 0, "instruction", 2, 17)]),
        (file(STEP.replace('"gpt-5"', "true")), [("not_an_agent", 0, "agent", 2, 36)]),
        (file(STEP.replace("[]", '["x"]')), [("bad_access", 0, "access_list", 2, 61)]),
        (file(STEP)[:-1], [("bad_json", None, "workflow", 3, 2)]),
        (file(STEP)[:40], [("bad_json", None, "workflow", 2, 13)]),
        (file(STEP) + " extra", [("bad_json", None, "workflow", 3, 4)]),
        (file(STEP.replace("[]}", "[]")), [("bad_json", None, "workflow", 3, 1)]),
        (file(STEP.replace('"Do', "'Do")), [("bad_json", None, "workflow", 2, 17)]),
        (file(STEP, STEP).replace("}, {", "} {"), [("bad_json", None, "workflow", 2, 64)]),
        (file(STEP.replace("[]", "[" * 40)), [("too_deep", None, "workflow", 2, 89)]),
        ("", [("no_workflow", None, "workflow", 1, 1)]),
        ("{}", [("not_a_workflow", None, "workflow", 1, 1)]),
        ("a shopping list", [("no_workflow", None, "workflow", 1, 1)]),
    ],
)  # fmt: skip
def test_code_and_place(text: str, expected: list[tuple[str, int | None, str, int, int]]) -> None:
    assert codes(text) == expected


def test_an_unknown_key_names_what_would_be_right() -> None:
    faults = parse_workflow_file(file(STEP.replace('"instruction"', '"instructions"'))).faults
    assert faults[0].message == "Unknown key 'instructions' in step 0; did you mean 'instruction'?"
    assert (
        "known are instruction, agent, access_list."
        in parse_workflow_file(file(f'{STEP[:-1]}, "x": 1}}')).faults[0].message
    )


def test_broken_json_still_shows_its_steps() -> None:
    parsed = parse_workflow_file(file(STEP, STEP)[:-30])
    assert parsed.faults[0].code == "bad_json"
    assert parsed.steps is not None
    assert [step.instruction for step in parsed.steps] == ["Do it.", "Do it."]


WORKFLOW = Workflow(
    steps=(
        Step(instruction='Say "é".', agent="a"),
        Step(instruction="It's\nlong", agent=CONDUCTOR_AGENT, access_list=(0,)),
        Step(instruction="Answer {question}", agent="elsewhere", access_list="all"),
    )
)


def test_lists_as_in_the_paper() -> None:
    assert to_lists(WORKFLOW, ["b", "a"]) == (
        'model_id = [1, 2, "elsewhere"]\n'
        'subtasks = ["Say \\"é\\".", "It\'s\\nlong", "Answer {question}"]\n'
        'access_list = [[], [0], "all"]\n'
    )
    assert to_lists(Workflow(steps=()), ["a"]) == "model_id = []\nsubtasks = []\naccess_list = []\n"


def test_json_as_in_the_contract() -> None:
    assert to_json(Workflow(steps=WORKFLOW.steps[1:2]), "Why?") == (
        '{\n  "task": "Why?",\n  "steps": [\n    {\n      "instruction": "It\'s\\nlong",\n'
        '      "agent": "conductor",\n      "access_list": [\n        0\n      ]\n    }\n  ]\n}\n'
    )
    assert "task" not in to_json(WORKFLOW)


@pytest.mark.parametrize(
    "text", ["\times", "\right", "\n" + "eq", "\n" + "abla", "\b" + "eta", "\f" + "rac", "\\times", "\\\\neq"]
)
def test_control_characters_are_not_mistaken_for_latex(text: str) -> None:
    workflow = Workflow(steps=(Step(instruction=text, agent="a"),))
    parsed = parse_completion(to_lists(workflow, ["a"]))
    assert parsed.steps is not None
    assert (parsed.steps[0].instruction, parsed.repairs) == (text, ())
