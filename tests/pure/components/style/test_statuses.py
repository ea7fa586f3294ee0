"""Statuses are called the same by Python's pages and by the live component."""

import re
from pathlib import Path
from typing import get_args

from conductor_core.chat.tools import ToolOutcome
from conductor_core.formats import EFFECTS, TOOL_OUTCOMES
from conductor_core.run.trace import RunStatus, StepStatus
from pages.components.style import formats

STATUS_JS = Path(formats.__file__).parents[1] / "live_workflow" / "assets" / "status.js"
ENTRY = re.compile(r'^  (\w+): \{ glyph: "(.+?)", word: "(.+?)" \},$', re.MULTILINE)


def table(name: str) -> dict[str, tuple[str, str]]:
    [body] = re.findall(rf"export const {name} = \{{\n(.*?)\n\}}", STATUS_JS.read_text("utf-8"), re.DOTALL)
    return {status: (glyph, word) for status, glyph, word in ENTRY.findall(body)}


def test_a_run_is_called_the_same_in_history_and_on_its_page() -> None:
    told = {status: (glyph, word.lower()) for status, (glyph, word) in table("RUN_STATUS").items()}
    assert told == formats.RUN_STATUSES
    assert set(told) == {*get_args(RunStatus), "damaged", "too_new", "key_away", "erased"}


def test_a_step_is_called_the_same_in_its_card_and_in_the_timeline() -> None:
    told = table("STEP_STATUS")
    assert {status: told[status] for status in formats.STEP_STATUSES} == formats.STEP_STATUSES
    assert {*get_args(StepStatus), "tool_results", "calls_tools"} == set(formats.STEP_STATUSES)


def test_what_became_of_a_call_of_a_tool_is_called_the_same_on_the_page_and_in_the_terminal() -> None:
    assert table("TOOL_OUTCOME") == TOOL_OUTCOMES
    assert set(TOOL_OUTCOMES) == set(get_args(ToolOutcome))
    assert table("EFFECTS") == {str(effects).lower(): each for effects, each in EFFECTS.items()}
