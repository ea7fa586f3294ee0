"""Every class of malformed plan: its code, its place, and what can still be shown of it."""

import pytest

from conductor_core.workflow.parser import parse_completion, parse_workflow_file
from conductor_core.workflow.source import MAX_CHARACTERS, MAX_DEPTH, MAX_ITEMS

PLAIN = 'model_id = [0, 1]\nsubtasks = ["Plan it.", "Do it."]\naccess_list = [[], [0]]\n'


@pytest.mark.parametrize(
    "text", ["", "   \n", "I cannot do that.", "model_id is 0, subtasks are none", "[0, 1]", "[" * 50]
)
def test_no_workflow_at_all(text: str) -> None:
    parsed = parse_completion(text)
    assert parsed.steps is None
    assert [(fault.code, fault.line, fault.column) for fault in parsed.faults] == [("no_workflow", 1, 1)]


@pytest.mark.parametrize(
    ("text", "code", "step", "field", "line", "column"),
    [
        (PLAIN.replace("access_list", "x"), "missing_list", None, "workflow", 2, 34),
        (PLAIN.replace("model_id", "x"), "missing_list", None, "workflow", 3, 24),
        (PLAIN.replace("[0, 1]", "[0]"), "unequal_lengths", None, "workflow", 1, 1),
        (PLAIN.replace("[[], [0]]", "[]"), "unequal_lengths", None, "workflow", 1, 1),
        (PLAIN.replace('"Do it."', "7"), "not_text", 1, "instruction", 2, 25),
        (PLAIN.replace('"Do it."', "None"), "not_text", 1, "instruction", 2, 25),
        (PLAIN.replace('"Plan it."', "Plan it"), "not_text", 0, "instruction", 2, 13),
        (PLAIN.replace('"Do it."', '{"a": "b"}'), "not_text", 1, "instruction", 2, 25),
        (PLAIN.replace('"Do it."', '["a", "b"]'), "not_text", 1, "instruction", 2, 25),
        (PLAIN.replace("0, 1", "0, None"), "not_an_agent", 1, "agent", 1, 16),
        (PLAIN.replace("0, 1", "0, true"), "not_an_agent", 1, "agent", 1, 16),
        (PLAIN.replace("0, 1", "0, False"), "not_an_agent", 1, "agent", 1, 16),
        (PLAIN.replace("0, 1", "0, null"), "not_an_agent", 1, "agent", 1, 16),
        (PLAIN.replace("0, 1", "0, 1.5"), "not_an_agent", 1, "agent", 1, 16),
        (PLAIN.replace("0, 1", "0, ''"), "not_an_agent", 1, "agent", 1, 16),
        (PLAIN.replace("0, 1", "0, [0, 1]"), "not_an_agent", 1, "agent", 1, 16),
        (PLAIN.replace("[0]]", "True]"), "bad_access", 1, "access_list", 3, 20),
        (PLAIN.replace("[0]]", "'the first']"), "bad_access", 1, "access_list", 3, 20),
        (PLAIN.replace("[0]]", "[0.5]]"), "bad_access", 1, "access_list", 3, 21),
        (PLAIN.replace("[0]]", "['first']]"), "bad_access", 1, "access_list", 3, 21),
        (PLAIN.replace("[0]]", "{0: 1}]"), "bad_access", 1, "access_list", 3, 20),
        (PLAIN.replace("[0]]", "[{}]]"), "bad_access", 1, "access_list", 3, 21),
        (PLAIN.replace("[0]]", "1e5]"), "bad_access", 1, "access_list", 3, 20),
        (PLAIN.replace("[0]]", "[" * 40), "too_deep", 1, "access_list", 3, 19 + MAX_DEPTH),
        ("model_id = [0]\nsubtasks = ['a\naccess_list = [[]]", "unclosed_string", 0, "instruction", 2, 13),
        ("model_id = [0]\naccess_list = [[], [0\nsubtasks = ['a', 'b']", "unclosed_list", 1, "access_list", 3, 1),
        ("model_id = [0, 1", "cut_off", 1, "agent", 1, 17),
        ("model_id = [0, 1]\nsubtasks = [", "cut_off", 0, "instruction", 2, 13),
        ("model_id = [0, 1]\nsubtasks = ['Plan it.', 'Do", "cut_off", 1, "instruction", 2, 28),
        (PLAIN.rstrip()[:-1], "cut_off", 1, "access_list", 3, 23),
        (PLAIN.rstrip()[:-3], "cut_off", 1, "access_list", 3, 21),
    ],
)  # fmt: skip
def test_code_and_place(text: str, code: str, step: int | None, field: str, line: int, column: int) -> None:
    parsed = parse_completion(text)
    found = [(fault.code, fault.step, fault.field, fault.line, fault.column) for fault in parsed.faults]
    assert found == [(code, step, field, line, column)]
    assert parsed.steps
    assert not parsed.is_stop


def test_all_faults_are_reported_not_the_first() -> None:
    text = "model_id = [None, 1.5, 0]\nsubtasks = [1, 'b']\naccess_list = [True, ['x'], [], []]\n"
    parsed = parse_completion(text)
    assert sorted((fault.code, fault.step) for fault in parsed.faults if fault.step is not None) == [
        ("bad_access", 0),
        ("bad_access", 1),
        ("not_an_agent", 0),
        ("not_an_agent", 1),
        ("not_text", 0),
    ]
    assert parsed.faults[-1].code == "unequal_lengths"
    assert "model_id has 3, subtasks has 2, access_list has 4" in parsed.faults[-1].message


def test_a_cut_completion_shows_the_steps_that_are_there() -> None:
    parsed = parse_completion("model_id = [0, 1, 2]\nsubtasks = ['Plan it.', \"Do it.\", 'Che")
    assert parsed.steps is not None
    assert [(step.agent, step.instruction, step.access_list) for step in parsed.steps] == [
        (0, "Plan it.", None),
        (1, "Do it.", None),
        (2, "Che", None),
    ]
    assert parsed.faults[0].message == "The text is cut off inside subtasks, begun on line 2; access_list never came."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a shopping list", "The text holds no workflow: model_id, subtasks and access_list lists were not found."),
        (PLAIN.replace("access_list", "x"), "The list access_list is not there."),
        (
            PLAIN.replace("access_list", "x").replace("subtasks", "y"),
            "The lists subtasks and access_list are not there.",
        ),
    ],
)
def test_what_is_not_there_is_told(text: str, told: str) -> None:
    assert parse_completion(text).faults[0].message == told


def test_a_list_that_is_too_long_is_not_called_missing() -> None:
    text = f"model_id = [{'0, ' * (MAX_ITEMS + 1)}]"
    assert [fault.code for fault in parse_completion(text).faults] == ["too_large"]


def test_messages_stay_short_and_on_one_line() -> None:
    parsed = parse_completion(PLAIN.replace("[0]]", '{"' + "long\n\x1b[31m" * 1000 + '": 1}]'))
    assert parsed.faults
    for fault in parsed.faults:
        assert len(fault.message) < 200
        assert fault.message.isprintable()


def test_sizes_are_bounded() -> None:
    long_list = parse_completion(f"model_id = [{'0, ' * (MAX_ITEMS + 1)}]")
    assert "too_large" in {fault.code for fault in long_list.faults}
    text = '{"steps": [{' + ", ".join(f'"k{index}": 0' for index in range(MAX_ITEMS + 1)) + "}]}"
    assert "too_large" in {fault.code for fault in parse_completion(text).faults}
    of_a_file = parse_workflow_file(text)
    assert [fault.code for fault in of_a_file.faults] == ["too_large"], "it is read no further"
    assert of_a_file.steps is None
    long_text = parse_completion(" " * (MAX_CHARACTERS + 1))
    assert [(fault.code, fault.line) for fault in long_text.faults] == [("too_large", 1)]
    assert long_text.steps is None


def test_half_characters_are_replaced() -> None:
    parsed = parse_completion("model_id = [0]\nsubtasks = ['a\ud800b', '\\ud800']\naccess_list = [[], []]")
    assert parsed.steps is not None
    assert [step.instruction for step in parsed.steps] == ["a\ufffdb", "\ufffd"]
    assert parsed.repairs[0].startswith("Line 2, column 15: replaced half a character")
