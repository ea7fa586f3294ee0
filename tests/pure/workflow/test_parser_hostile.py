"""Whatever the text: nothing is raised, the work is linear, and what the printer writes is read back unchanged."""

import ast
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conductor_core.workflow.model import AccessList, Step, Workflow
from conductor_core.workflow.parser import parse_completion, parse_workflow_file, partial_steps, scan, to_json, to_lists
from conductor_core.workflow.source import NotLiteral, Reader, SourceText
from conductor_core.workflow.validation import validate

AGENTS = ("gpt-5", "qwen3", "7", "a'b\"c")

FRAGMENTS = (
    "model_id", "subtasks", "access_list", "steps", '"steps": [{', " = [", ": (", "[", "]", "(", ")", "{", "}", "'",
    '"', "'''", '"""', "“", "”", "’", "`", "```", "```python\n", "\\", "\\n", "\\u00", "\\ud800", "\\frac", "\\neq",
    ",", ", ", "\n", "\r\n", "\r", "#", "//", "<think>", "</think>", "all", "None", "0", "-1", "step 1", "it's",
    "{question}", "</script>", " ", "\t", "\x00", "\x1b[31m", "\u2028", "\ufeff", "😀", "=", ":", "+",
    "r'", 'f"', "...", "…",
)  # fmt: skip

hostile = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5)), max_size=40).map("".join)
storable = hostile.map(lambda text: text.encode("utf-8", "replace").decode("utf-8"))


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    steps: list[Step] = []
    for index in range(draw(st.integers(0, 5))):
        access: AccessList = "all"
        if draw(st.booleans()):
            access = tuple(draw(st.lists(st.integers(0, index - 1), max_size=4))) if index else ()
        instruction = draw(storable.filter(lambda text: bool(text.strip())))
        steps.append(Step(instruction=instruction, agent=draw(st.sampled_from(AGENTS)), access_list=access))
    return Workflow(steps=tuple(steps))


@settings(max_examples=100)
@given(workflows(), storable.map(lambda text: text.replace("[", "").replace("(", "").replace("{", "")))
def test_printed_lists_are_read_back_unchanged(workflow: Workflow, prose: str) -> None:
    text = to_lists(workflow, AGENTS)
    for completion in (text, f"<think>{prose.replace('<', '')}</think>\n```python\n{text}```\nThat is it."):
        parsed = parse_completion(completion)
        checked = validate(parsed, AGENTS, max_steps=5, allow_stop=True)
        assert (checked.workflow, checked.faults, parsed.repairs) == (workflow, (), ())


@settings(max_examples=100)
@given(workflows(), storable)
def test_a_printed_file_is_read_back_unchanged(workflow: Workflow, task: str) -> None:
    parsed = parse_workflow_file(to_json(workflow, task))
    checked = validate(parsed, AGENTS, max_steps=5, allow_stop=True)
    assert (checked.workflow, checked.faults, parsed.repairs, parsed.task) == (workflow, (), (), task)


@given(workflows())
def test_printed_lists_are_python_and_a_printed_file_is_json(workflow: Workflow) -> None:
    namespace = {
        line.partition(" = ")[0]: ast.literal_eval(line.partition(" = ")[2])
        for line in to_lists(workflow, AGENTS).split("\n")
        if line
    }
    assert namespace["subtasks"] == [step.instruction for step in workflow.steps]
    assert [AGENTS[ordinal] for ordinal in namespace["model_id"]] == [step.agent for step in workflow.steps]
    assert [step["agent"] for step in json.loads(to_json(workflow))["steps"]] == [step.agent for step in workflow.steps]


@settings(max_examples=100)
@given(st.recursive(storable, lambda inner: st.lists(inner, max_size=4), max_leaves=8))
def test_strict_reading_agrees_with_python(value: object) -> None:
    def plain(node: object) -> object:
        items = getattr(node, "items", ())
        return [plain(item) for item in items] if getattr(node, "kind", "") == "list" else getattr(node, "text", "")

    written = repr(value)
    if "\\" in written:
        return  # LaTeX is read otherwise on purpose; the escapes have their own test.
    assert plain(Reader(SourceText(written)).strict(0).node) == value


@settings(max_examples=100)
@given(st.recursive(storable, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(storable, inner, max_size=3)))
def test_strict_json_agrees_with_json(value: object) -> None:
    def plain(node: object) -> object:
        items = getattr(node, "items", ())
        match getattr(node, "kind", ""):
            case "list":
                return [plain(item) for item in items]
            case "object":
                return {plain(key): plain(item) for key, item in zip(items[::2], items[1::2], strict=True)}
        return getattr(node, "text", "")

    for ascii_only in (True, False):
        written = json.dumps(value, ensure_ascii=ascii_only)
        assert plain(Reader(SourceText(written), json=True).strict(0).node) == value


@settings(max_examples=100)
@given(hostile)
@example("model_id=['''" * 20 + 'subtasks=["""' * 20)
@example("access_list = " + "[" * 100)
def test_no_text_raises_and_every_fault_has_a_code_and_a_place(text: str) -> None:
    for parsed in (parse_completion(text), parse_workflow_file(text)):
        assert (parsed.steps is None) <= bool(parsed.faults)
        for fault in parsed.faults:
            assert fault.line is not None
            assert 1 <= fault.line <= text.count("\n") + text.count("\r") + 1
            assert fault.column is not None
            assert fault.message.endswith((".", "?"))
        assert all(sentence.endswith(".") for sentence in parsed.repairs)
        checked = validate(parsed, AGENTS, max_steps=5)
        assert (checked.workflow is None) == bool(checked.faults)
    assert [step.index for step in partial_steps(text)] == list(range(len(partial_steps(text))))


@given(hostile, st.integers(0, 400))
def test_every_beginning_of_a_completion_can_be_shown(text: str, length: int) -> None:
    plan = f"model_id = [0, 1]\nsubtasks = ['It's', {text!r}]\naccess_list = [[], ['all']]"
    partial_steps(plan[:length])
    parse_completion(plan[:length])


PATTERNS = (
    "model_id=['''", 'model_id=["', "model_id = [", "model_id=[0,", "'", "\"'", "[", "[]", "]", "''' \"\"\" ",
    "model_id=['#", "model_id = ['' ", "subtasks=['a' ", "' , ", "'] ", "access_list :  ", '"steps": [{"', "</think>",
    "\\", "subtasks=(((", "model_id=['''\nsubtasks=[\"\"\"\n", "#'", "\nmodel_id=['a\n", "all, ", "model_id",
    "“", "'\n",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("opening", ["", "subtasks = ['", 'model_id = ["""', 'x {"steps": [{"instruction": "'])
def test_work_is_linear_in_the_length(opening: str, pattern: str) -> None:
    text = opening + pattern * (6_000 // len(pattern))
    assert scan(SourceText(text)).work <= 20 * len(text) + 100


@given(hostile)
def test_work_is_linear_for_any_text(text: str) -> None:
    assert scan(SourceText(text * 20)).work <= 20 * len(text) * 20 + 100


@pytest.mark.parametrize("text", ["[0", "'a", "x", "", "[,]", "[0 1]", "(0]", "'a\nb'", "__import__('os')", "[1 + 1]"])
def test_strict_reading_refuses_what_is_no_literal(text: str) -> None:
    with pytest.raises(NotLiteral) as refused:
        Reader(SourceText(text)).strict(0)
    assert 0 <= refused.value.offset <= len(text)
