"""What the editor's fields do with a value that the browser sends late, after their card was closed."""

from typing import Any

import pytest
import streamlit as st

from pages.components.run import step_fields


class NoDraft:
    """Fails where anything is taken into the draft."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the draft was touched: {name}")


DRAWN = step_fields._Access("kind", step_fields.CHOSEN, "chosen", frozenset({0}))


def test_a_field_whose_value_is_gone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", {})
    step_fields._apply_access(NoDraft(), 1, DRAWN)  # type: ignore[arg-type]
    step_fields._apply_value(NoDraft(), 1, "instruction", "text", "as drawn")  # type: ignore[arg-type]


@pytest.mark.parametrize("sent", [{"kind": step_fields.CHOSEN}, {"chosen": [0]}])
def test_a_field_that_says_what_it_showed_takes_no_other_change_back(
    monkeypatch: pytest.MonkeyPatch, sent: dict[str, object]
) -> None:
    """The browser may send a field that nobody touched, after Undo or the graph has changed the plan."""
    monkeypatch.setattr(st, "session_state", {"text": "as drawn", **sent})
    step_fields._apply_access(NoDraft(), 1, DRAWN)  # type: ignore[arg-type]
    step_fields._apply_value(NoDraft(), 1, "instruction", "text", "as drawn")  # type: ignore[arg-type]
