"""Whatever the size of a text, what is read, told and kept of it is bounded. ``benchmarks.hostile_plans`` has times."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.settings import Settings
from conductor_core.workflow.parser import parse_completion, parse_workflow_file, partial_steps
from conductor_core.workflow.source import (
    MAX_COMPLETION_CHARACTERS,
    MAX_STEPS_READ,
    MOST_NOTES,
    SourceText,
)
from conductor_core.workflow.validation import validate

SOME, MUCH = 30_000, 1_900_000
OPENINGS = (
    "",
    "model_id = [",
    "subtasks = ['",
    'model_id = ["""',
    '{"steps": [',
    '{"steps": [{"agent": 0, "access_list": [',
)
PATTERNS = (
    ",", "0,", "[0],", "'a',", "''", "'\n' ", "\\n", "\\frac", "{},", "[", "{", "all, ", "' , ", "it's ", "“", "`",
    "model_id=[0]\n", "\nmodel_id=['a\n", '"steps": [{"', "</think>",
    "model_id = [0]\nsubtasks=['a']\naccess_list=[[]]\n", "\r\n", "#", "9" * 400 + ",", '"\\u00e9', "😀",
)  # fmt: skip
LISTS = "model_id = [{}]\nsubtasks = [{}]\naccess_list = [{}]\n"


def repeated(opening: str, pattern: str, size: int) -> str:
    return (opening + pattern * (size // len(pattern) + 1))[:size]


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("size", [SOME, MAX_COMPLETION_CHARACTERS, MUCH])
def test_what_is_told_and_kept_of_any_text_is_little(opening: str, size: int) -> None:
    # Each pattern follows each opening; at the full sizes each follows one of them.
    of_opening = PATTERNS if size == SOME else PATTERNS[OPENINGS.index(opening) :: len(OPENINGS)]
    for pattern in of_opening:
        text = repeated(opening, pattern, size)
        for parsed in (parse_completion(text), parse_workflow_file(text)):
            assert len(parsed.repairs) <= MOST_NOTES + 1
            assert len(parsed.faults) <= MOST_NOTES
            assert len(parsed.steps or ()) <= MAX_STEPS_READ
            assert all(
                len(sentence) < 400 for sentence in (*parsed.repairs, *(fault.message for fault in parsed.faults))
            )
            checked = validate(parsed, ["a", "b"], max_steps=5)
            assert len(checked.faults) <= MOST_NOTES + 1
            assert (checked.workflow is None) == bool(checked.faults)
        assert len(partial_steps(text)) <= MAX_STEPS_READ


def test_a_file_of_commas_is_refused_after_few_of_them() -> None:
    text = repeated("model_id = [", ",", MUCH)
    tracemalloc.start()
    parsed = parse_workflow_file(text[:MAX_COMPLETION_CHARACTERS])
    whole = parse_workflow_file(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
    assert len(parsed.model_dump_json()) < 20_000
    assert [fault.code for fault in parsed.faults] == ["too_large"]
    assert parsed.faults[0].message == "model_id: there are more than 65,000 values, brackets, commas and escapes."
    assert parsed.repairs[0] == "Line 1, column 13: left out a comma with nothing before it (model_id)."
    assert parsed.repairs[-1].startswith("And ")
    (fault,) = whole.faults
    assert (fault.code, fault.line) == ("too_large", 1)
    assert fault.message == "The text has 1,900,000 characters; at most 500,000 are read."


def test_the_repairs_beyond_a_hundred_are_counted() -> None:
    parsed = parse_completion(LISTS.format(f"0{',' * 251}", "'a'", "[]"))
    assert len(parsed.repairs) == 101
    assert parsed.repairs[-1] == "And 150 more."
    exactly = parse_completion(LISTS.format(f"0{',' * 101}", "'a'", "[]"))
    assert len(exactly.repairs) == 100
    assert exactly.repairs[-1].endswith("left out a comma with nothing before it (model_id).")


def test_the_faults_beyond_a_hundred_are_counted() -> None:
    for count, faults in ((100, 100), (150, 101)):
        parsed = parse_completion(LISTS.format(*(", ".join([entry] * count) for entry in ("9", "'a'", "[]"))))
        checked = validate(parsed, ["a", "b"], max_steps=200)
        assert (len(checked.faults), checked.fault_count) == (faults, count)
    assert checked.faults[99].code == "unknown_agent"
    assert (checked.faults[-1].code, checked.faults[-1].message) == ("more_faults", "And 50 more.")


def test_the_parsers_faults_and_the_rules_faults_are_counted_together() -> None:
    parsed = parse_completion(LISTS.format(*(", ".join([entry] * 120) for entry in ("9", "7", "[]"))))
    assert (len(parsed.faults), parsed.more_faults) == (100, 20)
    checked = validate(parsed, ["a"], max_steps=200)
    assert checked.fault_count == 240
    assert checked.faults[-1].message == "And 140 more."


def test_steps_beyond_those_that_are_read_are_counted() -> None:
    lists = parse_completion(LISTS.format(*(", ".join([entry] * 1234) for entry in ("0", "'a'", "[]"))))
    step = {"instruction": "a", "agent": 0, "access_list": []}
    for parsed in (lists, parse_workflow_file(json.dumps({"steps": [step] * 1234}))):
        assert parsed.steps is not None
        assert (len(parsed.steps), parsed.more_steps, parsed.faults) == (200, 1034, ())
        for max_steps, allowed in ((5, 5), (5000, 200)):
            (fault,) = validate(parsed, ["a"], max_steps=max_steps).faults
            assert fault.message == f"The workflow has 1234 steps; at most {allowed} are allowed."
    assert len(partial_steps(LISTS.format(*(", ".join([entry] * 50) for entry in ("0", "'a'", "[]"))), most=32)) == 32


def test_an_access_list_longer_than_any_plan_is_a_fault_not_a_work_of_hours() -> None:
    parsed = parse_completion(LISTS.format("0", "'a'", f"[{'step 1, ' * 5000}]"))
    assert [(fault.code, fault.step) for fault in parsed.faults] == [("bad_access", 0)]


@pytest.mark.parametrize(
    "result", ['a\n"b" é ' * 6000, "\n" * 60_000, "\\" * 60_000, "😀" * 30_000, "\u2028'\r" * 60_000]
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_file_may_carry_long_results(result: str, ascii_only: bool) -> None:
    step = {"step": 0, "instruction": result[:20_000], "assigned_agent": "a", "access_list": [], "result": result}
    text = json.dumps({"task": "t", "steps": [step] * 3}, ensure_ascii=ascii_only)
    parsed = parse_workflow_file(text)
    assert (parsed.faults, parsed.repairs) == ((), ())
    assert parsed.steps is not None
    assert [step.instruction for step in parsed.steps] == [result[:20_000]] * 3


def test_too_much_json_is_told_at_its_place() -> None:
    parsed = parse_workflow_file('{"steps": [], "task":\n' + json.dumps([[0] * 1000] * 100))
    (fault,) = parsed.faults
    assert (fault.code, fault.line) == ("too_large", 2)
    assert fault.message == "Too much: there are more than 65,000 values, brackets, commas and escapes."


@given(st.lists(st.sampled_from(["a", "\n", "\r", "\r\n", "é", "x" * 1500, "\n" * 700]), max_size=60).map("".join))
def test_places_are_those_of_an_editor(text: str) -> None:
    source = SourceText(text)
    line, column = 1, 1
    for offset in range(len(text) + 1):
        if offset % 97 == 0 or len(text) < 200 or offset % 4096 < 3 or offset % 4096 > 4093:
            at = source.position(offset)
            assert (at.line, at.column) == (line, column)
        if offset < len(text) and (
            text[offset] == "\n" or (text[offset] == "\r" and text[offset + 1 : offset + 2] != "\n")
        ):
            line, column = line + 1, 1
        else:
            column += 1


def test_the_setting_reaches_no_further_than_the_parser() -> None:
    field = Settings.model_fields["plan_max_bytes"]
    assert [bound.le for bound in field.metadata if hasattr(bound, "le")] == [MAX_COMPLETION_CHARACTERS]
