"""What the editor's fields do with a value that the browser sends late, after their card was closed."""

from typing import Any

import pytest
import streamlit as st

from pages.components.run import step_fields


class NoDraft:
    """Fails where anything is taken into the draft."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the draft was touched: {name}")


def test_a_field_whose_value_is_gone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", {})
    step_fields._take_access(NoDraft(), 1, "kind", "chosen")  # type: ignore[arg-type]
    step_fields._take_value(NoDraft(), 1, "instruction", "text")  # type: ignore[arg-type]
