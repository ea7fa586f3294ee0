"""What models really write: each kind has its own test, most with the repair that is noted."""

import pytest

from conductor_core.workflow.model import AccessList
from conductor_core.workflow.parser import parse_completion, partial_steps
from conductor_core.workflow.source import Parsed, PartialStep

PLAIN = 'model_id = [0, 1]\nsubtasks = ["Plan it.", "Do it."]\naccess_list = [[], [0]]\n'


def content(parsed: Parsed) -> list[tuple[int | str | None, str | None, AccessList | None]]:
    assert parsed.steps is not None
    return [(step.agent, step.instruction, step.access_list) for step in parsed.steps]


def read(text: str) -> list[tuple[int | str | None, str | None, AccessList | None]]:
    """What ``text`` says; it must be without faults."""
    parsed = parse_completion(text)
    assert parsed.faults == ()
    return content(parsed)


def lists(models: str = "[0]", subtasks: str = '["Do it."]', access: str = "[[]]") -> str:
    return f"model_id = {models}\nsubtasks = {subtasks}\naccess_list = {access}\n"


TWO = [(0, "Plan it.", ()), (1, "Do it.", (0,))]


def test_the_papers_three_lists() -> None:
    parsed = parse_completion(PLAIN)
    assert content(parsed) == TWO
    assert (parsed.faults, parsed.repairs, parsed.task) == ((), (), None)


def test_each_part_of_a_step_knows_its_place() -> None:
    parsed = parse_completion("Some words first.\n" + PLAIN)
    assert parsed.steps is not None
    step = parsed.steps[1]
    places = [step.agent_at, step.instruction_at, step.access_list_at, parsed.at]
    assert [(at.line, at.column) for at in places if at] == [(2, 16), (3, 25), (4, 20), (2, 1)]


@pytest.mark.parametrize(
    "text",
    [
        f"I would use two models here, because it's hard.\n\n{PLAIN}\nThat should do; don't worry.",
        f"<think>\nThe list [0, 1] might do. Let's see: it's 'hard.\n</think>\n{PLAIN}",
        f"<think>\nIt isn't closed.\n{PLAIN}",
        f"Reasoning</think>{PLAIN}",
        f"```python\n{PLAIN}```\n",
        f"```\n{PLAIN}```",
        f"~~~\n{PLAIN}~~~",
        f"{PLAIN}<|im_end|>",
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace("\n", "; "),
        PLAIN.replace("\n", " "),
        PLAIN.replace("\n", "\n\n\n"),
        PLAIN.replace(" = ", "="),
        PLAIN.replace(" = ", ": "),
        PLAIN.replace(" = ", ":\n"),
        PLAIN.replace(" = ", " =\n    "),
        PLAIN.replace("model_id", "MODEL_ID").replace("subtasks", "Subtasks"),
        PLAIN.replace("model_id", "**model_id**").replace("subtasks", "`subtasks`"),
        PLAIN.replace("model_id =", "**model_id:**").replace("subtasks", "- subtasks"),
        PLAIN.replace("[0, 1]", "[0, 1,]").replace('it."]', 'it.",\n]').replace("[0]]", "[0,],]"),
        PLAIN.replace("[0, 1]", "(0, 1)").replace("[[], [0]]", "((), (0,))"),
        PLAIN.replace("\n", '  # it\'s a [comment], "really"\n'),
        PLAIN.replace("[0, 1]", "[  # the first\n  0,  # plans, isn't it\n  1 # does\n]"),
        PLAIN.replace("model_id =", "model_id: list[int] =").replace("subtasks =", "subtasks: list[str] ="),
        '{"model_id": [0, 1], "subtasks": ["Plan it.", "Do it."], "access_list": [[], [0]]}',
        '```json\n{\n  "model_id": [0, 1],\n  "subtasks": ["Plan it.", "Do it."],\n  "access_list": [[], [0]]\n}\n```',
        "{'model_id': [0, 1], 'subtasks': ['Plan it.', 'Do it.'], 'access_list': [[], [0]]}",
        "- `model_id` = `[0, 1]`\n- `subtasks` = `['Plan it.', 'Do it.']`\n- `access_list` = `[[], [0]]`",
        "subtasks = ['Plan it.', 'Do it.']\naccess_list = [[], [0]]\nmodel_id = [0, 1]",
        "access_list = [[], [0]]\nmodel_id = [0, 1]\nsubtasks = ['''Plan it.''', \"\"\"Do it.\"\"\"]",
        "plan = {'access_list': [[], [0]], 'subtasks': ['Plan it.', r'Do it.'], 'model_id': [0, 1]}",
    ],
)
def test_what_stands_around_the_lists_does_not_matter(text: str) -> None:
    parsed = parse_completion(text)
    assert (content(parsed), parsed.faults, parsed.repairs) == (TWO, (), ())


def test_explanations_between_the_lists() -> None:
    text = (
        "First the models, where access_list: [] would mean nothing is seen.\n"
        "model_id = [0, 1]\n\nNow what they're told:\nsubtasks = ['Plan it.', 'Do it.']\n\n"
        "And who sees what:\naccess_list = [[], [0]]\n\nSo model_id: [0] never sees the other."
    )
    assert read(text) == TWO


# -- strings --


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (r"'It\'s'", "It's"),
        (r'"say \"hi\""', 'say "hi"'),
        (r'"a\nb\tc\\d"', "a\nb\tc\\d"),
        (r'"\u00e9\x41\U0001F600\ud83d\ude00\101"', "éA😀😀A"),
        ('"""He said "no", didn\'t he"""', 'He said "no", didn\'t he'),
        ("'''two\nlines'''", "two\nlines"),
        ("'''two\r\nlines'''", "two\nlines"),
        ("'[0], access_list = [[1]] # no comment'", "[0], access_list = [[1]] # no comment"),
        ("'</think> model_id = [5]'", "</think> model_id = [5]"),
        (r"r'\d+\n'", r"\d+\n"),
        ("'long \\\ntext'", "long text"),
        ("'Answer {question}'", "Answer {question}"),
        ("'日本語 — naïve'", "日本語 — naïve"),
    ],
)
def test_valid_strings_mean_what_python_says(literal: str, text: str) -> None:
    parsed = parse_completion(lists(subtasks=f"[{literal}]"))
    assert (content(parsed), parsed.repairs) == ([(0, text, ())], ())


@pytest.mark.parametrize(
    ("literal", "text", "repair"),
    [
        ("'Don't do X'", "Don't do X", "kept an unescaped ' inside a string"),
        ("'Don't do X, it's bad'", "Don't do X, it's bad", "kept an unescaped '"),
        ("'the cats', dogs' and owners' food'", "the cats', dogs' and owners' food", "kept an unescaped '"),
        ("'Read d['key'] in the code'", "Read d['key'] in the code", "kept an unescaped '"),
        ('"Explain "why" it works"', 'Explain "why" it works', 'kept an unescaped "'),
        ("'line one\nline two'", "line one\nline two", "kept a line break"),
        ('"line one\r\nline two"', "line one\nline two", "kept a line break"),
        ("“Do it.”", "Do it.", "read typographic quotes as quotes"),
        ("‘Don’t do it.’", "Don’t do it.", "read typographic quotes as quotes"),
        ("„Mach es.“", "Mach es.", "read typographic quotes as quotes"),
        ("`Do it.`", "Do it.", "read backticks as quotes"),
        ("'Do ' 'it.'", "Do it.", "joined two string literals"),
        ("('Do '\n 'it.')", "Do it.", "joined two string literals"),
        ("'Do ' + 'it.'", "Do it.", "joined two string literals"),
        ("f'Do {question}'", "Do {question}", "as a plain string"),
        (r"'Compute \frac{1}{2} \times \beta'", r"Compute \frac{1}{2} \times \beta", r"kept \frac as written"),
        ("['Do it.']", "Do it.", "out of its brackets"),
    ],
)
def test_broken_strings_are_read_and_the_repair_is_noted(literal: str, text: str, repair: str) -> None:
    parsed = parse_completion(lists("[0, 1]", f"[{literal}, 'Next, isn\\'t it']", "[[], []]"))
    assert parsed.faults == ()
    assert content(parsed) == [(0, text, ()), (1, "Next, isn't it", ())]
    assert any(repair in sentence and sentence.startswith(("Line 2, ", "Line 3, ")) for sentence in parsed.repairs)


def test_a_line_end_that_is_no_latex_stays_a_line_end() -> None:
    assert read(lists(subtasks=r'["First.\nNext.\tThen.\neq"]'))[0][1] == "First.\nNext.\tThen.\\neq"


# -- agents --


@pytest.mark.parametrize(
    ("entry", "agent", "repair"),
    [
        ("'0'", 0, "read '0' as the agent number 0"),
        ('"Model 2"', 2, "as the agent number 2"),
        ("model_2", 2, "as the agent number 2"),
        ("[1]", 1, "out of its brackets"),
        ("1.0", 1, "read 1.0 as 1"),
        ("gpt-5", "gpt-5", "without its quotes"),
        ("'gpt-5'", "gpt-5", None),
        ("-1", -1, None),
        ("99999999999999999999999", 10**9, None),
    ],
)
def test_agents(entry: str, agent: int | str, repair: str | None) -> None:
    parsed = parse_completion(lists(f"[{entry}]"))
    assert (content(parsed)[0][0], parsed.faults) == (agent, ())
    assert [repair in sentence for sentence in parsed.repairs] == ([True] if repair else []) if repair else True
    assert bool(parsed.repairs) == bool(repair)


# -- access lists --


@pytest.mark.parametrize(
    ("entry", "access", "repair"),
    [
        ('"all"', "all", None),
        ("[0, 1]", (0, 1), None),
        ("[]", (), None),
        ("[1, 0, 1]", (1, 0, 1), None),
        ("[-1, 7]", (-1, 7), None),
        ("all", "all", 'read all as "all" (step 2)'),
        ("ALL", "all", 'read ALL as "all"'),
        ("'All'", "all", 'read All as "all"'),
        ("['all']", "all", 'read a list that holds "all"'),
        ("[all, 0]", "all", 'read a list that holds "all"'),
        ("None", (), "read None as an empty access list"),
        ("null", (), "read null as an empty access list"),
        ('"none"', (), "as an empty access list"),
        ('""', (), "read an empty string as an empty access list"),
        ('"[]"', (), "as an empty access list"),
        ("[None]", (), "as nothing"),
        ("0", (0,), "read 0 as the list [0]"),
        ("'1'", (1,), "read '1' as the list [1]"),
        ("'step 1'", (1,), "read 'step 1' as the list [1]"),
        ("'0, 1'", (0, 1), "as the list [0, 1]"),
        ("'[0, 1]'", (0, 1), "as the list [0, 1]"),
        ("['0', 1]", (0, 1), "read '0' as 0"),
        ('["step 0", "Step 1"]', (0, 1), "read 'step 0' as 0"),
        ("[step 1]", (1,), "read 'step 1' as 1"),
        ("[[0], [1]]", (0, 1), "took out brackets"),
        ("[1.0]", (1,), "as 1 in the access list"),
    ],
)
def test_access_lists(entry: str, access: AccessList, repair: str | None) -> None:
    parsed = parse_completion(lists("[0, 1, 0]", "['a', 'b', 'c']", f"[[], [], {entry}]"))
    assert parsed.faults == ()
    assert content(parsed)[2] == (0, "c", access)
    assert any(repair in sentence for sentence in parsed.repairs) if repair else parsed.repairs == ()


# -- lists --


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        (PLAIN.replace('", "', '"\n\n"'), "joined"),
        (PLAIN.replace('", "', '" "'), "joined"),
    ],
)
def test_a_missing_comma_where_it_changes_the_meaning_is_a_fault(text: str, repair: str) -> None:
    parsed = parse_completion(text)
    assert {fault.code for fault in parsed.faults} == {"unequal_lengths"}
    assert repair in " ".join(parsed.repairs)


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        (PLAIN.replace("[0, 1]", "[0 1]"), "Line 1, column 15: put in a missing comma (model_id)."),
        (PLAIN.replace("[[], [0]]", "[[] [0]]"), "Line 3, column 19: put in a missing comma (access_list)."),
        (PLAIN.replace("[0, 1]", "[0,, 1]"), "Line 1, column 15: left out a comma with nothing before it (model_id)."),
        (PLAIN.replace("[0, 1]", "[0, 1)"), "Line 1, column 17: read ) as the ] that closes the list (model_id)."),
        (PLAIN.replace("[0, 1]", "[0, 1"), "Line 2, column 1: put in the missing bracket"),
        (PLAIN.replace("model_id", "model_ids"), "Line 1, column 1: read model_ids as model_id."),
        (PLAIN.replace("subtasks", "Sub-tasks"), "Line 2, column 1: read Sub-tasks as subtasks."),
        (PLAIN.replace("access_list", "Access Lists"), "Line 3, column 1: read Access Lists as access_list."),
    ],
)
def test_broken_lists_are_read_and_the_repair_is_noted(text: str, repair: str) -> None:
    parsed = parse_completion(text)
    assert (content(parsed), parsed.faults) == (TWO, ())
    assert len(parsed.repairs) == 1
    assert parsed.repairs[0].startswith(repair)


def test_a_list_that_the_code_block_ends_before_its_bracket() -> None:
    parsed = parse_completion(f"```python\n{PLAIN.rstrip()[:-1]}\n```\nDone.")
    assert (content(parsed), parsed.faults) == (TWO, ())
    assert "put in the missing bracket" in parsed.repairs[0]


def test_a_list_in_a_comment_after_a_list_is_no_list() -> None:
    text = PLAIN.replace("[0, 1]", "[0, 1]  # not model_id = [2, 3]").replace(
        "[[], [0]]", "[[], [0]],  # access_list = []"
    )
    assert read(f"# The plan\n{text}") == TWO


def test_steps_as_objects_inside_a_completion() -> None:
    text = (
        'Here:\n```json\n{"steps": [{"id": 0, "instruction": "Plan it.", "agent": "0", "access_list": []},'
        ' {"instruction": "Do it.", "agent": 1, "access_list": [0]}]}\n```'
    )
    assert read(text) == TWO
    assert any("left out the unknown key id of step 0" in sentence for sentence in parse_completion(text).repairs)


# -- attempts --


def test_the_last_whole_attempt_counts() -> None:
    assert read(f"{lists()}\nWait, that is too simple.\n\n{PLAIN}") == TWO
    assert read(f"{lists()}{PLAIN}") == TWO


def test_a_later_whole_attempt_counts_even_if_it_is_faulty() -> None:
    parsed = parse_completion(f"{PLAIN}\nBetter:\n{lists('[0, 1, 2]')}")
    assert [fault.code for fault in parsed.faults] == ["unequal_lengths"]


def test_an_unfinished_later_attempt_is_left_out_and_that_is_noted() -> None:
    parsed = parse_completion(f"{PLAIN}\nOr better:\nmodel_id = [2]\nsubtasks = ['Something")
    assert (content(parsed), parsed.faults) == (TWO, ())
    assert parsed.repairs == ("Line 6, column 1: left out a later attempt that is not whole.",)


def test_a_list_begun_again_replaces_the_first() -> None:
    assert read(f"model_id = [3]\nsubtasks = ['Something']\n{PLAIN}") == TWO


def test_a_draft_in_the_reasoning_counts_only_if_nothing_follows() -> None:
    draft = f"<think>{lists()}</think>\n"
    assert read(f"{draft}{PLAIN}") == TWO
    alone = parse_completion(draft)
    assert (content(alone), alone.faults) == ([(0, "Do it.", ())], ())
    assert alone.repairs == ("Line 1, column 8: took the workflow from the reasoning: none follows it.",)
    cut = parse_completion(f"{draft}model_id = [0, 1]\nsubtasks = ['Pl")
    assert [fault.code for fault in cut.faults] == ["cut_off"]


def test_an_unfinished_draft_in_the_reasoning_does_not_swallow_the_answer() -> None:
    assert read(f"<think>model_id = [0, 1], subtasks = ['It's\n\n no.</think>\nSo: {PLAIN}") == TWO


def test_a_template_of_dots_is_no_attempt() -> None:
    template = "I must write model_id = [...], subtasks = [...], access_list = [...].\n"
    assert read(template + PLAIN) == TWO
    assert read(PLAIN + template) == TWO


# -- the end of a recursion --


@pytest.mark.parametrize("empty", ["[]", "()", "[ ]", "[\n]", "[  # nothing\n]"])
def test_three_empty_lists_are_a_stop(empty: str) -> None:
    parsed = parse_completion(lists(empty, empty, empty))
    assert (parsed.steps, parsed.faults, parsed.is_stop) == ((), (), True)
    assert not parse_completion(PLAIN).is_stop


def test_an_empty_json_plan_is_a_stop_too() -> None:
    assert parse_completion('{"steps": []}').is_stop


# Steps appear one by one while the plan is still being written.


PLAN = (
    "<think>I might say model_id = [3], subtasks = ['draft'].</think>\n"
    "model_id = [0, 2]\nsubtasks = ['Don't guess, plan.', \"Do it.\"]\naccess_list = [[], [0]]\n"
)


def until(end: str) -> tuple[PartialStep, ...]:
    return partial_steps(PLAN[: PLAN.index(end, PLAN.index("</think>")) + len(end)])


def test_nothing_yet() -> None:
    assert partial_steps("") == partial_steps("Let me think about this") == ()


def test_steps_grow_field_by_field() -> None:
    assert until("model_id = [0") == (PartialStep(index=0, agent=0, writing="agent"),)
    assert until("subtasks = ['Don't gu") == (
        PartialStep(index=0, agent=0, instruction="Don't gu", writing="instruction"),
        PartialStep(index=1, agent=2),
    )
    assert until('"Do') == (
        PartialStep(index=0, agent=0, instruction="Don't guess, plan."),
        PartialStep(index=1, agent=2, instruction="Do", writing="instruction"),
    )
    assert until("access_list = [[], [0")[1] == PartialStep(
        index=1, agent=2, instruction="Do it.", access_list=(0,), writing="access_list"
    )


def test_a_finished_plan_is_what_the_parser_reads() -> None:
    steps = parse_completion(PLAN).steps
    assert steps is not None
    assert partial_steps(PLAN) == tuple(
        PartialStep(index=index, agent=step.agent, instruction=step.instruction, access_list=step.access_list)
        for index, step in enumerate(steps)
    )


def test_a_new_attempt_takes_over_as_soon_as_it_has_an_agent() -> None:
    assert len(partial_steps(PLAN + "Better: model_id = [")) == 2
    assert partial_steps(PLAN + "Better: model_id = [4") == (PartialStep(index=0, agent=4, writing="agent"),)


def test_mentioning_a_list_afterwards_changes_nothing() -> None:
    assert partial_steps(PLAN + "Here access_list: [0] means") == partial_steps(PLAN)


def test_half_an_escape_is_not_shown() -> None:
    for cut in ("\\", "\\u", "\\u00e"):
        (step,) = partial_steps(f'model_id = [0]\nsubtasks = ["caf{cut}')
        assert step.instruction == "caf"


def test_steps_as_objects() -> None:
    text = '{"steps": [{"instruction": "Plan.", "agent": 0, "access_list": []}, {"instruction": "Do'
    assert partial_steps(text) == (
        PartialStep(index=0, instruction="Plan.", agent=0, access_list=()),
        PartialStep(index=1, instruction="Do", writing="workflow"),
    )
