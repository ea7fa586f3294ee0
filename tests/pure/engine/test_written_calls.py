"""Calls of tools that a small model wrote as text are calls, and nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import ToolCall
from conductor_core.engine.step import written_calls

ONE = '{"name": "time", "arguments": {"zone": "Tokyo"}}'
TWO = '{"name": "run", "parameters": {"code": "print(1)"}}'
TIME, RUN = ToolCall(name="time", arguments='{"zone": "Tokyo"}'), ToolCall(name="run", arguments='{"code": "print(1)"}')


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (ONE, (TIME,)),
        (f"```json\n{ONE}\n```", (TIME,)),
        (f"[{ONE}, {TWO}]", (TIME, RUN)),
        (f"{ONE}\n{TWO}\n", (TIME, RUN)),
        (f"{ONE} {ONE}\n{ONE}", (TIME,)),
        (f"<tool_call>\n{ONE}\n</tool_call>\n<tool_call>{TWO}</tool_call>", (TIME, RUN)),
        (f"Here it is: {ONE}", ()),
        (f"{ONE}\nIt is noon.", ()),
        (f'{ONE}\n{{"name": "', ()),
        ('{"name": "other", "arguments": {}}', ()),
        (f"{ONE}\n3", ()),
        ("", ()),
        ("[" * 100_000, ()),
    ],
)
def test_a_text_that_is_nothing_but_calls(text: str, calls: tuple[ToolCall, ...]) -> None:
    assert written_calls(text, {"time", "run"}) == calls


@given(
    st.lists(st.dictionaries(st.text(), st.integers()), min_size=1, unique_by=json.dumps),
    st.sampled_from([" ", "\n", ""]),
)
def test_calls_one_after_another_are_all_found(arguments: list[dict[str, int]], between: str) -> None:
    text = between.join(json.dumps({"name": "time", "arguments": each}) for each in arguments)
    assert [json.loads(call.arguments) for call in written_calls(text, {"time"})] == arguments
